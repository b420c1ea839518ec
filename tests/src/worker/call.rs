//! Calls on stores, as histories keep them.

use serde::{Deserialize, Serialize};
use tenure::{Checkpoint, CheckpointError, Sequence, WriteId};

/// What is asked of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "asked", rename_all = "snake_case")]
pub enum Asked {
    /// The fence is to be raised, and what it guards to be read.
    Seal,
    /// The checkpoint is to be replaced.
    Write {
        /// Its place among the writes of the epoch.
        sequence: u64,
        /// Which write it is, in hexadecimal digits.
        write_id: String,
        /// The content.
        data: String,
    },
    /// The latest checkpoint is to be returned.
    Read,
}

impl Asked {
    /// Describes a write.
    #[must_use]
    pub fn write(sequence: Sequence, write_id: WriteId, data: &[u8]) -> Self {
        Self::Write {
            sequence: sequence.get(),
            write_id: id_text(write_id),
            data: text_of(data),
        }
    }
}

/// A checkpoint that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The epoch it was written in.
    pub epoch: u64,
    /// Its place among the writes of that epoch.
    pub sequence: u64,
    /// Which write it was, in hexadecimal digits.
    pub write_id: String,
    /// The content.
    pub data: String,
}

impl From<Checkpoint> for Content {
    fn from(checkpoint: Checkpoint) -> Self {
        Self {
            epoch: checkpoint.epoch.get(),
            sequence: checkpoint.sequence.get(),
            write_id: id_text(checkpoint.write_id),
            data: text_of(&checkpoint.data),
        }
    }
}

/// What a store answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// To a seal or a read: what is there.
    Found {
        /// The checkpoint; `None` if there is none.
        content: Option<Content>,
    },
    /// To a write: accepted.
    Done,
    /// The tenure is over.
    Fenced,
    /// The epoch is above the fence.
    NotSealed,
    /// Another owner has sealed with the same epoch.
    EpochConflict,
    /// The sequence is used.
    SequenceReused,
    /// It did not happen.
    Unavailable,
    /// It may have happened, or may still happen.
    Unknown,
    /// An answer that no call of a history may have.
    Wrong {
        /// What the store said.
        text: String,
    },
}

impl Answer {
    /// Returns what an answer says.
    #[must_use]
    pub fn of<T>(answer: &Result<T, CheckpointError>, accepted: impl FnOnce(&T) -> Self) -> Self {
        match answer {
            Ok(value) => accepted(value),
            Err(CheckpointError::Fenced { .. }) => Self::Fenced,
            Err(CheckpointError::NotSealed { .. }) => Self::NotSealed,
            Err(CheckpointError::EpochConflict { .. }) => Self::EpochConflict,
            Err(CheckpointError::SequenceReused { .. }) => Self::SequenceReused,
            Err(CheckpointError::Unavailable { .. }) => Self::Unavailable,
            Err(CheckpointError::OutcomeUnknown { .. }) => Self::Unknown,
            Err(other) => Self::Wrong {
                text: other.to_string(),
            },
        }
    }

    /// Returns that a checkpoint, or none, was found.
    #[must_use]
    pub fn found(checkpoint: Option<Checkpoint>) -> Self {
        Self::Found {
            content: checkpoint.map(Content::from),
        }
    }
}

fn id_text(write_id: WriteId) -> String {
    format!("{:032x}", write_id.get())
}

fn text_of(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}
