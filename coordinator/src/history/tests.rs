//! History over a storage in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_fence::Epoch;
use tenure_ownership::event::EndCause;
use tenure_ownership::ids::{GroupId, Revision, SessionId, ShardIndex, WorkerName};
use tenure_ownership::session::WorkerMode;
use tenure_ownership::shard::RevokeReason;
use tenure_ownership::{Event, State};

use super::part::Part;
use super::{
    Fact, HistoryOptions, Names, NodeNote, Occasion, Page, Position, Query, Reader, ShardHistory,
    Writer, Written, gap_record, prune_step,
};
use crate::consensus::{Envelope, Origin};
use crate::storage::{Batch, MemoryStorage, Records as _, Storage as _, Table};

const GROUP: GroupId = GroupId(2);

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn granted(shard: u32, number: u64, owner: u64) -> Event {
    Event::Granted {
        group: GROUP,
        shard: ShardIndex(shard),
        epoch: epoch(number),
        owner: SessionId(owner),
    }
}

fn serving(shard: u32, number: u64, owner: u64) -> Event {
    Event::Serving {
        group: GROUP,
        shard: ShardIndex(shard),
        epoch: epoch(number),
        owner: SessionId(owner),
    }
}

fn revoking(shard: u32, number: u64, owner: u64, reason: RevokeReason) -> Event {
    Event::Revoking {
        group: GROUP,
        shard: ShardIndex(shard),
        epoch: epoch(number),
        owner: SessionId(owner),
        next: None,
        reason,
    }
}

fn ended(shard: u32, number: u64, owner: u64) -> Event {
    Event::TenureEnded {
        group: GROUP,
        shard: ShardIndex(shard),
        epoch: epoch(number),
        owner: SessionId(owner),
        cause: EndCause::Released,
    }
}

fn registered(worker: &str, session: u64) -> Event {
    Event::Registered {
        group: GROUP,
        worker: WorkerName::new(worker).unwrap(),
        session: SessionId(session),
    }
}

fn mode_set(worker: &str, mode: WorkerMode) -> Event {
    Event::WorkerModeSet {
        group: GROUP,
        worker: WorkerName::new(worker).unwrap(),
        mode,
    }
}

fn by(who: &str, reason: &str) -> Option<Arc<Origin>> {
    Some(Arc::new(Origin {
        by: who.to_owned(),
        reason: reason.to_owned(),
    }))
}

/// A node's history: what is written, and what waits.
struct Book {
    storage: MemoryStorage,
    options: HistoryOptions,
    writer: Writer,
    waiting: Written,
    revision: u64,
    now_ms: u64,
}

impl Book {
    fn new(options: HistoryOptions) -> Self {
        let storage = MemoryStorage::new();
        let writer = Writer::load(&storage, options).unwrap();
        Self {
            storage,
            options,
            writer,
            waiting: Written::default(),
            revision: 0,
            now_ms: 1_000_000,
        }
    }

    /// Applies an entry with these events a millisecond later. Returns its revision.
    fn apply(&mut self, origin: Option<Arc<Origin>>, events: &[Event]) -> u64 {
        self.revision += 1;
        self.now_ms += 1;
        let envelope = Envelope {
            at_ms: self.now_ms,
            origin,
            operation: None,
        };
        let occasion = Occasion {
            revision: Revision(self.revision),
            now_ms: self.now_ms,
            envelope: &envelope,
        };
        let names = Names::of(events, &State::new());
        self.writer
            .events(&occasion, events, &names, &mut self.waiting);
        self.revision
    }

    fn write(&mut self) {
        let mut batch = Batch::new();
        std::mem::take(&mut self.waiting).put(&mut batch);
        self.storage.write(batch).unwrap();
    }

