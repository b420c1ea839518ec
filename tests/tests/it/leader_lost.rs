//! The leader dies in the middle of a large handoff.

use std::time::Instant;

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::history::History;
use cluster_tests::ownership::Ownership;
use tenure_proto::v1::{Policy, WorkerMode};

use crate::story::{GROUP, PATIENCE, Stage, measured, turn};

const SHARDS: u32 = 1_000;

/// How far the handoff is when the leader dies.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// It is ordered, and maybe nothing has happened.
    Ordered,
    /// The owner is asked for some shards.
    Revoking,
    /// Some shards are granted to the next owner, and do not serve yet.
    Opening,
    /// Half of the shards are served by the next owner.
    Serving,
}

impl Phase {
    /// Says whether the handoff of shards whose epochs were `before` has come this far.
    fn is_reached(self, before: &Ownership, history: &History) -> bool {
        let moved = |shard: u32| {
            let latest = history.latest(shard)?;
            let epoch = before.get(shard)?.epoch;
            (latest.epoch > epoch).then_some(latest)
        };
        match self {
            Self::Ordered => true,
            Self::Revoking => history.serving(SHARDS) < SHARDS,
            Self::Opening => (0..SHARDS).any(|shard| moved(shard).is_some()),
            Self::Serving => {
                let served = |shard: &u32| moved(*shard).is_some_and(|latest| latest.serving);
                (0..SHARDS).filter(served).count() >= SHARDS as usize / 2
            }
        }
    }
}

/// Must show 4 of the issue on operations.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_in_any_phase_of_a_handoff_moves_each_shard_once() -> Result<(), Failure>
{
    let _turn = turn().await;
    let policy = Policy {
        handoffs_in_flight_max: SHARDS,
        ..Policy::default()
    };
    let fields = ["handoffs_in_flight_max"];
    let mut stage = Stage::set(Cluster::start().await?, SHARDS, policy, &fields).await?;
    let (mut from, mut to) = (stage.worker("one")?, stage.worker("other")?);
    // Everything is on the first.
    let client = stage.cluster.client();
    client
        .set_worker_mode(GROUP, to.name(), WorkerMode::Draining)
        .await?;
    stage.shared_by(&[from.name()], SHARDS as usize).await?;
    for phase in [
        Phase::Ordered,
        Phase::Revoking,
        Phase::Opening,
        Phase::Serving,
    ] {
        let before = stage.at_rest().await?;
        let client = stage.cluster.client();
        // Nobody is ever without a place to go.
        client
            .set_worker_mode(GROUP, to.name(), WorkerMode::Active)
            .await?;
        client
            .set_worker_mode(GROUP, from.name(), WorkerMode::Draining)
            .await?;
        let reached = stage
            .recorder
            .until("the phase", PATIENCE, |history| {
                match phase.is_reached(&before, history) {
                    true => Ok(()),
                    false => Err(format!("{phase:?} is not reached")),
                }
            })
            .await;
        reached.map_err(|failure| stage.cluster.with_logs(failure))?;
        let leader = stage.cluster.leader().await?;
        let killed = Instant::now();
        stage.cluster.kill(leader).await?;
        let after = stage.shared_by(&[to.name()], SHARDS as usize).await?;
        measured(format_args!(
            "leader killed with {SHARDS} shards in handoff ({phase:?}): at rest after {:?}",
            killed.elapsed()
        ));
        for (shard, held) in after.iter() {
            let epoch = before.get(shard).map_or(0, |held| held.epoch);
            assert_eq!(held.epoch, epoch + 1, "{phase:?}: shard {shard}");
        }
        stage.cluster.start_node(leader).await?;
        std::mem::swap(&mut from, &mut to);
    }
    for worker in [to, from] {
        worker.stop(PATIENCE).await?;
    }
    stage.end().await
}
