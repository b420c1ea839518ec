//! Values as text and as JSON: one form for each kind, in tables, JSON and events alike.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Serialize, Serializer};
use tenure_fence::Owner;
use tenure_proto::v1;

/// A 64-bit number, which is a string in JSON: many readers keep only 53 bits of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wide(pub(crate) u64);

impl Serialize for Wide {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A session as logs and tokens write it: `<cluster id>/<number>`.
pub(crate) fn session(session: &v1::Session) -> String {
    owner(session).map_or_else(
        || format!("?/{}", session.number),
        |owner| owner.to_string(),
    )
}

/// The owner in a token; `None` if the cluster id has another length than 16 bytes.
pub(crate) fn owner(session: &v1::Session) -> Option<Owner> {
    let cluster = u128::from_be_bytes(session.cluster_id.as_ref().try_into().ok()?);
    Some(Owner {
        cluster,
        session: session.number,
    })
}

/// A cluster id as 32 hexadecimal digits; empty for a node without a cluster.
pub(crate) fn cluster_id(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A moment that people read, in UTC, to the second; `-` if it is not known.
pub(crate) fn moment(at_ms: u64) -> String {
    if at_ms == 0 {
        return "-".to_owned();
    }
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(at_ms));
    at.map_or_else(
        || "?".to_owned(),
        |at| humantime::format_rfc3339_seconds(at).to_string(),
    )
}

/// A duration that people read, such as `1m 30s`; `0s` for none.
pub(crate) fn millis(millis: u64) -> String {
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

/// A size that people read, exact: the largest binary unit that divides it.
pub(crate) fn bytes(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{} {unit}", bytes / size);
        }
    }
    format!("{bytes} B")
}

/// A text of somebody else's, on one line and without what a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            printable.extend(letter.escape_default());
        } else {
            printable.push(letter);
        }
    }
    printable
}

/// The tail of a protocol name in lower case, such as `serving` for `SHARD_PHASE_SERVING`.
fn tail(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix)
        .unwrap_or(name)
        .to_ascii_lowercase()
        .replace('_', "-")
}

// A value that this build does not know was made by a newer coordinator: it is shown as its number
// instead of being mistaken for another.
fn named<E: TryFrom<i32>>(value: i32, prefix: &str, name: impl Fn(&E) -> &'static str) -> String {
    E::try_from(value).map_or_else(
        |_| format!("unknown-{value}"),
        |known| tail(name(&known), prefix),
    )
}

pub(crate) fn phase(value: i32) -> String {
    named(value, "SHARD_PHASE_", v1::ShardPhase::as_str_name)
}

pub(crate) fn revoke_reason(value: i32) -> String {
    named(value, "REVOKE_REASON_", v1::RevokeReason::as_str_name)
}

pub(crate) fn worker_mode(value: i32) -> String {
    named(value, "WORKER_MODE_", v1::WorkerMode::as_str_name)
}

pub(crate) fn session_end(value: i32) -> String {
    named(value, "SESSION_END_", v1::SessionEnd::as_str_name)
}

pub(crate) fn end_cause(value: i32) -> String {
    named(value, "END_CAUSE_", v1::EndCause::as_str_name)
}

pub(crate) fn group_change(value: i32) -> String {
    named(value, "GROUP_CHANGE_", v1::GroupChange::as_str_name)
}

/// `-` for an empty text: an empty cell would look like a mistake of the table.
pub(crate) fn or_dash(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_64_bits_survive_json() {
        let text = serde_json::to_string(&Wide(u64::MAX)).unwrap();
        assert_eq!(text, "\"18446744073709551615\"");
    }

    #[test]
    fn a_label_cannot_command_the_terminal() {
        assert_eq!(printable("zone=ä \"b\""), "zone=ä \"b\"");
        assert_eq!(printable("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
    }

    #[test]
    fn sizes_are_exact() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1_048_576), "1 MiB");
        assert_eq!(bytes(1_048_577), "1048577 B");
        assert_eq!(bytes(16 << 30), "16 GiB");
    }

    #[test]
    fn a_value_of_a_newer_coordinator_is_shown_as_its_number() {
        assert_eq!(phase(3), "serving");
        assert_eq!(phase(77), "unknown-77");
        assert_eq!(revoke_reason(3), "opening-deadline");
    }

    #[test]
    fn a_session_is_written_as_in_a_token() {
        let mut cluster = vec![0; 16];
        cluster[15] = 0xab;
        let made = v1::Session {
            cluster_id: cluster.into(),
            number: 9,
        };
        assert_eq!(session(&made), "000000000000000000000000000000ab/9");
        assert_eq!(
            session(&v1::Session {
                number: 9,
                ..Default::default()
            }),
            "?/9"
        );
    }
}
