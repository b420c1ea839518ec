//! What is committed: sessions, and the one shard. The counterpart of crate `tenure-ownership`.
//!
//! [`Ownership::apply`] is the only function that changes it.

use crate::few::Few;
use crate::ids::Attempt;
use crate::ids::Epoch;
use crate::ids::ProcessId;
use crate::ids::Revision;
use crate::ids::SessionId;
use crate::rules::Rules;

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
    /// The latest session of the process; 0 if it had none.
    pub previous: SessionId,
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

    /// Applies a command.
    pub fn apply(&mut self, rules: &Rules, command: Command) -> Outcome {
        let mut events = Few::EMPTY;
        match command {
            Command::Register(register) => self.register(rules, register, &mut events)?,
            Command::Expire(session) => {
                self.session(session).ok_or(Rejection::Stale)?;
                self.end_session(session, SessionEnd::Over, 0, &mut events);
            }
            Command::Grant { to, seen, group } => {
                if rules.grant_names_its_epoch {
                    require(seen == self.epoch && group == self.group)?;
                }
                require(!self.deleting)?;
                if rules.grant_takes_unowned_shards {
                    require(self.shard == Shard::Unowned)?;
                }
                if rules.grant_needs_a_live_session {
                    self.session(to).ok_or(Rejection::Stale)?;
                }
                self.begin(to, &mut events);
            }
            Command::Revoke { seen, group, next } => self.revoke(seen, group, next, &mut events)?,
            Command::Ready { session, epoch } => {
                self.session(session).ok_or(Rejection::Stale)?;
                require(self.shard == Shard::Opening(session))?;
                require(epoch == self.epoch || !rules.ready_names_its_epoch)?;
                self.shard = Shard::Serving(session);
            }
            Command::Release { session, epoch } => {
                self.session(session).ok_or(Rejection::Stale)?;
                let owned = self.owned_by(session).ok_or(Rejection::Stale)?;
                require(epoch == owned || !rules.release_names_its_epoch)?;
                self.end(false, 0, &mut events);
            }
            Command::Force { epoch, group } => {
                require(matches!(self.shard, Shard::Revoking { .. }))?;
                if rules.force_names_its_epoch {
                    require(epoch == self.epoch && group == self.group)?;
                }
                self.end(true, 0, &mut events);
            }
            Command::Delete => self.delete(&mut events)?,
            Command::Remove => self.remove(rules, &mut events)?,
        }
        self.revision += 1;
        Ok(events)
    }

    fn register(
        &mut self,
        rules: &Rules,
        register: Register,
        events: &mut Few<Event, EVENTS_MAX>,
    ) -> Result<(), Rejection> {
        require(!self.deleting)?;
        let holder = self.holder(register.name);
        if let Some(by) = holder {
            if by.process == register.process {
                return Err(Rejection::AlreadyRegistered(by.session));
            }
            let was_replaced = register.previous != 0 && register.previous < by.session;
            if rules.only_a_new_process_replaces && was_replaced {
                return Err(Rejection::Replaced);
            }
        }
        let holder = holder.map_or(0, |live| live.session);
        if rules.registration_names_the_holder {
            require(holder == register.replaces)?;
        }
        self.last_session += 1;
        let live = Live {
            session: self.last_session,
            process: register.process,
            name: register.name,
        };
        let replaced = self.session(register.replaces);
        self.live.retain(|live| live.session != register.replaces);
        self.live.push(live);
        events.push(Event::Registered(live));
        if let Some(replaced) = replaced {
            self.end_session(replaced.session, SessionEnd::Replaced, live.session, events);
        }
        Ok(())
    }

    fn revoke(
        &mut self,
        seen: Epoch,
        group: u8,
        next: SessionId,
        events: &mut Few<Event, EVENTS_MAX>,
    ) -> Result<(), Rejection> {
        require(seen == self.epoch && group == self.group && !self.deleting)?;
        let (Shard::Opening(owner) | Shard::Serving(owner)) = self.shard else {
            return Err(Rejection::Stale);
        };
        let follows = next != owner && self.session(next).is_some();
        let next = if follows { next } else { 0 };
        self.shard = Shard::Revoking { owner, next };
        events.push(Event::Revoking(owner, self.epoch));
        Ok(())
    }

    fn delete(&mut self, events: &mut Few<Event, EVENTS_MAX>) -> Result<(), Rejection> {
        require(!self.deleting)?;
        self.deleting = true;
        match self.shard {
            Shard::Unowned => {}
            Shard::Opening(owner) | Shard::Serving(owner) => {
                self.shard = Shard::Revoking { owner, next: 0 };
                events.push(Event::Revoking(owner, self.epoch));
            }
            // Its clock goes on; only the successor is cancelled.
            Shard::Revoking { owner, .. } => self.shard = Shard::Revoking { owner, next: 0 },
        }
        Ok(())
    }

    fn remove(
        &mut self,
        rules: &Rules,
        events: &mut Few<Event, EVENTS_MAX>,
    ) -> Result<(), Rejection> {
        require(self.deleting && self.shard == Shard::Unowned)?;
        for live in self.live.iter() {
            events.push(Event::Ended(live.session, SessionEnd::Over));
        }
        self.live.clear();
        self.deleting = false;
        self.group += 1;
        if !rules.epochs_outlive_the_group {
            self.epoch = 0;
        }
        Ok(())
    }

    /// Begins a tenure at the next epoch.
    fn begin(&mut self, owner: SessionId, events: &mut Few<Event, EVENTS_MAX>) {
        self.epoch += 1;
        self.shard = Shard::Opening(owner);
        events.push(Event::Granted(owner, self.epoch));
    }

    /// Ends the tenure, and begins the next one if it is known who follows.
    fn end(&mut self, forced: bool, heir: SessionId, events: &mut Few<Event, EVENTS_MAX>) {
        let successor = match self.shard {
            Shard::Unowned => return,
            Shard::Opening(_) | Shard::Serving(_) => heir,
            Shard::Revoking { next, .. } => self.session(next).map_or(0, |live| live.session),
        };
        events.push(Event::TenureEnded {
            owner: self.shard.owner(),
            epoch: self.epoch,
            forced,
        });
        self.shard = Shard::Unowned;
        if successor != 0 {
            self.begin(successor, events);
        }
    }

    fn end_session(
        &mut self,
        id: SessionId,
        end: SessionEnd,
        heir: SessionId,
        events: &mut Few<Event, EVENTS_MAX>,
    ) {
        self.live.retain(|live| live.session != id);
        events.push(Event::Ended(id, end));
        if self.owned_by(id).is_some() {
            self.end(false, heir, events);
        }
    }
}

fn require(holds: bool) -> Result<(), Rejection> {
    if holds { Ok(()) } else { Err(Rejection::Stale) }
}
