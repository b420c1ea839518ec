//! A group's policy as people write it: `key=value`, with units.

mod placing;

use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use tenure_proto::v1;

use crate::text::{self, Wide};

/// Help on the keys.
pub(crate) const HELP: &str = "\
Keys of the policy, with what is allowed:
  ttl                         life of a session without a heartbeat, 1s to 10m
  disconnect_grace            life of a session after its stream broke, 100ms to ttl
  restart_grace               how long the shards of an ended worker wait for it, 0s to 1h
  lock_delay                  how long a shard rests after an unclean end, 0s to 1h
  drain_timeout               how long a worker may take to release a shard, 0s to 24h
  opening_deadline            how long a worker may take to open a shard, 1s to 24h
  handoffs_in_flight_max      most shards on the move at once, 1 to all, or auto (10 %, at least 16)
  load_factor                 most shards of a worker relative to its fair share, 1.0 to 10
  checkpoint_bytes_max        largest value in the replicated store, 1 to 1MiB
  checkpoint_total_bytes_max  most bytes of all checkpoints of the group, such as 16GiB
  worker_shards_max           most shards of one worker whatever its share, 1 to all, or none
  required_labels             labels a worker must have to be given shards, KEY=VALUE,..., or none
  preferred_labels            labels whose workers come first among equals, KEY=VALUE,..., or none
  zone_label                  the label that names a worker's zone, or none
  balance_by                  what is evened out among workers: shards, or the load they report
  imbalance_tolerated         how far above the mean load the fullest may be before anything moves, 0 to 10
  moves_per_minute_max        most served shards moved in a minute to even workers out, or none
  crashes_max                 owners a shard may crash before it is granted to nobody, 0 never stops";

/// How a value is written, and where in the policy it goes.
enum Kind {
    Duration(fn(&mut v1::Policy) -> &mut u64),
    Handoffs,
    LoadFactor,
    Bytes32,
    Bytes64,
    Placing(placing::Kind),
}

struct Key {
    name: &'static str,
    /// Name of the field on the wire.
    field: &'static str,
    kind: Kind,
    /// For people. The coordinator checks: only it knows what it allows.
    allowed: &'static str,
}

const fn duration(
    name: &'static str,
    field: &'static str,
    allowed: &'static str,
    place: fn(&mut v1::Policy) -> &mut u64,
) -> Key {
    Key {
        name,
        field,
        kind: Kind::Duration(place),
        allowed,
    }
}

const fn placing(
    name: &'static str,
    field: &'static str,
    allowed: &'static str,
    kind: placing::Kind,
) -> Key {
    Key {
        name,
        field,
        kind: Kind::Placing(kind),
        allowed,
    }
}

const KEYS: [Key; 18] = [
    duration("ttl", "ttl_ms", "1s to 10m", |p| &mut p.ttl_ms),
    duration(
        "disconnect_grace",
        "disconnect_grace_ms",
        "100ms to ttl",
        |p| &mut p.disconnect_grace_ms,
    ),
    duration("restart_grace", "restart_grace_ms", "0s to 1h", |p| {
        &mut p.restart_grace_ms
    }),
    duration("lock_delay", "lock_delay_ms", "0s to 1h", |p| {
        &mut p.lock_delay_ms
    }),
    duration("drain_timeout", "drain_timeout_ms", "0s to 24h", |p| {
        &mut p.drain_timeout_ms
    }),
    duration(
        "opening_deadline",
        "opening_deadline_ms",
        "1s to 24h",
        |p| &mut p.opening_deadline_ms,
    ),
    Key {
        name: "handoffs_in_flight_max",
        field: "handoffs_in_flight_max",
        kind: Kind::Handoffs,
        allowed: "1 to all shards, or auto",
    },
    Key {
        name: "load_factor",
        field: "load_factor_permille",
        kind: Kind::LoadFactor,
        allowed: "1.0 to 10, with at most three decimals",
    },
    Key {
        name: "checkpoint_bytes_max",
        field: "checkpoint_bytes_max",
        kind: Kind::Bytes32,
        allowed: "1 to 1MiB",
    },
    Key {
        name: "checkpoint_total_bytes_max",
        field: "checkpoint_total_bytes_max",
        kind: Kind::Bytes64,
        allowed: "1 or more bytes, such as 16GiB",
    },
    placing(
        "worker_shards_max",
        "worker_shards_max",
        "1 to all shards, or none",
        placing::Kind::Most(|p| &mut p.worker_shards_max),
    ),
    placing(
        "required_labels",
        "required_labels",
        placing::LABELS,
        placing::Kind::Labels(|p| &mut p.required_labels),
    ),
    placing(
        "preferred_labels",
        "preferred_labels",
        placing::LABELS,
        placing::Kind::Labels(|p| &mut p.preferred_labels),
    ),
    placing(
        "zone_label",
        "zone_label",
        "the key of a label, or none",
        placing::Kind::ZoneLabel,
    ),
    placing(
        "balance_by",
        "balance_by",
        "shards or load",
        placing::Kind::BalanceBy,
    ),
    placing(
        "imbalance_tolerated",
        "imbalance_tolerated_permille",
        "0 to 10, with at most three decimals",
        placing::Kind::Imbalance,
    ),
    placing(
        "moves_per_minute_max",
        "moves_per_minute_max",
        "1 or more, or none",
        placing::Kind::Most(|p| &mut p.moves_per_minute_max),
    ),
    placing(
        "crashes_max",
        "crashes_max",
        "a number; 0 never stops",
        placing::Kind::Crashes,
    ),
];

