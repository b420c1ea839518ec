//! The version of an adapter's layout, kept in the store beside what it describes.
//!
//! A store that was laid out by a newer version is refused: reading it by the rules of an older one
//! might miss a fence.

use crate::error::CheckpointError;
use crate::parse::ParseError;
use crate::resource::Resource;

/// A store whose layout this version must not touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LayoutError {
    /// A newer version has laid it out.
    #[error("the store has layout {found}, this version knows layouts up to {known}")]
    Newer {
        /// The layout of the store.
        found: u32,
        /// The newest layout that is known.
        known: u32,
    },
    /// What should be the version of the layout is not.
    #[error("the version of the store's layout cannot be read")]
    Unreadable,
    /// There is something, but no layout.
    #[cfg(feature = "rocksdb")]
    #[error("the store holds something else")]
    Foreign,
}

/// Encodes the version of a layout.
pub(crate) fn encode(version: u32) -> [u8; 4] {
    version.to_be_bytes()
}

/// Decides whether a store with the version `found` may be used.
pub(crate) fn check(found: &[u8], known: u32) -> Result<(), LayoutError> {
    let found = found.try_into().map_err(|_| LayoutError::Unreadable)?;
    let found = u32::from_be_bytes(found);
    if found == 0 {
        return Err(LayoutError::Unreadable);
    }
    if found > known {
        return Err(LayoutError::Newer { found, known });
    }
    Ok(())
}

/// Creates the outcome that refuses the store.
pub(crate) fn refuse(error: LayoutError) -> CheckpointError {
    CheckpointError::Unsupported {
        source: error.into(),
    }
}

/// A key among the fences that names no resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key of a fence is no resource: {name:?}")]
pub(crate) struct ForeignKey {
    name: String,
    #[source]
    source: ParseError,
}

/// Reads the resource that a key names.
pub(crate) fn resource(name: &[u8]) -> Result<Resource, ForeignKey> {
    let name = String::from_utf8_lossy(name);
    name.parse().map_err(|source| ForeignKey {
        name: name.into_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_known_layout_is_used() {
        assert_eq!(check(&encode(1), 2), Ok(()));
        assert_eq!(check(&encode(2), 2), Ok(()));
        assert_eq!(
            check(&encode(3), 2),
            Err(LayoutError::Newer { found: 3, known: 2 })
        );
        assert_eq!(check(&encode(0), 2), Err(LayoutError::Unreadable));
        assert_eq!(check(b"one", 2), Err(LayoutError::Unreadable));
    }
}
