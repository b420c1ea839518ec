//! How commands change the ownership. The counterpart of `coordinator/ownership/src/apply`.

use crate::few::Few;
use crate::ids::Epoch;
use crate::ids::SessionId;
use crate::ownership::Command;
use crate::ownership::EVENTS_MAX;
use crate::ownership::Event;
use crate::ownership::Live;
use crate::ownership::Outcome;
use crate::ownership::Ownership;
use crate::ownership::Register;
use crate::ownership::Rejection;
use crate::ownership::SessionEnd;
use crate::ownership::Shard;
use crate::rules::Rules;

impl Ownership {
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
            let was_replaced = by.is_newer_than(register.first);
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
            first: match register.first {
                0 => self.last_session,
                first => first,
            },
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
