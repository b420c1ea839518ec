//! Names of groups and leases.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a group of shards.
///
/// 1 to [`GroupName::LENGTH_MAX`] bytes of `a-z`, `0-9`, `.`, `_` and `-`, beginning and ending with
/// a letter or a digit. Cloning copies a pointer, not the text.
///
/// ```
/// use tenure_fence::GroupName;
///
/// let group: GroupName = "word-count.v2".parse()?;
/// assert_eq!(group.as_str(), "word-count.v2");
/// assert!("Word Count".parse::<GroupName>().is_err());
/// # Ok::<(), tenure_fence::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<str>);

impl GroupName {
    /// The longest group name, in bytes.
    pub const LENGTH_MAX: usize = 64;

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl FromStr for GroupName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        validate(NameKind::Group, text)?;
        Ok(Self(text.into()))
    }
}

impl TryFrom<&str> for GroupName {
    type Error = NameError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl TryFrom<String> for GroupName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Lets a map keyed by names be searched with text.
impl Borrow<str> for GroupName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The name of a lease.
///
/// Like a [`GroupName`], but up to [`LeaseName::LENGTH_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseName(Arc<str>);

impl LeaseName {
    /// The longest lease name, in bytes.
    pub const LENGTH_MAX: usize = 128;

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl FromStr for LeaseName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        validate(NameKind::Lease, text)?;
        Ok(Self(text.into()))
    }
}

impl TryFrom<&str> for LeaseName {
    type Error = NameError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl TryFrom<String> for LeaseName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Lets a map keyed by names be searched with text.
impl Borrow<str> for LeaseName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// What a name was to be the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A group of shards.
    Group,
    /// A lease.
    Lease,
}

impl NameKind {
    /// Returns the longest name of this kind, in bytes.
    #[must_use]
    pub const fn length_max(self) -> usize {
        match self {
            Self::Group => GroupName::LENGTH_MAX,
            Self::Lease => LeaseName::LENGTH_MAX,
        }
    }
}

impl fmt::Display for NameKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Group => "group",
            Self::Lease => "lease",
        })
    }
}

/// Text that is no name. The message says what is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty or too long.
    #[error("a {kind} name has 1 to {} bytes, this one has {length_bytes}", kind.length_max())]
    Length {
        /// What the name was to be the name of.
        kind: NameKind,
        /// How long the text is.
        length_bytes: usize,
    },

    /// The text contains something other than `a-z`, `0-9`, `.`, `_` and `-`.
    #[error(
        "a {kind} name consists of a-z, 0-9, '.', '_' and '-', this one has {character:?} at byte {offset_bytes}"
    )]
    Character {
        /// What the name was to be the name of.
        kind: NameKind,
        /// The first character that is not allowed.
        character: char,
        /// Where it stands, counted from zero.
        offset_bytes: usize,
    },

    /// The first or last character is a `.`, `_` or `-`.
    #[error("a {kind} name begins and ends with a-z or 0-9, this one has {character:?} there")]
    Edge {
        /// What the name was to be the name of.
        kind: NameKind,
        /// The character that stands at the beginning or the end.
        character: char,
    },
}

fn validate(kind: NameKind, text: &str) -> Result<(), NameError> {
    let (Some(first), Some(last)) = (text.chars().next(), text.chars().next_back()) else {
        return Err(NameError::Length {
            kind,
            length_bytes: 0,
        });
    };
    // Before looking at the characters, so that a huge text costs nothing.
    if text.len() > kind.length_max() {
        return Err(NameError::Length {
            kind,
            length_bytes: text.len(),
        });
    }
    if let Some((offset_bytes, character)) = text.char_indices().find(|&(_, c)| !is_inner(c)) {
        return Err(NameError::Character {
            kind,
            character,
            offset_bytes,
        });
    }
    match [first, last]
        .into_iter()
        .find(|&character| !is_edge(character))
    {
        Some(character) => Err(NameError::Edge { kind, character }),
        None => Ok(()),
    }
}

fn is_edge(character: char) -> bool {
    matches!(character, 'a'..='z' | '0'..='9')
}

fn is_inner(character: char) -> bool {
    is_edge(character) || matches!(character, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_letters_digits_and_inner_marks_are_accepted() {
        for text in [
            "a",
            "0",
            "orders",
            "a.b_c-d",
            "a--b",
            "7.7",
            &"x".repeat(64),
        ] {
            assert_eq!(text.parse::<GroupName>().unwrap().as_str(), text);
            assert_eq!(text.parse::<LeaseName>().unwrap().to_string(), text);
        }
        assert!("x".repeat(128).parse::<LeaseName>().is_ok());
    }

    #[test]
    fn a_refused_name_says_what_is_allowed() {
        let cases = [
            ("", "a group name has 1 to 64 bytes, this one has 0"),
            (
                &"x".repeat(65),
                "a group name has 1 to 64 bytes, this one has 65",
            ),
            (
                "Orders",
                "a group name consists of a-z, 0-9, '.', '_' and '-', this one has 'O' at byte 0",
            ),
            (
                "a/b",
                "a group name consists of a-z, 0-9, '.', '_' and '-', this one has '/' at byte 1",
            ),
            (
                "a\nb",
                "a group name consists of a-z, 0-9, '.', '_' and '-', this one has '\\n' at byte 1",
            ),
            (
                "naïve",
                "a group name consists of a-z, 0-9, '.', '_' and '-', this one has 'ï' at byte 2",
            ),
            (
                ".a",
                "a group name begins and ends with a-z or 0-9, this one has '.' there",
            ),
            (
                "a-",
                "a group name begins and ends with a-z or 0-9, this one has '-' there",
            ),
            (
                "_",
                "a group name begins and ends with a-z or 0-9, this one has '_' there",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(GroupName::try_from(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_lease_name_has_its_own_length_and_no_slash() {
        assert_eq!(
            "x".repeat(129)
                .parse::<LeaseName>()
                .unwrap_err()
                .to_string(),
            "a lease name has 1 to 128 bytes, this one has 129"
        );
        assert!(matches!(
            LeaseName::try_from("a/b".to_owned()),
            Err(NameError::Character {
                character: '/',
                offset_bytes: 1,
                ..
            })
        ));
    }
}
