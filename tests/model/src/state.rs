//! One state of everything: what is committed and proposed, the leaders, the workers, the streams, the store.
//!
//! Time is relative: a state holds how long ago something was, never when. So two states that differ only
//! in the hour are one.
//!
//! Consensus is here as what it promises. One leader is in office; one that was deposed may go on
//! believing. A proposal commits or is lost: those of a deposed leader may still commit, in their order, until
//! the next one has settled, which is to have an entry of its own term applied.

use crate::bounds::Budget;
use crate::bounds::Timing;
use crate::few::Few;
use crate::ids::Attempt;
use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::SessionId;
use crate::ids::Term;
use crate::leader::Leadership;
use crate::network::Close;
use crate::network::Down;
use crate::network::Stream;
use crate::network::Up;
use crate::ownership::Command;
use crate::ownership::Event;
use crate::ownership::Ownership;
use crate::rules::Rules;
use crate::store::Breach;
use crate::store::Store;
use crate::worker::Phase;
use crate::worker::Process;

/// How many worker processes there are at most.
pub const PROCESSES: usize = 3;

/// Most proposals that wait for their commit.
pub const PENDING_MAX: usize = 4;

/// Most streams that have not ended on both sides.
pub const STREAMS_MAX: usize = 6;

/// A proposal that is neither committed nor lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    /// Who proposed it.
    pub term: Term,
    /// What.
    pub command: Command,
    /// The session that is held until the outcome is known; 0 is none.
    pub holds: SessionId,
}

/// A leader that was deposed and does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zombie {
    /// What it goes on with.
    pub leadership: Leadership,
    /// What was committed when it was deposed.
    pub view: Ownership,
}

/// What must never happen and leaves no other trace. Nothing but the properties reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Breaches {
    /// A grant took an epoch that was granted before, or a lower one: P1.
    pub epoch_repeated: bool,
    /// The store accepted a write below a seal: P2.
    pub accepted_below_a_seal: bool,
    /// The store accepted a write whose owner had not seen the last one before: P3.
    pub lost_update: bool,
    /// The store accepted writes of two owners at one epoch.
    pub two_owners_of_one_epoch: bool,
    /// A token was called current that was not.
    pub false_token: bool,
    /// A leader that had stood still ended a session for the time in which it did.
    pub ended_by_a_woken_leader: bool,
    /// A process that was replaced replaced its successor.
    pub name_taken_back: bool,
}

impl Breaches {
    /// Notes what happened at the store.
    pub fn note(&mut self, breach: Breach) {
        self.accepted_below_a_seal |= breach.accepted_below_a_seal;
        self.lost_update |= breach.lost_update;
        self.two_owners_of_one_epoch |= breach.two_owners_of_one_epoch;
    }
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What is committed.
    pub committed: Ownership,
    /// What is proposed, oldest first.
    pub pending: Few<Proposal, PENDING_MAX>,
    /// The leader in office.
    pub leader: Leadership,
    /// One that was deposed and goes on believing.
    pub zombie: Option<Zombie>,
    /// The workers.
    pub processes: [Process; PROCESSES],
    /// The streams between them, older ones first.
    pub streams: Few<Stream, STREAMS_MAX>,
    /// The store.
    pub store: Store,
    /// What has been used up of the budget.
    pub left: Budget,
    /// The highest epoch that was ever granted.
    pub granted: Epoch,
    /// The latest session that ended because its process was replaced, by process.
    pub replaced: [bool; PROCESSES],
    /// What went wrong.
    pub breaches: Breaches,
}

impl State {
    /// Nobody has registered; the first leader serves.
    pub fn cold(names: [u8; PROCESSES], budget: Budget) -> Self {
        let mut leader = Leadership::elected(1);
        leader.settled = true;
        leader.serving = true;
        let mut processes = names.map(Process::waiting);
        for process in processes.iter_mut().take(2) {
            process.phase = Phase::Running;
        }
        Self {
            committed: Ownership::EMPTY,
            pending: Few::EMPTY,
            leader,
            zombie: None,
            processes,
            streams: Few::EMPTY,
            store: Store::EMPTY,
            left: budget,
            granted: 0,
            replaced: [false; PROCESSES],
            breaches: Breaches::default(),
        }
    }

    /// A process.
    ///
    /// # Panics
    ///
    /// If there is none of that number.
    pub fn process(&self, id: ProcessId) -> &Process {
        &self.processes[usize::from(id)]
    }

