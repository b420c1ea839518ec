//! Reading the text forms of resources, owners and tokens.

use std::str::FromStr;

use crate::epoch::EpochOutOfRange;
use crate::name::NameError;

/// Text that is no resource, owner or fencing token. The message shows the form that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Neither `shard/<group>/<index>` nor `lease/<name>`.
    #[error("a resource is written shard/<group>/<index> or lease/<name>")]
    Resource,

    /// Not `<group>/<index>`.
    #[error(
        "a shard is written <group>/<index>, the index a number from 0 to {}",
        u32::MAX
    )]
    Shard,

    /// Not `<cluster>/<session>`.
    #[error("an owner is written <cluster>/<session>: 32 hexadecimal digits and a number")]
    Owner,

    /// Not `<resource>@<epoch>:<owner>`.
    #[error("a fencing token is written <resource>@<epoch>:<cluster>/<session>")]
    Token,

    /// The name inside is not allowed.
    #[error(transparent)]
    Name(#[from] NameError),

    /// The epoch inside is not allowed.
    #[error(transparent)]
    Epoch(#[from] EpochOutOfRange),
}

/// Reads a decimal number that is written in the only way `Display` writes it.
///
/// The standard parser also takes `+7` and `007`. A value must have one text, because adapters use
/// the text as a key.
pub(crate) fn number<N: FromStr>(text: &str) -> Option<N> {
    let canonical =
        text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    if !canonical {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_text() {
        assert_eq!(number::<u32>("0"), Some(0));
        assert_eq!(number::<u32>("4294967295"), Some(u32::MAX));
        for text in [
            "",
            "+7",
            "-7",
            "007",
            "00",
            " 7",
            "7 ",
            "0x7",
            "4294967296",
            "٧",
        ] {
            assert_eq!(number::<u32>(text), None, "{text:?}");
        }
    }
}
