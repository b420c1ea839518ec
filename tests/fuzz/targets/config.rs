//! Configuration files.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_coordinator::config::Config;

fuzz_target!(|text: &str| {
    if let Ok(config) = Config::parse(text) {
        let _ = config.validate();
    }
});
