//! Backups that a cluster is to be made of: of any bytes, and whole files of any records.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tenure_coordinator::consensus::fuzzing;

#[derive(Arbitrary, Debug)]
enum Backup<'a> {
    Any(&'a [u8]),
    Whole {
        records: Vec<(Vec<u8>, Vec<u8>)>,
        index: u64,
    },
}

fuzz_target!(|backup: Backup| match backup {
    Backup::Any(bytes) => fuzzing::restored_file(bytes),
    Backup::Whole { records, index } => fuzzing::restored(&records, index),
});