    fn reader(&self) -> Reader<'_> {
        let waiting = self.waiting.parts().to_vec();
        Reader::new(&self.storage, waiting, Revision(self.revision))
    }

    fn page(&self, query: &Query) -> Page {
        self.reader().page(query).unwrap()
    }

    /// Everything that a query finds, page by page.
    fn all(&self, query: &Query) -> Vec<Position> {
        let mut found = Vec::new();
        let mut query = query.clone();
        loop {
            let page = self.page(&query);
            assert!(page.events.len() <= query.limit);
            found.extend(page.events.iter().map(|event| event.at));
            if page.next.is_none() {
                return found;
            }
            query.from = page.next;
        }
    }

    fn tenures(&self, shard: u32) -> ShardHistory {
        self.reader()
            .tenures((GROUP, ShardIndex(shard)), 10)
            .unwrap()
    }

    fn prune(&self) -> usize {
        let mut steps = 0;
        while prune_step(&self.storage, &self.options, self.now_ms).unwrap() {
            steps += 1;
        }
        steps
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let records = self.storage.scan(Table::History, &[], &[u8::MAX]);
        records.map(|record| record.unwrap().0).collect()
    }
}

fn small(events_max: u64) -> HistoryOptions {
    HistoryOptions {
        keep: Duration::from_secs(3600),
        events_max,
    }
}

fn limited(limit: usize) -> Query {
    Query {
        limit,
        ..Query::default()
    }
}

/// A book with entries of one to four hundred events, of which the last three wait.
fn mixed() -> (Book, Vec<Position>) {
    let mut book = Book::new(small(1_000_000));
    let mut expected = Vec::new();
    for round in 0..12_u64 {
        let events: Vec<Event> = (0..1 + 37 * u32::try_from(round).unwrap())
            .map(|shard| granted(shard, round + 1, 7))
            .collect();
        let revision = book.apply(None, &events);
        let ordinals = 0..u32::try_from(events.len()).unwrap();
        expected.extend(ordinals.map(|ordinal| Position {
            revision: Revision(revision),
            ordinal,
        }));
        if round == 8 {
            book.write();
        }
    }
    (book, expected)
}

#[test]
fn everything_is_found_once_in_either_order_whatever_the_page() {
    let (book, mut expected) = mixed();
    for limit in [1, 7, 128, 129, 10_000] {
        assert_eq!(book.all(&limited(limit)), expected, "by {limit}");
    }
    expected.reverse();
    for limit in [1, 7, 128, 129, 10_000] {
        let query = Query {
            newest_first: true,
            ..limited(limit)
        };
        assert_eq!(book.all(&query), expected, "back by {limit}");
    }
}

#[test]
fn the_index_finds_of_a_shard_what_reading_everything_finds() {
    let (mut book, _) = mixed();
    for written in [false, true] {
        if written {
            book.write();
        }
        for shard in [0, 1, 127, 128, 300, 407] {
            for newest_first in [false, true] {
                let of_shard = Query {
                    shard: Some((GROUP, ShardIndex(shard))),
                    newest_first,
                    ..limited(3)
                };
                let everything = Query {
                    shard: None,
                    limit: 100_000,
                    ..of_shard.clone()
                };
                let expected: Vec<Position> = book
                    .page(&everything)
                    .events
                    .into_iter()
                    .filter(|event| match &event.fact {
                        Fact::Event(event) => event.subject().shard == Some(ShardIndex(shard)),
                        _ => false,
                    })
                    .map(|event| event.at)
                    .collect();
                assert!(!expected.is_empty());
                assert_eq!(book.all(&of_shard), expected, "shard {shard}");
            }
        }
    }
}

#[test]
fn pruning_removes_the_oldest_and_leaves_no_index_behind() {
    let mut book = Book::new(small(320));
    for round in 0..1_000_u64 {
        book.apply(None, &[granted(0, round + 1, 7), granted(1, round + 1, 7)]);
    }
    book.write();
    assert!(book.prune() > 10);
    let left = book.all(&limited(100));
    assert!((300..=330).contains(&left.len()), "{}", left.len());
    assert_eq!(left.last().unwrap().revision, Revision(1_000));
    let since = book.page(&limited(1)).since;
    assert_eq!(left.first().unwrap().revision, since);
    // Parts, two events of each in the index, segments: nothing of what was pruned.
    let count = |letter: u8| book.keys().iter().filter(|key| key[0] == letter).count();
    assert_eq!(count(b'i'), left.len());
    assert_eq!(count(b'e'), left.len() / 2);
    let of_shard = Query {
        shard: Some((GROUP, ShardIndex(1))),
        ..limited(100)
    };
    assert_eq!(book.all(&of_shard).len(), left.len() / 2);
    assert_eq!(book.prune(), 0);
}

