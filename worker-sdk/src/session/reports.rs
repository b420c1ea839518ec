//! What the coordinator is told: what is held, ready and given back.
//!
//! Reports are collected while events are handled and go together afterwards. One that finds no stream
//! is dropped: the `Set` of the next stream says whether it was heard, and `converge` repeats it.

use tenure_proto::v1;
use tenure_proto::v1::attach_request::Message as Up;

use super::Session;
use super::stream::StreamEnd;
use super::tenure::TenureId;

/// Most tenures in one `Ready` or `Released`: with their details well below 4 MiB.
const TENURES_MAX: usize = 10_000;

impl Session {
    /// Answers a `Set`. Releases go first: they say more than absence does.
    pub(super) fn answer(&mut self, set_revision: u64) {
        self.flush_releases();
        let tenures = self.tenures.holding().map(TenureId::wire).collect();
        self.send(Up::Holding(v1::Holding {
            set_revision,
            tenures,
        }));
    }

    pub(super) fn flush(&mut self) {
        self.flush_releases();
        let ready = std::mem::take(&mut self.ready);
        if ready.is_empty() || !self.tenures.is_set() {
            return;
        }
        let stores = self.context.stores.names();
        for chunk in ready.chunks(TENURES_MAX) {
            // One may have been lost since it was claimed.
            let held = chunk
                .iter()
                .copied()
                .filter(|&tenure| self.tenures.holds(tenure));
            let tenures = held.map(TenureId::wire).collect();
            self.send(Up::Ready(v1::Ready {
                tenures,
                stores: stores.clone(),
            }));
        }
    }

    pub(super) fn flush_releases(&mut self) {
        let releases = std::mem::take(&mut self.releases);
        // Without a stream they are dropped: the next Set says which of them were not heard.
        if releases.is_empty() || !self.tenures.is_set() {
            return;
        }
        for chunk in releases.chunks(TENURES_MAX) {
            self.send(Up::Released(v1::Released {
                releases: chunk.to_vec(),
            }));
        }
    }

    /// Hands a message to the stream, if there is one. Returns whether it took it.
    ///
    /// A stream that takes nothing more is left at once: it might drain again, and nobody would ever
    /// repeat what it did not take. The `Set` of the next one makes up for that.
    pub(super) fn send(&mut self, message: Up) -> bool {
        let Some(stream) = self.link.stream() else {
            return false;
        };
        let sent = stream.send(up(message));
        if !sent {
            self.leave_link(&StreamEnd::broken("the stream takes no more messages"));
        }
        sent
    }
}

/// Puts a message of the worker into its envelope.
pub(super) fn up(message: Up) -> v1::AttachRequest {
    v1::AttachRequest {
        message: Some(message),
    }
}
