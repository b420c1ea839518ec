//! What a watcher was told, as histories keep it.

use serde::{Deserialize, Serialize};
use tenure_proto::v1::event::Event as Told;
use tenure_proto::v1::watch_response::Message;
use tenure_proto::v1::{Cursor, Event, WatchResponse};

/// A position among the events: revision and ordinal.
pub type At = (u64, u32);

/// One message to a watcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
pub enum News {
    /// A part of the state.
    State {
        /// The cursor of the state.
        at: At,
        /// The shards of this part.
        shards: Vec<(u32, Shard)>,
        /// Whether it is the last part.
        last: bool,
    },
    /// Events.
    Events {
        /// In order.
        events: Vec<(At, Fact)>,
    },
    /// All is told up to this cursor.
    Progress {
        /// The cursor.
        at: At,
    },
    /// The watcher has to begin with the state again.
    Resync,
}

/// A shard, as watchers know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Epoch of the latest grant; 0 if there was none.
    pub epoch: u64,
    /// Number of the owning session; 0 if nobody owns it.
    pub owner: u64,
    /// `ShardPhase` as a number.
    pub phase: i32,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// A shard has a new owner.
    Granted {
        /// The shard.
        shard: u32,
        /// The tenure.
        epoch: u64,
        /// Number of the session.
        owner: u64,
    },
    /// The owner serves.
    Serving {
        /// The shard.
        shard: u32,
        /// The tenure.
        epoch: u64,
    },
    /// The owner is asked to stop.
    Revoking {
        /// The shard.
        shard: u32,
        /// The tenure.
        epoch: u64,
    },
    /// A tenure ended.
    Ended {
        /// The shard.
        shard: u32,
        /// The tenure.
        epoch: u64,
        /// How.
        cause: i32,
    },
    /// No grant takes an epoch up to this one.
    FloorRaised {
        /// The shard.
        shard: u32,
        /// The epoch.
        floor: u64,
    },
    /// Something else, for people.
    Other {
        /// What.
        text: String,
    },
}

impl News {
    /// Returns what a message says; `None` of one that says nothing.
    #[must_use]
    pub fn of(response: &WatchResponse) -> Option<Self> {
        Some(match response.message.as_ref()? {
            Message::State(part) => Self::State {
                at: cursor(part.at),
                shards: part
                    .shards
                    .iter()
                    .map(|shard| {
                        let known = Shard {
                            epoch: shard.epoch,
                            owner: shard.owner,
                            phase: shard.phase,
                        };
                        (shard.index, known)
                    })
                    .collect(),
                last: part.last,
            },
            Message::Events(events) => Self::Events {
                events: events
                    .events
                    .iter()
                    .map(|event| (cursor(event.cursor), Fact::of(event)))
                    .collect(),
            },
            Message::Progress(at) => Self::Progress {
                at: cursor(Some(*at)),
            },
            Message::Resync(_) => Self::Resync,
        })
    }
}

impl Fact {
    fn of(event: &Event) -> Self {
        match &event.event {
            Some(Told::Granted(granted)) => Self::Granted {
                shard: granted.shard,
                epoch: granted.epoch,
                owner: granted.owner,
            },
            Some(Told::Serving(serving)) => Self::Serving {
                shard: serving.shard,
                epoch: serving.epoch,
            },
            Some(Told::Revoking(revoking)) => Self::Revoking {
                shard: revoking.shard,
                epoch: revoking.epoch,
            },
            Some(Told::TenureEnded(ended)) => Self::Ended {
                shard: ended.shard,
                epoch: ended.epoch,
                cause: ended.cause,
            },
            Some(Told::FloorRaised(raised)) => Self::FloorRaised {
                shard: raised.shard,
                floor: raised.floor,
            },
            other => Self::Other {
                text: format!("{other:?}"),
            },
        }
    }
}

fn cursor(cursor: Option<Cursor>) -> At {
    let cursor = cursor.unwrap_or_default();
    (cursor.revision, cursor.ordinal)
}