#[test]
fn what_is_older_than_it_is_kept_goes_but_never_the_segment_that_grows() {
    let mut book = Book::new(small(1_000_000));
    for _ in 0..100 {
        book.now_ms += 60_000;
        book.apply(None, &[granted(0, 1, 7)]);
    }
    book.write();
    book.prune();
    let left = book.all(&limited(100));
    // An hour of them, and what is in a segment with the first of that hour.
    assert!((60..=63).contains(&left.len()), "{}", left.len());
    book.now_ms += 10 * 3_600_000;
    book.prune();
    let left = book.all(&limited(100)).len();
    assert!((1..=3).contains(&left), "{left}");
}

#[test]
fn a_writer_goes_on_in_the_segment_it_finds() {
    let mut book = Book::new(small(1_000_000));
    book.apply(None, &[granted(0, 1, 7)]);
    book.write();
    book.writer = Writer::load(&book.storage, book.options).unwrap();
    book.apply(None, &[granted(0, 2, 7)]);
    book.write();
    let segments = book.keys().iter().filter(|key| key[0] == b's').count();
    assert_eq!((segments, book.all(&limited(10)).len()), (1, 2));
}

#[test]
fn events_are_filtered_by_group_worker_kind_time_and_whoever_asked() {
    let mut book = Book::new(small(1_000_000));
    book.apply(None, &[registered("a", 7), registered("b", 8)]);
    book.apply(None, &[registered("a", 7), granted(0, 1, 7)]);
    let late = book.now_ms + 1;
    book.apply(by("alice", ""), &[mode_set("b", WorkerMode::Draining)]);
    let count = |query: Query| book.all(&query).len();
    assert_eq!(count(limited(10)), 5);
    let worker = |name: &str| Query {
        worker: Some(WorkerName::new(name).unwrap()),
        ..limited(10)
    };
    assert_eq!((count(worker("a")), count(worker("b"))), (3, 2));
    let kinds = |kinds: &[&str]| Query {
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        ..limited(10)
    };
    assert_eq!(count(kinds(&["granted", "worker-mode-set"])), 2);
    assert_eq!(count(kinds(&["nothing"])), 0);
    let asked_for = Query {
        asked_for: true,
        ..limited(10)
    };
    assert_eq!(count(asked_for), 1);
    let since = Query {
        since_ms: late,
        ..limited(10)
    };
    assert_eq!(count(since), 1);
    let nowhere = Query {
        group: Some("nowhere".parse().unwrap()),
        ..limited(10)
    };
    assert_eq!(count(nowhere), 0);
}

