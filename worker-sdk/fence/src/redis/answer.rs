//! What the server keeps and answers, read.

use ::redis::Value;
use bytes::Bytes;

use crate::admission::Fence;
use crate::epoch::Epoch;
use crate::sequence::{Sequence, WriteId};

/// What a call of the script has done and found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) changed: bool,
    /// What was there before. `None` when the resource had never been sealed.
    pub(super) before: Option<State>,
    /// After a seal that was admitted, the data.
    pub(super) data: Option<Bytes>,
}

/// What the fence's key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) fence: Fence,
    pub(super) latest: Option<(Sequence, WriteId)>,
}

/// An answer that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    #[error("the key of the fence has an expiry: somebody set it, and PERSIST removes it")]
    Expiring,
    #[error("the key of the fence does not hold a fence")]
    Damaged,
    #[error("the data was written above the fence")]
    AboveFence,
    #[error("the script in the server has decided otherwise than the rule")]
    Disagrees,
    #[error("the server gave an answer of another form")]
    Form,
}

/// Writes a number so that the order of the texts is that of the numbers: 19 digits, which the
/// largest epoch and the largest sequence have.
pub(super) fn digits(number: u64) -> String {
    format!("{number:019}")
}

impl Answer {
    pub(super) fn read(value: Value) -> Result<Self, AnswerError> {
        let Value::Array(parts) = value else {
            return Err(AnswerError::Form);
        };
        let mut parts = parts.into_iter();
        let changed = match text(parts.next())?.as_deref() {
            Some("changed") => true,
            Some("kept") => false,
            Some("expiring") => return Err(AnswerError::Expiring),
            Some("damaged") => return Err(AnswerError::Damaged),
            _ => return Err(AnswerError::Form),
        };
        let before = state(&mut parts)?;
        let found = parts.next().unwrap_or(Value::Nil);
        Ok(Self {
            changed,
            before,
            data: data(found)?,
        })
    }
}

/// Reads the answer to a request for the fields of a fence.
pub(super) fn fence(value: Value) -> Result<Option<Fence>, AnswerError> {
    let Value::Array(fields) = value else {
        return Err(AnswerError::Form);
    };
    Ok(state(&mut fields.into_iter())?.map(|state| state.fence))
}

/// Reads the answer to a request for the data.
pub(super) fn data(value: Value) -> Result<Option<Bytes>, AnswerError> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(data) => Ok(Some(data.into())),
        _ => Err(AnswerError::Form),
    }
}

/// Reads epoch, owner, sequence and write id.
fn state(fields: &mut impl Iterator<Item = Value>) -> Result<Option<State>, AnswerError> {
    let epoch = text(fields.next())?;
    let owner = text(fields.next())?;
    let sequence = text(fields.next())?;
    let write_id = text(fields.next())?;
    let (epoch, owner) = match (epoch, owner) {
        (None, None) => return Ok(None),
        (Some(epoch), Some(owner)) => (epoch, owner),
        _ => return Err(AnswerError::Damaged),
    };
    let fence = Fence {
        epoch: number(&epoch)
            .and_then(Epoch::new)
            .ok_or(AnswerError::Damaged)?,
        owner: owner.parse().map_err(|_| AnswerError::Damaged)?,
    };
    let latest = match (sequence, write_id) {
        (None, None) => None,
        (Some(sequence), Some(write_id)) => {
            let sequence = number(&sequence).and_then(Sequence::new);
            let sequence = sequence.ok_or(AnswerError::Damaged)?;
            let write_id = u128::from_str_radix(&write_id, 16).map_err(|_| AnswerError::Damaged)?;
            Some((sequence, WriteId::new(write_id)))
        }
        _ => return Err(AnswerError::Damaged),
    };
    Ok(Some(State { fence, latest }))
}

/// Reads a number that [`digits`] wrote.
fn number(text: &str) -> Option<u64> {
    let canonical = text.len() == 19 && text.bytes().all(|byte| byte.is_ascii_digit());
    canonical.then(|| text.parse().ok()).flatten()
}

fn text(value: Option<Value>) -> Result<Option<String>, AnswerError> {
    match value {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::BulkString(text)) => match String::from_utf8(text) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(AnswerError::Damaged),
        },
        Some(Value::SimpleString(text)) => Ok(Some(text)),
        Some(_) => Err(AnswerError::Form),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn fields(epoch: &str, sequence: Option<&str>) -> Vec<Value> {
        let owner = "00000000000000000000000000c0ffee/18446744073709551615";
        let write_id = sequence.map(|_| "000000000000000000000000000000ab");
        vec![
            bulk(epoch),
            bulk(owner),
            sequence.map_or(Value::Nil, bulk),
            write_id.map_or(Value::Nil, bulk),
        ]
    }

    #[test]
    fn numbers_are_ordered_as_texts() {
        let numbers = [
            1,
            9,
            10,
            (1 << 53) - 1,
            1 << 53,
            (1 << 53) + 1,
            i64::MAX as u64,
        ];
        let texts = numbers.map(digits);
        assert!(texts.is_sorted());
        for (text, expected) in texts.iter().zip(numbers) {
            assert_eq!((text.len(), number(text)), (19, Some(expected)));
        }
    }

    #[test]
    fn an_answer_is_read_to_the_last_digit() {
        let mut parts = vec![bulk("changed")];
        parts.extend(fields("9223372036854775807", Some("9007199254740993")));
        assert_eq!(
            Answer::read(Value::Array(parts)).unwrap_err(),
            AnswerError::Damaged,
            "a sequence of fewer digits was written by something else"
        );
        let mut parts = vec![bulk("kept")];
        parts.extend(fields("9223372036854775807", Some("0009007199254740993")));
        let answer = Answer::read(Value::Array(parts)).unwrap();
        let state = answer.before.unwrap();
        assert_eq!(state.fence.epoch, Epoch::MAX);
        assert_eq!(state.fence.owner.session, u64::MAX);
        let latest = (
            Sequence::new(9_007_199_254_740_993).unwrap(),
            WriteId::new(0xab),
        );
        assert_eq!(state.latest, Some(latest));
    }

    #[test]
    fn half_a_fence_is_none() {
        let half = Value::Array(vec![bulk("0000000000000000007"), Value::Nil]);
        assert_eq!(fence(half), Err(AnswerError::Damaged));
        let none = Value::Array(vec![Value::Nil, Value::Nil, Value::Nil, Value::Nil]);
        assert_eq!(fence(none), Ok(None));
    }
}
