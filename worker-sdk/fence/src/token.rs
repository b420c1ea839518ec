//! The proof of a tenure that is attached to every write.

use std::fmt;
use std::str::FromStr;

use crate::epoch::Epoch;
use crate::owner::Owner;
use crate::parse::{self, ParseError};
use crate::resource::Resource;

/// The proof of one tenure: attached to every write, checked by every store.
///
/// Written `<resource>@<epoch>:<owner>`, and read back from the same text, so that one found in a
/// log line can be pasted into a command as it stands.
///
/// A token is not a secret and proves nothing about who presents it: it keeps honest workers that
/// are late from doing harm, not dishonest ones.
///
/// ```
/// use tenure_fence::FencingToken;
///
/// let text = "shard/orders/7@42:00000000000000000000000000c0ffee/917";
/// let token: FencingToken = text.parse()?;
/// assert_eq!(token.epoch.get(), 42);
/// assert_eq!(token.to_string(), text);
/// # Ok::<(), tenure_fence::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FencingToken {
    /// What the token is for.
    pub resource: Resource,
    /// The tenure it belongs to.
    pub epoch: Epoch,
    /// The session that holds that tenure.
    pub owner: Owner,
}

impl fmt::Display for FencingToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}:{}", self.resource, self.epoch, self.owner)
    }
}

/// So that what takes a token also takes what holds one.
impl AsRef<FencingToken> for FencingToken {
    fn as_ref(&self) -> &FencingToken {
        self
    }
}

impl FromStr for FencingToken {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Neither mark can occur in a name, so the first of each is the separator.
        let (resource, tenure) = text.split_once('@').ok_or(ParseError::Token)?;
        let (epoch, owner) = tenure.split_once(':').ok_or(ParseError::Token)?;
        let epoch: u64 = parse::number(epoch).ok_or(ParseError::Token)?;
        Ok(Self {
            resource: resource.parse()?,
            epoch: epoch.try_into()?,
            owner: owner.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "0123456789abcdef0123456789abcdef/18446744073709551615";

    #[test]
    fn a_token_is_read_from_the_text_it_is_written_as() {
        for resource in ["shard/orders/7", "lease/nightly.compaction"] {
            let text = format!("{resource}@9223372036854775807:{OWNER}");
            assert_eq!(text.parse::<FencingToken>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn text_that_is_not_exactly_a_token_is_refused() {
        for text in [
            String::new(),
            "shard/orders/7".to_owned(),
            "shard/orders/7@42".to_owned(),
            format!("shard/orders/7@0:{OWNER}"),
            format!("shard/orders/7@042:{OWNER}"),
            format!("shard/orders/7@9223372036854775808:{OWNER}"),
            format!("shard/orders/7@42@43:{OWNER}"),
            format!("shard/orders/7@42:{OWNER} "),
            format!("orders/7@42:{OWNER}"),
        ] {
            assert!(text.parse::<FencingToken>().is_err(), "{text:?}");
        }
    }
}