#[test]
fn a_shard_that_moved_says_who_drained_its_worker_and_why() {
    let mut book = Book::new(small(1_000_000));
    book.apply(None, &[registered("a", 7), registered("b", 8)]);
    book.apply(None, &[registered("a", 7), granted(0, 1, 7)]);
    book.apply(None, &[serving(0, 1, 7)]);
    book.apply(
        by("bob", "a mistake"),
        &[mode_set("b", WorkerMode::Draining)],
    );
    book.apply(by("bob", "undone"), &[mode_set("b", WorkerMode::Active)]);
    let drained = by("alice", "new kernel");
    book.apply(drained.clone(), &[mode_set("a", WorkerMode::Draining)]);
    book.apply(None, &[revoking(0, 1, 7, RevokeReason::Draining)]);
    book.apply(
        None,
        &[ended(0, 1, 7), registered("b", 8), granted(0, 2, 8)],
    );
    for written in [false, true] {
        if written {
            book.write();
        }
        let history = book.tenures(0);
        let [second, first] = history.tenures.as_slice() else {
            panic!("{history:?}");
        };
        assert_eq!(
            (first.epoch, first.worker.as_deref()),
            (epoch(1), Some("a"))
        );
        assert_eq!(first.origin, drained);
        let revisions = [
            first.granted,
            first.serving,
            first.revoked.map(|(mark, _)| mark),
            first.ended.as_ref().map(|(mark, _)| *mark),
        ]
        .map(|mark| mark.unwrap().at.revision.0);
        assert_eq!(revisions, [2, 3, 7, 8]);
        assert_eq!(first.ended.as_ref().unwrap().1, EndCause::Released);
        assert_eq!(
            (second.epoch, second.worker.as_deref(), second.ended.clone()),
            (epoch(2), Some("b"), None)
        );
        assert!(!second.end_is_unknown && !history.more);
        assert_eq!((history.since, history.gaps.len()), (Revision(1), 0));
    }
}

#[test]
fn a_gap_is_told_and_what_ended_in_it_is_unknown() {
    let mut book = Book::new(small(1_000_000));
    book.apply(None, &[granted(0, 1, 7)]);
    book.write();
    let mut batch = Batch::new();
    let (key, value) = gap_record(Revision(1), Revision(50));
    batch.put(Table::History, key, value);
    book.storage.write(batch).unwrap();
    book.revision = 50;
    book.apply(None, &[granted(0, 3, 9)]);
    let history = book.tenures(0);
    let gap = history.gaps[0];
    assert_eq!((gap.after, gap.until), (Revision(1), Revision(50)));
    let ends: Vec<bool> = history
        .tenures
        .iter()
        .map(|tenure| tenure.end_is_unknown)
        .collect();
    assert_eq!(ends, [false, true]);
}

#[test]
fn a_node_without_history_says_so() {
    let book = Book::new(small(1_000));
    let page = book.page(&limited(10));
    assert_eq!((page.since, page.events.len()), (Revision(1), 0));
}

/// What is on the disk of an earlier release is read by every later one.
#[test]
fn a_part_is_kept_as_ever() {
    let part = Part {
        at_ms: 1_767_225_600_000,
        by: Some("alice".to_owned()),
        reason: None,
        groups: vec![(2, "orders".to_owned())],
        workers: vec![(7, "a".to_owned())],
        events: vec![Some(granted(3, 4, 7))],
        operation: None,
        members: None,
    };
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    assert_eq!(
        hex(&part.encode()),
        "a5001b0000019b76daa8000165616c6963650381820266 6f726465727304818207616105818208840203 0407"
            .replace(' ', "")
    );
    let members = Part {
        members: Some(vec![NodeNote {
            id: 1,
            voter: true,
            peer_address: "a:1".to_owned(),
        }]),
        operation: Some("remove node 3".to_owned()),
        ..Part::default()
    };
    for part in [part, members] {
        assert_eq!(Part::decode(&part.encode()).unwrap(), part);
    }
}

#[test]
fn an_event_of_a_later_release_is_passed_over() {
    let part = Part {
        events: vec![Some(granted(3, 4, 7)), Some(granted(4, 4, 7))],
        ..Part::default()
    };
    let mut bytes = part.encode();
    let known = granted(3, 4, 7).encode();
    let at = bytes
        .windows(known.len())
        .position(|window| window == known)
        .unwrap();
    // The number of the kind, which follows the header of the event.
    bytes[at + 1] = 0x17;
    let read = Part::decode(&bytes).unwrap();
    assert_eq!(read.events, [None, Some(granted(4, 4, 7))]);
    let facts: Vec<Fact> = read.facts().collect();
    assert_eq!(facts[0], Fact::Unknown);
    // And written again it stays so.
    assert_eq!(Part::decode(&read.encode()).unwrap(), read);
    let damaged = Bytes::from_static(&[0xff, 0]);
    assert!(Part::decode(&damaged).is_err());
}
