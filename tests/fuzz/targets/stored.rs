//! What a store keeps: records, fences beside their data, manifests of objects.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tenure_fence::fuzzing;

#[derive(Arbitrary, Debug)]
enum Stored<'a> {
    Record { bytes: &'a [u8], mends: bool },
    Joined { fence: &'a [u8], last: &'a [u8] },
    Manifest { bytes: &'a [u8], mends: bool },
}

fuzz_target!(|stored: Stored| match stored {
    Stored::Record { bytes, mends } => fuzzing::record(bytes, mends),
    Stored::Joined { fence, last } => fuzzing::joined(fence, last),
    Stored::Manifest { bytes, mends } => fuzzing::manifest(bytes, mends),
});
