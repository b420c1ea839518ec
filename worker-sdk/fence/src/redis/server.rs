//! What a server must be to keep a fence.

use std::collections::HashMap;

use ::redis::Value;

use super::options::RedisDurability;

/// The oldest Redis whose scripts replicate what they did, not themselves: 5.
const MAJOR_VERSION_MIN: u32 = 5;

/// Why a server is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ServerError {
    #[error("the server is a replica: it takes no writes, and shows fences late")]
    Replica,
    #[error("the server is loading what it has kept")]
    Loading,
    #[error("the server is in cluster mode, and this adapter connects to one server")]
    Cluster,
    #[error(
        "the server may evict fences: maxmemory-policy is {policy}, and must be noeviction or volatile-*"
    )]
    Evicts {
        /// What the server is set to.
        policy: String,
    },
    #[error("the server is Redis {version}, and scripts that fence need version 5 or later")]
    TooOld {
        /// What it says it is.
        version: String,
    },
    #[error(
        "the server does not sync what it acknowledges: {setting} is {found:?}, and must be {needed:?}; \
         ask for `RedisDurability::AsConfigured` to use it all the same"
    )]
    NotSynced {
        /// The setting that says so.
        setting: &'static str,
        /// What the server is set to; empty when it does not say.
        found: String,
        /// What it must be.
        needed: &'static str,
    },
    #[error("the server does not say {0}")]
    Silent(&'static str),
}

/// What the server says of itself: the lines `name:value` of `INFO`.
pub(super) struct Info<'a> {
    fields: HashMap<&'a str, &'a str>,
}

impl<'a> Info<'a> {
    pub(super) fn read(text: &'a str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self {
            fields: fields.collect(),
        }
    }

    fn field(&self, name: &'static str) -> Result<&'a str, ServerError> {
        let value = self.fields.get(name).copied();
        value.ok_or(ServerError::Silent(name))
    }

    /// Decides whether the server can keep a fence, as far as it says itself.
    pub(super) fn check(&self, durability: RedisDurability) -> Result<(), ServerError> {
        let version = self.field("redis_version")?;
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok());
        if major.is_none_or(|major: u32| major < MAJOR_VERSION_MIN) {
            return Err(ServerError::TooOld {
                version: version.to_owned(),
            });
        }
        // Before the rest: it says that it keeps no append-only file while it reads the one it has.
        if self.fields.get("loading") == Some(&"1") {
            return Err(ServerError::Loading);
        }
        if self.field("role")? != "master" {
            return Err(ServerError::Replica);
        }
        if self.fields.get("cluster_enabled") == Some(&"1") {
            return Err(ServerError::Cluster);
        }
        // Also while no maxmemory is set: whoever asked for eviction means to set it. The policies
        // volatile-* take keys with an expiry only, which no fence has.
        let policy = self.field("maxmemory_policy")?;
        if policy != "noeviction" && !policy.starts_with("volatile-") {
            return Err(ServerError::Evicts {
                policy: policy.to_owned(),
            });
        }
        let append_only = self.field("aof_enabled")?;
        if durability == RedisDurability::Synced && append_only != "1" {
            return Err(ServerError::NotSynced {
                setting: "appendonly",
                found: "no".to_owned(),
                needed: "yes",
            });
        }
        Ok(())
    }
}

/// Decides whether the server syncs its append-only file with every write: from the answer to
/// `CONFIG GET appendfsync`, `None` when it was refused.
pub(super) fn check_sync(answer: Option<Value>) -> Result<(), ServerError> {
    let settings: Option<HashMap<String, String>> =
        answer.and_then(|answer| ::redis::from_redis_value(answer).ok());
    let found = settings.and_then(|mut settings| settings.remove("appendfsync"));
    if found.as_deref() == Some("always") {
        return Ok(());
    }
    Err(ServerError::NotSynced {
        setting: "appendfsync",
        found: found.unwrap_or_default(),
        needed: "always",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(lines: &[(&str, &str)]) -> String {
        let mut fields = vec![
            ("redis_version", "7.0.15"),
            ("role", "master"),
            ("cluster_enabled", "0"),
            ("maxmemory_policy", "noeviction"),
            ("aof_enabled", "1"),
        ];
        fields.extend(lines);
        let line = |(name, value): &(&str, &str)| format!("{name}:{value}\r\n");
        format!(
            "# Server\r\n{}",
            fields.iter().map(line).collect::<String>()
        )
    }

    fn check(lines: &[(&str, &str)]) -> Result<(), ServerError> {
        Info::read(&info(lines)).check(RedisDurability::Synced)
    }

    #[test]
    fn a_server_that_may_lose_a_fence_is_refused() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[("maxmemory_policy", "volatile-lru")]), Ok(()));
        for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random", "new-policy"] {
            let evicts = ServerError::Evicts {
                policy: policy.to_owned(),
            };
            assert_eq!(check(&[("maxmemory_policy", policy)]), Err(evicts));
        }
        assert_eq!(check(&[("role", "slave")]), Err(ServerError::Replica));
        assert_eq!(
            check(&[("cluster_enabled", "1")]),
            Err(ServerError::Cluster)
        );
        let restarted = [("loading", "1"), ("aof_enabled", "0")];
        assert_eq!(check(&restarted), Err(ServerError::Loading));
        let old = check(&[("redis_version", "4.0.14")]);
        assert!(matches!(old, Err(ServerError::TooOld { .. })));
        let unsynced = info(&[("aof_enabled", "0")]);
        let unsynced = Info::read(&unsynced);
        assert!(unsynced.check(RedisDurability::Synced).is_err());
        assert_eq!(unsynced.check(RedisDurability::AsConfigured), Ok(()));
        let silent = Info::read("role:master").check(RedisDurability::Synced);
        assert_eq!(silent, Err(ServerError::Silent("redis_version")));
    }

    #[test]
    fn syncing_must_be_seen() {
        let says = |policy: &str| {
            let texts = ["appendfsync", policy].map(|text| Value::BulkString(text.into()));
            check_sync(Some(Value::Array(texts.to_vec())))
        };
        assert_eq!(says("always"), Ok(()));
        assert!(says("everysec").is_err());
        assert!(check_sync(None).is_err());
    }
}