/// One `key=value`: a field of the policy and its new value.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    field: &'static str,
    name: &'static str,
    // A policy in which only this field counts.
    value: v1::Policy,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not key=value, such as ttl=10s"))?;
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
            return Err(format!(
                "policy has no {name:?}, it has {}",
                names.join(", ")
            ));
        };
        let mut policy = v1::Policy::default();
        set(&mut policy, &key.kind, value)
            .ok_or_else(|| format!("{name} is {value:?}, allowed is {}", key.allowed))?;
        Ok(Self {
            field: key.field,
            name: key.name,
            value: policy,
        })
    }
}

fn set(policy: &mut v1::Policy, kind: &Kind, value: &str) -> Option<()> {
    match kind {
        Kind::Duration(place) => *place(policy) = whole_millis(value)?,
        Kind::Handoffs if value == "auto" => policy.handoffs_in_flight_max = 0,
        // 0 means `auto` on the wire; whoever writes 0 means something else.
        Kind::Handoffs => {
            policy.handoffs_in_flight_max = value.parse().ok().filter(|most| *most > 0)?;
        }
        Kind::LoadFactor => policy.load_factor_permille = permille(value)?,
        Kind::Bytes32 => policy.checkpoint_bytes_max = u32::try_from(bytes(value)?).ok()?,
        Kind::Bytes64 => policy.checkpoint_total_bytes_max = bytes(value)?,
        Kind::Placing(kind) => kind.set(policy, value)?,
    }
    Some(())
}

/// Milliseconds of a duration such as `1m 30s`; `None` if it has a finer part, which would be lost.
fn whole_millis(text: &str) -> Option<u64> {
    let duration = if text == "0" {
        Duration::ZERO
    } else {
        humantime::parse_duration(text).ok()?
    };
    let millis = u64::try_from(duration.as_millis()).ok()?;
    (Duration::from_millis(millis) == duration).then_some(millis)
}

/// Thousandths of a decimal number, without a detour through floating point.
fn permille(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let whole: u32 = whole.parse().ok()?;
    let fraction: u32 = format!("{fraction:0<3}").parse().ok()?;
    whole.checked_mul(1000)?.checked_add(fraction)
}

