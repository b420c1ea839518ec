//! The data folder of the first node of a new cluster, from a backup of another one.
//!
//! ```text
//!   backup ─▶ records ─▶ State ─▶ Restore (ownership) ─▶ records of the next generation
//!                                                             │
//!                                          snapshot file ◀────┤ one synced batch: identity, vote,
//!                                                             ▼ applied, purged, membership, snapshot
//!                                                          Storage
//! ```
//!
//! A backup is a snapshot file. Nothing of the old cluster but its records comes along: the new one has
//! another identity, one voter under an id that was never used, and a log that begins after the restore.
//!
//! # Invariants
//!
//! * Everything that makes the folder that of a node is in the last batch. A restore that was broken
//!   off leaves a folder that belongs to nobody.
//! * The backup was read to its end, and the state keeps every invariant, before that batch is written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::Duration;

use tenure_ownership::command::Restore;
use tenure_ownership::ids::{ClusterId, Revision};
use tenure_ownership::record::RecordWrite;
use tenure_ownership::{Command, Rejection, State, invariants};

use super::identity::{Identity, NodeAddresses, NodeId};
use super::membership::ADDED_ID_MIN;
use super::meta::{self, Generation};
use super::options::{OptionsError, check_addresses};
use super::snapshot::{
    SnapshotContent, SnapshotError, SnapshotFile, SnapshotReader, SnapshotWriter,
};
use super::state_machine::{load_state, pointer_to};
use super::types::{LogId, Membership, StoredMembership, Vote};
use crate::storage::{Batch, Storage, StorageError, Table};

/// Bytes of records in one batch.
const BATCH_BYTES: usize = 4 << 20;

/// What the new cluster is to be.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// Its identity, drawn at random.
    pub cluster: ClusterId,
    /// Where its first node is reached.
    pub addresses: NodeAddresses,
    /// No epoch up to this one is granted. A number that no other restore of the backup has.
    pub floor_min: u64,
    /// The log begins at least here, above every index that the old cluster, or an earlier restore, can
    /// have reached: whoever watched one of them must not take its place there for one here.
    pub index_min: u64,
    /// The shortest time for which nothing is granted; the state may ask for more.
    pub quiet_min: Duration,
}

/// A new cluster that was made from a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredCluster {
    /// The cluster of the backup.
    pub from: ClusterId,
    /// The first node of the new one.
    pub identity: Identity,
    /// Revision of the backup.
    pub backup_revision: Revision,
    /// Revision at which the new cluster begins.
    pub revision: Revision,
    /// Groups in it.
    pub groups: usize,
    /// Their shards.
    pub shards: u64,
    /// Sessions of the backup, all of which have ended.
    pub sessions_ended: usize,
    /// How long nothing is granted once its first leader accepts streams.
    pub quiet: Duration,
}

/// Why no cluster was made from a backup. The folder belongs to nobody then.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The folder is that of a node already.
    #[error("the data folder is in use: it belongs to {found}")]
    Used {
        /// Whose it is.
        found: Identity,
    },
    /// The file is damaged, cut short, or no backup of this release.
    #[error("{reason}")]
    Backup {
        /// What is wrong with it.
        reason: String,
    },
    /// The state in the backup breaks a rule: no release of ours writes that.
    #[error("the backup holds a state that cannot be: {violation}")]
    Broken {
        /// Which rule.
        violation: String,
    },
    /// The state refuses the restore.
    #[error("the backup cannot be restored: {0}")]
    Refused(Rejection),
    /// The addresses of the node are none.
    #[error(transparent)]
    Addresses(#[from] OptionsError),
    /// The folder cannot be written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<SnapshotError> for RestoreError {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Storage(error) => Self::Storage(error),
            SnapshotError::Io(source) => Self::Storage(StorageError::Io {
                operation: "read the backup",
                source,
            }),
            SnapshotError::Corrupt { reason, .. } => Self::Backup {
                reason: format!("the backup is damaged or none: {reason}"),
            },
            refused @ SnapshotError::Foreign { .. } => Self::Backup {
                reason: refused.to_string(),
            },
        }
    }
}

fn unusable(reason: &str) -> RestoreError {
    RestoreError::Backup {
        reason: format!("the backup cannot be used: {reason}"),
    }
}

