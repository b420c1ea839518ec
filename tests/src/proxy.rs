//! Proxies before the nodes' ports: connections between two processes can be cut.
//!
//! ```text
//!   node 1 ──┐                                ┌── rule: who connects, to whom?
//!   worker ──┴─▶ advertised port ── proxy ────┴──▶ port the node listens on
//! ```
//!
//! The real processes then live through real partitions. Who connects is found out from the kernel:
//! the process that holds the other end of the socket.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::Failure;

/// One proxy: where it listens and what is behind it.
#[derive(Clone, Copy, Debug)]
pub struct ProxyOptions {
    /// The node behind it.
    pub node: u64,
    /// The address that others know.
    pub listen: SocketAddr,
    /// The address the node listens on.
    pub target: SocketAddr,
}

/// A process that connects or is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A coordinator, by its id.
    Node(u64),
    /// Any other process, by its process id.
    Process(u32),
}

/// All proxies of a cluster. Closed when dropped.
#[derive(Debug)]
pub struct Proxies {
    shared: Arc<Shared>,
    listeners: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    /// Nodes and processes on one side; everything between a side and the rest is cut.
    island: watch::Sender<BTreeSet<Party>>,
    // Never held across an await.
    processes: Mutex<BTreeMap<u64, u32>>,
}

impl Default for Proxies {
    fn default() -> Self {
        Self::new()
    }
}

impl Proxies {
    /// Creates a set without proxies.
    #[must_use]
    pub fn new() -> Self {
        let shared = Shared {
            island: watch::Sender::default(),
            processes: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            listeners: JoinSet::new(),
        }
    }

    /// Adds a proxy.
    ///
    /// # Errors
    ///
    /// When it cannot listen.
    pub async fn open(&mut self, options: ProxyOptions) -> Result<(), Failure> {
        let listener = TcpListener::bind(options.listen).await?;
        self.listeners
            .spawn(accept(listener, options, Arc::clone(&self.shared)));
        Ok(())
    }

    /// Says which process a node is.
    pub fn set_process(&self, node: u64, pid: u32) {
        self.shared.processes().insert(node, pid);
    }

    /// Cuts everything between these parties and all others. What they say among themselves goes on.
    pub fn isolate(&self, parties: impl IntoIterator<Item = Party>) {
        self.shared
            .island
            .send_replace(parties.into_iter().collect());
    }

    /// Ends every cut.
    pub fn heal(&self) {
        self.isolate([]);
    }
}

impl Shared {
    fn processes(&self) -> MutexGuard<'_, BTreeMap<u64, u32>> {
        // A story whose task panicked fails anyway.
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns who holds the socket with this local port.
    fn party(&self, port: u16) -> io::Result<Option<Party>> {
        let Some(inode) = socket_inode(port)? else {
            return Ok(None);
        };
        let processes = self.processes().clone();
        for (&node, &pid) in &processes {
            if holds_socket(pid, &inode) {
                return Ok(Some(Party::Node(node)));
            }
        }
        Ok(process_with_socket(&inode)?.map(Party::Process))
    }
}

async fn accept(listener: TcpListener, options: ProxyOptions, shared: Arc<Shared>) {
    let mut carried = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // One connection that cannot be accepted is gone; the next may be.
                if let Ok((stream, from)) = accepted {
                    carried.spawn(carry(stream, from, options, Arc::clone(&shared)));
                }
            }
            Some(_) = carried.join_next(), if !carried.is_empty() => {}
        }
    }
}

/// Carries one connection until either end closes it or a rule cuts it.
async fn carry(mut near: TcpStream, from: SocketAddr, options: ProxyOptions, shared: Arc<Shared>) {
    let source = {
        let shared = Arc::clone(&shared);
        tokio::task::spawn_blocking(move || shared.party(from.port())).await
    };
    // Who is gone already needs no connection.
    let Ok(Ok(Some(source))) = source else { return };
    let target = Party::Node(options.node);
    let mut island = shared.island.subscribe();
    let cut = |island: &BTreeSet<Party>| island.contains(&source) != island.contains(&target);
    let carrying = async {
        let mut far = TcpStream::connect(options.target).await?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        tokio::io::copy_bidirectional(&mut near, &mut far).await
    };
    tokio::select! {
        // First, so that a connection that is cut never comes about.
        biased;
        _cut = island.wait_for(cut) => {}
        _ended = carrying => {}
    }
}

/// Returns the inode of the TCP socket whose own port is `port`.
fn socket_inode(port: u16) -> io::Result<Option<String>> {
    let table = fs::read_to_string("/proc/net/tcp")?;
    let suffix = format!(":{port:04X}");
    // Columns: slot, local address, remote address, state, queues, timer, retransmits, uid, timeout, inode.
    let inode = table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let local = columns.get(1)?;
        let inode = columns.get(9)?;
        (local.ends_with(&suffix) && *inode != "0").then(|| (*inode).to_owned())
    });
    Ok(inode)
}

fn holds_socket(pid: u32, inode: &str) -> bool {
    let wanted = format!("socket:[{inode}]");
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|target| target.to_str() == Some(&wanted))
}

fn process_with_socket(inode: &str) -> io::Result<Option<u32>> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok());
        if let Some(pid) = pid.filter(|&pid| holds_socket(pid, inode)) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::ports::Ports;

    /// Echoes one connection after the other.
    async fn echo(listener: TcpListener) {
        let mut served = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            served.spawn(async move {
                let (mut read, mut write) = stream.split();
                let _closed = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    }

    async fn exchange(stream: &mut TcpStream) -> io::Result<u8> {
        stream.write_all(b"x").await?;
        stream.read_u8().await
    }

    #[tokio::test]
    async fn a_cut_breaks_connections_and_refuses_new_ones_until_it_is_healed() {
        let mut ports = Ports::reserve().unwrap();
        let (listen, target) = (ports.take().unwrap(), ports.take().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(echo(TcpListener::bind(target).await.unwrap()));
        let mut proxies = Proxies::new();
        proxies
            .open(ProxyOptions {
                node: 1,
                listen,
                target,
            })
            .await
            .unwrap();

        let mut stream = TcpStream::connect(listen).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), b'x');

        // Others may talk to each other, also across a cut they are all on one side of.
        proxies.isolate([Party::Node(1), Party::Process(std::process::id())]);
        assert_eq!(exchange(&mut stream).await.unwrap(), b'x');

        proxies.isolate([Party::Node(1)]);
        assert!(exchange(&mut stream).await.is_err());
        let mut stream = TcpStream::connect(listen).await.unwrap();
        assert!(exchange(&mut stream).await.is_err());

        proxies.heal();
        let mut stream = TcpStream::connect(listen).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), b'x');
    }
}
