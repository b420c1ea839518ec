//! Messages of the worker stream.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_fence::Owner;
use tenure_ownership::command::{Register, ReleaseCause, Released, Tenure};
use tenure_ownership::ids::{ProcessNonce, Revision, ShardIndex, StoreName};
use tenure_ownership::session::WEIGHT;
use tenure_ownership::shard::OpenFailure;
use tenure_proto::v1 as pb;

use super::{Invalid, TtlBounds, count, group_name, owner, text, wide, within, worker_name};

/// Most labels of a worker.
const LABELS_MAX: usize = 32;
/// Longest key or value of a label, in bytes.
const LABEL_BYTES_MAX: usize = 128;
/// Longest address of a worker, in bytes.
const ADDRESS_BYTES_MAX: usize = 256;
/// Most stores attached to a shard.
const STORES_MAX: usize = 16;
/// Most tenures in one message: all shards of the largest group.
const TENURES_MAX: usize = 1_000_000;

/// A registration: the command to be, without whom it replaces; and the process's first session,
/// whose cluster the caller compares.
pub(crate) fn register(
    message: pb::Register,
    ttl: &TtlBounds,
) -> Result<(Register, Option<Owner>), Invalid> {
    let first = match &message.first {
        None => None,
        first => Some(owner("first", first.as_ref())?),
    };
    let wish = match message.ttl_ms {
        0 => None,
        given => Some(Duration::from_millis(given)),
    };
    if let Some(wish) = wish {
        ttl.check("ttl_ms", wish)?;
    }
    text("address", &message.address, ADDRESS_BYTES_MAX)?;
    if message
        .address
        .chars()
        .any(|c| c.is_control() || c.is_whitespace())
    {
        return Err(Invalid::new(
            "address",
            "must not contain spaces or control characters",
        ));
    }
    let register = Register {
        group: group_name("group", &message.group)?,
        worker: worker_name("worker", &message.worker)?,
        nonce: ProcessNonce(wide("nonce", &message.nonce)?),
        first: None,
        replaces: None,
        ttl: wish,
        weight: match message.weight {
            0 => 1,
            given => within("weight", given, &WEIGHT)?,
        },
        labels: labels(message.labels)?,
        address: message.address,
    };
    Ok((register, first))
}

fn labels<I>(given: I) -> Result<BTreeMap<String, String>, Invalid>
where
    I: IntoIterator<Item = (String, String)>,
{
    let labels: BTreeMap<String, String> = given.into_iter().collect();
    count("labels", labels.len(), LABELS_MAX)?;
    for (key, value) in &labels {
        if key.is_empty() {
            return Err(Invalid::new("labels", "a key is empty"));
        }
        text("labels", key, LABEL_BYTES_MAX)?;
        text("labels", value, LABEL_BYTES_MAX)?;
    }
    Ok(labels)
}

/// A resumption: the session and the process that has it.
pub(crate) fn resume(message: &pb::Resume) -> Result<(Owner, ProcessNonce), Invalid> {
    let session = owner("session", message.session.as_ref())?;
    Ok((session, ProcessNonce(wide("nonce", &message.nonce)?)))
}

/// An answer to a `Set`: its revision and the tenures held.
pub(crate) fn holding(message: &pb::Holding) -> Result<(Revision, Vec<Tenure>), Invalid> {
    Ok((Revision(message.set_revision), tenures(&message.tenures)?))
}

/// Tenures that serve, and the stores sealed for them.
pub(crate) fn ready(message: &pb::Ready) -> Result<(Vec<Tenure>, Vec<StoreName>), Invalid> {
    count("stores", message.stores.len(), STORES_MAX)?;
    let mut stores = Vec::with_capacity(message.stores.len());
    for store in &message.stores {
        let store = StoreName::new(store).map_err(|error| Invalid::new("stores", error))?;
        if stores.contains(&store) {
            return Err(Invalid::new("stores", format!("{store} is named twice")));
        }
        stores.push(store);
    }
    Ok((tenures(&message.tenures)?, stores))
}

/// Shards given back.
pub(crate) fn releases(message: pb::Released) -> Result<Vec<Released>, Invalid> {
    count("releases", message.releases.len(), TENURES_MAX)?;
    message.releases.into_iter().map(release).collect()
}

fn release(release: pb::Release) -> Result<Released, Invalid> {
    let cause = match release.cause() {
        pb::ReleaseCause::Finished => ReleaseCause::Finished,
        pb::ReleaseCause::OpenFailed => {
            text(
                "releases.detail",
                &release.detail,
                OpenFailure::REASON_BYTES_MAX,
            )?;
            ReleaseCause::OpenFailed(release.detail)
        }
        pb::ReleaseCause::StoreAhead => {
            ReleaseCause::StoreAhead(super::epoch("releases.store_fence", release.store_fence)?)
        }
        pb::ReleaseCause::Lost => ReleaseCause::Lost,
        pb::ReleaseCause::Unspecified => return Err(Invalid::missing("releases.cause")),
    };
    let given = release
        .tenure
        .ok_or_else(|| Invalid::missing("releases.tenure"))?;
    Ok(Released {
        tenure: super::tenure("releases.tenure", given.shard, given.epoch)?,
        cause,
    })
}

fn tenures(given: &[pb::Tenure]) -> Result<Vec<Tenure>, Invalid> {
    count("tenures", given.len(), TENURES_MAX)?;
    given
        .iter()
        .map(|tenure| super::tenure("tenures", tenure.shard, tenure.epoch))
        .collect()
}

/// Loads of shards.
pub(crate) fn loads(message: &pb::Heartbeat) -> Result<Vec<(ShardIndex, u64)>, Invalid> {
    count("loads", message.loads.len(), TENURES_MAX)?;
    Ok(message
        .loads
        .iter()
        .map(|load| (ShardIndex(load.shard), load.load))
        .collect())
}
