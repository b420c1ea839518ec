//! Coordinators, each on a host of its own, which come and go.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tenure_proto::v1::{self, InitRequest};

use super::disk::SmallDisk;
use super::network::{Host, Network};
use super::tamper::{Orders, Tamper};
use crate::binaries;
use crate::client::Client;
use crate::failure::Failure;
use crate::process::Process;
use crate::wait;

/// Port for workers and operators, on every host.
pub const CLIENT_PORT: u16 = 7001;

/// Port for other coordinators, on every host.
pub const PEER_PORT: u16 = 7002;

/// How long a node may take until it answers, on a busy machine.
const START_TIME: Duration = Duration::from_secs(30);

/// How long a change of members may take, elections and catching up included.
const CHANGE_TIME: Duration = Duration::from_secs(60);

/// How long a node may take to end after Ctrl-C.
const END_TIME: Duration = Duration::from_secs(20);

/// Short logs, so that a node that was away needs a snapshot.
const RAFT: &str = "[raft]\nsnapshot_entries = 2000\nkept_entries = 500\n";

/// A place for a coordinator: a host, and what runs there.
#[derive(Debug)]
pub struct Node {
    place: u8,
    member: v1::Node,
    folder: PathBuf,
    config: PathBuf,
    log: PathBuf,
    orders: Orders,
    process: Option<Process>,
    disk: Option<SmallDisk>,
    /// Whether it belongs to the cluster.
    joined: bool,
    /// Whether it may end by itself: its disk was full, or a sync failed.
    excused: bool,
}

impl Node {
    /// Returns its place, from 1.
    #[must_use]
    pub fn place(&self) -> u8 {
        self.place
    }

    /// Returns its client address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.member.client_address
    }

    /// Returns whether it belongs to the cluster.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        self.joined
    }

    /// Returns its process, if it runs.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Returns what its process is told to see.
    #[must_use]
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Returns its small disk; `None` on most nodes.
    #[must_use]
    pub fn disk(&self) -> Option<&SmallDisk> {
        self.disk.as_ref()
    }

    /// Allows it to end by itself until it is started again.
    pub fn excuse(&mut self) {
        self.excused = true;
    }
}

/// All places: those of the cluster, and one to spare.
#[derive(Debug)]
pub struct Coordinators {
    // First, so that the processes are gone before their disks are.
    nodes: Vec<Node>,
    client: Client,
}

impl Coordinators {
    /// Starts `count` coordinators of `count + 1` places and makes them a cluster.
    ///
    /// # Errors
    ///
    /// When one does not start, or they elect nobody.
    pub async fn start(
        count: u8,
        network: &Network,
        tamper: &Tamper,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let mut nodes = Vec::new();
        for place in 1..=count + 1 {
            nodes.push(prepare(place, network, tamper, folder)?);
        }
        // The last of the first members.
        if let Some(node) = nodes.get_mut(usize::from(count) - 1) {
            node.disk = Some(SmallDisk::mount(&node.folder, &network.name())?);
        }
        let client = Client::new(nodes.iter().map(|node| node.address().to_owned()))?;
        let mut coordinators = Self { nodes, client };
        for place in 1..=count {
            coordinators.start_node(place, network).await?;
            coordinators.node_mut(place)?.joined = true;
        }
        let members = coordinators.nodes.iter().take(usize::from(count));
        let request = InitRequest {
            nodes: members.map(|node| node.member.clone()).collect(),
        };
        let first = coordinators.node(1)?.address().to_owned();
        coordinators.client.init(&first, request).await?;
        Ok(coordinators)
    }

    /// Returns all places.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns a client of all places.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the places of the members.
    #[must_use]
    pub fn members(&self) -> Vec<u8> {
        let joined = self.nodes.iter().filter(|node| node.joined);
        joined.map(|node| node.place).collect()
    }

    /// Returns the node at a place.
    ///
    /// # Errors
    ///
    /// When there is no such place.
    pub fn node(&self, place: u8) -> Result<&Node, Failure> {
        let node = self.nodes.iter().find(|node| node.place == place);
        node.ok_or_else(|| Failure::new(format!("there is no node {place}")))
    }

    /// As [`node`](Self::node).
    ///
    /// # Errors
    ///
    /// When there is no such place.
    pub fn node_mut(&mut self, place: u8) -> Result<&mut Node, Failure> {
        let node = self.nodes.iter_mut().find(|node| node.place == place);
        node.ok_or_else(|| Failure::new(format!("there is no node {place}")))
    }

    /// Returns the place of the node that leads in the highest term that any node knows.
    pub async fn leader(&self) -> Option<u8> {
        let asked = self.nodes.iter().filter(|node| node.process.is_some());
        let asked = asked.map(|node| async move {
            let status = self.client.status(node.address()).await.ok()?;
            let leads = status.leader_id == status.node_id && status.node_id != 0;
            leads.then_some((status.term, node.place))
        });
        let leaders = futures::future::join_all(asked).await;
        leaders.into_iter().flatten().max().map(|(_, place)| place)
    }

