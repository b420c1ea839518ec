//! What an item holds, and how.
//!
//! ```text
//!   resource    S  the key
//!   fence       M  epoch N, owner S
//!   latest      M  sequence N, write_id S         the latest write or deletion of the fence's epoch
//!   checkpoint  M  epoch N, owner S, sequence N, write_id S, data B
//! ```
//!
//! Only what a condition compares by size is a number; owners and write ids are in the text they are
//! shown as everywhere, so that a person can read an item.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;

use crate::admission::Fence;
use crate::checkpoint::Checkpoint;
use crate::epoch::Epoch;
use crate::owner::Owner;
use crate::resource::Resource;
use crate::sequence::{Sequence, WriteId};

pub(super) const RESOURCE: &str = "resource";
pub(super) const FENCE: &str = "fence";
pub(super) const LATEST: &str = "latest";
pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const EPOCH: &str = "epoch";
pub(super) const OWNER: &str = "owner";
pub(super) const SEQUENCE: &str = "sequence";
pub(super) const WRITE_ID: &str = "write_id";
pub(super) const DATA: &str = "data";

/// What is kept for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) fence: Fence,
    /// The latest write or deletion of the fence's epoch. It outlives its data.
    pub(super) latest: Option<(Sequence, WriteId)>,
    /// The latest write of any epoch, unless it was deleted. Read separately, so that a fence also
    /// holds over what cannot be read.
    pub(super) checkpoint: Result<Option<Checkpoint>, ItemError>,
}

/// An attribute that is not there, or is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("attribute {attribute} of the item is missing or not readable")]
pub(super) struct ItemError {
    attribute: &'static str,
}

type Attributes = HashMap<String, AttributeValue>;

impl Item {
    /// Reads an item; `None` when it was never sealed.
    pub(super) fn decode(mut attributes: Attributes) -> Result<Option<Self>, ItemError> {
        let mut part = |attribute| match attributes.remove(attribute) {
            None => Ok(None),
            Some(AttributeValue::M(part)) => Ok(Some(part)),
            Some(_) => Err(ItemError { attribute }),
        };
        let (fence, latest, checkpoint) = (part(FENCE)?, part(LATEST)?, part(CHECKPOINT));
        let Some(fence) = fence else {
            // Nothing but a seal makes an item, so without a fence there is nothing else either.
            return match (latest, checkpoint) {
                (None, Ok(None)) => Ok(None),
                _ => Err(ItemError { attribute: FENCE }),
            };
        };
        let (epoch, owner) = read_holder(&fence)?;
        Ok(Some(Self {
            fence: Fence { epoch, owner },
            latest: latest.as_ref().map(read_write).transpose()?,
            checkpoint: checkpoint.and_then(|part| part.map(read_checkpoint).transpose()),
        }))
    }
}

/// Returns the resource of an item, and its text; `None` for items that are none's: see
/// [`table`](super::table) and [`probe`](super::probe).
pub(super) fn resource(attributes: &Attributes) -> Option<(String, Resource)> {
    let text = attributes.get(RESOURCE)?.as_s().ok()?;
    Some((text.clone(), text.parse().ok()?))
}

pub(super) fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(super) fn holder(fence: &Fence) -> AttributeValue {
    AttributeValue::M(HashMap::from([
        (EPOCH.to_owned(), number(fence.epoch.get())),
        (OWNER.to_owned(), AttributeValue::S(fence.owner.to_string())),
    ]))
}

pub(super) fn write((sequence, write_id): (Sequence, WriteId)) -> AttributeValue {
    AttributeValue::M(HashMap::from([
        (SEQUENCE.to_owned(), number(sequence.get())),
        (WRITE_ID.to_owned(), AttributeValue::S(write_id.to_string())),
    ]))
}

pub(super) fn checkpoint(checkpoint: Checkpoint) -> AttributeValue {
    let Checkpoint {
        epoch,
        owner,
        sequence,
        write_id,
        data,
    } = checkpoint;
    AttributeValue::M(HashMap::from([
        (EPOCH.to_owned(), number(epoch.get())),
        (OWNER.to_owned(), AttributeValue::S(owner.to_string())),
        (SEQUENCE.to_owned(), number(sequence.get())),
        (WRITE_ID.to_owned(), AttributeValue::S(write_id.to_string())),
        (DATA.to_owned(), AttributeValue::B(Blob::new(data))),
    ]))
}

fn read_holder(part: &Attributes) -> Result<(Epoch, Owner), ItemError> {
    let owner = text(part, OWNER).and_then(|owner| owner.parse().ok());
    Ok((
        read_number(part, EPOCH)?,
        owner.ok_or(ItemError { attribute: OWNER })?,
    ))
}

