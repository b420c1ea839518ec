//! Names that stand in statements.

use std::fmt;
use std::str::FromStr;

/// The name of a schema, or what the names of tables begin with.
///
/// 1 to [`SqlName::LENGTH_MAX`] bytes of `a-z`, `0-9` and `_`, beginning with a letter: it stands in
/// statements, where nothing can be bound, so it holds nothing that would have to be escaped.
///
/// ```
/// use tenure_fence::SqlName;
///
/// let name: SqlName = "tenure_test".parse()?;
/// assert_eq!(name.as_str(), "tenure_test");
/// assert!("tenure; DROP TABLE orders".parse::<SqlName>().is_err());
/// # Ok::<(), tenure_fence::SqlNameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlName(String);

impl SqlName {
    /// The longest name, in bytes: with what is appended it fits the 63 bytes of PostgreSQL.
    pub const LENGTH_MAX: usize = 40;

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SqlName {
    /// `tenure`.
    fn default() -> Self {
        Self("tenure".to_owned())
    }
}

impl fmt::Display for SqlName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl FromStr for SqlName {
    type Err = SqlNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let begins = text.starts_with(|first: char| first.is_ascii_lowercase());
        let allowed = text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if !begins || !allowed || text.len() > Self::LENGTH_MAX {
            return Err(SqlNameError {
                name: text.to_owned(),
            });
        }
        Ok(Self(text.to_owned()))
    }
}

/// Text that is no [`SqlName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name in the database consists of 1 to {} of a-z, 0-9 and _ and begins with a letter, \
     unlike {name:?}",
    SqlName::LENGTH_MAX
)]
pub struct SqlNameError {
    /// The text.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_needs_no_escaping() {
        assert!("tenure".parse::<SqlName>().is_ok());
        assert!("t9_x".parse::<SqlName>().is_ok());
        assert!("a".repeat(SqlName::LENGTH_MAX).parse::<SqlName>().is_ok());
        let long = "a".repeat(SqlName::LENGTH_MAX + 1);
        for text in [
            "", "_a", "9a", "Tenure", "a.b", "a\"b", "a b", "ä", "a`", &long,
        ] {
            assert!(text.parse::<SqlName>().is_err(), "{text:?}");
        }
    }
}
