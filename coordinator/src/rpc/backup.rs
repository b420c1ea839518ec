//! A backup on its way to an operator.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use futures::stream::BoxStream;
use tenure_proto::v1 as pb;
use tenure_proto::v1::backup_response::Part;
use tonic::Status;

use super::context::RpcContext;
use super::{present, status};
use crate::consensus::Backup;

/// The parts of a backup.
pub(super) type BackupStream = BoxStream<'static, Result<pb::BackupResponse, Status>>;

/// Takes a backup and begins to send it. Unless it is `local`, it contains everything that was
/// acknowledged anywhere before the call.
pub(super) async fn start(
    context: &RpcContext,
    local: bool,
    within: Duration,
) -> Result<BackupStream, Status> {
    if !local {
        context.read_barrier(within).await?;
    }
    let backup = context.consensus.backup(within).await;
    let backup = backup.map_err(|error| status::from_read(&error))?;
    let node = context.consensus.identity();
    let header = pb::BackupHeader {
        cluster_id: present::cluster_id(backup.cluster),
        revision: backup.revision.0,
        size_bytes: backup.size_bytes,
        crc32c: backup.crc32c,
        groups: backup.groups,
        shards: backup.shards,
        node_id: node.map_or(0, |identity| identity.node.0),
    };
    tracing::info!(
        revision = header.revision,
        bytes = header.size_bytes,
        "backup taken"
    );
    let header = stream::iter([Ok(part(Part::Header(header)))]);
    Ok(header.chain(pieces(backup, context)).boxed())
}

fn part(part: Part) -> pb::BackupResponse {
    pb::BackupResponse { part: Some(part) }
}

/// Reads as fast as the operator takes it: one piece at a time.
fn pieces(backup: Backup, context: &RpcContext) -> BackupStream {
    let stop = context.stop.clone();
    stream::unfold(Some(backup), move |backup| {
        let stop = stop.clone();
        async move {
            match stop.run_until_cancelled(backup?.next()).await {
                Some(Ok(Some((bytes, rest)))) => {
                    let piece = pb::BackupPiece { bytes };
                    Some((Ok(part(Part::Piece(piece))), Some(rest)))
                }
                Some(Ok(None)) => None,
                Some(Err(error)) => Some((Err(status::from_storage(&error)), None)),
                // Its end without an error would say that this is all.
                None => Some((Err(status::stopping()), None)),
            }
        }
    })
    .boxed()
}
