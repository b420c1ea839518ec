//! What concerns the whole cluster: its identity and its features.

use super::entry::Entry;
use crate::event::Event;
use crate::feature::Feature;
use crate::ids::ClusterId;
use crate::rejection::Rejection;

/// Gives the cluster its identity, once.
pub(super) fn init(entry: &mut Entry<'_>, cluster: ClusterId) -> Result<(), Rejection> {
    if let Some(cluster) = entry.state().cluster() {
        return Err(Rejection::AlreadyInitialized { cluster });
    }
    entry.set_cluster(cluster);
    entry.record(Event::ClusterInitialized { cluster });
    Ok(())
}

/// Switches a behaviour on; nothing happens if it was switched on before.
pub(super) fn enable(entry: &mut Entry<'_>, feature: Feature) -> Result<(), Rejection> {
    if entry.insert_feature(feature) {
        entry.record(Event::FeatureEnabled { feature });
    }
    Ok(())
}
