//! What passes between a worker's stream and the leader, in the words of the domain.

use std::fmt;
use std::time::Duration;

use tenure_fence::Owner;
use tenure_ownership::Rejection;
use tenure_ownership::command::Register;
use tenure_ownership::command::Released;
use tenure_ownership::command::Tenure;
use tenure_ownership::ids::ProcessNonce;
use tenure_ownership::ids::Revision;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::ids::StoreName;
use tenure_ownership::shard::RevokeReason;
use tenure_ownership::shard::StoreReady;

/// One worker stream of one leadership of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The first message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// A process without a session wants one. `register.replaces` is filled in by the leader.
    Register {
        /// The command to be.
        register: Box<Register>,
        /// Cluster and number of the latest session the process had.
        first: Option<Owner>,
        /// Number of this stream among those of the process.
        attempt: u64,
    },
    /// A process goes on with its session.
    Resume {
        /// The session.
        session: Owner,
        /// The process.
        nonce: ProcessNonce,
        /// Number of this stream among those of the process.
        attempt: u64,
    },
}

/// Any later message from a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Up {
    /// The session is alive.
    Heartbeat {
        /// Its number within the session.
        sequence: u64,
        /// Loads of shards, in units of the worker's choice.
        loads: Vec<(ShardIndex, u64)>,
    },
    /// Answer to a `Set`: everything the worker has a handle for.
    Holding {
        /// The `Set` answered.
        set: Revision,
        /// The tenures held.
        tenures: Vec<Tenure>,
    },
    /// Tenures that serve from now on.
    Ready {
        /// The tenures.
        tenures: Vec<Tenure>,
        /// The stores that were sealed for them.
        stores: Vec<StoreName>,
    },
    /// Shards given back.
    Released(Vec<Released>),
    /// The worker begins to stop: it serves what it has until others take it, and is to be given nothing.
    Stopping,
    /// The worker stops; it has given up everything.
    Leaving,
}

/// A message to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// The session, first of all.
    Registered {
        /// The session.
        session: Owner,
        /// Life without a heartbeat.
        ttl: Duration,
        /// The belief window W.
        window: Duration,
        /// Shards of the group.
        shard_count: u32,
    },
    /// The shards of the session as of a revision.
    Set {
        /// The state's revision.
        revision: Revision,
        /// The shards.
        shards: Vec<SetShard>,
    },
    /// Heartbeats up to this one are acknowledged; 0 is the `Register` or `Resume` of the stream.
    Ack {
        /// The highest heartbeat acknowledged.
        sequence: u64,
    },
    /// New shards.
    Granted {
        /// Revision of the grants.
        revision: Revision,
        /// The tenures, each with what its stores were last ready at.
        grants: Vec<(Tenure, Vec<StoreReady>)>,
    },
    /// Shards to finish and release.
    Revoke {
        /// Revision of the revocations.
        revision: Revision,
        /// The tenures.
        tenures: Vec<Tenure>,
        /// How long the worker may take.
        drain: Duration,
        /// Why.
        reason: RevokeReason,
    },
    /// To a worker that stops: nobody takes its shards while it serves them.
    Dismissed,
    /// Tenures that are over.
    Lost {
        /// Revision of the change.
        revision: Revision,
        /// The tenures.
        tenures: Vec<Tenure>,
    },
}

/// One shard of a [`Down::Set`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetShard {
    /// The tenure.
    pub tenure: Tenure,
    /// What the owner is to do with it.
    pub duty: Duty,
    /// What its stores were last ready at.
    pub stores: Vec<StoreReady>,
}

/// What an owner is to do with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Open it and report it ready.
    Open,
    /// Serve it.
    Serve,
    /// Finish and release it within this time.
    Drain(Duration),
}

/// Why the leader ends a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// The worker left; the session is over and all is well.
    Left,
    /// This node does not lead (any more).
    NotLeader,
    /// The session has ended.
    SessionEnded,
    /// A newer process holds the worker's name.
    Replaced,
    /// A newer stream of the session was opened.
    Superseded,
    /// The process presented another nonce than the one that registered.
    WrongNonce,
    /// The registration was refused.
    Refused(Rejection),
    /// The outcome of something is not known yet, or the stream fell behind: come back and resume.
    Retry,
}
