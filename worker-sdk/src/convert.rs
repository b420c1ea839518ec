//! Between the words of this crate and those of the wire.

use std::time::Duration;

use tenure_fence::{Checkpoint, Epoch, FencingToken, Owner, Sequence, WriteId};
use tenure_proto::v1;

/// Writes a session for the wire.
pub(crate) fn session(owner: &Owner) -> v1::Session {
    v1::Session {
        cluster_id: owner.cluster.to_be_bytes().to_vec().into(),
        number: owner.session,
    }
}

/// Reads a session; `None` when it is malformed.
pub(crate) fn owner(session: &v1::Session) -> Option<Owner> {
    let cluster: [u8; 16] = session.cluster_id.as_ref().try_into().ok()?;
    Some(Owner {
        cluster: u128::from_be_bytes(cluster),
        session: session.number,
    })
}

/// Writes a token for the wire.
pub(crate) fn token(token: &FencingToken) -> v1::FencingToken {
    v1::FencingToken {
        resource: token.resource.to_string(),
        epoch: token.epoch.get(),
        owner: Some(session(&token.owner)),
    }
}

/// Reads a checkpoint; `None` when it is malformed.
pub(crate) fn checkpoint(checkpoint: v1::Checkpoint) -> Option<Checkpoint> {
    let write_id: [u8; 16] = checkpoint.write_id.as_ref().try_into().ok()?;
    Some(Checkpoint {
        epoch: Epoch::new(checkpoint.epoch)?,
        owner: owner(checkpoint.owner.as_ref()?)?,
        sequence: Sequence::new(checkpoint.sequence)?,
        write_id: WriteId::new(u128::from_be_bytes(write_id)),
        data: checkpoint.data,
    })
}

/// Reads an interval.
pub(crate) fn milliseconds(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Writes an interval, rounded down.
pub(crate) fn as_milliseconds(interval: Duration) -> u64 {
    u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)
}
