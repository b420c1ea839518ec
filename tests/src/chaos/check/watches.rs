//! Watchers see every event once, in order, and all the same (P8).

use std::collections::BTreeMap;

use tenure_proto::v1::ShardPhase;

use super::Violation;
use super::writers::Grants;
use crate::chaos::news::{At, Fact, News, Shard};

const ORDER: &str = "a watcher sees events once and in order (P8)";
const COMPLETE: &str = "a watcher misses no event (P8)";
const SAME: &str = "watchers see the same (P8)";
const STATE: &str = "a watched state is what its events made it (P8)";
const ONE_BY_ONE: &str = "the epochs of a shard rise one by one (P1)";

/// Violations of one kind that are shown: more say nothing new.
const SHOWN: usize = 5;

/// A state and all events that followed it without a gap, as far as the watcher was told.
#[derive(Clone, Debug, Default)]
struct Stretch {
    from: At,
    until: At,
    state: BTreeMap<u32, Shard>,
    events: Vec<(At, Fact)>,
}

/// What one watcher was told.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    stretches: Vec<Stretch>,
}

impl Watched {
    /// Puts messages together.
    #[must_use]
    pub fn of(news: Vec<News>) -> Self {
        let mut watched = Self::default();
        let mut arriving: Option<Stretch> = None;
        let mut open = false;
        for news in news {
            match news {
                News::State { at, shards, last } => {
                    // A stream that broke before the last part begins again.
                    let mut stretch = arriving
                        .take()
                        .filter(|stretch| stretch.from == at)
                        .unwrap_or_else(|| Stretch {
                            from: at,
                            until: at,
                            ..Stretch::default()
                        });
                    stretch.state.extend(shards);
                    if last {
                        watched.stretches.push(stretch);
                        open = true;
                    } else {
                        arriving = Some(stretch);
                    }
                }
                News::Events { events } => {
                    if !open {
                        // Noticed as events before any state: they are out of order.
                        watched.stretches.push(Stretch::default());
                        open = true;
                    }
                    if let Some(stretch) = watched.stretches.last_mut() {
                        stretch.until = events.last().map_or(stretch.until, |(at, _)| *at);
                        stretch.events.extend(events);
                    }
                }
                News::Progress { at } => {
                    if let Some(stretch) = watched.stretches.last_mut().filter(|_| open) {
                        stretch.until = stretch.until.max(at);
                    }
                }
                News::Resync => open = false,
            }
        }
        watched
    }

    /// Returns the cursor up to which the watcher has been told everything; the lowest if it was told
    /// nothing.
    #[must_use]
    pub fn until(&self) -> At {
        let last = self.stretches.last();
        last.map_or(At::default(), |stretch| stretch.until)
    }

    /// Returns the cursor of the last event or state it was told.
    #[must_use]
    pub fn last_told(&self) -> At {
        let last = self.stretches.last();
        last.map_or(At::default(), |stretch| {
            stretch.events.last().map_or(stretch.from, |(at, _)| *at)
        })
    }
}

/// What all watchers were told, by name.
#[derive(Debug, Default)]
pub struct Watches {
    watchers: BTreeMap<String, Watched>,
}

impl Watches {
    /// Adds a watcher.
    pub fn add(&mut self, name: String, watched: Watched) {
        self.watchers.insert(name, watched);
    }

    /// Returns how many events the watchers were told, all together.
    #[must_use]
    pub fn events(&self) -> usize {
        self.stretches()
            .map(|(_, stretch)| stretch.events.len())
            .sum()
    }

    /// Returns the sessions to which tenures were granted, as any watcher saw it.
    #[must_use]
    pub fn grants(&self) -> Grants {
        let mut grants = Grants::new();
        for (_, stretch) in self.stretches() {
            for (&shard, known) in stretch.state.iter().filter(|(_, known)| known.owner != 0) {
                grants.insert((shard, known.epoch), known.owner);
            }
            for (_, fact) in &stretch.events {
                if let Fact::Granted {
                    shard,
                    epoch,
                    owner,
                } = *fact
                {
                    grants.insert((shard, epoch), owner);
                }
            }
        }
        grants
    }

