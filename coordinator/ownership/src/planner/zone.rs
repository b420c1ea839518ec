//! Zones: workers that are likely to be lost together. Shards spread over them as over workers.
//!
//! A zone has a share and a cap like a worker. So the loss of one leaves room for its shards in the others, as
//! the loss of a worker does, and no zone holds much more than its weight.

use std::collections::BTreeMap;

use crate::group::Group;
use crate::planner::candidate::Candidate;
use crate::planner::share::{Division, Level, Share};
use crate::state::State;

/// Most zones that are told apart. A label with more values than this is no zone, and the report says so.
const ZONES_MAX: usize = 64;

/// The zones of a group.
#[derive(Default)]
pub(super) struct Zones {
    all: Vec<Zone>,
    /// Whether the label has too many values, so that zones are not looked at.
    pub(super) too_many: bool,
}

/// One zone.
#[derive(Clone, Copy)]
pub(super) struct Zone {
    pub(super) share: Share,
    weight: u64,
    /// Shards its workers will have that count in the shares, with those that are pinned to them.
    pub(super) load: u32,
    /// What its workers have room for, whatever the zone has.
    rooms: u64,
    /// Workers that count in the shares.
    workers: u32,
}

impl Zone {
    /// How many more shards it takes.
    pub(super) fn room(&self) -> u64 {
        self.rooms
            .min(self.share.cap.saturating_sub(self.load).into())
    }

    pub(super) fn level(&self) -> Level {
        Level::of_weight(self.load, self.weight)
    }
}

impl Zones {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Zone> {
        self.all.iter()
    }

    pub(super) fn all(&self) -> Vec<Zone> {
        self.all.clone()
    }

    pub(super) fn get(&self, zone: usize) -> &Zone {
        match self.all.get(zone) {
            Some(zone) => zone,
            None => unreachable!("workers are in zones of the list"),
        }
    }

    /// Changes what a worker of a zone adds to it. Returns the zone's room before and after.
    pub(super) fn change(&mut self, zone: usize, load: (u32, u32), room: (u32, u32)) -> (u64, u64) {
        let Some(zone) = self.all.get_mut(zone) else {
            unreachable!("workers are in zones of the list")
        };
        let before = zone.room();
        zone.load = zone.load - load.0 + load.1;
        zone.rooms = zone.rooms - u64::from(room.0) + u64::from(room.1);
        (before, zone.room())
    }

    /// Counts what the workers have.
    pub(super) fn count(&mut self, workers: &[Candidate<'_>]) {
        for worker in workers.iter().filter(|worker| worker.standing.shares()) {
            if let Some(zone) = self.all.get_mut(worker.zone) {
                zone.load += worker.expected();
                zone.rooms += u64::from(worker.room());
            }
        }
    }

    /// How many shards would find no place if the zone with most workers were lost; 0 without zones.
    pub(super) fn shortage_without_largest(&self, shards: u32, worker_shards_max: u32) -> u32 {
        if self.all.len() < 2 {
            return 0;
        }
        let workers: u32 = self.all.iter().map(|zone| zone.workers).sum();
        let largest = self.all.iter().map(|zone| zone.workers).max().unwrap_or(0);
        let held = u64::from(workers - largest) * u64::from(worker_shards_max);
        let shortage = u64::from(shards).saturating_sub(held);
        u32::try_from(shortage).unwrap_or(u32::MAX)
    }
}

/// Tells the zones of workers apart and gives each its share. Without a label, or with a single zone,
/// there is one that is never full.
pub(super) fn zones(
    state: &State,
    group: &Group,
    division: &Division,
    workers: &mut [Candidate<'_>],
) -> Zones {
    let label = &group.header.policy.zone_label;
    let mut values: BTreeMap<&str, usize> = BTreeMap::new();
    if !label.is_empty() {
        for worker in workers.iter().filter(|worker| worker.standing.shares()) {
            values.insert(value_of(state, worker, label), 0);
        }
    }
    let too_many = values.len() > ZONES_MAX;
    if values.len() < 2 || too_many {
        return Zones {
            all: vec![one(workers)],
            too_many,
        };
    }
    // In order of their names.
    for (number, position) in values.values_mut().enumerate() {
        *position = number;
    }
    for worker in workers.iter_mut() {
        let value = value_of(state, worker, label);
        worker.zone = values.get(value).copied().unwrap_or(0);
    }
    let all = (0..values.len()).map(|zone| {
        let of_zone = |worker: &&Candidate<'_>| worker.standing.shares() && worker.zone == zone;
        let members = || workers.iter().filter(of_zone);
        let (share, weight) = division.of_zone(members().map(|worker| worker.weight));
        Zone {
            share,
            weight,
            load: 0,
            rooms: 0,
            workers: u32::try_from(members().count()).unwrap_or(u32::MAX),
        }
    });
    let all = all.collect();
    Zones { all, too_many }
}

/// The zone of everybody.
fn one(workers: &[Candidate<'_>]) -> Zone {
    let sharing = workers.iter().filter(|worker| worker.standing.shares());
    Zone {
        share: Share {
            floor: 0,
            ceil: u32::MAX,
            cap: u32::MAX,
        },
        weight: 1,
        load: 0,
        rooms: 0,
        workers: u32::try_from(sharing.count()).unwrap_or(u32::MAX),
    }
}

fn value_of<'a>(state: &'a State, worker: &Candidate<'_>, label: &str) -> &'a str {
    let session = state.session(worker.session);
    let value = session.and_then(|session| session.labels.get(label));
    value.map_or("", String::as_str)
}
