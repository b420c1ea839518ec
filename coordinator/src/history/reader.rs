//! Reads history: what is in storage, and what waits to be written there, which is all of it newer.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tenure_ownership::ids::{GroupId, Revision, SessionId, ShardIndex};

use super::part::{Fact, Part};
use super::query::{Gap, Happened, Page, Query};
use super::segment::{self, Segment};
use super::{Position, keys};
use crate::consensus::{Envelope, Origin};
use crate::storage::{Records, StorageError, Table};

/// Events that are looked at for one answer, at most: a filter that nothing passes must not read all of the
/// history in one request.
const EVENTS_MAX: usize = 100_000;

/// Reads history as it was when the parts that wait were taken, or a little later.
pub(crate) struct Reader<'a> {
    records: &'a dyn Records,
    /// Parts that wait to be written, the oldest first. What is in storage by now is not read there.
    waiting: Vec<(Position, Bytes)>,
    /// The last entry applied.
    applied: Revision,
}

/// Parts in order of the query, or the error that ended them.
type Parts<'a> = Box<dyn Iterator<Item = Result<(Position, Part), StorageError>> + 'a>;

impl<'a> Reader<'a> {
    /// Reads a storage and what waits, which must have been taken before the call.
    pub(crate) fn new(
        records: &'a dyn Records,
        waiting: Vec<(Position, Bytes)>,
        applied: Revision,
    ) -> Self {
        Self {
            records,
            waiting,
            applied,
        }
    }

    /// Returns the events asked for, up to the limit.
    pub(crate) fn page(&self, query: &Query) -> Result<Page, StorageError> {
        let segments = segment::all(self.records)?;
        let mut page = Page {
            events: Vec::new(),
            next: None,
            since: self.since(&segments),
            gaps: self.gaps()?,
        };
        let parts = match query.shard {
            Some(shard) => self.parts_of(shard, &segments, query),
            None => self.all_parts(&segments, query),
        };
        let mut looked_at = 0;
        for part in parts {
            let (first, part) = part?;
            for happened in in_order(first, &part, query) {
                looked_at += 1;
                let at = happened.at;
                if happened.is_wanted(query) {
                    page.events.push(happened);
                }
                if page.events.len() >= query.limit || looked_at >= EVENTS_MAX {
                    page.next = Some(at);
                    return Ok(page);
                }
            }
        }
        Ok(page)
    }

    /// The first revision whose events are kept.
    fn since(&self, segments: &[Segment]) -> Revision {
        let waiting = self.waiting.first().map(|(at, _)| at.revision);
        segments
            .first()
            .map(|segment| segment.first)
            .or(waiting)
            .unwrap_or(Revision(self.applied.0 + 1))
    }

    fn gaps(&self) -> Result<Vec<Gap>, StorageError> {
        let (from, to) = keys::gaps();
        let mut gaps = Vec::new();
        for record in self.records.scan(Table::History, &from, &to) {
            let (key, value) = record?;
            let after = value.try_into().ok().map(u64::from_be_bytes);
            if let (Some(until), Some(after)) = (keys::number(&key), after) {
                let after = Revision(after);
                gaps.push(Gap { after, until });
            }
        }
        Ok(gaps)
    }

    /// The end of what is read in storage.
    fn stored_end(&self) -> Vec<u8> {
        let (_, end) = keys::parts();
        self.waiting.first().map_or(end, |(at, _)| keys::part(*at))
    }

