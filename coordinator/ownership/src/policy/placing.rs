//! What a policy says of placement and balance.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};

use super::{Policy, PolicyError, bounds, within};
use crate::session::{LABEL_BYTES_MAX, LABEL_KEY_BYTES};

/// What is evened out among the workers of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum BalanceBy {
    /// The number of shards for a worker's weight.
    #[default]
    #[n(0)]
    Shards,
    /// The load that workers report for their shards, for a worker's weight. Caps on the number of
    /// shards hold all the same.
    #[n(1)]
    Load,
}

impl Policy {
    /// Checks the fields that placement reads.
    pub(super) fn validate_placing(&self, shards: u32) -> Result<(), PolicyError> {
        if let Some(most) = self.worker_shards_max {
            within("worker_shards_max", most, &(1..=shards.max(1)))?;
        }
        labels("required_labels", &self.required_labels)?;
        labels("preferred_labels", &self.preferred_labels)?;
        if self.zone_label.len() > *LABEL_KEY_BYTES.end() {
            return Err(PolicyError {
                field: "zone_label",
                value: format!("{} bytes long", self.zone_label.len()),
                allowed: format!("a key of at most {} bytes", LABEL_KEY_BYTES.end()),
            });
        }
        within(
            "imbalance_tolerated_permille",
            self.imbalance_tolerated_permille,
            &bounds::IMBALANCE_PERMILLE,
        )?;
        if let Some(most) = self.moves_per_minute_max {
            within("moves_per_minute_max", most, &bounds::MOVES_PER_MINUTE)?;
        }
        within("crashes_max", self.crashes_max, &bounds::CRASHES)
    }
}

/// Whether labels could be those of a worker.
fn labels(field: &'static str, labels: &BTreeMap<String, String>) -> Result<(), PolicyError> {
    let fits = |(key, value): (&String, &String)| {
        LABEL_KEY_BYTES.contains(&key.len()) && value.len() <= LABEL_BYTES_MAX
    };
    if labels.len() <= bounds::LABELS_MAX && labels.iter().all(fits) {
        return Ok(());
    }
    let (least, most) = LABEL_KEY_BYTES.into_inner();
    Err(PolicyError {
        field,
        value: format!("{} labels", labels.len()),
        allowed: format!(
            "at most {}, with keys of {least} to {most} and values of at most {LABEL_BYTES_MAX} bytes",
            bounds::LABELS_MAX
        ),
    })
}