    /// A process, to be changed.
    ///
    /// # Panics
    ///
    /// If there is none of that number.
    pub fn process_mut(&mut self, id: ProcessId) -> &mut Process {
        &mut self.processes[usize::from(id)]
    }

    /// The numbers of all processes.
    pub fn process_ids() -> impl Iterator<Item = ProcessId> {
        (0..PROCESSES).filter_map(|id| ProcessId::try_from(id).ok())
    }

    // --- leaders ---

    /// The leadership of a term: the one in office, or the zombie.
    ///
    /// # Panics
    ///
    /// If it is over.
    pub fn leadership(&self, term: Term) -> &Leadership {
        match &self.zombie {
            _ if self.leader.term == term => &self.leader,
            Some(zombie) => &zombie.leadership,
            None => panic!("term {term} is over"),
        }
    }

    /// The leadership of a term, to be changed.
    ///
    /// # Panics
    ///
    /// If it is over.
    pub fn leadership_mut(&mut self, term: Term) -> &mut Leadership {
        match &mut self.zombie {
            _ if self.leader.term == term => &mut self.leader,
            Some(zombie) => &mut zombie.leadership,
            None => panic!("term {term} is over"),
        }
    }

    /// What the leader of a term knows to be committed.
    pub fn view(&self, term: Term) -> &Ownership {
        match &self.zombie {
            Some(zombie) if zombie.leadership.term == term => &zombie.view,
            _ => &self.committed,
        }
    }

    /// Another node is elected; the leader goes on, and does not know.
    pub fn elect(&mut self) {
        self.step_down();
        let mut leadership = self.leader;
        let term = leadership.term;
        leadership.paused = false;
        self.zombie = Some(Zombie {
            leadership,
            view: self.committed,
        });
        self.leader = Leadership::elected(term + 1);
        if !leadership.serving {
            self.step_down();
        }
    }

    /// The deposed leader finds out, and ends its streams.
    pub fn step_down(&mut self) {
        let Some(zombie) = self.zombie.take() else {
            return;
        };
        for stream in self.streams.iter_mut() {
            if stream.term == zombie.leadership.term {
                stream.cut = true;
                stream.leader_gone = true;
                stream.up.clear();
            }
        }
        self.forget_streams();
    }

    /// An entry of the leader's own term is applied: what was proposed before it and not committed is lost.
    pub fn settle(&mut self) {
        let term = self.leader.term;
        self.pending.retain(|proposal| proposal.term == term);
        self.leader.settled = true;
    }

    /// Proposes a command.
    pub fn propose(&mut self, term: Term, command: Command) {
        self.propose_end(term, command, 0);
    }

    /// Proposes a command that ends a tenure of a session.
    pub fn propose_end(&mut self, term: Term, command: Command, holds: SessionId) {
        let deposed = term != self.leader.term;
        if deposed && (self.leader.settled || !self.pending.has_room(1)) {
            return;
        }
        self.pending.push(Proposal {
            term,
            command,
            holds,
        });
    }

    /// The oldest proposal commits, and the leader, if it serves, takes note.
    pub fn commit(&mut self, rules: &Rules, timing: &Timing) {
        let Some(proposal) = self.pending.remove(0) else {
            return;
        };
        let outcome = self.committed.apply(rules, proposal.command);
        if let Ok(events) = &outcome {
            for event in events.iter() {
                self.note(proposal.command, event);
            }
        }
        let own = proposal.term == self.leader.term;
        if own && !self.leader.settled {
            self.settle();
        }
        if self.leader.serving {
            if let Ok(events) = outcome {
                self.take_note(timing, events.iter());
            }
            if own {
                self.decided(rules, timing, proposal, outcome);
            }
        }
    }

    /// Keeps the traces that the properties look for.
    fn note(&mut self, command: Command, event: Event) {
        match event {
            Event::Granted(_, epoch) => {
                self.breaches.epoch_repeated |= epoch <= self.granted;
                self.granted = self.granted.max(epoch);
            }
            Event::Ended(_, crate::ownership::SessionEnd::Replaced) => {
                let Command::Register(register) = command else {
                    return;
                };
                self.breaches.name_taken_back |= self.replaced[usize::from(register.process)];
                for id in Self::process_ids() {
                    let other = id != register.process && self.process(id).name == register.name;
                    self.replaced[usize::from(id)] |= other;
                }
            }
            _ => {}
        }
    }

