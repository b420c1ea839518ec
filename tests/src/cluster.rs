//! Coordinators as real processes.

mod growth;
mod restore;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tenure_proto::v1::{self, InitRequest, StatusResponse};
use tokio::process::Command;

use crate::binaries;
use crate::client::Client;
use crate::failure::Failure;
use crate::ports::Ports;
use crate::process::{self, Process};
use crate::proxy::{Proxies, ProxyOptions};
use crate::wait;

/// How long a node may take until it answers. Generous: on a busy machine opening a database takes
/// seconds, and a story that is about time measures it itself.
const START_TIME: Duration = Duration::from_secs(30);

/// How long the cluster may take to have a leader. As above.
const LEADER_TIME: Duration = Duration::from_secs(30);

/// How long a node may take to end after Ctrl-C.
const END_TIME: Duration = Duration::from_secs(20);

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Number of nodes: one, three or five.
    pub nodes: u64,
    /// More lines of the config file, such as a `[raft]` section.
    pub config: String,
    /// Whether every connection to a node goes through a proxy that can cut it.
    pub proxied: bool,
    /// Nodes that are prepared and not started, for [`Cluster::grow`]. Workers know their addresses.
    pub spares: u64,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            nodes: 3,
            config: String::new(),
            proxied: false,
            spares: 0,
        }
    }
}

/// One coordinator: a process, or the folder of one that can be started again.
#[derive(Debug)]
pub struct Node {
    id: u64,
    /// As the others and the workers know it.
    member: v1::Node,
    /// Where it listens for clients itself, with no proxy before it.
    direct_address: String,
    config: PathBuf,
    log: PathBuf,
    process: Option<Process>,
}

impl Node {
    /// Returns the Raft id, from 1.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the address for clients, on which the story itself asks the node: never cut off.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.direct_address
    }

    /// Returns the process.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn process(&self) -> Result<&Process, Failure> {
        let id = self.id;
        self.process
            .as_ref()
            .ok_or_else(|| Failure::new(format!("node {id} does not run")))
    }
}

/// Coordinators of one cluster. All are killed when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    // First, so that the processes are gone before their folder is.
    nodes: Vec<Node>,
    spares: Vec<Node>,
    client: Client,
    proxies: Option<Proxies>,
    _ports: Ports,
    folder: TempDir,
}

impl Cluster {
    /// Starts three coordinators, makes them a cluster and waits until it has a leader.
    ///
    /// # Errors
    ///
    /// When a node does not start, or they elect nobody.
    pub async fn start() -> Result<Self, Failure> {
        Self::with(ClusterOptions::default()).await
    }

