//! The events of an entry as they are kept: in parts, each readable by itself.

use minicbor::{Decode, Encode};
use tenure_ownership::Event;
use tenure_ownership::ids::GroupId;

use super::names::Names;
use crate::consensus::Envelope;
use crate::storage::StorageError;

/// Events in a part. A shard's event is read with its part, so a part is small; an entry of ten thousand
/// grants is eighty records instead of ten thousand.
pub(super) const PART_EVENTS: u32 = 128;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// An event of the state.
    Event(Event),
    /// Somebody asked for something that changes the cluster itself, in words.
    Operation(String),
    /// The members of the cluster are others than before: all of them, by id.
    Members(Vec<NodeNote>),
    /// A later release wrote what it is.
    Unknown,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct NodeNote {
    /// Its id.
    #[n(0)]
    pub id: u64,
    /// Whether it votes.
    #[n(1)]
    pub voter: bool,
    /// Where its peers reach it.
    #[n(2)]
    pub peer_address: String,
}

/// A part of what an entry did. Numbers of fields are never reused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(super) struct Part {
    /// When it was proposed; 0 if not known.
    #[n(0)]
    pub(super) at_ms: u64,
    /// Who asked for it.
    #[n(1)]
    pub(super) by: Option<String>,
    /// Why.
    #[n(2)]
    pub(super) reason: Option<String>,
    /// Names of the groups in it, by id.
    #[n(3)]
    pub(super) groups: Vec<(u64, String)>,
    /// Names of the workers in it, by session.
    #[n(4)]
    pub(super) workers: Vec<(u64, String)>,
    /// The events; `None` for one of a later release.
    #[cbor(n(5), with = "events")]
    pub(super) events: Vec<Option<Event>>,
    /// What somebody asked for.
    #[n(6)]
    pub(super) operation: Option<String>,
    /// The members after a change of them.
    #[n(7)]
    pub(super) members: Option<Vec<NodeNote>>,
}

impl Part {
    /// Returns a part with what an envelope says.
    pub(super) fn new(envelope: &Envelope) -> Self {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            at_ms: envelope.at_ms,
            by: given(envelope.by()),
            reason: given(envelope.reason()),
            ..Self::default()
        }
    }

    /// Adds events, with the names of what is in them.
    pub(super) fn with_events(mut self, events: &[Event], names: &Names) -> Self {
        for event in events {
            let subject = event.subject();
            if let Some(GroupId(id)) = subject.group
                && !self.groups.iter().any(|(known, _)| *known == id)
                && let Some(name) = names.group(GroupId(id))
            {
                self.groups.push((id, name.to_owned()));
            }
            for session in subject.sessions.into_iter().flatten() {
                // Few workers in a part, so that this is quicker than a map.
                if !self.workers.iter().any(|(known, _)| *known == session.0)
                    && let Some(name) = names.worker(session)
                {
                    self.workers.push((session.0, name.to_owned()));
                }
            }
            self.events.push(Some(event.clone()));
        }
        self
    }

    /// Returns everything in it, in order of ordinals.
    pub(super) fn facts(&self) -> impl DoubleEndedIterator<Item = Fact> + '_ {
        let events = self
            .events
            .iter()
            .map(|event| event.clone().map_or(Fact::Unknown, Fact::Event));
        let operation = self.operation.iter().cloned().map(Fact::Operation);
        let members = self.members.iter().cloned().map(Fact::Members);
        events.chain(operation).chain(members)
    }

    /// Returns the name of a group.
    pub(super) fn group(&self, group: GroupId) -> Option<&str> {
        name_of(&self.groups, group.0)
    }

    /// Returns the part as it is kept.
    pub(super) fn encode(&self) -> Vec<u8> {
        match minicbor::to_vec(self) {
            Ok(bytes) => bytes,
            // Writing to a vector has no error, and no encoder here makes one of its own.
            Err(error) => unreachable!("encoding to memory: {error}"),
        }
    }

    /// Reads a part.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, StorageError> {
        minicbor::decode(bytes).map_err(|error| StorageError::Corrupt {
            what: format!("history: {error}"),
        })
    }
}

fn name_of(names: &[(u64, String)], id: u64) -> Option<&str> {
    let found = names.iter().find(|(known, _)| *known == id);
    found.map(|(_, name)| name.as_str())
}

/// Events one after another. One that this release does not know is passed over, because history is for
/// people: a node that went back a release shows the rest.
mod events {
    use minicbor::decode::{Decoder, Error as DecodeError};
    use minicbor::encode::{Encoder, Error as EncodeError, Write};
    use tenure_ownership::Event;

    pub(super) fn encode<Ctx, W: Write>(
        events: &[Option<Event>],
        e: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        e.array(u64::try_from(events.len()).unwrap_or(u64::MAX))?;
        for event in events {
            match event {
                Some(event) => e.encode(event)?.ok()?,
                // Read as unknown again.
                None => e.null()?.ok()?,
            }
        }
        Ok(())
    }

    pub(super) fn decode<Ctx>(
        d: &mut Decoder<'_>,
        _: &mut Ctx,
    ) -> Result<Vec<Option<Event>>, DecodeError> {
        let count = d
            .array()?
            .ok_or_else(|| DecodeError::message("events of no length"))?;
        let mut events = Vec::new();
        for _ in 0..count {
            let begin = d.position();
            match d.decode::<Event>() {
                Ok(event) => events.push(Some(event)),
                Err(_) => {
                    d.set_position(begin);
                    d.skip()?;
                    events.push(None);
                }
            }
        }
        Ok(events)
    }
}
