//! The demo from beginning to end.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure_proto::v1::Policy;
use tokio::task::JoinSet;

use super::crew::{Crew, CrewOptions, Progress};
use super::display::Display;
use super::faults::Stage;
use super::input::{self, Input};
use super::pace::{Pace, Point, STEP_INTERVAL};
use super::{GROUP, SHARDS, Summary, compare, wc};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::leaders::LeaderWatch;
use crate::recorder::Recorder;
use crate::wait;
use crate::words::WordRule;

/// Workers at the beginning.
const WORKERS: usize = 4;

/// How long the input may take from one fault to the next. Far more than its pace needs.
const PATIENCE: Duration = Duration::from_secs(180);

/// What the demo is to do.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The folder whose text files are counted; `None` for the sources of the crates that cargo has
    /// downloaded for this workspace.
    pub folder: Option<PathBuf>,
}

/// Counts words while processes are killed, and compares.
///
/// # Errors
///
/// Says what differs, or what did not happen; with the ends of the logs.
pub async fn run(options: Options) -> Result<Summary, Failure> {
    let begin = Instant::now();
    let display = Display::new();
    let (input, rule) = tokio::task::spawn_blocking(move || find_input(&options)).await??;
    let megabytes = input.bytes() as f64 / 1e6;
    display.say(&format!(
        "{} text files, {megabytes:.1} MB, over {SHARDS} shards",
        input.files().len()
    ));

    let cluster = Cluster::start().await?;
    let leader = cluster.leader().await?;
    display.say(&format!("3 coordinators; {leader} leads"));
    let leaders = LeaderWatch::start(cluster.client());
    cluster
        .client()
        .create_group(GROUP, SHARDS, Policy::default(), &[])
        .await?;
    let recorder = Recorder::start(cluster.client(), GROUP);
    let crew = hire(&cluster, &input, rule)?;
    let mut stage = Stage {
        cluster,
        crew,
        recorder,
        display: display.clone(),
        takeover_max: Duration::ZERO,
    };

    let played = play(&mut stage, &input, rule).await;
    display.finish();
    let (words, grants) = played.map_err(|failure| with_logs(&stage, failure))?;
    let stale_writes_refused = stage.crew.progress().refused();
    let leader_changes = leaders.changes();
    // It asks nodes that are about to end.
    drop(leaders);
    let takeover_ms_max = stage.takeover_max.as_millis();
    stage.cluster.shutdown().await?;
    if stale_writes_refused == 0 || leader_changes == 0 {
        return Err(Failure::new(format!(
            "{stale_writes_refused} stale writes were refused, {leader_changes} leaders changed"
        )));
    }
    let (files, seconds) = (input.files().len(), begin.elapsed().as_secs());
    Ok(Summary {
        words,
        files,
        grants,
        stale_writes_refused,
        leader_changes,
        takeover_ms_max,
        seconds,
    })
}

fn find_input(options: &Options) -> Result<(Input, WordRule), Failure> {
    let folders = match &options.folder {
        Some(folder) => vec![folder.clone()],
        None => input::downloaded_crates()?,
    };
    Ok((Input::find(&folders)?, wc::rule()?))
}

fn hire(cluster: &Cluster, input: &Input, rule: WordRule) -> Result<Crew, Failure> {
    let folder = cluster.folder();
    let options = CrewOptions {
        coordinators: cluster.addresses(),
        input: folder.join("input"),
        release: folder.join("release"),
        rule,
        folder: folder.to_path_buf(),
    };
    input.save(&options.input)?;
    fs::write(&options.release, "0")?;
    Ok(Crew::new(options, input.bytes_by_shard().into()))
}

/// Lets the workers count, with all faults, and returns the number of words and of grants.
async fn play(stage: &mut Stage, input: &Input, rule: WordRule) -> Result<(u64, u64), Failure> {
    for number in 1..=WORKERS {
        stage.crew.start(&format!("worker-{number}"))?;
    }
    stage.settled().await?;
    stage
        .display
        .say(&format!("{WORKERS} workers hold all shards"));

    let progress = stage.crew.progress().clone();
    let pace = Arc::new(Mutex::new(Pace::default()));
    let release = stage.cluster.folder().join("release");
    // Aborted when this returns.
    let mut pacing = JoinSet::new();
    pacing.spawn(release_steps(
        Arc::clone(&pace),
        release,
        progress.clone(),
        stage.display.clone(),
    ));
    for _ in Point::ALL {
        let point = wait::until("the point of the next fault", PATIENCE, async || {
            let part = progress.part();
            let due = locked(&pace, |pace| pace.due(part));
            due.ok_or_else(|| format!("{} bytes are counted", progress.bytes()))
        })
        .await?;
        stage.carry_out(point).await?;
        locked(&pace, Pace::fault_is_over);
    }
    wait::until("the end of the input", PATIENCE, async || {
        let bytes = progress.bytes();
        if bytes == input.bytes() {
            Ok(())
        } else {
            Err(format!("{bytes} bytes are counted"))
        }
    })
    .await?;
    pacing.shutdown().await;
    stage.display.progress(progress.part());
    conclude(stage, input, rule).await
}

/// Compares the checkpoints with independent counts, and what was seen with what may be.
async fn conclude(stage: &mut Stage, input: &Input, rule: WordRule) -> Result<(u64, u64), Failure> {
    stage.display.finish();
    stage
        .display
        .say("counting again, in one process, and with wc");
    let client = stage.cluster.client().clone();
    let counted = compare::counted(&client, input).await?;
    let copy = input.clone();
    let words = tokio::task::spawn_blocking(move || {
        let plain = compare::plain(&copy, rule)?;
        compare::require_equal(&counted, &plain, &copy)
    })
    .await??;
    stage.crew.stop().await?;
    let ownership = client.ownership(GROUP).await?;
    stage.recorder.look(|history| history.check(&ownership))?;
    Ok((words, ownership.grants()))
}

/// Releases the input step by step and shows how far the workers are.
async fn release_steps(
    pace: Arc<Mutex<Pace>>,
    release: PathBuf,
    progress: Progress,
    display: Display,
) {
    let mut ticks = tokio::time::interval(STEP_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let released = locked(&pace, Pace::step);
        if let Err(error) = publish(&release, released) {
            display.say(&format!("cannot write {}: {error}", release.display()));
        }
        display.progress(progress.part());
    }
}

/// Replaces the file in one step: a worker never reads half a number.
fn publish(release: &Path, released: u32) -> std::io::Result<()> {
    let next = release.with_extension("next");
    fs::write(&next, released.to_string())?;
    fs::rename(&next, release)
}

fn locked<T>(pace: &Mutex<Pace>, change: impl FnOnce(&mut Pace) -> T) -> T {
    // Every change is whole before the lock is given back.
    change(&mut pace.lock().unwrap_or_else(PoisonError::into_inner))
}

fn with_logs(stage: &Stage, failure: Failure) -> Failure {
    let failure = stage.cluster.with_logs(failure);
    Failure::new(format!("{failure}\n{}", stage.crew.log_tails()))
}