/// Makes an unused storage that of the first node of a new cluster with the state of a backup. Blocks.
///
/// # Errors
///
/// [`RestoreError`]; the storage belongs to nobody then, and is to be thrown away.
pub fn restore(
    storage: &dyn Storage,
    backup: Box<dyn Read + Send>,
    options: &RestoreOptions,
) -> Result<RestoredCluster, RestoreError> {
    check_addresses(&options.addresses)?;
    if let Some(found) = meta::identity(storage)? {
        return Err(RestoreError::Used { found });
    }
    let generation = Generation::default().next();
    let content = load_records(storage, backup, generation)?;
    let mut state = load_state(storage, generation)?;
    let (from, last) = check_content(&content, &state)?;
    // Rules may rely on what no release of ours breaks.
    check_state(&state)?;
    let sessions_ended = state.sessions().count();

    let log_id =
        first_log_id(last, options.index_min).ok_or_else(|| unusable("its numbers are used up"))?;
    let revision = Revision(log_id.index());
    let command = Command::Restore(Restore {
        from,
        to: options.cluster,
        floor_min: options.floor_min,
        quiet_min: options.quiet_min,
    });
    let applied = tenure_ownership::apply(&mut state, revision, command);
    applied.outcome.map_err(RestoreError::Refused)?;
    check_state(&state)?;
    write_records(storage, generation, applied.writes)?;

    // Nodes that are added get the index of an entry, which is above, and the first of a cluster small ones.
    let identity = Identity {
        cluster: options.cluster,
        node: NodeId((last.index() + 1).max(ADDED_ID_MIN)),
    };
    let content = SnapshotContent {
        cluster: identity.cluster,
        last_log_id: Some(log_id),
        membership: alone(identity.node, &options.addresses, log_id)?,
    };
    let file = write_snapshot(storage, generation, &content)?;
    let mut batch = Batch::new();
    meta::put_identity(&mut batch, identity);
    meta::put_vote(
        &mut batch,
        &Vote::new(log_id.committed_leader_id().term, identity.node.0),
    );
    meta::put_purged(&mut batch, &log_id);
    meta::put_generation(&mut batch, generation);
    meta::put_applied(&mut batch, &log_id);
    meta::put_membership(&mut batch, &content.membership);
    meta::put_snapshot(&mut batch, &pointer_to(&content, &file));
    storage.write(batch)?;
    storage.sync()?;
    Ok(RestoredCluster {
        from,
        identity,
        backup_revision: state_revision(last),
        revision,
        groups: state.groups().count(),
        shards: state
            .groups()
            .map(|group| u64::from(group.header.shard_count))
            .sum(),
        sessions_ended,
        quiet: state
            .restored()
            .map_or(options.quiet_min, |restored| restored.quiet),
    })
}

fn state_revision(last: LogId) -> Revision {
    Revision(last.index())
}

/// The log begins after the last entry of the backup, in a term of its own, and above the ids that the
/// nodes of a new cluster get without an entry.
fn first_log_id(last: LogId, index_min: u64) -> Option<LogId> {
    let term = last.committed_leader_id().term.checked_add(1)?;
    let index = last.index().checked_add(1)?;
    let index = index.max(ADDED_ID_MIN).max(index_min);
    // Room for those that are still to come.
    (term < u64::MAX / 2 && index < u64::MAX / 2).then(|| LogId::new_term_index(term, index))
}

/// Writes the records of a backup, which is read to its end.
fn load_records(
    storage: &dyn Storage,
    backup: Box<dyn Read + Send>,
    generation: Generation,
) -> Result<SnapshotContent, RestoreError> {
    let mut reader = SnapshotReader::of_any_cluster("backup", backup)?;
    // What a restore that was broken off has left.
    let mut batch = Batch::new();
    batch.delete_range(Table::State, generation.start(), generation.next().start());
    while let Some((key, value)) = reader.next_record()? {
        batch.put(Table::State, generation.key(&key), value);
        if batch.size_bytes() >= BATCH_BYTES {
            storage.write(std::mem::take(&mut batch))?;
        }
    }
    storage.write(batch)?;
    Ok(reader.content().clone())
}

fn check_state(state: &State) -> Result<(), RestoreError> {
    match invariants::check(state).first() {
        None => Ok(()),
        Some(violation) => Err(RestoreError::Broken {
            violation: violation.to_string(),
        }),
    }
}

/// The cluster of the backup, and the last entry in it.
fn check_content(
    content: &SnapshotContent,
    state: &State,
) -> Result<(ClusterId, LogId), RestoreError> {
    let last = content
        .last_log_id
        .ok_or_else(|| unusable("it contains no entry"))?;
    if state.cluster() != Some(content.cluster) {
        return Err(unusable("its state is not that of its cluster"));
    }
    if state.revision().0 > last.index() {
        return Err(unusable("its state is newer than its last entry"));
    }
    Ok((content.cluster, last))
}

fn write_records(
    storage: &dyn Storage,
    generation: Generation,
    writes: Vec<RecordWrite>,
) -> Result<(), StorageError> {
    let mut batch = Batch::new();
    for write in writes {
        let key = generation.key(&write.key);
        match write.value {
            Some(value) => batch.put(Table::State, key, value),
            None => batch.delete(Table::State, key),
        }
        if batch.size_bytes() >= BATCH_BYTES {
            storage.write(std::mem::take(&mut batch))?;
        }
    }
    storage.write(batch)
}

fn alone(
    node: NodeId,
    addresses: &NodeAddresses,
    log_id: LogId,
) -> Result<StoredMembership, RestoreError> {
    let voters = vec![BTreeSet::from([node.0])];
    let nodes = BTreeMap::from([(node.0, addresses.clone())]);
    let membership =
        Membership::new(voters, nodes).map_err(|error| unusable(&error.to_string()))?;
    Ok(StoredMembership::new(Some(log_id), membership))
}

/// Writes the snapshot that nodes get which are added: the log before it does not exist.
fn write_snapshot(
    storage: &dyn Storage,
    generation: Generation,
    content: &SnapshotContent,
) -> Result<SnapshotFile, SnapshotError> {
    let mut writer = SnapshotWriter::create(storage.files(), "restored.unfinished", content)?;
    let (from, to) = (generation.start(), generation.next().start());
    for record in storage.scan(Table::State, &from, &to) {
        let (key, value) = record?;
        writer.record(Generation::strip(&key), &value)?;
    }
    let mut file = writer.finish()?;
    let index = content.last_log_id.map_or(0, |log_id| log_id.index());
    let name = format!("snapshot-{index:020}-0");
    storage.files().rename(&file.name, &name)?;
    file.name = name;
    Ok(file)
}
