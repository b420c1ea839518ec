//! How a store on a Redis server is opened.

use std::fmt;
use std::time::Duration;

/// The layout of the keys: a hash for each fence, a string for each value.
pub(super) const LAYOUT: u32 = 1;

/// How a [`RedisStore`](super::RedisStore) is opened.
#[derive(Clone)]
pub struct RedisStoreOptions {
    /// The longest a call takes, waiting for replicas included. 5 seconds by default.
    pub deadline: Duration,
    /// The largest value, in bytes, inclusive. 16 MiB by default; Redis answers nobody else while it
    /// copies one.
    pub max_value_bytes: usize,
    /// What the name of every key begins with. `tenure:` by default. Letters, digits and `.:_/-`;
    /// two stores on one server need different ones, neither the beginning of the other.
    pub prefix: String,
    /// How many connections are kept, each shared by many calls. 4 by default, at least 1.
    pub connections: usize,
    /// What the server must do with what it has acknowledged.
    pub durability: RedisDurability,
    /// Replicas to wait for after each seal, write and deletion. `None`, the default, waits for none.
    pub replicas: Option<RedisReplicas>,
    /// The certificate, in PEM, of who vouches for a `rediss://` server. `None` trusts those the
    /// machine trusts.
    pub root_certificate_pem: Option<Vec<u8>>,
}

/// What a server must do with what it has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisDurability {
    /// Sync it to its append-only file first: `appendonly yes` and `appendfsync always`. Another
    /// server is refused, also one that does not let its configuration be read.
    Synced,
    /// Whatever it is configured to. A crash may then lose what was acknowledged, fences included:
    /// with `appendfsync everysec` about a second of it, with snapshots alone minutes.
    AsConfigured,
}

/// Replicas to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisReplicas {
    /// How many must have acknowledged, at least 1. They have it in memory then, not on disk.
    pub count: u32,
    /// How long to wait for them. At least a millisecond, and below the deadline.
    pub patience: Duration,
}

/// Options that make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OptionsError {
    #[error("a prefix consists of letters, digits and .:_/- only: {0:?}")]
    Prefix(String),
    #[error("at least one connection is needed")]
    NoConnection,
    #[error(
        "replicas are waited for below the deadline, {deadline:?}, and for a millisecond or more"
    )]
    Patience { deadline: Duration },
    #[error("waiting for no replica is no waiting")]
    NoReplica,
}

impl Default for RedisStoreOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(5),
            max_value_bytes: 16 << 20,
            prefix: "tenure:".to_owned(),
            connections: 4,
            durability: RedisDurability::Synced,
            replicas: None,
            root_certificate_pem: None,
        }
    }
}

impl fmt::Debug for RedisStoreOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RedisStoreOptions")
            .field("deadline", &self.deadline)
            .field("max_value_bytes", &self.max_value_bytes)
            .field("prefix", &self.prefix)
            .field("connections", &self.connections)
            .field("durability", &self.durability)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

impl RedisStoreOptions {
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        // Braces would move fence and data to different places, the rest means something to SCAN.
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".:_/-".contains(&byte);
        if !self.prefix.bytes().all(allowed) {
            return Err(OptionsError::Prefix(self.prefix.clone()));
        }
        if self.connections == 0 {
            return Err(OptionsError::NoConnection);
        }
        let Some(replicas) = self.replicas else {
            return Ok(());
        };
        if replicas.count == 0 {
            return Err(OptionsError::NoReplica);
        }
        // WAIT takes 0 milliseconds for ever.
        if replicas.patience >= self.deadline || replicas.patience < Duration::from_millis(1) {
            return Err(OptionsError::Patience {
                deadline: self.deadline,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_cannot_part_fence_and_data() {
        for prefix in ["a{b}", "a*", "a?", "[a]", "a b", "ä"] {
            let options = RedisStoreOptions {
                prefix: prefix.to_owned(),
                ..RedisStoreOptions::default()
            };
            assert!(options.check().is_err(), "{prefix:?}");
        }
        assert_eq!(RedisStoreOptions::default().check(), Ok(()));
    }

    #[test]
    fn replicas_are_waited_for_below_the_deadline() {
        let with = |count, patience| RedisStoreOptions {
            replicas: Some(RedisReplicas { count, patience }),
            ..RedisStoreOptions::default()
        };
        assert_eq!(with(1, Duration::from_secs(1)).check(), Ok(()));
        assert!(with(0, Duration::from_secs(1)).check().is_err());
        assert!(with(1, Duration::ZERO).check().is_err());
        assert!(with(1, Duration::from_secs(5)).check().is_err());
    }
}