    /// Time goes on, for everybody alike.
    pub fn tick(&mut self, rules: &Rules, timing: &Timing) {
        for id in Self::process_ids() {
            self.age_process(timing, id);
        }
        self.leader.age(rules, timing);
        if let Some(zombie) = &mut self.zombie {
            zombie.leadership.age(rules, timing);
        }
    }

    // --- streams ---

    /// Opens a stream with its first message.
    pub fn open_stream(&mut self, process: ProcessId, attempt: Attempt, term: Term, first: Up) {
        let mut stream = Stream {
            process,
            attempt,
            term,
            up: Few::EMPTY,
            down: Few::EMPTY,
            cut: false,
            worker_gone: false,
            leader_gone: false,
        };
        stream.up.push(first);
        self.streams.push(stream);
    }

    /// The present stream of a process.
    pub fn stream_of(&self, id: ProcessId) -> Option<Stream> {
        let process = self.process(id);
        self.streams.find(|stream| {
            stream.process == id && stream.attempt == process.attempt && !stream.worker_gone
        })
    }

    fn stream_mut(&mut self, process: ProcessId, attempt: Attempt) -> Option<&mut Stream> {
        self.streams
            .iter_mut()
            .find(|stream| stream.process == process && stream.attempt == attempt)
    }

    /// Says something on the present stream of a process, if it has one.
    pub fn say(&mut self, id: ProcessId, message: Up) {
        let attempt = self.process(id).attempt;
        if let Some(stream) = self.stream_mut(id, attempt) {
            stream.send_up(message);
        }
    }

    /// Takes the next message for a process.
    pub fn next_down(&mut self, id: ProcessId) -> Option<Down> {
        let attempt = self.process(id).attempt;
        self.stream_mut(id, attempt)?.down.remove(0)
    }

    /// Takes the next message for a leader.
    pub fn next_up(&mut self, at: usize) -> Option<(Stream, Up)> {
        let stream = self.streams.get(at)?;
        let message = self
            .stream_mut(stream.process, stream.attempt)?
            .up
            .remove(0)?;
        Some((stream, message))
    }

    /// Says something to a worker on one of its streams.
    pub fn tell(&mut self, term: Term, process: ProcessId, attempt: Attempt, down: Down) {
        let open = |stream: &&mut Stream| stream.term == term && !stream.leader_gone;
        if let Some(stream) = self.stream_mut(process, attempt).filter(open) {
            stream.send_down(down);
        }
    }

    /// Whether a leader's end of a stream is open.
    pub fn is_open(&self, term: Term, process: ProcessId, attempt: Attempt) -> bool {
        let found = self.streams.find(|stream| {
            stream.term == term && stream.process == process && stream.attempt == attempt
        });
        found.is_some_and(|stream| !stream.leader_gone)
    }

    /// A leader ends a stream, and says why.
    pub fn close(&mut self, term: Term, process: ProcessId, attempt: Attempt, close: Close) {
        self.tell(term, process, attempt, Down::Close(close));
        if let Some(stream) = self.stream_mut(process, attempt) {
            stream.leader_gone = true;
            stream.up.clear();
        }
        self.forget_streams();
    }

    /// The worker's end of its present stream is gone.
    pub fn drop_worker_end(&mut self, id: ProcessId) {
        let attempt = self.process(id).attempt;
        if let Some(stream) = self.stream_mut(id, attempt) {
            stream.cut = true;
            stream.worker_gone = true;
            stream.down.clear();
        }
        self.forget_streams();
    }

    /// The leader's end of a stream is gone. Returns the stream as it was.
    pub fn drop_leader_end(&mut self, at: usize) -> Option<Stream> {
        let found = self.streams.get(at)?;
        if let Some(stream) = self.stream_mut(found.process, found.attempt) {
            stream.leader_gone = true;
            stream.up.clear();
        }
        self.forget_streams();
        Some(found)
    }

    /// Cuts a stream.
    pub fn cut(&mut self, at: usize) {
        if let Some(found) = self.streams.get(at)
            && let Some(stream) = self.stream_mut(found.process, found.attempt)
        {
            stream.cut = true;
        }
    }

    fn forget_streams(&mut self) {
        self.streams
            .retain(|stream| !(stream.worker_gone && stream.leader_gone));
    }
}
