//! Commands, as they stand in the log.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_ownership::Command;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(command) = Command::decode(bytes) {
        let again = Command::decode(&command.encode()).expect("what was encoded is decoded");
        assert_eq!(again, command);
    }
});
