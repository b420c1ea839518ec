//! The worker streams of one leadership.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use tenure_ownership::command::Tenure;
use tenure_ownership::ids::Revision;
use tenure_ownership::ids::SessionId;

use super::message::StreamId;

/// A stream that has a session.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) session: SessionId,
    /// Revision of the `Set` it began with: what is older is in the `Set`.
    pub(super) set: Revision,
    /// The tenures of that `Set`, until the worker has answered it.
    pub(super) unanswered: Option<Vec<Tenure>>,
}

/// Streams by id.
#[derive(Debug, Default)]
pub(super) struct Streams {
    attached: BTreeMap<StreamId, Stream>,
    /// Opened, but without a session yet: their registration waits or is being decided.
    registering: BTreeSet<StreamId>,
}

impl Streams {
    pub(super) fn registering(&mut self, id: StreamId) {
        self.registering.insert(id);
    }

    /// Whether a stream is open, with or without a session.
    pub(super) fn is_open(&self, id: StreamId) -> bool {
        self.attached.contains_key(&id) || self.registering.contains(&id)
    }

    pub(super) fn attach(&mut self, id: StreamId, stream: Stream) {
        self.registering.remove(&id);
        self.attached.insert(id, stream);
    }

    pub(super) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.attached.get(&id)
    }

    /// Takes the tenures of the `Set` of a revision, if the worker has not answered it yet.
    pub(super) fn take_unanswered(&mut self, id: StreamId, set: Revision) -> Option<Vec<Tenure>> {
        let stream = self
            .attached
            .get_mut(&id)
            .filter(|stream| stream.set == set)?;
        stream.unanswered.take()
    }

    pub(super) fn forget(&mut self, id: StreamId) -> Option<Stream> {
        self.registering.remove(&id);
        self.attached.remove(&id)
    }
}
