//! Consensus, as what it promises: who leads, and which proposals commit.
//!
//! One leader is in office; one that was deposed may go on believing. A proposal commits or is lost: those
//! of a deposed leader may still commit, in their order, until the next one has settled, which is to have an
//! entry of its own term applied.

use crate::bounds::Timing;
use crate::ids::SessionId;
use crate::ids::Term;
use crate::leader::Leadership;
use crate::ownership::Command;
use crate::ownership::Event;
use crate::ownership::Ownership;
use crate::ownership::SessionEnd;
use crate::rules::Rules;
use crate::state::Proposal;
use crate::state::State;
use crate::state::Zombie;

impl State {
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
            Event::Ended(_, SessionEnd::Replaced) => {
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
}