fn read_write(part: &Attributes) -> Result<(Sequence, WriteId), ItemError> {
    let write_id = text(part, WRITE_ID)
        .filter(|digits| digits.len() == 32)
        .and_then(|digits| u128::from_str_radix(digits, 16).ok())
        .ok_or(ItemError {
            attribute: WRITE_ID,
        })?;
    Ok((read_number(part, SEQUENCE)?, WriteId::new(write_id)))
}

fn read_checkpoint(mut part: Attributes) -> Result<Checkpoint, ItemError> {
    let (epoch, owner) = read_holder(&part)?;
    let (sequence, write_id) = read_write(&part)?;
    let Some(AttributeValue::B(data)) = part.remove(DATA) else {
        return Err(ItemError { attribute: DATA });
    };
    Ok(Checkpoint {
        epoch,
        owner,
        sequence,
        write_id,
        data: Bytes::from(data.into_inner()),
    })
}

fn read_number<N: TryFrom<u64>>(
    part: &Attributes,
    attribute: &'static str,
) -> Result<N, ItemError> {
    part.get(attribute)
        .and_then(|value| value.as_n().ok())
        .and_then(|digits| digits.parse::<u64>().ok())
        .and_then(|number| N::try_from(number).ok())
        .ok_or(ItemError { attribute })
}

fn text<'a>(part: &'a Attributes, attribute: &str) -> Option<&'a str> {
    let text = part.get(attribute)?.as_s().ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Write;
    use crate::token::FencingToken;

    fn attributes() -> (Item, Attributes) {
        let text = "shard/orders/7@9223372036854775807:ffffffffffffffffffffffffffffffff/18446744073709551615";
        let token: FencingToken = text.parse().unwrap();
        let latest = (Sequence::MAX, WriteId::new(u128::MAX - 1));
        let latest_write = Checkpoint::of(
            &token,
            Write {
                sequence: latest.0,
                write_id: latest.1,
                data: Bytes::from_static(b"offset 490"),
            },
        );
        let item = Item {
            fence: Fence::from(&token),
            latest: Some(latest),
            checkpoint: Ok(Some(latest_write.clone())),
        };
        let attributes = HashMap::from([
            (
                RESOURCE.to_owned(),
                AttributeValue::S("shard/orders/7".to_owned()),
            ),
            (FENCE.to_owned(), holder(&item.fence)),
            (LATEST.to_owned(), write(latest)),
            (CHECKPOINT.to_owned(), checkpoint(latest_write)),
        ]);
        (item, attributes)
    }

    #[test]
    fn an_item_is_read_as_it_was_written() {
        let (item, attributes) = attributes();
        assert_eq!(Item::decode(attributes), Ok(Some(item)));
    }

    #[test]
    fn an_item_without_a_fence_was_never_sealed_and_holds_nothing() {
        let (_, mut attributes) = attributes();
        attributes.remove(FENCE);
        let error = ItemError { attribute: FENCE };
        assert_eq!(Item::decode(attributes.clone()), Err(error));
        attributes.remove(CHECKPOINT);
        attributes.remove(LATEST);
        assert_eq!(Item::decode(attributes), Ok(None));
    }

    #[test]
    fn a_part_that_is_missing_or_of_another_type_is_corrupt() {
        let (right, whole) = attributes();
        let parts: [(&str, &[&'static str]); 3] = [
            (FENCE, &[EPOCH, OWNER]),
            (LATEST, &[SEQUENCE, WRITE_ID]),
            (CHECKPOINT, &[EPOCH, OWNER, SEQUENCE, WRITE_ID, DATA]),
        ];
        for (part, attributes) in parts {
            for &attribute in attributes {
                for wrong in [None, Some(AttributeValue::Bool(true)), Some(number(0))] {
                    let mut damaged = whole.clone();
                    let Some(AttributeValue::M(fields)) = damaged.get_mut(part) else {
                        panic!("{part} is no map");
                    };
                    fields.remove(attribute);
                    fields.extend(wrong.map(|wrong| (attribute.to_owned(), wrong)));
                    let error = ItemError { attribute };
                    // The fence holds over a checkpoint that cannot be read.
                    let found = match Item::decode(damaged) {
                        Ok(Some(item)) if part == CHECKPOINT => {
                            assert_eq!((item.fence, item.latest), (right.fence, right.latest));
                            item.checkpoint.unwrap_err()
                        }
                        other => other.unwrap_err(),
                    };
                    assert_eq!(found, error, "{part}.{attribute}");
                }
            }
        }
    }
}
