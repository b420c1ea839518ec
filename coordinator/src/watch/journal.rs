//! Logs and counts what is published: once, whatever path led to it.

use tenure_ownership::Event;
use tracing::{debug, info};

use super::batch::Batch;
use crate::metrics;

/// Batches of more events than this are logged as one line; each event then only at level debug.
///
/// A handful of moves is worth reading one by one; a worker's death with its 10,000 shards is one fact.
const LINES_MAX: usize = 16;

/// Logs and counts the events of a batch.
pub(super) fn record(batch: &Batch) {
    let mut tally = Tally::default();
    for event in &batch.events {
        tally.count(event);
    }
    tally.publish();
    let revision = batch.revision;
    if batch.events.len() <= LINES_MAX {
        for event in &batch.events {
            match &batch.envelope.origin {
                Some(origin) => {
                    info!(%revision, %event, by = origin.by, reason = origin.reason, "applied");
                }
                None => info!(%revision, %event, "applied"),
            }
        }
        return;
    }
    info!(
        %revision,
        events = batch.events.len(),
        granted = tally.granted,
        serving = tally.serving,
        revoking = tally.revoking,
        tenures_ended = tally.tenures_ended,
        sessions_ended = tally.sessions_ended,
        "applied many"
    );
    for event in &batch.events {
        debug!(%revision, %event, "applied");
    }
}

/// How many events of each kind a batch has.
#[derive(Default)]
struct Tally {
    granted: u64,
    serving: u64,
    revoking: u64,
    tenures_ended: u64,
    registered: u64,
    sessions_ended: u64,
}

impl Tally {
    fn count(&mut self, event: &Event) {
        let counter = match event {
            Event::Granted { .. } => &mut self.granted,
            Event::Serving { .. } => &mut self.serving,
            Event::Revoking { .. } => &mut self.revoking,
            Event::TenureEnded { .. } => &mut self.tenures_ended,
            Event::Registered { .. } => &mut self.registered,
            Event::SessionEnded { .. } => &mut self.sessions_ended,
            _ => return,
        };
        *counter += 1;
    }

    fn publish(&self) {
        for (name, count) in [
            (metrics::GRANTS, self.granted),
            (metrics::SHARDS_SERVING, self.serving),
            (metrics::REVOCATIONS, self.revoking),
            (metrics::TENURES_ENDED, self.tenures_ended),
            (metrics::SESSIONS_REGISTERED, self.registered),
            (metrics::SESSIONS_ENDED, self.sessions_ended),
        ] {
            if count > 0 {
                ::metrics::counter!(name).increment(count);
            }
        }
    }
}
