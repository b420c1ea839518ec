//! What is applied becomes history.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_ownership::Event;
use tenure_ownership::ids::{GroupId, Revision, ShardIndex};

use super::names::Names;
use super::part::{NodeNote, PART_EVENTS, Part};
use super::segment::{self, Segment};
use super::{HistoryOptions, Position, keys};
use crate::consensus::Envelope;
use crate::storage::{Batch, Records, StorageError, Table};

/// Makes history of what is applied. Owned by the task that applies.
#[derive(Debug)]
pub(crate) struct Writer {
    options: HistoryOptions,
    /// The segment that entries go into; `None` before the first.
    open: Option<Segment>,
}

/// History that waits to be written, in the order it happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    parts: Vec<(Position, Bytes)>,
    index: Vec<Vec<u8>>,
    segments: BTreeMap<Revision, Segment>,
    bytes: usize,
}

/// An entry: which, when this node applied it, and what its proposer says beside it.
pub(crate) struct Occasion<'a> {
    /// Its log index.
    pub(crate) revision: Revision,
    /// This node's wall clock, in milliseconds since 1970.
    pub(crate) now_ms: u64,
    /// What its proposer said.
    pub(crate) envelope: &'a Envelope,
}

impl Writer {
    /// Goes on where the history in a storage ends.
    pub(crate) fn load(
        records: &dyn Records,
        options: HistoryOptions,
    ) -> Result<Self, StorageError> {
        let open = segment::all(records)?.pop();
        Ok(Self { options, open })
    }

    /// Tells whether anything is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.options.is_kept()
    }

    /// Keeps the events of an entry.
    pub(crate) fn events(
        &mut self,
        occasion: &Occasion<'_>,
        events: &[Event],
        names: &Names,
        into: &mut Written,
    ) {
        if !self.is_kept() || events.is_empty() {
            return;
        }
        let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
        let segment = self.segment_for(occasion, count, into);
        let mut first = 0;
        for chunk in events.chunks(PART_EVENTS as usize) {
            let part = Part::new(occasion.envelope).with_events(chunk, names);
            let at = |ordinal| Position {
                revision: occasion.revision,
                ordinal,
            };
            into.part(at(first), &part);
            for (ordinal, event) in (first..).zip(chunk) {
                if let Some(shard) = filed_under(event) {
                    into.index(keys::index(segment, shard, at(ordinal)));
                }
            }
            first += PART_EVENTS;
        }
    }

    /// Keeps what somebody asked for.
    pub(crate) fn operation(
        &mut self,
        occasion: &Occasion<'_>,
        operation: String,
        into: &mut Written,
    ) {
        let part = Part {
            operation: Some(operation),
            ..Part::new(occasion.envelope)
        };
        self.single(occasion, &part, into);
    }

    /// Keeps who the members of the cluster are after a change.
    pub(crate) fn members(
        &mut self,
        occasion: &Occasion<'_>,
        members: Vec<NodeNote>,
        into: &mut Written,
    ) {
        let part = Part {
            members: Some(members),
            ..Part::new(occasion.envelope)
        };
        self.single(occasion, &part, into);
    }

    fn single(&mut self, occasion: &Occasion<'_>, part: &Part, into: &mut Written) {
        if !self.is_kept() {
            return;
        }
        self.segment_for(occasion, 1, into);
        let at = Position {
            revision: occasion.revision,
            ordinal: 0,
        };
        into.part(at, part);
    }

    /// Counts events of an entry in the segment that they go into.
    fn segment_for(
        &mut self,
        occasion: &Occasion<'_>,
        events: u64,
        into: &mut Written,
    ) -> Revision {
        let now_ms = occasion.now_ms;
        let mut segment = match self.open {
            Some(open) if !open.is_full(&self.options, now_ms) => open,
            _ => Segment::begin(occasion.revision, now_ms),
        };
        segment.events = segment.events.saturating_add(events);
        segment.last_ms = segment.last_ms.max(now_ms);
        self.open = Some(segment);
        into.segments.insert(segment.first, segment);
        segment.first
    }
}

/// Where an event is in the index. Of those of a whole group, what operators do is: why a shard moved is
/// looked up there.
fn filed_under(event: &Event) -> Option<(GroupId, ShardIndex)> {
    let subject = event.subject();
    let group = subject.group?;
    match event {
        Event::Registered { .. } | Event::SessionEnded { .. } => None,
        _ => Some((group, subject.shard.unwrap_or(keys::WHOLE_GROUP))),
    }
}

impl Written {
    fn part(&mut self, at: Position, part: &Part) {
        let bytes = part.encode();
        self.bytes += bytes.len() + keys::part(at).len();
        self.parts.push((at, bytes.into()));
    }

    fn index(&mut self, key: Vec<u8>) {
        self.bytes += key.len();
        self.index.push(key);
    }

    /// Adds what came later.
    pub(crate) fn extend(&mut self, later: Self) {
        self.bytes += later.bytes;
        self.parts.extend(later.parts);
        self.index.extend(later.index);
        self.segments.extend(later.segments);
    }

    /// Returns the bytes of keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the parts, the oldest first.
    pub(crate) fn parts(&self) -> &[(Position, Bytes)] {
        &self.parts
    }

    /// Adds it all to a batch.
    pub(crate) fn put(&self, batch: &mut Batch) {
        for (at, bytes) in &self.parts {
            batch.put(Table::History, keys::part(*at), bytes.clone());
        }
        for key in &self.index {
            batch.put(Table::History, key.clone(), Vec::new());
        }
        for (first, segment) in &self.segments {
            batch.put(Table::History, keys::segment(*first), segment.encode());
        }
    }
}
