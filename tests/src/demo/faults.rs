//! What happens to the processes while they count.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::GROUP;
use super::crew::Crew;
use super::display::Display;
use super::pace::Point;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::ownership::Ownership;
use crate::recorder::Recorder;
use crate::rest;
use crate::wait;
use crate::worker::{Order, Report};

/// How long anything may take that a fault leads to.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ttl of sessions: the default, 10 s.
const TTL: Duration = Duration::from_secs(10);

/// How much longer than the ttl the zombie sleeps at least.
const BEYOND_TTL: Duration = Duration::from_millis(500);

/// Shards the fifth worker must be given, out of 64 on five workers: half of a fair share.
const SHARE_MIN: usize = 6;

/// Everything that takes part.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) cluster: Cluster,
    pub(super) crew: Crew,
    pub(super) recorder: Recorder,
    pub(super) display: Display,
    /// How long the shards of a killed worker waited for their next grant, the longest.
    pub(super) takeover_max: Duration,
}

impl Stage {
    /// Carries out a fault and waits until what it must lead to has happened.
    pub(super) async fn carry_out(&mut self, point: Point) -> Result<(), Failure> {
        match point {
            Point::KillWorker => self.kill_worker("worker-2").await,
            Point::StopWorker => self.stop_worker().await,
            Point::KillLeader => self.kill_leader().await,
            Point::AddWorker => self.add_worker("worker-5").await,
        }
    }

    /// Waits until all shards are served and nothing moves.
    pub(super) async fn settled(&self) -> Result<Ownership, Failure> {
        rest::at_rest(self.cluster.client(), &self.recorder, GROUP, PATIENCE).await
    }

    async fn ownership(&self) -> Result<Ownership, Failure> {
        self.cluster.client().ownership(GROUP).await
    }

    async fn kill_worker(&mut self, name: &str) -> Result<(), Failure> {
        let held = epochs(&self.settled().await?, name);
        self.display.say(&format!(
            "kill -9 {name}, which holds {} shards",
            held.len()
        ));
        let killed = Instant::now();
        self.crew.kill(name).await?;
        self.crew.start(name)?;
        let takeover = self.recorder.granted_anew(&held, killed, PATIENCE).await?;
        self.takeover_max = self.takeover_max.max(takeover);
        let ms = takeover.as_millis();
        self.display.say(&format!(
            "{name} is back; its shards were granted again within {ms} ms"
        ));
        Ok(())
    }

    async fn stop_worker(&mut self) -> Result<(), Failure> {
        let name = &self.busiest(&self.settled().await?)?;
        let worker = self.crew.worker(name)?;
        worker.order(Order::Hold).await?;
        let held = |report: &Report| match *report {
            Report::Held { shard, epoch } => Some((shard, epoch)),
            _ => None,
        };
        let (shard, epoch) = worker.until_reported("a write", PATIENCE, held).await?;
        worker.process().stop().await?;
        let stopped = Instant::now();
        let text = format!("SIGSTOP {name} between its last check of shard {shard} and the write");
        self.display.say(&text);

        let held = epochs(&self.ownership().await?, name);
        self.recorder.granted_anew(&held, stopped, PATIENCE).await?;
        // The expiry counts from the last heartbeat, a moment before it was stopped.
        tokio::time::sleep_until((stopped + TTL + BEYOND_TTL).into()).await;

        let seconds = stopped.elapsed().as_secs_f64();
        let text = format!(
            "SIGCONT {name} after {seconds:.1} s; its {} shards are others' now",
            held.len()
        );
        self.display.say(&text);
        let worker = self.crew.worker(name)?;
        // Into its pipe before it wakes: the write is the first thing it does.
        worker.order(Order::Proceed).await?;
        worker.process().wake()?;
        let refused = |report: &Report| match *report {
            Report::Refused {
                shard: of,
                presented,
                current,
            } if (of, presented) == (shard, epoch) => Some(current),
            _ => None,
        };
        let current = worker
            .until_reported("the refusal of its write", PATIENCE, refused)
            .await?;
        let text = format!(
            "its write to shard {shard} with epoch {epoch} was refused: it is at {current}"
        );
        self.display.say(&text);
        self.holds_again(name, 1).await
    }

    /// Returns the worker with most of the input before it: one that is going to write.
    fn busiest(&self, ownership: &Ownership) -> Result<String, Failure> {
        let mut left: BTreeMap<&str, u64> = BTreeMap::new();
        for ((_, held), bytes) in ownership.iter().zip(self.crew.progress().left()) {
            *left.entry(&held.worker).or_default() += bytes;
        }
        let busiest = left.into_iter().max_by_key(|&(_, bytes)| bytes);
        let (name, _) = busiest.ok_or_else(|| Failure::new("there is no worker"))?;
        Ok(name.to_owned())
    }

    async fn kill_leader(&mut self) -> Result<(), Failure> {
        let before = self.settled().await?;
        let leader = self.cluster.leader().await?;
        self.display
            .say(&format!("kill -9 coordinator {leader}, the leader"));
        let killed = Instant::now();
        self.cluster.kill(leader).await?;
        let next = self.cluster.leader().await?;
        let ms = killed.elapsed().as_millis();
        let bytes = self.crew.progress().bytes();
        let what = "an accepted checkpoint after the change of leader";
        wait::until(what, PATIENCE, async || {
            let more = self.crew.progress().bytes() > bytes;
            if more {
                Ok(())
            } else {
                Err("there is none".to_owned())
            }
        })
        .await?;
        before.moved_exactly(&self.ownership().await?, &[])?;
        let text = format!("coordinator {next} leads after {ms} ms; no shard has moved");
        self.display.say(&text);
        self.cluster.start_node(leader).await?;
        self.display.say(&format!("coordinator {leader} is back"));
        Ok(())
    }

    async fn add_worker(&mut self, name: &str) -> Result<(), Failure> {
        self.display.say(&format!("a fifth worker joins: {name}"));
        self.crew.start(name)?;
        self.holds_again(name, SHARE_MIN).await
    }

    /// Waits until a worker owns some shards.
    async fn holds_again(&self, name: &str, least: usize) -> Result<(), Failure> {
        let what = format!("{name} to be given {least} shards");
        let shards = wait::until(&what, PATIENCE, async || {
            let ownership = self
                .ownership()
                .await
                .map_err(|failure| failure.to_string())?;
            let shards = ownership.of(name).len();
            if shards >= least {
                Ok(shards)
            } else {
                Err(format!("it has {shards}"))
            }
        })
        .await?;
        self.display
            .say(&format!("{name} was given {shards} shards"));
        Ok(())
    }
}

/// Returns the shards of a worker with their epochs.
fn epochs(ownership: &Ownership, worker: &str) -> Vec<(u32, u64)> {
    let of_worker = ownership.iter().filter(|(_, held)| held.worker == worker);
    of_worker.map(|(shard, held)| (shard, held.epoch)).collect()
}