fn bytes(text: &str) -> Option<u64> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// A policy with the assigned fields, and the mask that names them.
///
/// # Errors
/// A key that is given twice: which value was meant cannot be known.
pub(crate) fn combine(
    assignments: &[Assignment],
) -> Result<(v1::Policy, prost_types::FieldMask), String> {
    let mut policy = v1::Policy::default();
    let mut paths: Vec<String> = Vec::with_capacity(assignments.len());
    for assignment in assignments {
        if paths.iter().any(|path| path == assignment.field) {
            return Err(format!("{} is given twice", assignment.name));
        }
        paths.push(assignment.field.to_owned());
        let mut value = assignment.value.clone();
        let Some(key) = KEYS.iter().find(|key| key.field == assignment.field) else {
            continue;
        };
        match &key.kind {
            Kind::Duration(place) => *place(&mut policy) = *place(&mut value),
            Kind::Handoffs => policy.handoffs_in_flight_max = value.handoffs_in_flight_max,
            Kind::LoadFactor => policy.load_factor_permille = value.load_factor_permille,
            Kind::Bytes32 => policy.checkpoint_bytes_max = value.checkpoint_bytes_max,
            Kind::Bytes64 => policy.checkpoint_total_bytes_max = value.checkpoint_total_bytes_max,
            Kind::Placing(kind) => kind.copy(&mut value, &mut policy),
        }
    }
    Ok((policy, prost_types::FieldMask { paths }))
}

/// The policy as JSON, with the names and units of the wire.
#[derive(Serialize)]
pub(crate) struct PolicyView {
    ttl_ms: Wide,
    disconnect_grace_ms: Wide,
    restart_grace_ms: Wide,
    lock_delay_ms: Wide,
    drain_timeout_ms: Wide,
    opening_deadline_ms: Wide,
    handoffs_in_flight_max: Option<u32>,
    load_factor_permille: u32,
    checkpoint_bytes_max: u32,
    checkpoint_total_bytes_max: Wide,
    #[serde(flatten)]
    placing: placing::View,
}

impl From<&v1::Policy> for PolicyView {
    fn from(policy: &v1::Policy) -> Self {
        Self {
            ttl_ms: Wide(policy.ttl_ms),
            disconnect_grace_ms: Wide(policy.disconnect_grace_ms),
            restart_grace_ms: Wide(policy.restart_grace_ms),
            lock_delay_ms: Wide(policy.lock_delay_ms),
            drain_timeout_ms: Wide(policy.drain_timeout_ms),
            opening_deadline_ms: Wide(policy.opening_deadline_ms),
            handoffs_in_flight_max: Some(policy.handoffs_in_flight_max).filter(|most| *most > 0),
            load_factor_permille: policy.load_factor_permille,
            checkpoint_bytes_max: policy.checkpoint_bytes_max,
            checkpoint_total_bytes_max: Wide(policy.checkpoint_total_bytes_max),
            placing: policy.into(),
        }
    }
}

/// The policy for people, under the keys that `group set` takes.
pub(crate) fn details(policy: &v1::Policy) -> Vec<(&'static str, String)> {
    let handoffs = match policy.handoffs_in_flight_max {
        0 => "auto".to_owned(),
        most => most.to_string(),
    };
    let mut details = vec![
        ("ttl", text::millis(policy.ttl_ms)),
        ("disconnect_grace", text::millis(policy.disconnect_grace_ms)),
        ("restart_grace", text::millis(policy.restart_grace_ms)),
        ("lock_delay", text::millis(policy.lock_delay_ms)),
        ("drain_timeout", text::millis(policy.drain_timeout_ms)),
        ("opening_deadline", text::millis(policy.opening_deadline_ms)),
        ("handoffs_in_flight_max", handoffs),
        ("load_factor", decimal(policy.load_factor_permille)),
        (
            "checkpoint_bytes_max",
            text::bytes(policy.checkpoint_bytes_max.into()),
        ),
        (
            "checkpoint_total_bytes_max",
            text::bytes(policy.checkpoint_total_bytes_max),
        ),
    ];
    details.extend(placing::details(policy));
    details
}

