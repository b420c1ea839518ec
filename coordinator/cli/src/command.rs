//! The arguments of the operator commands. The doc comments of this file are the help texts.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tenure_fence::{FencingToken, ShardRef};
use tenure_proto::v1;

use crate::options::{self, ClientOptions};
use crate::policy::Assignment;

/// The operator commands, for embedding in the commands of a binary.
#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    /// Create, inspect, change and delete groups of shards
    Group(Area<GroupCommand>),
    /// Show who owns which shard
    Shard(Area<ShardCommand>),
    /// Show the workers of a group, and prepare them for what is planned
    Worker(Area<WorkerCommand>),
    /// Print what happened, with who asked for it and why
    Events(EventsArguments),
    /// Show what would move in a group and why, and what will not and why; changes nothing
    Plan(PlanArguments),
    /// Even a group out now, whatever imbalance its policy tolerates
    Rebalance(RebalanceArguments),
    /// Print what happens in a group, one line for each event, until Ctrl-C
    Watch(WatchArguments),
    /// Ask whether a fencing token is current
    Token(Area<TokenCommand>),
    /// Make and change the coordinator cluster itself
    Cluster(Area<ClusterCommand>),
    /// Look at every node and say what is wrong, what it means and what to do
    Doctor(DoctorArguments),
}

impl OperatorCommand {
    /// How to reach the coordinators, and how to print.
    pub fn options(&self) -> &ClientOptions {
        match self {
            Self::Group(area) => &area.options,
            Self::Shard(area) => &area.options,
            Self::Worker(area) => &area.options,
            Self::Events(events) => &events.options,
            Self::Plan(plan) => &plan.options,
            Self::Rebalance(rebalance) => &rebalance.options,
            Self::Watch(watch) => &watch.options,
            Self::Token(area) => &area.options,
            Self::Cluster(area) => &area.options,
            Self::Doctor(doctor) => &doctor.options,
        }
    }
}

/// Commands on one kind of thing.
#[derive(Debug, Args)]
pub struct Area<C: Subcommand> {
    /// How to reach the coordinators.
    #[command(flatten)]
    pub options: ClientOptions,
    /// What to do.
    #[command(subcommand)]
    pub command: C,
}

/// Commands on groups.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Create a group
    Create {
        /// Name: 1 to 64 of a-z, 0-9, '.', '_', '-'
        name: String,
        /// Number of shards, 1 to 1,000,000; it cannot be changed later
        #[arg(long)]
        shards: u32,
        /// Policy that differs from the default, such as ttl=10s; see `group set --help`
        #[arg(value_name = "KEY=VALUE")]
        policy: Vec<Assignment>,
    },
    /// List all groups
    List,
    /// Show a group with its policy
    Show {
        /// Name of the group
        name: String,
    },
    /// Change a group's policy
    #[command(after_help = crate::policy::HELP)]
    Set {
        /// Name of the group
        name: String,
        /// What to change, such as ttl=10s
        #[arg(value_name = "KEY=VALUE", required = true)]
        policy: Vec<Assignment>,
        /// Change only if the policy is still the one set at this revision
        #[arg(long, value_name = "REVISION")]
        if_revision: Option<u64>,
    },
    /// Stop the planned moves of a group: no shard is taken from its owner for balance or a drain
    Freeze {
        /// Name of the group
        name: String,
        /// Why; shown wherever the group is, up to 256 bytes
        #[arg(long)]
        reason: String,
    },
    /// Let the planned moves of a group go on
    Unfreeze {
        /// Name of the group
        name: String,
    },
    /// Delete a group: its shards are revoked, its checkpoints are deleted, its epochs are kept
    Delete {
        /// Name of the group
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// Commands on shards.
#[derive(Debug, Subcommand)]
pub enum ShardCommand {
    /// List the shards of a group
    List {
        /// Name of the group
        group: String,
        /// Only the shards of this worker
        #[arg(long)]
        worker: Option<String>,
        /// Only the shards in this phase
        #[arg(long, value_enum)]
        phase: Option<Phase>,
    },
    /// Show one shard
    Show {
        /// The shard, as group/index
        #[arg(value_name = "GROUP/INDEX")]
        shard: ShardRef,
        /// Ask a majority of the coordinators instead of the first that answers
        #[arg(long)]
        linearizable: bool,
    },
    /// Show who owned a shard from when to when, and why it moved
    History {
        /// The shard, as group/index
        #[arg(value_name = "GROUP/INDEX")]
        shard: ShardRef,
        /// How many tenures, at most
        #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        last: u32,
    },
    /// Say which worker a shard belongs on, or which it is never placed on; replaces what was said before
    Pin {
        /// The shard, as group/index
        #[arg(value_name = "GROUP/INDEX")]
        shard: ShardRef,
        /// The worker it belongs on; it goes there whatever share that worker has
        #[arg(long, value_name = "WORKER", required_unless_present = "avoid")]
        to: Option<String>,
        /// A worker it is never placed on; may be repeated, up to 8
        #[arg(long, value_name = "WORKER", conflicts_with = "to")]
        avoid: Vec<String>,
    },
    /// Let a shard be on any worker again
    Unpin {
        /// The shard, as group/index
        #[arg(value_name = "GROUP/INDEX")]
        shard: ShardRef,
    },
    /// End the quarantine of a shard, so that it is granted again
    Retry {
        /// The shard, as group/index
        #[arg(value_name = "GROUP/INDEX")]
        shard: ShardRef,
    },
    /// Find the shard of a key
    Lookup {
        /// Name of the group
        group: String,
        /// The key, taken as its UTF-8 bytes
        key: String,
    },
}

/// Commands on workers.
#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// List the workers of a group
    List {
        /// Name of the group
        group: String,
    },
    /// Give a worker no new shards; it keeps those it has
    Cordon(WorkerArguments),
    /// Let a worker take shards again: ends a cordon, a drain and a pause
    Uncordon(WorkerArguments),
    /// Move all shards away from a worker, and give it no new ones
    Drain {
        /// Which worker
        #[command(flatten)]
        worker: WorkerArguments,
        /// How long to wait for it
        #[command(flatten)]
        wait: WaitArguments,
    },
    /// Let the shards of a worker wait for it while it is restarted
    Pause {
        /// Which worker
        #[command(flatten)]
        worker: WorkerArguments,
        /// How long they wait, 1s to 24h; after that they go to other workers
        #[arg(long = "for", value_name = "DURATION", default_value = "5m", value_parser = options::duration)]
        timeout: Duration,
    },
    /// End a pause; with --wait once the worker is back and its shards are with it
    Resume {
        /// Which worker
        #[command(flatten)]
        worker: WorkerArguments,
        /// How long to wait for it
        #[command(flatten)]
        wait: WaitArguments,
    },
}

