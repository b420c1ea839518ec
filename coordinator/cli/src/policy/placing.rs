//! What a policy says of placement and balance, as people write it.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use tenure_proto::v1;

use super::{decimal, permille};

/// What stands for a limit or a label that is not set.
const NONE: &str = "none";

/// What labels look like.
pub(super) const LABELS: &str = "KEY=VALUE,... of at most 16 labels, or none";

/// How a value is written, and where in the policy it goes.
pub(super) enum Kind {
    /// A number from 1, or none.
    Most(fn(&mut v1::Policy) -> &mut u32),
    Labels(fn(&mut v1::Policy) -> &mut HashMap<String, String>),
    ZoneLabel,
    BalanceBy,
    Imbalance,
    Crashes,
}

impl Kind {
    pub(super) fn set(&self, policy: &mut v1::Policy, value: &str) -> Option<()> {
        match self {
            Self::Most(place) if value == NONE => *place(policy) = 0,
            // 0 means `none` on the wire; whoever writes 0 means something else.
            Self::Most(place) => *place(policy) = value.parse().ok().filter(|most| *most > 0)?,
            Self::Labels(place) => *place(policy) = labels(value)?,
            Self::ZoneLabel if value == NONE => policy.zone_label.clear(),
            Self::ZoneLabel => value.clone_into(&mut policy.zone_label),
            Self::BalanceBy => {
                policy.balance_by = match value {
                    "shards" => v1::BalanceBy::Shards.into(),
                    "load" => v1::BalanceBy::Load.into(),
                    _ => return None,
                }
            }
            Self::Imbalance => policy.imbalance_tolerated_permille = permille(value)?,
            Self::Crashes => policy.crashes_max = value.parse().ok()?,
        }
        Some(())
    }

    /// Copies the field from one policy to another.
    pub(super) fn copy(&self, from: &mut v1::Policy, to: &mut v1::Policy) {
        match self {
            Self::Most(place) => *place(to) = *place(from),
            Self::Labels(place) => place(to).clone_from(place(from)),
            Self::ZoneLabel => to.zone_label.clone_from(&from.zone_label),
            Self::BalanceBy => to.balance_by = from.balance_by,
            Self::Imbalance => to.imbalance_tolerated_permille = from.imbalance_tolerated_permille,
            Self::Crashes => to.crashes_max = from.crashes_max,
        }
    }
}

/// `disk=ssd,site=a`; a value may contain `=`, no key or value a comma.
fn labels(text: &str) -> Option<HashMap<String, String>> {
    if text == NONE {
        return Some(HashMap::new());
    }
    let mut labels = HashMap::new();
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=')?;
        if key.is_empty() || labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return None;
        }
    }
    Some(labels)
}

/// The fields as JSON, with the names and units of the wire.
#[derive(Serialize)]
pub(super) struct View {
    worker_shards_max: Option<u32>,
    required_labels: BTreeMap<String, String>,
    preferred_labels: BTreeMap<String, String>,
    zone_label: Option<String>,
    balance_by: &'static str,
    imbalance_tolerated_permille: u32,
    moves_per_minute_max: Option<u32>,
    crashes_max: u32,
}

impl From<&v1::Policy> for View {
    fn from(policy: &v1::Policy) -> Self {
        let most = |number: u32| Some(number).filter(|most| *most > 0);
        Self {
            worker_shards_max: most(policy.worker_shards_max),
            required_labels: policy.required_labels.clone().into_iter().collect(),
            preferred_labels: policy.preferred_labels.clone().into_iter().collect(),
            zone_label: Some(policy.zone_label.clone()).filter(|label| !label.is_empty()),
            balance_by: balance_by(policy),
            imbalance_tolerated_permille: policy.imbalance_tolerated_permille,
            moves_per_minute_max: most(policy.moves_per_minute_max),
            crashes_max: policy.crashes_max,
        }
    }
}

fn balance_by(policy: &v1::Policy) -> &'static str {
    match policy.balance_by() {
        v1::BalanceBy::Unspecified | v1::BalanceBy::Shards => "shards",
        v1::BalanceBy::Load => "load",
    }
}

/// The fields for people, under the keys that `group set` takes.
pub(super) fn details(policy: &v1::Policy) -> Vec<(&'static str, String)> {
    let most = |number: u32| match number {
        0 => NONE.to_owned(),
        most => most.to_string(),
    };
    let labels = |labels: &HashMap<String, String>| {
        let mut pairs: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        pairs.sort_unstable();
        or_none(&pairs.join(","))
    };
    vec![
        ("worker_shards_max", most(policy.worker_shards_max)),
        ("required_labels", labels(&policy.required_labels)),
        ("preferred_labels", labels(&policy.preferred_labels)),
        ("zone_label", or_none(&policy.zone_label)),
        ("balance_by", balance_by(policy).to_owned()),
        (
            "imbalance_tolerated",
            decimal(policy.imbalance_tolerated_permille),
        ),
        ("moves_per_minute_max", most(policy.moves_per_minute_max)),
        ("crashes_max", policy.crashes_max.to_string()),
    ]
}

fn or_none(text: &str) -> String {
    if text.is_empty() {
        NONE.to_owned()
    } else {
        text.to_owned()
    }
}
