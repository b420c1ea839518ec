//! Backups of a cluster, and what becomes of those who knew the old one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cluster_tests::cluster::{Cluster, ClusterOptions};
use cluster_tests::failure::Failure;
use cluster_tests::wait;
use cluster_tests::worker::LocalWorker;
use tenure_fence::sqlx::sqlite::SqliteConnectOptions;
use tenure_fence::{CheckpointError, CheckpointStore as _, FencingToken, SqlOptions, SqliteStore};
use tenure_proto::v1 as pb;
use tenure_proto::v1::attach_request::Message as Up;
use tenure_proto::v1::worker_service_client::WorkerServiceClient;
use tokio_stream::wrappers::ReceiverStream;

use crate::bare_owner::{BareOwner, send};
use crate::story::{GROUP, PATIENCE, Stage, turn};

const TTL: Duration = Duration::from_secs(2);

async fn stage(nodes: u64, spares: u64) -> Result<Stage, Failure> {
    let options = ClusterOptions {
        nodes,
        spares,
        ..ClusterOptions::default()
    };
    let policy = pb::Policy {
        ttl_ms: u64::try_from(TTL.as_millis())?,
        ..pb::Policy::default()
    };
    Stage::set(Cluster::with(options).await?, 1, policy, &["ttl_ms"]).await
}

async fn bare_owner(cluster: &Cluster, name: &str) -> Result<BareOwner, Failure> {
    let leader = cluster.leader().await?;
    let channel = cluster.client().channel(cluster.node(leader)?.address())?;
    let owner = BareOwner::register(channel, GROUP, name.to_owned()).await;
    Ok(owner.live())
}

/// Must show 6 of the issue on operations.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_cluster_grants_above_everything_that_was_granted_after_the_backup()
-> Result<(), Failure> {
    let _turn = turn().await;
    let Stage {
        mut cluster,
        recorder,
    } = stage(3, 0).await?;
    let mut owner = bare_owner(&cluster, "first").await?;
    let ahead = pb::Release {
        tenure: Some(owner.tenure),
        cause: pb::ReleaseCause::StoreAhead.into(),
        store_fence: 39,
        ..pb::Release::default()
    };
    let releases = vec![ahead];
    send(&owner.ups, Up::Released(pb::Released { releases })).await;
    owner.granted().await;
    assert_eq!(owner.tenure.epoch, 40);

    let file = cluster.folder().join("at-40.backup");
    let follower = cluster.follower().await?;
    let said = cluster.backup(follower, &file).await?;
    assert_eq!(said["shards"], "1");
    assert_eq!(said["groups"], "1");
    for number in 41..=45 {
        owner.leave().await;
        owner = bare_owner(&cluster, &format!("worker-{number}")).await?;
        assert_eq!(owner.tenure.epoch, number);
    }
    let old = pb::FencingToken {
        resource: format!("shard/{GROUP}/0"),
        epoch: 45,
        owner: Some(owner.session.clone()),
    };
    drop(recorder);

    let restored = Instant::now();
    cluster.restore(&file).await?;
    // Whoever holds 45 is told.
    let told = wait::until("the old owner to be told", PATIENCE, async || {
        let told = resume(&cluster, &owner).await;
        let told = told.map_err(|failure| failure.to_string())?;
        // The only node leads a moment before it takes streams.
        match told.contains("does not lead") {
            true => Err(told),
            false => Ok(told),
        }
    })
    .await?;
    assert!(told.contains("the session has ended"), "{told}");
    let leader = cluster.leader().await?;
    let address = cluster.node(leader)?.address().to_owned();
    let checked = cluster.client().check_token(&address, old.clone()).await?;
    assert!(!checked.current, "{}", checked.reason);
    // The next grant comes a full ttl later, and above all of them.
    let owner = bare_owner(&cluster, "after").await?;
    assert!(
        restored.elapsed() >= TTL,
        "granted after {:?}",
        restored.elapsed()
    );
    assert!(
        owner.tenure.epoch > 45 + (1 << 32),
        "{}",
        owner.tenure.epoch
    );
    let checked = cluster.client().check_token(&address, old.clone()).await?;
    assert!(!checked.current, "{}", checked.reason);
    store_refuses_what_is_older(&cluster, &old, &owner).await?;
    owner.leave().await;
    cluster.shutdown().await
}

/// Says why the session of an owner is not gone on with.
async fn resume(cluster: &Cluster, owner: &BareOwner) -> Result<String, Failure> {
    let leader = cluster.leader().await?;
    let channel = cluster.client().channel(cluster.node(leader)?.address())?;
    let (ups, queue) = tokio::sync::mpsc::channel(1);
    let resume = pb::Resume {
        session: Some(owner.session.clone()),
        nonce: vec![7; 16].into(),
        attempt: 2,
    };
    send(&ups, Up::Resume(resume)).await;
    let attached = WorkerServiceClient::new(channel)
        .attach(ReceiverStream::new(queue))
        .await;
    let status = match attached {
        Err(status) => status,
        Ok(downs) => match downs.into_inner().message().await {
            Err(status) => status,
            Ok(message) => return Err(Failure::new(format!("it was answered {message:?}"))),
        },
    };
    Ok(status.message().to_owned())
}

