//! Refusals: committed facts about commands that changed nothing (P10).

use tenure_fence::{Epoch, GroupName, Refusal};

use crate::ids::{ClusterId, GroupId, SessionId, ShardIndex, WorkerName};
use crate::policy::PolicyError;
use crate::session::WorkerMode;

/// Why a command, or one shard of a command, was refused. Not an error: the log did its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The cluster has no identity yet: nothing but `InitCluster` is accepted.
    #[error("the cluster is not initialized")]
    NotInitialized,
    /// The cluster has an identity already.
    #[error("the cluster is initialized already as {cluster}")]
    AlreadyInitialized {
        /// Its identity.
        cluster: ClusterId,
    },
    /// The state is that of another cluster than the command was made for.
    #[error("the state is that of cluster {cluster}")]
    OtherCluster {
        /// Its identity.
        cluster: ClusterId,
    },
    /// The cluster was restored from a backup, and owners from before may still believe.
    #[error("the cluster was restored from a backup and grants nothing yet")]
    Unsettled,
    /// No group has this name.
    #[error("no group is named {name}")]
    UnknownGroup {
        /// The name.
        name: GroupName,
    },
    /// The group meant by the command is gone.
    #[error("group #{group} is gone")]
    GroupGone {
        /// That life of the group.
        group: GroupId,
    },
    /// The name is taken.
    #[error("group {name} exists already")]
    GroupExists {
        /// The name.
        name: GroupName,
    },
    /// The group is being deleted.
    #[error("group {name} is being deleted")]
    GroupDeleting {
        /// The name.
        name: GroupName,
    },
    /// The group is not under deletion, so it cannot be removed.
    #[error("group {name} is not being deleted")]
    GroupActive {
        /// The name.
        name: GroupName,
    },
    /// Shards of the group are still owned.
    #[error("group {name} cannot be removed yet: {owned} shards are owned")]
    GroupInUse {
        /// The name.
        name: GroupName,
        /// Shards still owned.
        owned: u32,
    },
    /// A quota of the cluster is used up.
    #[error("{what} are limited to {limit}")]
    TooMany {
        /// What was asked for.
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// A value is out of bounds.
    #[error("{field} is out of bounds, allowed is {allowed}")]
    OutOfBounds {
        /// The field.
        field: &'static str,
        /// The allowed range with its unit.
        allowed: String,
    },
    /// A policy value is out of bounds.
    #[error(transparent)]
    Policy(PolicyError),
    /// The policy was changed since it was read.
    #[error("the policy was changed at revision {current}, the edit started from {seen}")]
    PolicyChanged {
        /// What the edit started from.
        seen: u64,
        /// What is there.
        current: u64,
    },
    /// The same process is registered already.
    #[error("this process is registered already as session {session}")]
    AlreadyRegistered {
        /// Its session.
        session: SessionId,
    },
    /// A newer process holds the worker's name.
    #[error("a newer process holds the name as session {by}")]
    Replaced {
        /// The session of the newer process.
        by: SessionId,
    },
    /// The holder of the name is not the one the command waited for.
    #[error("the name is held by {}, the command expected {}", holder_shown(.holder), holder_shown(.expected))]
    HolderChanged {
        /// The session that holds the name.
        holder: Option<SessionId>,
        /// The session the command wanted to replace.
        expected: Option<SessionId>,
    },
    /// The session has ended.
    #[error("session {session} has ended")]
    SessionEnded {
        /// The session.
        session: SessionId,
    },
    /// The session serves another group.
    #[error("session {session} serves another group")]
    WrongGroup {
        /// The session.
        session: SessionId,
    },
    /// The session's worker takes no new shards.
    #[error("the worker of session {session} takes no new shards, it is {}", mode_shown(.mode))]
    WorkerTakesNone {
        /// The session.
        session: SessionId,
        /// Why it takes none.
        mode: WorkerMode,
    },
    /// The worker is not paused, or not by the pause that was meant.
    #[error("that pause of worker {worker} is over")]
    NotPaused {
        /// The worker.
        worker: WorkerName,
    },
    /// The group has no such shard.
    #[error("the group has no shard {shard}")]
    UnknownShard {
        /// The index.
        shard: ShardIndex,
    },
    /// The shard moved on since the command was decided.
    #[error("shard {shard} is at epoch {}, command expected {}", shown(.current), shown(.expected))]
    StaleEpoch {
        /// The shard.
        shard: ShardIndex,
        /// Its epoch.
        current: Option<Epoch>,
        /// The epoch of the command.
        expected: Option<Epoch>,
    },
    /// The shard is owned, so it cannot be granted.
    #[error("shard {shard} is owned by session {owner}")]
    Owned {
        /// The shard.
        shard: ShardIndex,
        /// Its owner.
        owner: SessionId,
    },
    /// The session does not own the shard.
    #[error("shard {shard} is not owned by session {session}")]
    NotOwner {
        /// The shard.
        shard: ShardIndex,
        /// The session.
        session: SessionId,
    },
    /// The shard is being revoked, so the step is too late.
    #[error("shard {shard} is being revoked")]
    BeingRevoked {
        /// The shard.
        shard: ShardIndex,
    },
    /// Nobody owns the shard, so nobody can be asked to stop.
    #[error("shard {shard} is unowned")]
    Unowned {
        /// The shard.
        shard: ShardIndex,
    },
    /// The owner became ready before its opening deadline was enforced.
    #[error("shard {shard} is served already")]
    AlreadyServing {
        /// The shard.
        shard: ShardIndex,
    },
    /// The shard is not being revoked, so it cannot be forced.
    #[error("shard {shard} is not being revoked")]
    NotRevoking {
        /// The shard.
        shard: ShardIndex,
    },
    /// The epochs of the shard are used up: the largest has been granted.
    #[error("the epochs of shard {shard} are used up")]
    EpochExhausted {
        /// The shard.
        shard: ShardIndex,
    },
    /// The shard is in quarantine: it is granted to nobody until an operator says so.
    #[error("shard {shard} is in quarantine, {crashes} owners crashed with it")]
    Quarantined {
        /// The shard.
        shard: ShardIndex,
        /// How many owners crashed.
        crashes: u32,
    },
    /// The replicated store refuses a token.
    #[error(transparent)]
    Fence(Refusal),
    /// A token names an epoch that was never granted to its owner.
    #[error("shard {shard} was never granted to this owner at epoch {presented}")]
    NeverGranted {
        /// The shard.
        shard: ShardIndex,
        /// The epoch presented.
        presented: Epoch,
    },
    /// A checkpoint is too large, alone or with the others of its group.
    #[error("a checkpoint of {bytes} bytes exceeds the limit of {limit} bytes of policy.{field}")]
    CheckpointTooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
        /// Which field of the policy sets the limit.
        field: &'static str,
    },
}

fn mode_shown(mode: &WorkerMode) -> &'static str {
    match mode {
        WorkerMode::Active => "active",
        WorkerMode::Draining => "being drained",
        WorkerMode::Cordoned => "cordoned",
        WorkerMode::Paused => "paused",
    }
}

fn shown(epoch: &Option<Epoch>) -> String {
    epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string())
}

fn holder_shown(session: &Option<SessionId>) -> String {
    session.map_or_else(
        || "nobody".to_owned(),
        |session| format!("session {session}"),
    )
}
