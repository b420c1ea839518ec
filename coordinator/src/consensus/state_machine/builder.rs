//! Building a snapshot beside the work that goes on.

use std::io;
use std::sync::{Arc, PoisonError};

use openraft::RaftSnapshotBuilder;
use tokio::sync::oneshot;

use super::super::meta::{self, Generation};
use super::super::runtime::{self, blocking};
use super::super::snapshot::{SnapshotContent, SnapshotError, SnapshotFile, SnapshotWriter};
use super::super::types::{Snapshot, TypeConfig};
use super::current::{make_current, name_finally, pointer_to, snapshot_of};
use super::shared::Shared;
use crate::storage::{Batch, Table};

/// Waits for a snapshot that is being written.
pub(in super::super) struct SnapshotBuilder {
    result: Option<oneshot::Receiver<Result<Snapshot, SnapshotError>>>,
    task: runtime::Task,
    shared: Arc<Shared>,
}

impl SnapshotBuilder {
    /// Begins to write a snapshot. Returns when what it is of is settled, so that entries may be
    /// applied again.
    pub(super) async fn start(shared: Arc<Shared>) -> Self {
        let (viewed, is_viewed) = oneshot::channel();
        let (done, result) = oneshot::channel();
        let of = Arc::clone(&shared);
        let task = runtime::spawn(async move {
            // A receiver may have gone with a stopping node; then nobody needs to know.
            let built = blocking(move || {
                build_snapshot(&of, || {
                    let _ = viewed.send(());
                })
            });
            let _ = done.send(
                built
                    .await
                    .map_err(SnapshotError::Io)
                    .and_then(|built| built),
            );
        });
        // Nothing is applied until the view is taken, so the snapshot is of what openraft believes
        // to be applied. An error means that the work ended without, which its result tells.
        let _ = is_viewed.await;
        Self {
            result: Some(result),
            task,
            shared,
        }
    }
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let Some(result) = self.result.take() else {
            // Asked again: the snapshot that was built is still the current one, or a newer one is.
            return self
                .shared
                .current_snapshot()
                .ok_or_else(|| io::Error::other("no snapshot was built"));
        };
        let built = result.await.map_err(io::Error::other)?;
        (&mut self.task)
            .await
            .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(built.inspect_err(|error| tracing::error!(%error, "snapshot cannot be built"))?)
    }
}

/// Writes a snapshot of the records as they are now and makes it the current one. Blocks.
fn build_snapshot(shared: &Shared, viewed: impl FnOnce()) -> Result<Snapshot, SnapshotError> {
    let begun = runtime::now();
    let storage = shared.storage.as_ref();
    let view = storage.view();
    viewed();
    let content = SnapshotContent {
        cluster: shared.cluster,
        last_log_id: meta::applied(view.as_ref())?,
        membership: meta::membership(view.as_ref())?,
    };
    let generation = meta::generation(view.as_ref())?;
    let mut writer =
        SnapshotWriter::create(storage.files(), &shared.unfinished_file_name(), &content)?;
    for record in view.scan(
        Table::State,
        &generation.start(),
        &generation.next().start(),
    ) {
        let (key, value) = record?;
        writer.record(Generation::strip(&key), &value)?;
    }
    drop(view);
    let unfinished = writer.finish()?;

    let _switching = shared
        .switching
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(current) = shared.current_snapshot()
        && current.meta.last_log_id > content.last_log_id
    {
        // A newer one was installed meanwhile; the log before it is gone.
        storage.files().remove(&unfinished.name)?;
        return Ok(current);
    }
    let file = name_finally(shared, &content, unfinished)?;
    let mut batch = Batch::new();
    meta::put_snapshot(&mut batch, &pointer_to(&content, &file));
    let snapshot = snapshot_of(&content, file);
    make_current(shared, batch, snapshot.clone())?;
    let seconds = openraft::Instant::elapsed(&begun).as_secs_f64();
    metrics::histogram!(crate::metrics::SNAPSHOT_BUILD).record(seconds);
    Ok(snapshot)
}