/// A worker of a group.
#[derive(Debug, Args)]
pub struct WorkerArguments {
    /// Name of the group
    pub group: String,
    /// Name of the worker; it need not be registered
    #[arg(value_name = "WORKER")]
    pub name: String,
}

/// Whether and how long to wait.
#[derive(Debug, Args)]
pub struct WaitArguments {
    /// Wait until it is done, and say how far it is. Ctrl-C ends the waiting, not what was asked for
    #[arg(long)]
    pub wait: bool,
    /// Wait no longer than this; exit status 8 if it was not done by then
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = options::duration)]
    pub wait_timeout: Option<Duration>,
}

/// Arguments of `events`.
#[derive(Debug, Args)]
pub struct EventsArguments {
    /// Only what happened in this group, also before it was created anew
    pub group: Option<String>,
    /// Only what happened to this worker and its shards
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
    /// Only what happened to the shard with this index
    #[arg(long, value_name = "INDEX")]
    pub shard: Option<u32>,
    /// Only events of this kind, such as granted; repeated or with commas for several
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// Only what somebody asked for
    #[arg(long)]
    pub asked_for: bool,
    /// Everything since so long ago, such as 2h
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, conflicts_with = "last")]
    pub since: Option<Duration>,
    /// How many of the latest events
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub last: u32,
    /// Go on with what happens from now on, until Ctrl-C
    #[arg(long)]
    pub follow: bool,
    // Last, because its heading holds for all that follows.
    /// How to reach the coordinators.
    #[command(flatten)]
    pub options: ClientOptions,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// Name of the group
    pub group: String,
    /// How to reach the coordinators.
    #[command(flatten)]
    pub options: ClientOptions,
}

/// Arguments of `rebalance`.
#[derive(Debug, Args)]
pub struct RebalanceArguments {
    /// Name of the group
    pub group: String,
    /// Show what would move, and move nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Most served shards to move; not more than may be on the move at once in any case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_moves: Option<u32>,
    // Last, because its heading holds for all that follows.
    /// How to reach the coordinators.
    #[command(flatten)]
    pub options: ClientOptions,
}

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct WatchArguments {
    /// Name of the group
    pub group: String,
    /// Leave out the state at the start and print only what happens from now on
    #[arg(long)]
    pub from_now: bool,
    // Last, because its heading holds for all that follows.
    /// How to reach the coordinators.
    #[command(flatten)]
    pub options: ClientOptions,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Exit status 9 if there is a problem; warnings alone leave it 0.")]
pub struct DoctorArguments {
    /// Show what is well too
    #[arg(long)]
    pub all: bool,
    // Last, because its heading holds for all that follows.
    /// How to reach the coordinators.
    #[command(flatten)]
    pub options: ClientOptions,
}

/// Commands on tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Ask a majority of the coordinators whether a token is current; exit status 6 if it is stale
    Check {
        /// The token as it is written in logs: shard/GROUP/INDEX@EPOCH:OWNER
        token: FencingToken,
    },
}

