//! Records of the log, as they are read from disk.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_coordinator::consensus::fuzzing;

fuzz_target!(|record: (u64, &[u8])| fuzzing::log_record(record.0, record.1));