    /// Checks that every watcher saw all events of the stretches it was told, in order, and the same as
    /// the others; that states are what events make of earlier states; and that epochs rise.
    #[must_use]
    pub fn check(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        let events = self.all_events(&mut violations);
        self.complete(&events, &mut violations);
        self.states(&events, &mut violations);
        violations
    }

    fn stretches(&self) -> impl Iterator<Item = (&str, &Stretch)> {
        self.watchers.iter().flat_map(|(name, watched)| {
            watched
                .stretches
                .iter()
                .map(move |stretch| (name.as_str(), stretch))
        })
    }

    /// Returns every event that any watcher saw.
    fn all_events(&self, violations: &mut Vec<Violation>) -> BTreeMap<At, &Fact> {
        let mut events: BTreeMap<At, &Fact> = BTreeMap::new();
        for (name, stretch) in self.stretches() {
            let mut before = stretch.from;
            for (at, fact) in &stretch.events {
                if *at <= before {
                    let seen = format!("{name}: {fact:?} at {at:?} after {before:?}");
                    note(violations, ORDER, seen);
                }
                before = *at;
                let known = *events.entry(*at).or_insert(fact);
                if known != fact {
                    let seen = format!("{name}: {fact:?} at {at:?}, elsewhere it is {known:?}");
                    note(violations, SAME, seen);
                }
            }
        }
        events
    }

    fn complete(&self, events: &BTreeMap<At, &Fact>, violations: &mut Vec<Violation>) {
        for (name, stretch) in self.stretches() {
            let told: BTreeMap<At, ()> = stretch.events.iter().map(|(at, _)| (*at, ())).collect();
            let after = |at: &At| *at > stretch.from && *at <= stretch.until;
            let missed = events
                .iter()
                .filter(|(at, _)| after(at) && !told.contains_key(at));
            for (at, fact) in missed {
                let (from, until) = (stretch.from, stretch.until);
                let seen = format!("{name}: {fact:?} at {at:?}, within {from:?} to {until:?}");
                note(violations, COMPLETE, seen);
            }
        }
    }

    fn states(&self, events: &BTreeMap<At, &Fact>, violations: &mut Vec<Violation>) {
        let mut stretches: Vec<(&str, &Stretch)> = self.stretches().collect();
        stretches.sort_by_key(|(_, stretch)| stretch.from);
        let mut known: Option<Replay> = None;
        for (name, stretch) in stretches {
            match known.as_mut().filter(|known| known.covered >= stretch.from) {
                Some(known) => {
                    known.advance(events, stretch.from, violations);
                    if known.shards != stretch.state {
                        let differs = stretch
                            .state
                            .iter()
                            .find(|(shard, now)| known.shards.get(shard) != Some(now));
                        let made = differs.and_then(|(shard, _)| known.shards.get(shard));
                        let seen = format!(
                            "{name}: at {:?} it is {differs:?}, the events made it {made:?}",
                            stretch.from
                        );
                        note(violations, STATE, seen);
                    }
                    known.covered = known.covered.max(stretch.until);
                }
                // Nobody saw what was between.
                None => {
                    let last = known.take();
                    if let Some(mut last) = last {
                        let covered = last.covered;
                        last.advance(events, covered, violations);
                    }
                    known = Some(Replay {
                        at: stretch.from,
                        covered: stretch.until,
                        shards: stretch.state.clone(),
                        floors: BTreeMap::new(),
                    });
                }
            }
        }
        if let Some(mut known) = known {
            let covered = known.covered;
            known.advance(events, covered, violations);
        }
    }
}

/// A state that events are applied to.
struct Replay {
    at: At,
    /// Up to where every event is known.
    covered: At,
    shards: BTreeMap<u32, Shard>,
    floors: BTreeMap<u32, u64>,
}

impl Replay {
    fn advance(&mut self, events: &BTreeMap<At, &Fact>, to: At, violations: &mut Vec<Violation>) {
        if to <= self.at {
            return;
        }
        use std::ops::Bound::{Excluded, Included};
        for (at, fact) in events.range((Excluded(self.at), Included(to))) {
            self.apply(*at, fact, violations);
        }
        self.at = to;
    }

