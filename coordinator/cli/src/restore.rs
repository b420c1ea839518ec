//! `tenure cluster restore`: what the binary does by itself, without asking a coordinator.

use serde::Serialize;

use crate::command::RestoreArguments;
use crate::console::Console;
use crate::error::CliError;
use crate::text::{self, Wide};

/// What a binary can do without a coordinator. This crate cannot: it links no storage.
#[derive(Clone, Copy, Debug)]
pub struct Offline {
    /// Makes the data folder of the first node of a new cluster from a backup.
    pub restore: fn(&RestoreArguments) -> Result<Restored, CliError>,
}

/// A new cluster that was made from a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The cluster of the backup.
    pub from: u128,
    /// The new one.
    pub cluster: u128,
    /// Id of its first node.
    pub node: u64,
    /// Revision of the backup.
    pub backup_revision: u64,
    /// Revision at which the new cluster begins.
    pub revision: u64,
    /// Groups in it.
    pub groups: u64,
    /// Their shards.
    pub shards: u64,
    /// Sessions that have ended.
    pub sessions_ended: u64,
    /// For how long nothing is granted, in milliseconds.
    pub wait_ms: u64,
}

pub(crate) fn run(
    arguments: &RestoreArguments,
    offline: &Offline,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    if arguments.node.0.id > 0 {
        let message = "--node: the new cluster gives its node an id, leave it out".to_owned();
        return Err(CliError::Usage { message });
    }
    console.confirm(
        arguments.yes,
        format_args!(
            "a new cluster will be made in {}, and the old one must never run again",
            arguments.data_dir.display()
        ),
    )?;
    let restored = (offline.restore)(arguments)?;
    if console.json() {
        return console.document(&View::from(&restored));
    }
    console.details(vec![
        ("cluster", format!("{:032x}", restored.cluster)),
        ("node", restored.node.to_string()),
        ("revision", restored.revision.to_string()),
        ("restored_from", format!("{:032x}", restored.from)),
        ("backup_revision", restored.backup_revision.to_string()),
        ("groups", restored.groups.to_string()),
        ("shards", restored.shards.to_string()),
        ("sessions_ended", restored.sessions_ended.to_string()),
        ("grants_nothing_for", text::millis(restored.wait_ms)),
    ])?;
    console.note(
        "start the node with this data folder, then add others with `tenure cluster add`; workers of \
         before register anew by themselves once they reach it",
    )
}

#[derive(Serialize)]
struct View {
    cluster_id: String,
    node_id: Wide,
    revision: Wide,
    restored_from: String,
    backup_revision: Wide,
    groups: Wide,
    shards: Wide,
    sessions_ended: Wide,
    wait_ms: Wide,
}

impl From<&Restored> for View {
    fn from(restored: &Restored) -> Self {
        Self {
            cluster_id: format!("{:032x}", restored.cluster),
            node_id: Wide(restored.node),
            revision: Wide(restored.revision),
            restored_from: format!("{:032x}", restored.from),
            backup_revision: Wide(restored.backup_revision),
            groups: Wide(restored.groups),
            shards: Wide(restored.shards),
            sessions_ended: Wide(restored.sessions_ended),
            wait_ms: Wide(restored.wait_ms),
        }
    }
}