/// A store that was sealed at 45 refuses 41, and the new cluster's tenure seals it.
async fn store_refuses_what_is_older(
    cluster: &Cluster,
    old: &pb::FencingToken,
    owner: &BareOwner,
) -> Result<(), Failure> {
    let file = SqliteConnectOptions::new()
        .filename(cluster.folder().join("store.sqlite"))
        .create_if_missing(true);
    let store = SqliteStore::open(file, SqlOptions::default()).await?;
    let token = |epoch: u64, session: &pb::Session| -> Result<FencingToken, Failure> {
        let cluster: [u8; 16] = session.cluster_id.as_ref().try_into()?;
        let (cluster, number) = (u128::from_be_bytes(cluster), session.number);
        let text = format!("{}@{epoch}:{cluster:032x}/{number}", old.resource);
        Ok(text.parse()?)
    };
    store.seal(&token(45, &owner_of(old)?)?).await?;
    let refused = store.seal(&token(41, &owner.session)?).await;
    assert!(
        matches!(&refused, Err(CheckpointError::Fenced { presented, current, .. })
            if (presented.get(), current.get()) == (41, 45)),
        "{refused:?}"
    );
    store
        .seal(&token(owner.tenure.epoch, &owner.session)?)
        .await?;
    Ok(())
}

fn owner_of(token: &pb::FencingToken) -> Result<pb::Session, Failure> {
    token
        .owner
        .clone()
        .ok_or_else(|| Failure::new("a token without an owner"))
}

/// Scenario 42: the same backup is restored twice, and workers of each time are alive.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_restored_twice_uses_no_token_and_no_session_twice() -> Result<(), Failure> {
    let _turn = turn().await;
    let Stage {
        mut cluster,
        recorder,
    } = stage(1, 2).await?;
    drop(recorder);
    let first = LocalWorker::start(cluster.addresses(), GROUP, "first")?;
    let mut seen = Seen::default();
    seen.next(&cluster, Duration::ZERO).await?;
    let only = cluster.leader().await?;
    let file = cluster.folder().join("twice.backup");
    cluster.backup(only, &file).await?;
    // Not in the backup.
    assert!(first.holder().give_back(0));
    seen.next(&cluster, Duration::ZERO).await?;

    let mut others = Vec::new();
    for name in ["second", "third"] {
        let begun = Instant::now();
        cluster.restore(&file).await?;
        others.push(LocalWorker::start(cluster.addresses(), GROUP, name)?);
        let taken = seen.next(&cluster, begun.elapsed()).await?;
        assert!(taken >= TTL, "granted {taken:?} after the restore");
        // Also one that is granted in this life of the cluster, and unknown to the backup.
        let holds = [&first].into_iter().chain(&others);
        assert_eq!(
            holds.filter(|worker| worker.holder().give_back(0)).count(),
            1
        );
        seen.next(&cluster, Duration::ZERO).await?;
    }
    // The restored cluster is one as any other: it grows.
    cluster.grow().await?;
    cluster.grow().await?;
    assert_eq!(cluster.nodes().len(), 3);
    for worker in others {
        worker.stop().await?;
    }
    first.stop().await?;
    cluster.shutdown().await
}

/// Tenures that were seen so far.
#[derive(Default)]
struct Seen {
    tokens: BTreeSet<String>,
    epochs: BTreeSet<u64>,
}

impl Seen {
    /// Waits until the shard is served in a tenure that was not seen before, and checks that it is a new
    /// one in every way. Returns how long that took, and `before` with it.
    async fn next(&mut self, cluster: &Cluster, before: Duration) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let shard = wait::until("the next tenure", PATIENCE, async || {
            let shard = cluster.client().shard(GROUP, 0).await;
            let shard = shard.map_err(|failure| failure.to_string())?;
            let serving = shard.phase() == pb::ShardPhase::Serving;
            match serving && !self.epochs.contains(&shard.epoch) {
                true => Ok(shard),
                false => Err(format!("{shard:?}")),
            }
        })
        .await
        .map_err(|failure| cluster.with_logs(failure))?;
        let highest = self.epochs.last().copied().unwrap_or(0);
        assert!(shard.epoch > highest, "{} after {highest}", shard.epoch);
        self.epochs.insert(shard.epoch);
        let owner = format!("{:?}", shard.owner);
        assert!(self.tokens.insert(format!("{owner}@{}", shard.epoch)));
        Ok(before + begun.elapsed())
    }
}