    fn apply(&mut self, at: At, fact: &Fact, violations: &mut Vec<Violation>) {
        match *fact {
            Fact::Granted {
                shard,
                epoch,
                owner,
            } => {
                let known = self.shards.entry(shard).or_default();
                let floor = self.floors.get(&shard).copied().unwrap_or(0);
                if epoch != known.epoch.max(floor) + 1 || known.owner != 0 {
                    let seen = format!("{fact:?} at {at:?} after {known:?}, floor {floor}");
                    note(violations, ONE_BY_ONE, seen);
                }
                *known = Shard {
                    epoch,
                    owner,
                    phase: ShardPhase::Opening.into(),
                };
            }
            Fact::Serving { shard, .. } => self.phase(shard, ShardPhase::Serving),
            Fact::Revoking { shard, .. } => self.phase(shard, ShardPhase::Revoking),
            Fact::Ended { shard, .. } => {
                self.phase(shard, ShardPhase::Unowned);
                self.shards.entry(shard).or_default().owner = 0;
            }
            Fact::FloorRaised { shard, floor } => {
                self.floors.insert(shard, floor);
            }
            Fact::Other { .. } => {}
        }
    }

    fn phase(&mut self, shard: u32, phase: ShardPhase) {
        self.shards.entry(shard).or_default().phase = phase.into();
    }
}

fn note(violations: &mut Vec<Violation>, rule: &'static str, seen: String) {
    let known = violations.iter().filter(|known| known.rule == rule).count();
    if known < SHOWN {
        violations.push(Violation::new(rule, seen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(revision: u64, epoch: u64, owner: u64, phase: ShardPhase) -> News {
        let shard = Shard {
            epoch,
            owner,
            phase: phase.into(),
        };
        News::State {
            at: (revision, 0),
            shards: vec![(0, shard)],
            last: true,
        }
    }

    fn event(revision: u64, fact: Fact) -> News {
        News::Events {
            events: vec![((revision, 0), fact)],
        }
    }

    fn grant(revision: u64, epoch: u64) -> News {
        let granted = Fact::Granted {
            shard: 0,
            epoch,
            owner: epoch,
        };
        event(revision, granted)
    }

    fn end(revision: u64, epoch: u64) -> News {
        let ended = Fact::Ended {
            shard: 0,
            epoch,
            cause: 1,
        };
        event(revision, ended)
    }

    fn begin() -> News {
        state(1, 0, 0, ShardPhase::Unowned)
    }

    fn rules(watchers: Vec<Vec<News>>) -> Vec<&'static str> {
        let mut watches = Watches::default();
        for (index, news) in watchers.into_iter().enumerate() {
            watches.add(index.to_string(), Watched::of(news));
        }
        let violations = watches.check();
        violations.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn watchers_that_see_the_same_are_right_however_they_were_cut_off() {
        let whole = vec![begin(), grant(2, 1), end(3, 1), grant(5, 2)];
        let resynced = vec![
            begin(),
            grant(2, 1),
            News::Resync,
            state(4, 1, 0, ShardPhase::Unowned),
            News::Progress { at: (4, 0) },
            grant(5, 2),
        ];
        let early = vec![begin(), News::Progress { at: (1, 0) }];
        assert_eq!(rules(vec![whole, resynced, early]), [""; 0]);
    }

    #[test]
    fn every_way_to_tell_a_watcher_wrong_is_noticed() {
        let right = || vec![begin(), grant(2, 1), end(3, 1), grant(4, 2)];
        for (news, rule) in [
            (vec![begin(), grant(2, 1), grant(4, 2)], COMPLETE),
            (vec![begin(), News::Progress { at: (2, 0) }], COMPLETE),
            (vec![begin(), grant(2, 1), grant(2, 1), end(3, 1)], ORDER),
            (vec![begin(), grant(2, 3)], SAME),
            (vec![state(3, 1, 1, ShardPhase::Serving)], STATE),
        ] {
            let rules = rules(vec![right(), news]);
            assert!(rules.contains(&rule), "{rule}: {rules:?}");
        }
    }

    #[test]
    fn an_epoch_that_is_granted_twice_or_left_out_is_noticed() {
        for epoch in [1, 3] {
            let news = vec![begin(), grant(2, 1), end(3, 1), grant(4, epoch)];
            assert_eq!(rules(vec![news]), [ONE_BY_ONE]);
        }
        let owned = vec![begin(), grant(2, 1), grant(3, 2)];
        assert_eq!(rules(vec![owned]), [ONE_BY_ONE]);
    }
}
