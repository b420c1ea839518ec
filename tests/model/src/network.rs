//! Streams between workers and leaders.
//!
//! Within a stream messages come in order and none is missing; a stream that is cut delivers what its
//! receiver has read by then and loses the rest. So messages are lost with their stream, overtake each other between
//! streams, and are doubled by being said again on the next stream, as on a real connection.

mod ends;

use crate::few::Few;
use crate::ids::Attempt;
use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::Revision;
use crate::ids::SessionId;
use crate::ids::Term;
use crate::ids::Ticks;

/// Most messages on their way up one stream.
pub const UP_MAX: usize = 4;

/// Most messages on their way down one stream.
pub const DOWN_MAX: usize = 4;

/// What a worker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Up {
    /// Opens the stream of a process without a session.
    Register {
        /// The first session of the process; 0 if it had none.
        first: SessionId,
    },
    /// Opens the stream of a process with a session.
    Resume(SessionId),
    /// It lives.
    Heartbeat,
    /// Answers a `Set`.
    Holding {
        /// The revision of the `Set`.
        set: Revision,
        /// The tenure it holds; 0 is none.
        epoch: Epoch,
    },
    /// It has sealed and read.
    Ready(Epoch),
    /// It has given a tenure up.
    Released(Epoch),
}

/// What the owner of a shard is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duty {
    /// Open it.
    Open,
    /// Go on.
    Serve,
    /// Give it back within so long.
    Drain(Ticks),
}

/// Why the leader ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Close {
    /// The session is over.
    SessionEnded,
    /// A newer process has the name.
    Replaced,
    /// Come back.
    Retry,
}

/// What a leader says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Down {
    /// `Registered` and the `Set`, which always follow each other.
    Set {
        /// The session of the stream.
        session: SessionId,
        /// When it was true.
        revision: Revision,
        /// The shard, if it is the session's.
        shard: Option<(Epoch, Duty)>,
    },
    /// The latest heartbeat, or the opening message, is acknowledged.
    Acknowledged,
    /// The shard is granted.
    Granted {
        /// Its epoch.
        epoch: Epoch,
        /// The revision of the grant.
        revision: Revision,
    },
    /// The shard is asked back.
    Revoke {
        /// Its epoch.
        epoch: Epoch,
        /// How long the owner may take.
        drain: Ticks,
    },
    /// The tenure is over.
    Lost(Epoch),
    /// The end of the stream.
    Close(Close),
}

/// One stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The worker's end.
    pub process: ProcessId,
    /// Which of the process's streams it is.
    pub attempt: Attempt,
    /// The leader's end.
    pub term: Term,
    /// On the way up.
    pub up: Few<Up, UP_MAX>,
    /// On the way down.
    pub down: Few<Down, DOWN_MAX>,
    /// Nothing that is sent from now on arrives.
    pub cut: bool,
    /// The worker has noticed, or has gone.
    pub worker_gone: bool,
    /// The leader has noticed, or has ended the stream.
    pub leader_gone: bool,
}

impl Stream {
    /// Says something upward. What finds no way is lost.
    pub fn send_up(&mut self, message: Up) {
        if !self.cut && !self.leader_gone {
            self.up.push(message);
        }
    }

    /// Says something downward. What finds no way is lost; a worker that reads too slowly loses its stream, as
    /// in `coordinator/src/control/leader.rs`, `send`.
    pub fn send_down(&mut self, message: Down) {
        if self.cut || self.worker_gone {
            return;
        }
        if self.down.has_room(1) {
            self.down.push(message);
        } else {
            self.cut = true;
        }
    }

    /// Whether a heartbeat or its acknowledgement is on its way.
    pub fn carries_a_heartbeat(&self) -> bool {
        let up = |up: &Up| matches!(up, Up::Heartbeat | Up::Register { .. } | Up::Resume(_));
        self.up.find(up).is_some() || self.down.find(|down| *down == Down::Acknowledged).is_some()
    }
}
