//! Records of the state, as they stand on disk and in a snapshot.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_ownership::State;

fuzz_target!(|records: Vec<(Vec<u8>, Vec<u8>)>| {
    // Refusing them is fine, failing is not.
    let _ = State::from_records(records.into_iter());
});