    /// All parts that may hold what is asked for.
    fn all_parts(&self, segments: &[Segment], query: &Query) -> Parts<'_> {
        // Segments that ended before the time asked for are passed over without a look.
        let begin = segments
            .iter()
            .find(|segment| segment.last_ms >= query.since_ms)
            .map_or_else(|| keys::parts().0, |segment| keys::revision(segment.first));
        let end = self.stored_end();
        let (begin, end) = match (query.from, query.newest_first) {
            (None, _) => (begin, end),
            (Some(from), false) => (begin.max(keys::part(from)), end),
            // The part itself too, of which some may be before the position.
            (Some(from), true) => (begin, end.min(after(keys::part(from)))),
        };
        let decode = |record: Result<(Vec<u8>, Vec<u8>), StorageError>| {
            let (key, value) = record?;
            let at = keys::part_position(&key).ok_or_else(|| StorageError::Corrupt {
                what: "history has a key that is none".to_owned(),
            })?;
            Ok((at, Part::decode(&value)?))
        };
        if begin >= end {
            return self.waiting(query.newest_first);
        }
        if query.newest_first {
            let stored = self.records.scan_back(Table::History, &begin, &end);
            return Box::new(self.waiting(true).chain(stored.map(decode)));
        }
        let stored = self.records.scan(Table::History, &begin, &end);
        Box::new(stored.map(decode).chain(self.waiting(false)))
    }

    fn waiting(&self, newest_first: bool) -> Parts<'_> {
        let decode = |(at, bytes): &(Position, Bytes)| Part::decode(bytes).map(|part| (*at, part));
        if newest_first {
            return Box::new(self.waiting.iter().rev().map(decode));
        }
        Box::new(self.waiting.iter().map(decode))
    }

    /// The parts with events of a shard, by the index.
    fn parts_of<'b>(
        &'b self,
        shard: (GroupId, ShardIndex),
        segments: &[Segment],
        query: &Query,
    ) -> Parts<'b> {
        let newest_first = query.newest_first;
        let first = Position::default();
        let last = Position {
            revision: Revision(u64::MAX),
            ordinal: u32::MAX,
        };
        let range = match (query.from, newest_first) {
            (None, _) => (first, last),
            (Some(from), false) => (from, last),
            (Some(from), true) => (first, from),
        };
        let mut wanted: Vec<Revision> = segments
            .iter()
            .filter(|segment| segment.last_ms >= query.since_ms)
            .map(|segment| segment.first)
            .collect();
        if newest_first {
            wanted.reverse();
        }
        let limit = self.waiting.first().map(|(at, _)| *at);
        let positions = wanted.into_iter().flat_map(move |segment| {
            let (from, to) = keys::index_range(segment, shard, range);
            let records = if newest_first {
                self.records.scan_back(Table::History, &from, &to)
            } else {
                self.records.scan(Table::History, &from, &to)
            };
            records.filter_map(move |record| match record {
                Ok((key, _)) => keys::index_position(&key)
                    // What waits is read there.
                    .filter(|at| limit.is_none_or(|limit| *at < limit))
                    .map(Ok),
                Err(error) => Some(Err(error)),
            })
        });
        let mut latest = None;
        let stored = positions.filter_map(move |position| {
            let part = match position {
                Ok(position) => keys::part(position),
                Err(error) => return Some(Err(error)),
            };
            // Several events of a shard are in one part, which is then taken once.
            if latest.as_ref() == Some(&part) {
                return None;
            }
            let read = self.part(&part).transpose();
            latest = Some(part);
            read
        });
        if newest_first {
            return Box::new(self.waiting(true).chain(stored));
        }
        Box::new(stored.chain(self.waiting(false)))
    }

    /// Reads one part; `None` if it was pruned meanwhile.
    fn part(&self, key: &[u8]) -> Result<Option<(Position, Part)>, StorageError> {
        let Some(value) = self.records.get(Table::History, key)? else {
            return Ok(None);
        };
        let at = keys::part_position(key).unwrap_or_default();
        Ok(Some((at, Part::decode(&value)?)))
    }
}

/// The key right after a key.
fn after(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// What a part holds, in the order of the query and beyond the position it goes on from.
fn in_order(first: Position, part: &Part, query: &Query) -> Vec<Happened> {
    let envelope = Envelope {
        at_ms: part.at_ms,
        origin: (part.by.is_some() || part.reason.is_some()).then(|| {
            Arc::new(Origin {
                by: part.by.clone().unwrap_or_default(),
                reason: part.reason.clone().unwrap_or_default(),
            })
        }),
        // It is the fact itself.
        operation: None,
    };
    let workers: BTreeMap<SessionId, String> = part
        .workers
        .iter()
        .map(|(session, name)| (SessionId(*session), name.clone()))
        .collect();
    let workers = Arc::new(workers);
    let mut found = Vec::new();
    for (ordinal, fact) in (first.ordinal..).zip(part.facts()) {
        let at = Position {
            revision: first.revision,
            ordinal,
        };
        let is_beyond = match (query.from, query.newest_first) {
            (None, _) => true,
            (Some(from), false) => at > from,
            (Some(from), true) => at < from,
        };
        if !is_beyond {
            continue;
        }
        let group = match &fact {
            Fact::Event(event) => event.subject().group,
            _ => None,
        };
        found.push(Happened {
            at,
            envelope: envelope.clone(),
            group: group.and_then(|group| part.group(group)).map(str::to_owned),
            fact,
            workers: Arc::clone(&workers),
        });
    }
    if query.newest_first {
        found.reverse();
    }
    found
}