    /// Starts a cluster as described.
    ///
    /// # Errors
    ///
    /// When a node does not start, or they elect nobody.
    pub async fn with(options: ClusterOptions) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("tenure-").tempdir()?;
        let mut ports = Ports::reserve()?;
        let mut proxies = options.proxied.then(Proxies::new);
        let mut nodes = Vec::new();
        for id in 1..=options.nodes {
            nodes
                .push(prepare(id, &options.config, folder.path(), &mut ports, &mut proxies).await?);
        }
        let mut spares = Vec::new();
        for number in 1..=options.spares {
            // Its folder and its log bear this number until it has an id.
            let number = options.nodes + number;
            let (folder, config) = (folder.path(), &options.config);
            spares.push(prepare(number, config, folder, &mut ports, &mut proxies).await?);
        }
        let all = nodes.iter().chain(&spares);
        let client = Client::new(all.map(|node| node.direct_address.clone()))?;
        let mut cluster = Self {
            nodes,
            spares,
            client,
            proxies,
            _ports: ports,
            folder,
        };
        for id in 1..=options.nodes {
            cluster.start_node(id).await?;
        }
        cluster.init().await?;
        cluster.leader().await?;
        Ok(cluster)
    }

    /// Returns the nodes, in order of their ids.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the ids of all nodes.
    #[must_use]
    pub fn ids(&self) -> Vec<u64> {
        self.nodes.iter().map(Node::id).collect()
    }

    /// Returns a node.
    ///
    /// # Errors
    ///
    /// When there is none of that id.
    pub fn node(&self, id: u64) -> Result<&Node, Failure> {
        let node = self.nodes.iter().find(|node| node.id == id);
        node.ok_or_else(|| Failure::new(format!("there is no node {id}")))
    }

    /// Returns a client of the cluster.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the addresses of all nodes for a worker: those of the proxies if there are any.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.nodes
            .iter()
            .chain(&self.spares)
            .map(|node| node.member.client_address.clone())
            .collect()
    }

    /// Returns the proxies before the nodes.
    ///
    /// # Errors
    ///
    /// When the cluster was not started with them.
    pub fn proxies(&self) -> Result<&Proxies, Failure> {
        self.proxies
            .as_ref()
            .ok_or_else(|| Failure::new("the cluster has no proxies"))
    }

    /// Returns a folder for the files of the story.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until a node is known as leader by itself and a majority, and returns its id.
    ///
    /// # Errors
    ///
    /// When there is none in time; with what each node says and the ends of their logs.
    pub async fn leader(&self) -> Result<u64, Failure> {
        let majority = self.nodes.len() / 2 + 1;
        let leader = wait::until("a leader", LEADER_TIME, async || {
            let mut said = Vec::new();
            for node in self.nodes.iter().filter(|node| node.process.is_some()) {
                said.push((node.id, self.client.status(node.address()).await));
            }
            agreed_leader(&said, majority).ok_or_else(|| describe(&said))
        })
        .await;
        leader.map_err(|failure| self.with_logs(failure))
    }

    /// Returns a node that does not lead, the one with the lowest id.
    ///
    /// # Errors
    ///
    /// As [`leader`](Self::leader).
    pub async fn follower(&self) -> Result<u64, Failure> {
        let leader = self.leader().await?;
        let follower = self.nodes.iter().map(Node::id).find(|&id| id != leader);
        follower.ok_or_else(|| Failure::new("there is no follower"))
    }

    /// Starts a node on its folder, new or as it was left, and waits until it answers.
    ///
    /// # Errors
    ///
    /// When it runs already, or does not answer.
    pub async fn start_node(&mut self, id: u64) -> Result<(), Failure> {
        let node = self.node_mut(id)?;
        if node.process.is_some() {
            return Err(Failure::new(format!("node {id} runs already")));
        }
        let mut command = Command::new(binaries::find("tenure")?);
        command.arg("serve").arg("--config").arg(&node.config);
        command
            .stdin(Stdio::null())
            .stdout(open_appending(&node.log)?);
        let process = Process::spawn(&format!("node {id}"), command, &node.log)?;
        let pid = process.pid();
        node.process = Some(process);
        if let Some(proxies) = &self.proxies {
            proxies.set_process(id, pid);
        }
        let answers = self.answers(id).await;
        answers.map_err(|failure| self.with_logs(failure))
    }

    /// Kills a node with SIGKILL.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub async fn kill(&mut self, id: u64) -> Result<(), Failure> {
        self.kill_all(&[id]).await
    }

    /// Kills nodes with SIGKILL, all before any of them is waited for.
    ///
    /// # Errors
    ///
    /// When one does not run.
    pub async fn kill_all(&mut self, ids: &[u64]) -> Result<(), Failure> {
        for &id in ids {
            self.node(id)?.process()?.kill_now()?;
        }
        for &id in ids {
            if let Some(mut process) = self.node_mut(id)?.process.take() {
                process.kill().await?;
            }
        }
        Ok(())
    }

    /// Ends all nodes as Ctrl-C does.
    ///
    /// # Errors
    ///
    /// When one does not end, or not with exit status 0.
    pub async fn shutdown(mut self) -> Result<(), Failure> {
        for node in &self.nodes {
            if let Some(process) = &node.process {
                process.interrupt()?;
            }
        }
        for node in &mut self.nodes {
            let Some(mut process) = node.process.take() else {
                continue;
            };
            let status = process.exited(END_TIME).await?;
            if !status.success() {
                let text = format!(
                    "node {} ended with {status}\n{}",
                    node.id,
                    process.log_tail()
                );
                return Err(Failure::new(text));
            }
        }
        Ok(())
    }

    /// Adds the ends of the nodes' logs to a failure.
    #[must_use]
    pub fn with_logs(&self, failure: Failure) -> Failure {
        let logs: Vec<String> = self
            .nodes
            .iter()
            .map(|node| process::log_tail(&format!("node {}", node.id), &node.log))
            .collect();
        Failure::new(format!("{failure}\n{}", logs.join("\n")))
    }

    fn node_mut(&mut self, id: u64) -> Result<&mut Node, Failure> {
        let node = self.nodes.iter_mut().find(|node| node.id == id);
        node.ok_or_else(|| Failure::new(format!("there is no node {id}")))
    }

    /// Waits until a node answers, and fails at once if it ends instead.
    async fn answers(&mut self, id: u64) -> Result<(), Failure> {
        let client = self.client.clone();
        let node = self.node_mut(id)?;
        let address = node.address().to_owned();
        let Some(process) = &mut node.process else {
            return Ok(());
        };
        let what = format!("an answer of node {id}");
        let ended = wait::until(&what, START_TIME, async || {
            if let Some(status) = process.ended().map_err(|failure| failure.to_string())? {
                return Ok(Some(status));
            }
            client
                .status(&address)
                .await
                .map(|_| None)
                .map_err(|status| status.to_string())
        })
        .await?;
        match ended {
            None => Ok(()),
            Some(status) => Err(Failure::new(format!("node {id} ended with {status}"))),
        }
    }

    async fn init(&self) -> Result<(), Failure> {
        let members: Vec<v1::Node> = self.nodes.iter().map(|node| node.member.clone()).collect();
        let first = self.node(1)?.address();
        let request = InitRequest { nodes: members };
        self.client
            .init(first, request)
            .await
            .map_err(|failure| self.with_logs(failure))
    }
}

