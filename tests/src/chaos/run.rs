//! A run from the first process to the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_proto::v1::Policy;

use super::check::{Call, Extent, Histories, Register, Violation, WATCHER, Watched};
use super::coordinators::Coordinators;
use super::lines::{self, LineFile};
use super::network::{Host, Network};
use super::news::News;
use super::reader::Reader;
use super::schedule::schedule;
use super::stage::Stage;
use super::tamper::Tamper;
use super::workers::{WorkerSettings, Workers};
use super::{GROUP, SHARDS, STORES};
use crate::client::Client;
use crate::failure::Failure;
use crate::leaders::LeaderWatch;
use crate::recorder::Recorder;
use crate::rest;
use crate::wait;
use crate::worker::now_ns;

/// How long until every shard is served, before the faults and after the last one is taken back: leaders
/// are elected, sessions and drains run out, shards that failed to open are tried again.
const SERVED_TIME: Duration = Duration::from_secs(60);

/// How long a watcher may take to catch up when nothing goes wrong any more: a stream whose node was
/// stopped is given up after a while.
const CAUGHT_UP_TIME: Duration = Duration::from_secs(30);

const SERVED: &str = "every shard is served when the faults are over";
const WRITTEN: &str = "every shard is written when the faults are over";
const CAUGHT_UP: &str = "every watcher catches up when the faults are over";
const REPLACED: &str = "a replaced worker ends";

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Chooses the faults.
    pub seed: u64,
    /// For how long faults happen.
    pub length: Duration,
    /// How many coordinators: three or five.
    pub nodes: u8,
    /// How many workers.
    pub workers: u8,
    /// Where everything is kept. It must not exist.
    pub folder: PathBuf,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Summary {
    options: Options,
    /// Faults by kind, for people.
    faults: String,
    faults_total: u32,
    leaders: u64,
    served_after: Option<Duration>,
    extent: Extent,
    /// All violations.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            seed,
            length,
            nodes,
            workers,
            ..
        } = &self.options;
        let seconds = length.as_secs();
        let extent = self.extent;
        write!(
            formatter,
            "chaos: seed {seed}, {seconds} s, {nodes} nodes, {workers} workers: {} faults ({}), {} changes of \
             leader, ",
            self.faults_total, self.faults, self.leaders
        )?;
        match self.served_after {
            Some(time) => write!(
                formatter,
                "served {:.1} s after the last, ",
                time.as_secs_f64()
            )?,
            None => write!(formatter, "not served again, ")?,
        }
        write!(
            formatter,
            "{} grants, {} seals, writes accepted {}, refused {}, unknown {}, {} reads, {} spans of belief, \
             {} events, violations {}",
            extent.grants,
            extent.seals,
            extent.accepted,
            extent.refused,
            extent.unknown,
            extent.reads,
            extent.beliefs,
            extent.events,
            self.violations.len()
        )
    }
}

/// Runs everything, and checks what happened.
///
/// # Errors
///
/// When the run could not be made; what should not have happened in it is in the summary.
pub async fn run(options: Options) -> Result<Summary, Failure> {
    let hosts = (1..=options.nodes + 1).map(Host::Node);
    let hosts = hosts.chain((1..=options.workers).map(Host::Worker));
    let network = Network::create(hosts.collect())?;
    fs::create_dir_all(options.folder.join("histories"))?;
    let folder = fs::canonicalize(&options.folder)?;
    let histories = folder.join("histories");
    let tamper = Tamper::build(&folder)?;
    let coordinators = Coordinators::start(options.nodes, &network, &tamper, &folder).await?;
    let client = coordinators.client().clone();
    create_group(&client).await?;
    let settings = WorkerSettings {
        coordinators: client.addresses().map(str::to_owned).collect(),
        sqlite: folder.join("store.db"),
        folder: folder.clone(),
        histories: histories.clone(),
    };
    let sqlite = settings.sqlite.clone();
    let reader = Reader::start(&client, &sqlite, &histories).await?;
    let mut workers = Workers::new(options.workers, &tamper, settings)?;
    for place in workers.places() {
        workers.start(place, &network)?;
    }
    let recorder = record(&client, &histories)?;
    let leaders = LeaderWatch::start(&client);
    let mut stage = Stage::new(network, coordinators, workers);
    rest::at_rest(&client, &recorder, GROUP, SERVED_TIME).await?;

    stage.begin();
    for step in schedule(options.seed, options.length) {
        stage.wait_until(step.at).await?;
        stage.carry_out(step).await?;
    }
    stage.wait_until(options.length).await?;
    stage.undo_all().await?;
    stage.say("the faults are over");

    let mut violations = Vec::new();
    let served_after = served(&client, &recorder, &mut violations).await;
    if let Some(after) = served_after {
        stage.say(&format!("every shard is served after {after:.1?}"));
    }
    written(&histories, now_ns(), &mut violations).await;
    replaced_end(&mut stage, &mut violations).await?;
    let Stage {
        workers,
        coordinators,
        network,
        carried_out,
        violations: ended,
        ..
    } = stage;
    violations.extend(ended);
    workers.shutdown().await?;
    reader.finish().await?;
    let members: Vec<String> = coordinators
        .nodes()
        .iter()
        .filter(|node| node.has_joined())
        .map(|node| node.address().to_owned())
        .collect();
    caught_up(&members, &histories, &mut violations).await?;
    let now = client.ownership(GROUP).await?;
    let seen = recorder.finish().await;
    if let Err(failure) = seen.check(&now) {
        violations.push(Violation::new(
            "grants that were seen stay",
            failure.to_string(),
        ));
    }
    let leaders = leaders.changes();
    coordinators.shutdown().await?;
    drop(network);

    let (extent, found) = verdict(&histories).await?;
    violations.extend(found);
    let faults: Vec<String> = carried_out
        .iter()
        .map(|(kind, count)| format!("{} {count}", kind.name()))
        .collect();
    Ok(Summary {
        options,
        faults: faults.join(", "),
        faults_total: carried_out.values().sum(),
        leaders,
        served_after,
        extent,
        violations,
    })
}

