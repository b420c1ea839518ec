//! The steps that may follow on a state, and what each does.

mod possible;
mod taken;

use std::fmt;

use crate::ids::ProcessId;
use crate::ids::SessionId;
use crate::ids::Term;

/// One step of one actor, of the network, or of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time goes on by one tick.
    Tick,
    /// Another leader is elected.
    Elect,
    /// A deposed leader finds out.
    StepDown,
    /// A new leader has applied an entry of its own term, and serves.
    Serve,
    /// The oldest proposal commits.
    Commit,
    /// The leader's process stands still.
    Pause,
    /// It goes on.
    Wake,
    /// A process starts.
    Start(ProcessId),
    /// A process crashes.
    Crash(ProcessId),
    /// A process opens a stream to the leader of a term.
    Connect(ProcessId, Term),
    /// A process notices that its stream is cut.
    WorkerNotices(ProcessId),
    /// A process takes the next message of its stream.
    WorkerHears(ProcessId),
    /// A process sends a heartbeat.
    Heartbeat(ProcessId),
    /// A process asks to seal.
    Seal(ProcessId),
    /// A process asks for the latest write without a seal.
    Read(ProcessId),
    /// A process writes.
    Write(ProcessId),
    /// A process gives up what it holds, and says so.
    GiveBack(ProcessId),
    /// The store handles a request, and its sender hears the answer.
    Store(usize),
    /// The store handles a request, and nobody hears the answer.
    StoreUnheard(usize),
    /// A stream is cut.
    Cut(usize),
    /// A leader takes the next message of a stream.
    LeaderHears(usize),
    /// A leader notices that a stream is cut.
    LeaderNotices(usize),
    /// A round is answered by a quorum.
    Round(Term),
    /// What it confirmed is acknowledged.
    Acknowledge(Term),
    /// The end of a silent session is proposed.
    Expire(Term, SessionId),
    /// The end of a tenure whose drain is over is proposed.
    Force(Term),
    /// A registration that has waited is proposed.
    Replace(Term),
    /// A plan grants the shard.
    Grant(Term, SessionId),
    /// A plan, or a drain, asks the shard back; it then goes to the session.
    Revoke(Term, SessionId),
    /// The deletion of the group is proposed.
    Delete(Term),
    /// Its removal is.
    Remove(Term),
    /// The node of a term is asked about the token that it takes for current.
    CheckToken(Term),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => write!(f, "a tick passes"),
            Self::Elect => write!(f, "another leader is elected; the old one does not know"),
            Self::StepDown => write!(f, "the deposed leader finds out and steps down"),
            Self::Serve => write!(f, "the new leader serves"),
            Self::Commit => write!(f, "the oldest proposal commits"),
            Self::Pause => write!(f, "the leader's process stands still"),
            Self::Wake => write!(f, "the leader's process goes on"),
            Self::Start(p) => write!(f, "process {p} starts"),
            Self::Crash(p) => write!(f, "process {p} crashes"),
            Self::Connect(p, t) => write!(f, "process {p} opens a stream to leader {t}"),
            Self::WorkerNotices(p) => write!(f, "process {p} notices that its stream is cut"),
            Self::WorkerHears(p) => write!(f, "process {p} hears its leader"),
            Self::Heartbeat(p) => write!(f, "process {p} sends a heartbeat"),
            Self::Seal(p) => write!(f, "process {p} sends a seal"),
            Self::Read(p) => write!(f, "process {p} sends a read without a seal"),
            Self::Write(p) => write!(f, "process {p} sends a write"),
            Self::GiveBack(p) => write!(f, "process {p} gives its shard up"),
            Self::Store(at) => write!(f, "the store answers request {at} under way"),
            Self::StoreUnheard(at) => {
                write!(
                    f,
                    "the store answers request {at} under way and is not heard"
                )
            }
            Self::Cut(at) => write!(f, "stream {at} is cut"),
            Self::LeaderHears(at) => write!(f, "the leader hears stream {at}"),
            Self::LeaderNotices(at) => write!(f, "the leader notices that stream {at} is cut"),
            Self::Round(t) => write!(f, "a round of leader {t} is answered"),
            Self::Acknowledge(t) => write!(f, "leader {t} acknowledges what its round confirmed"),
            Self::Expire(t, s) => write!(f, "leader {t} proposes that session {s} expired"),
            Self::Force(t) => write!(f, "leader {t} proposes to force the tenure"),
            Self::Replace(t) => write!(f, "leader {t} proposes the registration that waited"),
            Self::Grant(t, s) => write!(f, "leader {t} proposes a grant to session {s}"),
            Self::Revoke(t, s) => {
                write!(
                    f,
                    "leader {t} proposes a revocation in favour of session {s}"
                )
            }
            Self::Delete(t) => write!(f, "leader {t} proposes to delete the group"),
            Self::Remove(t) => write!(f, "leader {t} proposes to remove the group"),
            Self::CheckToken(t) => write!(
                f,
                "leader {t} is asked about the token it takes for current"
            ),
        }
    }
}