    /// Starts the node at a place on what its folder holds, and does not wait for it.
    ///
    /// # Errors
    ///
    /// When the program cannot be started.
    pub fn spawn(&mut self, place: u8, network: &Network) -> Result<(), Failure> {
        let node = self.node_mut(place)?;
        let mut command = network.command(Host::Node(place));
        command.args(node.orders.prefix());
        command.arg(binaries::find("tenure")?);
        command.arg("serve").arg("--config").arg(&node.config);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&node.log)?;
        command.stdin(Stdio::null()).stdout(log);
        node.excused = false;
        node.process = Some(Process::spawn(
            &format!("node {place}"),
            command,
            &node.log,
        )?);
        Ok(())
    }

    /// Starts a node and waits until it answers.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub async fn start_node(&mut self, place: u8, network: &Network) -> Result<(), Failure> {
        self.spawn(place, network)?;
        self.answers(place).await
    }

    /// Waits until a node that was started answers.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub async fn answers(&self, place: u8) -> Result<(), Failure> {
        let (client, address) = (self.client.clone(), self.node(place)?.address().to_owned());
        let what = format!("an answer of node {place}");
        let answers = wait::until(&what, START_TIME, async || {
            let answer = client.status(&address).await;
            answer.map(drop).map_err(|status| status.to_string())
        });
        answers
            .await
            .map_err(|failure| self.with_log(place, failure))
    }

    /// Kills a node with SIGKILL, if it runs.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub async fn kill(&mut self, place: u8) -> Result<(), Failure> {
        match self.node_mut(place)?.process.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Ends a node as Ctrl-C does, if it runs.
    ///
    /// # Errors
    ///
    /// When it does not end, or not with exit status 0.
    pub async fn stop(&mut self, place: u8) -> Result<(), Failure> {
        let Some(mut process) = self.node_mut(place)?.process.take() else {
            return Ok(());
        };
        process.interrupt()?;
        let status = process.exited(END_TIME).await?;
        if status.success() {
            return Ok(());
        }
        let log = process.log_tail();
        let text = format!("node {place} ended with {status}\n{log}");
        Err(Failure::new(text))
    }

    /// Returns the nodes that have ended by themselves since they were started, and whether each may
    /// have. They are not running any more.
    ///
    /// # Errors
    ///
    /// When the operating system does not say.
    pub fn ended(&mut self) -> Result<Vec<(u8, bool, String)>, Failure> {
        let mut ended = Vec::new();
        for node in &mut self.nodes {
            let Some(process) = &mut node.process else {
                continue;
            };
            if let Some(status) = process.ended()? {
                let text = format!("{status}\n{}", process.log_tail());
                ended.push((node.place, node.excused, text));
                node.process = None;
            }
        }
        Ok(ended)
    }

    /// Adds the place to spare to the cluster, on an empty folder, and takes another out of it, which is
    /// then to spare. Returns both.
    ///
    /// # Errors
    ///
    /// When it is not done in time.
    pub async fn exchange(&mut self, leaves: u8, network: &Network) -> Result<(u8, u8), Failure> {
        let spare = self.nodes.iter().find(|node| !node.joined);
        let spare = spare
            .ok_or_else(|| Failure::new("no place is to spare"))?
            .place;
        self.start_node(spare, network).await?;
        let member = self.node(spare)?.member.clone();
        let added = self.client.add_member(&member, CHANGE_TIME).await;
        added.map_err(|failure| self.with_log(spare, failure))?;
        self.node_mut(spare)?.joined = true;
        let leaving = self.node(leaves)?.member.clone();
        self.client.remove_member(&leaving, CHANGE_TIME).await?;
        self.kill(leaves).await?;
        let node = self.node_mut(leaves)?;
        node.joined = false;
        if let Some(disk) = node.disk.take() {
            drop(disk);
        }
        fs::remove_dir_all(&node.folder)?;
        Ok((spare, leaves))
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
        for place in 1..=self.nodes.len() {
            self.stop(u8::try_from(place)?).await?;
        }
        Ok(())
    }

    fn with_log(&self, place: u8, failure: Failure) -> Failure {
        let process = self.node(place).ok().and_then(Node::process);
        let log = process.map(Process::log_tail).unwrap_or_default();
        Failure::new(format!("{failure}\n{log}"))
    }
}

/// Writes the config file of a node.
fn prepare(place: u8, network: &Network, tamper: &Tamper, folder: &Path) -> Result<Node, Failure> {
    let host = Host::Node(place);
    let address = network.addresses().of(host);
    let (client, peer) = (
        SocketAddr::from((address, CLIENT_PORT)),
        SocketAddr::from((address, PEER_PORT)),
    );
    let (data, config) = (
        folder.join(host.name()),
        folder.join(format!("{}.toml", host.name())),
    );
    let text = format!(
        "data_dir = {data:?}\n\n[client]\nlisten = \"{client}\"\n\n[peer]\nlisten = \"{peer}\"\n\n{RAFT}"
    );
    fs::write(&config, text)?;
    Ok(Node {
        place,
        member: v1::Node {
            id: 0,
            peer_address: peer.to_string(),
            client_address: client.to_string(),
            http_address: String::new(),
        },
        folder: data,
        config,
        log: folder.join(format!("{}.log", host.name())),
        orders: tamper.orders(&host.name())?,
        process: None,
        disk: None,
        joined: false,
        excused: false,
    })
}
