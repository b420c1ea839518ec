//! Snapshot files: of any bytes, and of bytes that were written and then changed.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tenure_coordinator::consensus::fuzzing;

#[derive(Arbitrary, Debug)]
enum File<'a> {
    Any(&'a [u8]),
    Changed {
        records: Vec<(Vec<u8>, Vec<u8>)>,
        position: usize,
        change: u8,
    },
}

fuzz_target!(|file: File| match file {
    File::Any(bytes) => fuzzing::snapshot(bytes),
    File::Changed {
        records,
        position,
        change,
    } => fuzzing::changed_snapshot(&records, position, change),
});
