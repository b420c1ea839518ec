//! Who a fencing token belongs to.

use std::fmt;
use std::str::FromStr;

use crate::parse::{self, ParseError};

/// The session that owns a resource. Written `<32 hexadecimal digits>/<number>`.
///
/// Unique for ever: a session's number is the log index of its registration, and a coordinator that
/// was restored from a backup goes on under another cluster id.
///
/// ```
/// use tenure_fence::Owner;
///
/// let owner = Owner { cluster: 0xc0ffee, session: 917 };
/// assert_eq!(owner.to_string(), "00000000000000000000000000c0ffee/917");
/// assert_eq!(owner.to_string().parse(), Ok(owner));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The id of the coordinator cluster that registered the session.
    pub cluster: u128,
    /// The number of the session in that cluster.
    pub session: u64,
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}/{}", self.cluster, self.session)
    }
}

impl FromStr for Owner {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (cluster, session) = text.split_once('/').ok_or(ParseError::Owner)?;
        let cluster = hexadecimal(cluster).ok_or(ParseError::Owner)?;
        let session = parse::number(session).ok_or(ParseError::Owner)?;
        Ok(Self { cluster, session })
    }
}

/// Reads exactly 32 lower-case hexadecimal digits: the one text of a cluster id.
fn hexadecimal(text: &str) -> Option<u128> {
    let canonical = text.len() == 32
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !canonical {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_from_the_text_it_is_written_as() {
        for (cluster, session) in [(0, 0), (1, 7), (u128::MAX, u64::MAX)] {
            let owner = Owner { cluster, session };
            assert_eq!(owner.to_string().parse(), Ok(owner));
        }
    }

    #[test]
    fn text_that_is_not_exactly_an_owner_is_refused() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            zeros.clone(),
            format!("{zeros}/"),
            format!("{zeros}/-1"),
            format!("{zeros}/18446744073709551616"),
            format!("{zeros}0/1"),
            format!("{}/1", &zeros[1..]),
            format!("+{}/1", &zeros[1..]),
            format!("{}G/1", &zeros[1..]),
            format!("{}A/1", &zeros[1..]),
            format!("{zeros}/1/2"),
        ] {
            assert_eq!(text.parse::<Owner>(), Err(ParseError::Owner), "{text:?}");
        }
    }
}
