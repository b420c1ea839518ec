//! Edits of a policy: some fields, named by a mask.

use std::time::Duration;

use prost_types::FieldMask;
use tenure_ownership::policy::{BalanceBy, Policy};
use tenure_proto::v1 as pb;

use super::{Invalid, within};

/// The bounds that this server's configuration sets for every ttl, in milliseconds, inclusive.
#[derive(Clone, Debug)]
pub(crate) struct TtlBounds {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

impl TtlBounds {
    pub(super) fn check(&self, field: &str, ttl: Duration) -> Result<(), Invalid> {
        let (min, max) = (self.min.as_millis(), self.max.as_millis());
        within(field, ttl.as_millis(), &(min..=max)).map(|_| ())
    }
}

/// Writes one field of a policy from its message.
type Setter = fn(&mut Policy, &pb::Policy);

/// Every field by the name clients write, and how it is taken from a message.
const FIELDS: [(&str, Setter); 18] = [
    ("ttl_ms", |to, from| to.ttl = millis(from.ttl_ms)),
    ("disconnect_grace_ms", |to, from| {
        to.disconnect_grace = millis(from.disconnect_grace_ms)
    }),
    ("restart_grace_ms", |to, from| {
        to.restart_grace = millis(from.restart_grace_ms)
    }),
    ("lock_delay_ms", |to, from| {
        to.lock_delay = millis(from.lock_delay_ms)
    }),
    ("drain_timeout_ms", |to, from| {
        to.drain_timeout = millis(from.drain_timeout_ms)
    }),
    ("opening_deadline_ms", |to, from| {
        to.opening_deadline = millis(from.opening_deadline_ms)
    }),
    ("handoffs_in_flight_max", |to, from| {
        to.handoffs_in_flight_max =
            (from.handoffs_in_flight_max > 0).then_some(from.handoffs_in_flight_max);
    }),
    ("load_factor_permille", |to, from| {
        to.load_factor_permille = from.load_factor_permille
    }),
    ("checkpoint_bytes_max", |to, from| {
        to.checkpoint_bytes_max = from.checkpoint_bytes_max
    }),
    ("checkpoint_total_bytes_max", |to, from| {
        to.checkpoint_total_bytes_max = from.checkpoint_total_bytes_max;
    }),
    ("worker_shards_max", |to, from| {
        to.worker_shards_max = (from.worker_shards_max > 0).then_some(from.worker_shards_max);
    }),
    ("required_labels", |to, from| {
        to.required_labels = from.required_labels.clone().into_iter().collect();
    }),
    ("preferred_labels", |to, from| {
        to.preferred_labels = from.preferred_labels.clone().into_iter().collect();
    }),
    ("zone_label", |to, from| {
        to.zone_label.clone_from(&from.zone_label)
    }),
    ("balance_by", |to, from| {
        to.balance_by = match from.balance_by() {
            pb::BalanceBy::Unspecified | pb::BalanceBy::Shards => BalanceBy::Shards,
            pb::BalanceBy::Load => BalanceBy::Load,
        };
    }),
    ("imbalance_tolerated_permille", |to, from| {
        to.imbalance_tolerated_permille = from.imbalance_tolerated_permille;
    }),
    ("moves_per_minute_max", |to, from| {
        to.moves_per_minute_max =
            (from.moves_per_minute_max > 0).then_some(from.moves_per_minute_max);
    }),
    ("crashes_max", |to, from| to.crashes_max = from.crashes_max),
];

const fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// Returns the path clients write for a field of [`Policy`].
pub(crate) fn policy_field_on_wire(field: &str) -> String {
    let with_unit = format!("{field}_ms");
    let known = FIELDS.iter().any(|(name, _)| *name == with_unit);
    format!("policy.{}", if known { &with_unit } else { field })
}

/// New values for some fields of a policy.
#[derive(Clone)]
pub(crate) struct PolicyEdit {
    values: pb::Policy,
    setters: Vec<Setter>,
}

impl PolicyEdit {
    /// Reads an edit.
    pub(super) fn new(
        values: Option<pb::Policy>,
        mask: Option<FieldMask>,
    ) -> Result<Self, Invalid> {
        let values = values.unwrap_or_default();
        // What a later version balances by must not be taken for what this one does by default.
        if pb::BalanceBy::try_from(values.balance_by).is_err() {
            let problem = format!("is {}, which this node does not know", values.balance_by);
            return Err(Invalid::new("policy.balance_by", problem));
        }
        let paths = mask.unwrap_or_default().paths;
        // Taking nothing of it would surprise whoever filled it in.
        if paths.is_empty() && values != pb::Policy::default() {
            let problem = "must name the fields of policy that are set";
            return Err(Invalid::new("policy_mask", problem));
        }
        let mut setters = Vec::with_capacity(paths.len());
        for path in &paths {
            let found = FIELDS.iter().find(|(name, _)| name == path);
            let (_, setter) = found.ok_or_else(|| {
                let known = FIELDS.map(|(name, _)| name).join(", ");
                Invalid::new(
                    "policy_mask",
                    format!("{path:?} is no field of policy: {known}"),
                )
            })?;
            setters.push(*setter);
        }
        Ok(Self { values, setters })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.setters.is_empty()
    }

    /// Applies the edit and checks what comes of it.
    pub(crate) fn apply_to(
        &self,
        mut policy: Policy,
        shard_count: u32,
        ttl: &TtlBounds,
    ) -> Result<Policy, Invalid> {
        for set in &self.setters {
            set(&mut policy, &self.values);
        }
        policy.validate(shard_count).map_err(|error| {
            let problem = format!("is {}, allowed is {}", error.value, error.allowed);
            Invalid::new(policy_field_on_wire(error.field), problem)
        })?;
        ttl.check("policy.ttl_ms", policy.ttl)?;
        Ok(policy)
    }
}
