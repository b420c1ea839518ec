//! Names, tokens and owners, as people and headers spell them.

#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use tenure_fence::{FencingToken, GroupName, LeaseName, Owner, Resource, ShardRef};

fuzz_target!(|text: &str| {
    read::<FencingToken>(text);
    read::<Resource>(text);
    read::<ShardRef>(text);
    read::<Owner>(text);
    read::<GroupName>(text);
    read::<LeaseName>(text);
});

/// What can be read is shown as text that reads the same.
fn read<T: FromStr + Display + Debug + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse::<T>().ok(), Some(value));
    }
}