/// Commands on the coordinator cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a new cluster of nodes that are running and empty; sent once, to one of them
    Init {
        /// One of its first nodes; repeated for each
        #[arg(long = "node", value_name = NODE_FORM, required = true)]
        nodes: Vec<NodeArgument>,
    },
    /// Show the cluster as the node asked sees it
    Status,
    /// Add a node that is running and empty: it catches up, then votes
    Add {
        /// The node
        #[arg(long, value_name = NODE_FORM)]
        node: NodeArgument,
    },
    /// Remove a node; its id can never be used again
    Remove {
        /// Id of the node
        id: u64,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Hand leadership to another node
    TransferLeader {
        /// Id of the node that is to lead
        to: u64,
    },
    /// List the behaviours that can be switched on, and which nodes know them
    Features,
    /// Switch a behaviour on, on every node at one log entry; there is no way back
    EnableFeature {
        /// Name of the behaviour
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Write a backup of the whole cluster to a file, taken on any one node while it works
    Backup(BackupArguments),
    /// Make a new cluster of a backup: writes the data folder of its first node, and asks no coordinator
    Restore(RestoreArguments),
}

/// Arguments of `cluster backup`.
#[derive(Clone, Debug, Args)]
pub struct BackupArguments {
    /// The file to write; it appears only when it is whole
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub overwrite: bool,
    /// Take what the node asked has applied, without asking a majority: for a cluster that has none
    #[arg(long)]
    pub local: bool,
}

/// Arguments of `cluster restore`.
#[derive(Clone, Debug, Args)]
pub struct RestoreArguments {
    /// The backup
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// The data folder to make: empty, or not there yet
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Where the first node of the new cluster will be reached, as its configuration says
    #[arg(long, value_name = NODE_FORM)]
    pub node: NodeArgument,
    /// Grant nothing for at least so long; the longest ttl of the backup's policies and sessions in any case
    #[arg(long, value_name = "DURATION", value_parser = options::timeout)]
    pub wait: Option<Duration>,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// What a shard is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// Nobody owns it
    Unowned,
    /// Granted; the owner does not serve yet
    Opening,
    /// The owner serves
    Serving,
    /// The owner was asked to give it back
    Revoking,
}

impl From<Phase> for v1::ShardPhase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Unowned => Self::Unowned,
            Phase::Opening => Self::Opening,
            Phase::Serving => Self::Serving,
            Phase::Revoking => Self::Revoking,
        }
    }
}

const NODE_FORM: &str = "peer=HOST:PORT,client=HOST:PORT[,http=HOST:PORT][,id=N]";

/// A node of the cluster, written `peer=HOST:PORT,client=HOST:PORT,http=HOST:PORT`; `http` may be left
/// out. Ids are given by the cluster; `id=N` names the one that is expected.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeArgument(pub v1::Node);

impl FromStr for NodeArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut node = v1::Node::default();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is not key=value; a node is {NODE_FORM}"))?;
            let address = match key {
                "id" => {
                    node.id =
                        value.parse().ok().filter(|id| *id > 0).ok_or_else(|| {
                            format!("id is {value:?}, it must be a number from 1")
                        })?;
                    continue;
                }
                "peer" => &mut node.peer_address,
                "client" => &mut node.client_address,
                "http" => &mut node.http_address,
                other => return Err(format!("{other:?} is unknown; a node is {NODE_FORM}")),
            };
            *address = options::address(value).map_err(|error| format!("{key}: {error}"))?;
        }
        if node.peer_address.is_empty() || node.client_address.is_empty() {
            return Err(format!("peer and client are needed; a node is {NODE_FORM}"));
        }
        Ok(Self(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read_from_its_parts_in_any_order() {
        let node: NodeArgument = "client=h:7400,id=3,peer=h:7401,http=h:7402"
            .parse()
            .unwrap();
        assert_eq!((node.0.id, node.0.client_address.as_str()), (3, "h:7400"));
        assert_eq!(
            (node.0.peer_address.as_str(), node.0.http_address.as_str()),
            ("h:7401", "h:7402")
        );
        let node: NodeArgument = "peer=[::1]:7401,client=[::1]:7400".parse().unwrap();
        assert_eq!(node.0.id, 0);
        assert!(node.0.http_address.is_empty());
    }

    #[test]
    fn a_wrong_node_is_refused_with_the_part_that_is_wrong() {
        for (text, expected) in [
            ("1", "\"1\" is not key=value"),
            ("id=0,peer=h:1,client=h:2", "id is \"0\""),
            ("id=1,peer=h,client=h:2", "peer: \"h\" is not host:port"),
            ("id=1,peer=h:1,clients=h:2", "\"clients\" is unknown"),
            ("id=1,peer=h:1", "peer and client are needed"),
        ] {
            let error = text.parse::<NodeArgument>().unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
