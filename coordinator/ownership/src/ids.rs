//! Names and numbers that identify things. Each is a type of its own, so that none can stand in for another.

use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};

/// Identity of one coordinator cluster: random, made when the cluster is initialised or restored.
///
/// With a [`SessionId`] it identifies a session for ever, also across a restore from a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ClusterId(#[cbor(n(0), with = "crate::codec::wide")] pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Log index of the command that last changed the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Revision(#[n(0)] pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One registration of one worker process: the log index of its `Register`. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct SessionId(#[n(0)] pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One life of a group: the log index of its `CreateGroup`.
///
/// A group that is deleted and created again under its name gets another id, so that a command
/// planned for the first life cannot touch the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct GroupId(#[n(0)] pub u64);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Position of a shard in its group, from 0 up to but not including the group's shard count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ShardIndex(#[n(0)] pub u32);

impl fmt::Display for ShardIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Random number of one worker process, drawn at its start: tells a repeated `Register` from a second process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ProcessNonce(#[cbor(n(0), with = "crate::codec::wide")] pub u128);

/// Name of a worker within its group: 1 to 128 bytes of printable ASCII without spaces. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct WorkerName(#[cbor(n(0), with = "crate::codec::shared_str")] Arc<str>);

/// Name that a worker gives to one of its attached stores; same rules as [`WorkerName`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct StoreName(#[cbor(n(0), with = "crate::codec::shared_str")] Arc<str>);

/// A name that breaks the rules of [`WorkerName`] and [`StoreName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("name {name:?} is not 1 to {NAME_BYTES_MAX} bytes of printable ASCII without spaces")]
pub struct InvalidName {
    /// The refused text, cut to its first 256 characters.
    pub name: String,
}

/// Longest worker or store name: room for a pod name and a suffix, small enough to repeat in every record.
pub const NAME_BYTES_MAX: usize = 128;

fn checked(name: &str) -> Result<Arc<str>, InvalidName> {
    let valid = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|b| b.is_ascii_graphic());
    if !valid {
        return Err(InvalidName {
            name: name.chars().take(256).collect(),
        });
    }
    Ok(name.into())
}

impl WorkerName {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// [`InvalidName`] if it is empty, too long or contains anything but printable ASCII.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        checked(name).map(Self)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl StoreName {
    /// Checks and wraps a name.
    ///
    /// # Errors
    /// [`InvalidName`] if it is empty, too long or contains anything but printable ASCII.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        checked(name).map(Self)
    }

    /// Whether the text is one and the same in memory.
    pub(crate) fn is_same_text(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
