//! What is committed: sessions, and the one shard. The counterpart of crate `tenure-ownership`.
//!
//! [`Ownership::apply`] is the only function that changes it.

mod apply;

use crate::few::Few;
use crate::ids::Attempt;
use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::Revision;
use crate::ids::SessionId;

/// Most sessions that live at once: one for each name, and one more when a rule is missing.
pub const LIVE_MAX: usize = 4;

/// Most events of one command.
const EVENTS_MAX: usize = 6;

/// Who owns the shard, and what it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shard {
    /// Nobody owns it.
    Unowned,
    /// Granted and not sealed yet.
    Opening(SessionId),
    /// Sealed and read.
    Serving(SessionId),
    /// Asked back.
    Revoking {
        /// Who is asked.
        owner: SessionId,
        /// Who follows; 0 is nobody.
        next: SessionId,
    },
}

impl Shard {
    /// The owning session; 0 if there is none.
    pub fn owner(self) -> SessionId {
        match self {
            Self::Unowned => 0,
            Self::Opening(owner) | Self::Serving(owner) | Self::Revoking { owner, .. } => owner,
        }
    }
}

/// A live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Live {
    /// Its id.
    pub session: SessionId,
    /// The process that registered: stands for its nonce.
    pub process: ProcessId,
    /// The worker's name.
    pub name: u8,
    /// The first session of the process.
    pub first: SessionId,
}

impl Live {
    /// Says whether its process is newer than one whose first session was `first`, 0 for none.
    #[must_use]
    pub fn is_newer_than(&self, first: SessionId) -> bool {
        first != 0 && first < self.first
    }
}

/// The committed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// How often it was changed.
    pub revision: Revision,
    /// The latest session.
    pub last_session: SessionId,
    /// The sessions that live.
    pub live: Few<Live, LIVE_MAX>,
    /// The epoch of the latest grant; the next one takes the next.
    pub epoch: Epoch,
    /// Who owns the shard.
    pub shard: Shard,
    /// The group is being deleted.
    pub deleting: bool,
    /// How often the group was deleted and created again.
    pub group: u8,
}

/// A registration, as it is proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register {
    /// The process: stands for its nonce.
    pub process: ProcessId,
    /// The worker's name.
    pub name: u8,
    /// The stream it came on.
    pub attempt: Attempt,
    /// The first session of the process; 0 if it had none.
    pub first: SessionId,
    /// The session it was proposed to replace; 0 is none.
    pub replaces: SessionId,
}

/// What may be in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// A process registers.
    Register(Register),
    /// A session was silent for too long.
    Expire(SessionId),
    /// A plan gives the unowned shard to somebody.
    Grant {
        /// To whom.
        to: SessionId,
        /// The epoch the plan was made for.
        seen: Epoch,
        /// The group it was made for.
        group: u8,
    },
    /// A plan, or a drain, asks the shard back.
    Revoke {
        /// The epoch it was made for.
        seen: Epoch,
        /// The group it was made for.
        group: u8,
        /// Who follows.
        next: SessionId,
    },
    /// An owner has sealed and read.
    Ready {
        /// Who says so.
        session: SessionId,
        /// Of which tenure.
        epoch: Epoch,
    },
    /// An owner gives the shard back.
    Release {
        /// Who says so.
        session: SessionId,
        /// Of which tenure.
        epoch: Epoch,
    },
    /// A drain is over.
    Force {
        /// Of which tenure.
        epoch: Epoch,
        /// The group it was decided in.
        group: u8,
    },
    /// The group is to be deleted.
    Delete,
    /// Nobody owns anything of the group any more: it goes, and is created again at once.
    Remove,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionEnd {
    /// It was silent for too long, or its group is gone.
    Over,
    /// A newer process has its name.
    Replaced,
}

/// A committed fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A session began.
    Registered(Live),
    /// A session ended.
    Ended(SessionId, SessionEnd),
    /// A tenure began.
    Granted(SessionId, Epoch),
    /// A tenure is asked back.
    Revoking(SessionId, Epoch),
    /// A tenure ended.
    TenureEnded {
        /// Whose.
        owner: SessionId,
        /// Which.
        epoch: Epoch,
        /// The owner did not give it back, so it has to be told.
        forced: bool,
    },
}

/// Why a command changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// The process has a session.
    AlreadyRegistered(SessionId),
    /// A newer process has the name.
    Replaced,
    /// Anything else.
    Stale,
}

/// What a command did.
pub type Outcome = Result<Few<Event, EVENTS_MAX>, Rejection>;

impl Ownership {
    /// Nobody and nothing.
    pub const EMPTY: Self = Self {
        revision: 0,
        last_session: 0,
        live: Few::EMPTY,
        epoch: 0,
        shard: Shard::Unowned,
        deleting: false,
        group: 0,
    };

    /// The live session of an id.
    pub fn session(&self, id: SessionId) -> Option<Live> {
        self.live.find(|live| live.session == id)
    }

    /// The live session that holds a name.
    pub fn holder(&self, name: u8) -> Option<Live> {
        self.live.find(|live| live.name == name)
    }

    /// The epoch and the shard, if a session owns it.
    pub fn owned_by(&self, session: SessionId) -> Option<Epoch> {
        (session != 0 && self.shard.owner() == session).then_some(self.epoch)
    }
}