/// Reads the histories in a folder and checks them.
///
/// # Errors
///
/// When they cannot be read.
pub async fn verdict(histories: &Path) -> Result<(Extent, Vec<Violation>), Failure> {
    let folder = histories.to_owned();
    let checking = move || {
        let histories = Histories::read(&folder)?;
        Ok::<_, Failure>((histories.extent(), histories.check()))
    };
    tokio::task::spawn_blocking(checking).await?
}

async fn create_group(client: &Client) -> Result<(), Failure> {
    let policy = Policy {
        ttl_ms: 3_000,
        drain_timeout_ms: 1_000,
        opening_deadline_ms: 10_000,
        ..Policy::default()
    };
    let fields = ["ttl_ms", "drain_timeout_ms", "opening_deadline_ms"];
    client.create_group(GROUP, SHARDS, policy, &fields).await
}

/// Watches the group on every place, and puts down what the watchers are told.
fn record(client: &Client, histories: &Path) -> Result<Recorder, Failure> {
    let mut files = BTreeMap::new();
    for address in client.addresses() {
        let file = LineFile::open(histories, &file_of(address))?;
        files.insert(address.to_owned(), file);
    }
    let files = Arc::new(files);
    Ok(Recorder::start_with(
        client,
        GROUP,
        move |address, response| {
            if let (Some(file), Some(news)) = (files.get(address), News::of(response)) {
                file.add(&news);
            }
        },
    ))
}

fn file_of(address: &str) -> String {
    format!("{WATCHER}{}", address.replace(':', "-"))
}

async fn served(
    client: &Client,
    recorder: &Recorder,
    violations: &mut Vec<Violation>,
) -> Option<Duration> {
    let over = Instant::now();
    match rest::at_rest(client, recorder, GROUP, SERVED_TIME).await {
        Ok(_) => Some(over.elapsed()),
        Err(failure) => {
            violations.push(Violation::new(SERVED, failure.to_string()));
            None
        }
    }
}

/// Waits until a write that began after `since_ns` was accepted in each store for each shard.
async fn written(histories: &Path, since_ns: u64, violations: &mut Vec<Violation>) {
    let written = wait::until("writes to every shard", SERVED_TIME, async || {
        let histories = Histories::read(histories).map_err(|failure| failure.to_string())?;
        let is_late = |call: &&Call| call.began > since_ns && call.is_accepted_write();
        let late = histories.calls.all().filter(is_late);
        let registers: BTreeSet<&Register> = late.map(|call| &call.register).collect();
        let wanted = usize::try_from(SHARDS).unwrap_or(usize::MAX) * STORES;
        let done = (registers.len() == wanted).then_some(());
        done.ok_or_else(|| format!("{} of {wanted} are", registers.len()))
    });
    if let Err(failure) = written.await {
        violations.push(Violation::new(WRITTEN, failure.to_string()));
    }
}

/// Waits until every process that was replaced has noticed.
async fn replaced_end(stage: &mut Stage, violations: &mut Vec<Violation>) -> Result<(), Failure> {
    let ended = wait::until("replaced workers to end", SERVED_TIME, async || {
        let left = stage.workers.still_replaced();
        let left = left.map_err(|failure| failure.to_string())?;
        let done = left.is_empty().then_some(());
        done.ok_or_else(|| format!("of {left:?} an old process runs"))
    });
    if let Err(failure) = ended.await {
        violations.push(Violation::new(REPLACED, failure.to_string()));
    }
    Ok(())
}

/// Waits until the watchers of all members have been told the same.
async fn caught_up(
    members: &[String],
    histories: &Path,
    violations: &mut Vec<Violation>,
) -> Result<(), Failure> {
    let files = members.iter().map(|address| file_of(address));
    let mut paths = Vec::new();
    for file in files {
        paths.extend(lines::files(histories, &file)?.into_iter().next());
    }
    let caught_up = wait::until("watchers to catch up", CAUGHT_UP_TIME, async || {
        let mut watched = BTreeMap::new();
        for (name, path) in &paths {
            let news = lines::read::<News>(path).map_err(|failure| failure.to_string())?;
            watched.insert(name, Watched::of(news));
        }
        let last = watched.values().map(Watched::last_told).max();
        let behind = watched
            .iter()
            .filter(|(_, watched)| Some(watched.until()) < last);
        let behind: Vec<String> = behind
            .map(|(name, watched)| format!("{name} at {:?}", watched.until()))
            .collect();
        let done = behind.is_empty().then_some(());
        done.ok_or_else(|| format!("{} of {last:?}", behind.join(", ")))
    });
    if let Err(failure) = caught_up.await {
        violations.push(Violation::new(CAUGHT_UP, failure.to_string()));
    }
    Ok(())
}
