//! The events of one command, and positions among all events.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tenure_ownership::Event;
use tenure_ownership::ids::{GroupId, Revision};

use crate::consensus::Envelope;

/// A position in the sequence of all events: orders by revision, then ordinal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// Revision of the command that caused the event.
    pub revision: Revision,
    /// Position among all events of that command, of whatever group, from 0.
    pub ordinal: u32,
}

impl Cursor {
    /// Returns the position after the last event of a revision, however many it has.
    #[must_use]
    pub const fn end_of(revision: Revision) -> Self {
        Self {
            revision,
            ordinal: u32::MAX,
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.revision, self.ordinal)
    }
}

/// The events of one command: at least one.
///
/// Shared by all subscribers, and so is what one of them encoded for its group.
#[derive(Debug)]
pub struct Batch {
    /// Revision of the command.
    pub revision: Revision,
    /// When, by whom and why it was proposed.
    pub envelope: Envelope,
    /// Its events, in order of their ordinals.
    pub events: Box<[Event]>,
    /// The groups the events belong to, ascending.
    groups: Box<[Concerned]>,
}

/// A group with events in a batch.
#[derive(Debug)]
struct Concerned {
    group: GroupId,
    /// Its events as its watchers are sent them, once there was one.
    encoded: OnceLock<Arc<[EncodedPart]>>,
}

/// A run of events of one group, encoded for all of its watchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedPart {
    /// Ordinal of the first event in it.
    pub first_ordinal: u32,
    /// Ordinal of the last event in it.
    pub last_ordinal: u32,
    /// The encoded message.
    pub bytes: Bytes,
}

impl Batch {
    pub(crate) fn new(revision: Revision, envelope: Envelope, events: Vec<Event>) -> Self {
        let mut groups: Vec<GroupId> = events.iter().filter_map(Event::group).collect();
        groups.sort_unstable();
        groups.dedup();
        Self {
            revision,
            envelope,
            events: events.into(),
            groups: groups.into_iter().map(Concerned::new).collect(),
        }
    }

    /// Tells whether an event of the batch belongs to a group.
    pub fn concerns(&self, group: GroupId) -> bool {
        self.concerned(group).is_some()
    }

    fn concerned(&self, group: GroupId) -> Option<&Concerned> {
        let found = self
            .groups
            .binary_search_by_key(&group, |known| known.group);
        self.groups.get(found.ok()?)
    }

    /// Returns the events of a group with their ordinals.
    pub fn events_of(&self, group: GroupId) -> impl Iterator<Item = (u32, &Event)> {
        (0_u32..)
            .zip(&*self.events)
            .filter(move |(_, event)| event.group() == Some(group))
    }

    /// Returns the position of the last event.
    pub fn last(&self) -> Cursor {
        let count = u32::try_from(self.events.len()).unwrap_or(u32::MAX);
        Cursor {
            revision: self.revision,
            ordinal: count.saturating_sub(1),
        }
    }

    /// Returns the encoded events of a group. `encode` runs once, for the first caller; the others
    /// wait for it and share what it made. A group without events has nothing to encode.
    pub fn encoded(
        &self,
        group: GroupId,
        encode: impl FnOnce(&Self) -> Vec<EncodedPart>,
    ) -> Arc<[EncodedPart]> {
        match self.concerned(group) {
            Some(concerned) => Arc::clone(concerned.encoded.get_or_init(|| encode(self).into())),
            None => Arc::default(),
        }
    }
}

impl Concerned {
    fn new(group: GroupId) -> Self {
        Self {
            group,
            encoded: OnceLock::new(),
        }
    }
}