/// Writes the config file of a node.
async fn prepare(
    id: u64,
    more: &str,
    folder: &Path,
    ports: &mut Ports,
    proxies: &mut Option<Proxies>,
) -> Result<Node, Failure> {
    let (client, peer) = (ports.take()?, ports.take()?);
    let (mut client_known, mut peer_known) = (client, peer);
    if let Some(proxies) = proxies {
        client_known = ports.take()?;
        peer_known = ports.take()?;
        proxies
            .open(ProxyOptions {
                node: id,
                listen: client_known,
                target: client,
            })
            .await?;
        proxies
            .open(ProxyOptions {
                node: id,
                listen: peer_known,
                target: peer,
            })
            .await?;
    }
    let config = folder.join(format!("node-{id}.toml"));
    let text = format!(
        "data_dir = {:?}\n\n[client]\nlisten = \"{client}\"\nadvertise = \"{client_known}\"\n\n\
         [peer]\nlisten = \"{peer}\"\nadvertise = \"{peer_known}\"\n\n{more}",
        folder.join(format!("node-{id}"))
    );
    fs::write(&config, text)?;
    let member = v1::Node {
        id,
        peer_address: peer_known.to_string(),
        client_address: client_known.to_string(),
        http_address: String::new(),
    };
    Ok(Node {
        id,
        member,
        direct_address: client.to_string(),
        config,
        log: folder.join(format!("node-{id}.log")),
        process: None,
    })
}

fn open_appending(path: &Path) -> Result<fs::File, Failure> {
    Ok(fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?)
}

/// What nodes answered, by id.
type Said = [(u64, Result<StatusResponse, tonic::Status>)];

/// Returns the node that calls itself the leader and is called so by a majority at its term.
fn agreed_leader(said: &Said, majority: usize) -> Option<u64> {
    let statuses: Vec<&StatusResponse> = said.iter().filter_map(|(_, s)| s.as_ref().ok()).collect();
    statuses.iter().find_map(|leader| {
        let follows = |status: &&&StatusResponse| {
            status.leader_id == leader.node_id && status.term == leader.term
        };
        let leads = leader.leader_id == leader.node_id && leader.node_id != 0;
        (leads && statuses.iter().filter(follows).count() >= majority).then_some(leader.node_id)
    })
}

fn describe(said: &Said) -> String {
    let lines: Vec<String> = said
        .iter()
        .map(|(id, answer)| match answer {
            Ok(status) => format!(
                "node {id}: leader {} in term {}",
                status.leader_id, status.term
            ),
            Err(status) => format!("node {id}: {status}"),
        })
        .collect();
    lines.join("; ")
}