/// Thousandths as a decimal number.
fn decimal(permille: u32) -> String {
    format!("{}.{:03}", permille / 1000, permille % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Result<(v1::Policy, prost_types::FieldMask), String> {
        let assignments = texts
            .iter()
            .map(|text| text.parse())
            .collect::<Result<Vec<_>, _>>()?;
        combine(&assignments)
    }

    #[test]
    fn every_key_is_read_with_its_unit_and_named_in_the_mask() {
        let (policy, mask) = read(&[
            "ttl=1m 30s",
            "disconnect_grace=750ms",
            "restart_grace=0",
            "lock_delay=0s",
            "drain_timeout=24h",
            "opening_deadline=1m",
            "handoffs_in_flight_max=auto",
            "load_factor=1.25",
            "checkpoint_bytes_max=512KiB",
            "checkpoint_total_bytes_max=16GiB",
            "worker_shards_max=500",
            "required_labels=disk=ssd,site=a",
            "preferred_labels=none",
            "zone_label=zone",
            "balance_by=load",
            "imbalance_tolerated=0.25",
            "moves_per_minute_max=none",
            "crashes_max=5",
        ])
        .unwrap();
        let expected = v1::Policy {
            ttl_ms: 90_000,
            disconnect_grace_ms: 750,
            restart_grace_ms: 0,
            lock_delay_ms: 0,
            drain_timeout_ms: 86_400_000,
            opening_deadline_ms: 60_000,
            handoffs_in_flight_max: 0,
            load_factor_permille: 1250,
            checkpoint_bytes_max: 524_288,
            checkpoint_total_bytes_max: 16 << 30,
            worker_shards_max: 500,
            required_labels: [("disk", "ssd"), ("site", "a")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            preferred_labels: [].into(),
            zone_label: "zone".to_owned(),
            balance_by: v1::BalanceBy::Load.into(),
            imbalance_tolerated_permille: 250,
            moves_per_minute_max: 0,
            crashes_max: 5,
        };
        assert_eq!(policy, expected);
        let fields: Vec<_> = KEYS.iter().map(|key| key.field).collect();
        assert_eq!(mask.paths, fields);
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_name_and_what_is_allowed() {
        for (text, expected) in [
            ("ttl", "\"ttl\" is not key=value"),
            (
                "tttl=10s",
                "policy has no \"tttl\", it has ttl, disconnect_grace",
            ),
            ("ttl=10", "ttl is \"10\", allowed is 1s to 10m"),
            ("ttl=1500us", "ttl is \"1500us\", allowed is 1s to 10m"),
            (
                "handoffs_in_flight_max=0",
                "handoffs_in_flight_max is \"0\", allowed is 1 to all",
            ),
            (
                "load_factor=1.2345",
                "load_factor is \"1.2345\", allowed is 1.0 to 10",
            ),
            (
                "load_factor=-1",
                "load_factor is \"-1\", allowed is 1.0 to 10",
            ),
            (
                "checkpoint_bytes_max=5GiB",
                "checkpoint_bytes_max is \"5GiB\", allowed is 1 to 1MiB",
            ),
            (
                "required_labels=disk",
                "required_labels is \"disk\", allowed is KEY=VALUE",
            ),
            (
                "balance_by=luck",
                "balance_by is \"luck\", allowed is shards or load",
            ),
            (
                "worker_shards_max=0",
                "worker_shards_max is \"0\", allowed is 1 to all",
            ),
            (
                "checkpoint_bytes_max=1MB",
                "checkpoint_bytes_max is \"1MB\", allowed is 1 to 1MiB",
            ),
        ] {
            let error = read(&[text]).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert_eq!(
            read(&["ttl=1s", "ttl=2s"]),
            Err("ttl is given twice".to_owned())
        );
    }

    #[test]
    fn what_is_shown_can_be_set_again() {
        let (policy, _) = read(&[
            "ttl=90s",
            "disconnect_grace=750ms",
            "restart_grace=0",
            "lock_delay=1h",
            "drain_timeout=30s",
            "opening_deadline=61s",
            "handoffs_in_flight_max=7",
            "load_factor=1.005",
            "checkpoint_bytes_max=1000",
            "checkpoint_total_bytes_max=3TiB",
            "worker_shards_max=none",
            "required_labels=disk=ssd,site=a=b",
            "preferred_labels=none",
            "zone_label=none",
            "balance_by=shards",
            "imbalance_tolerated=0.2",
            "moves_per_minute_max=60",
            "crashes_max=0",
        ])
        .unwrap();
        let shown: Vec<String> = details(&policy)
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let again = read(&shown.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        assert_eq!(again.0, policy);
    }

    #[test]
    fn the_help_names_every_key() {
        for key in &KEYS {
            assert!(HELP.contains(&format!("  {} ", key.name)), "{}", key.name);
        }
    }
}
