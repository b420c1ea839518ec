//! How far a check goes: which faults may happen, how often, and where it starts.

use crate::ids::Ticks;
use crate::state::PROCESSES;

/// The lengths of time that the protocol knows, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The belief window W, which is also the grace after a broken stream.
    pub window: Ticks,
    /// How long a session lives in silence. Not below the window.
    pub ttl: Ticks,
    /// How long an owner that is asked for a shard may take.
    pub drain: Ticks,
}

/// How long heartbeats and acknowledgements are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heartbeats {
    /// Any time: each takes its steps like every other message.
    Delayed,
    /// No time: a heartbeat is sent, heard and confirmed in one step, and its acknowledgement is heard
    /// in the step that sends it. How long lies between the two steps is open, so an acknowledgement may still
    /// be as late as it likes, and the message that opens a stream takes its time in any case.
    ///
    /// That hides no violation. A heartbeat that is heard, or confirmed, later than it was sent could have been sent
    /// later: then belief would last longer. An acknowledgement that is heard later than it was sent gives
    /// less belief, and gives it for no longer. `Delayed` in smaller bounds shows the same.
    Prompt,
}

/// Where a check starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nobody has registered.
    Cold,
    /// Processes 0 and 1 have sessions and streams; process 0 serves the shard at epoch 1. Saves the
    /// dozen steps in which nothing can go wrong yet.
    Warm,
    /// As `Warm`, but process 1 has not registered yet.
    Alone,
}

/// How often each fault, and each thing that somebody may decide at will, may happen.
///
/// Everything that these do not bound is bounded by itself: time is relative, queues are short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Ticks that pass; [`Budget::ENDLESS`] if they go on for ever.
    pub ticks: u8,
    /// Leaders that are elected while another goes on.
    pub elections: u8,
    /// Times that a leader stands still.
    pub pauses: u8,
    /// Streams that are cut.
    pub cuts: u8,
    /// Streams that processes may open, beyond those they start with.
    pub streams: u8,
    /// Processes that crash.
    pub crashes: u8,
    /// Processes beyond those of the start.
    pub starts: u8,
    /// Grants that plans make.
    pub grants: u8,
    /// Revocations that plans, or drains, make.
    pub revokes: u8,
    /// Times that the group is deleted and created again.
    pub deletions: u8,
    /// Times that a handler gives a shard back unasked.
    pub returns: u8,
    /// Writes to the store.
    pub writes: u8,
    /// Answers of the store that are lost.
    pub lost_answers: u8,
    /// Reads of the store by an owner that has forgotten to seal, and then writes.
    pub unsealed_reads: u8,
    /// Questions whether a token is current.
    pub token_checks: u8,
}

impl Budget {
    /// Time does not end. It needs no bound: states do not hold how late it is.
    pub const ENDLESS: u8 = u8::MAX;

    /// Nothing may go wrong.
    pub const NONE: Self = Self {
        ticks: Self::ENDLESS,
        elections: 0,
        pauses: 0,
        cuts: 0,
        streams: 0,
        crashes: 0,
        starts: 0,
        grants: 0,
        revokes: 0,
        deletions: 0,
        returns: 0,
        writes: 0,
        lost_answers: 0,
        unsealed_reads: 0,
        token_checks: 0,
    };
}

/// The bounds of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The worker names of the processes: two of one name are an old and a new process of one worker.
    pub names: [u8; PROCESSES],
    /// Where it starts.
    pub start: Start,
    /// The lengths of time.
    pub timing: Timing,
    /// What may happen how often.
    pub budget: Budget,
    /// How long heartbeats are under way.
    pub heartbeats: Heartbeats,
    /// Proposals that may wait for their commit at once.
    pub pending: usize,
    /// Steps from the start after which a path is not followed any further; `None` if every path is
    /// followed until nothing new comes.
    pub depth: Option<usize>,
    /// Whether it is asked of every state that the shard is served in the end.
    pub with_recovery: bool,
}

impl Default for Bounds {
    /// Two workers, and a new process of the first one that may come; nothing goes wrong.
    fn default() -> Self {
        Self {
            names: [0, 1, 0],
            start: Start::Warm,
            timing: Timing {
                window: 1,
                ttl: 2,
                drain: 1,
            },
            budget: Budget::NONE,
            heartbeats: Heartbeats::Prompt,
            pending: 2,
            depth: None,
            with_recovery: false,
        }
    }
}
