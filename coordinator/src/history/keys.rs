//! The layout of [`Table::History`](crate::storage::Table). All numbers are big-endian.
//!
//! | key | value |
//! |---|---|
//! | `e` revision (8), first ordinal (4) | a part of the entry's events |
//! | `i` segment (8), group (8), shard (4), revision (8), ordinal (4) | nothing: an event of that shard |
//! | `s` segment (8) | the segment |
//! | `g` revision (8) | revision (8) after which nothing is known, up to the one in the key |
//!
//! A segment is named by its first revision. The index is divided by segments, so that pruning one deletes
//! one range of it.

use tenure_ownership::ids::{GroupId, Revision, ShardIndex};

use super::Position;
use super::part::PART_EVENTS;

const EVENTS: u8 = b'e';
const GAPS: u8 = b'g';
const INDEX: u8 = b'i';
const SEGMENTS: u8 = b's';

/// The shard under which events of a whole group are in the index. No group has so many.
pub(super) const WHOLE_GROUP: ShardIndex = ShardIndex(u32::MAX);

/// A range of keys: the first, and the one after the last.
pub(crate) type KeyRange = (Vec<u8>, Vec<u8>);

fn key(table: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
    key.push(table);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// Every key there is.
pub(super) fn everything() -> KeyRange {
    (Vec::new(), vec![u8::MAX])
}

/// The key of the part that holds a position.
pub(super) fn part(position: Position) -> Vec<u8> {
    let first = position.ordinal / PART_EVENTS * PART_EVENTS;
    key(
        EVENTS,
        &[&position.revision.0.to_be_bytes(), &first.to_be_bytes()],
    )
}

/// The key of the first part of a revision.
pub(super) fn revision(revision: Revision) -> Vec<u8> {
    key(EVENTS, &[&revision.0.to_be_bytes()])
}

/// Every part.
pub(super) fn parts() -> KeyRange {
    (vec![EVENTS], vec![EVENTS + 1])
}

/// Where the part of a key begins; `None` if it is not a key of one.
pub(super) fn part_position(key: &[u8]) -> Option<Position> {
    let rest = key.strip_prefix(&[EVENTS])?;
    Some(Position {
        revision: Revision(u64::from_be_bytes(rest.get(..8)?.try_into().ok()?)),
        ordinal: u32::from_be_bytes(rest.get(8..)?.try_into().ok()?),
    })
}

/// The key of an event of a shard in the index.
pub(super) fn index(
    segment: Revision,
    (group, shard): (GroupId, ShardIndex),
    at: Position,
) -> Vec<u8> {
    key(
        INDEX,
        &[
            &segment.0.to_be_bytes(),
            &group.0.to_be_bytes(),
            &shard.0.to_be_bytes(),
            &at.revision.0.to_be_bytes(),
            &at.ordinal.to_be_bytes(),
        ],
    )
}

/// The index of a shard within a segment, from one position up to and including another.
pub(super) fn index_range(
    segment: Revision,
    shard: (GroupId, ShardIndex),
    (from, to): (Position, Position),
) -> KeyRange {
    let mut end = index(segment, shard, to);
    end.push(0);
    (index(segment, shard, from), end)
}

/// The index of all segments from one up to another.
pub(super) fn index_of_segments(from: Revision, to: Revision) -> KeyRange {
    (
        key(INDEX, &[&from.0.to_be_bytes()]),
        key(INDEX, &[&to.0.to_be_bytes()]),
    )
}

/// The position of a key of the index.
pub(super) fn index_position(key: &[u8]) -> Option<Position> {
    let rest = key.strip_prefix(&[INDEX])?.get(20..)?;
    Some(Position {
        revision: Revision(u64::from_be_bytes(rest.get(..8)?.try_into().ok()?)),
        ordinal: u32::from_be_bytes(rest.get(8..)?.try_into().ok()?),
    })
}

/// The key of a segment.
pub(super) fn segment(first: Revision) -> Vec<u8> {
    key(SEGMENTS, &[&first.0.to_be_bytes()])
}

/// Every segment.
pub(crate) fn segments_range() -> KeyRange {
    (vec![SEGMENTS], vec![SEGMENTS + 1])
}

/// The record of a gap: nothing is known after a revision up to and including another.
pub(crate) fn gap(after: Revision, until: Revision) -> (Vec<u8>, Vec<u8>) {
    (
        key(GAPS, &[&until.0.to_be_bytes()]),
        after.0.to_be_bytes().to_vec(),
    )
}

/// Every gap.
pub(super) fn gaps() -> KeyRange {
    (vec![GAPS], vec![GAPS + 1])
}

/// The gaps that end at a revision or before it.
pub(super) fn gaps_until(revision: Revision) -> KeyRange {
    let mut end = key(GAPS, &[&revision.0.to_be_bytes()]);
    end.push(0);
    (vec![GAPS], end)
}

/// The number after the letter of a key of a segment or a gap.
pub(super) fn number(key: &[u8]) -> Option<Revision> {
    let bytes = key.get(1..)?.try_into().ok()?;
    Some(Revision(u64::from_be_bytes(bytes)))
}
