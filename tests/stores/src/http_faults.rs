//! A proxy between an adapter and its server that loses answers and makes errors up.
//!
//! ```text
//!   adapter ──▶ proxy ──▶ server          as if it were not there
//!           ──▶ proxy ──▶ server  ──▶ ✗   the answer is lost, or replaced
//!           ──▶ proxy ✗                   the request is lost, or answered here
//! ```
//!
//! It changes no request: signatures stay right. Each connection carries one request, so that nothing
//! is repeated on another for a reason of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster_tests::failure::Failure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server does as it is told; its answer is lost with the connection.
    LoseAnswer,
    /// The server does as it is told; the answer is 500.
    FailAfterwards,
    /// The server never hears of it: the connection is closed.
    LoseRequest,
    /// The server never hears of it; the answer is S3's to one of two conditional requests that meet.
    Conflict,
    /// The server hears of it when the proxy is healed.
    Delay,
}

/// A proxy. It ends when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    rules: Arc<Mutex<Vec<Rule>>>,
    /// Told when a request was met with a fault, and when the proxy was healed.
    changed: Arc<watch::Sender<()>>,
    listener: JoinHandle<()>,
}

/// Which requests are met with a fault.
#[derive(Clone, Debug)]
struct Rule {
    method: &'static str,
    /// What the target of the request, or its body's first kilobyte, holds.
    name: String,
    left: usize,
    met: usize,
    fault: Fault,
}

/// The longest head of a request or an answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How much of a body is searched for a name: Google's uploads name the object there.
const SEARCHED_BYTES: usize = 1024;

impl FaultProxy {
    /// Starts a proxy before a server.
    ///
    /// # Errors
    ///
    /// When no port can be listened on.
    pub async fn start(server: SocketAddr) -> Result<Self, Failure> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = socket.local_addr()?;
        let rules = Arc::new(Mutex::new(Vec::new()));
        let changed = Arc::new(watch::Sender::new(()));
        let faults = Faults {
            rules: Arc::clone(&rules),
            changed: Arc::clone(&changed),
        };
        let listener = tokio::spawn(listen(socket, server, faults));
        Ok(Self {
            address,
            rules,
            changed,
            listener,
        })
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Meets the next `times` requests of `method` whose object's name holds `name` with a fault.
    pub fn meet(&self, method: &'static str, name: &str, times: usize, fault: Fault) {
        self.rules().push(Rule {
            method,
            name: name.to_owned(),
            left: times,
            met: 0,
            fault,
        });
    }

    /// Lets everything through again; returns how many requests were met with a fault.
    pub fn heal(&self) -> usize {
        let mut rules = self.rules();
        let met = rules.iter().map(|rule| rule.met).sum();
        rules.clear();
        self.changed.send_replace(());
        met
    }

    /// Waits until so many requests were met with a fault since the proxy was healed.
    pub async fn has_met(&self, count: usize) {
        let mut changed = self.changed.subscribe();
        while self.rules().iter().map(|rule| rule.met).sum::<usize>() < count {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// What the connections of a proxy share with it.
#[derive(Clone)]
struct Faults {
    rules: Arc<Mutex<Vec<Rule>>>,
    changed: Arc<watch::Sender<()>>,
}

impl Faults {
    /// Waits until the proxy is healed.
    async fn healed(&self) {
        let mut changed = self.changed.subscribe();
        while !self.is_healed() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn is_healed(&self) -> bool {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.is_empty()
    }
}

async fn listen(socket: TcpListener, server: SocketAddr, faults: Faults) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = socket.accept().await;
        while connections.try_join_next().is_some() {}
        let Ok((client, _)) = accepted else { return };
        let faults = faults.clone();
        connections.spawn(async move {
            // Either side may go away in the middle: that is what a proxy is like.
            let _gone = carry(client, server, &faults).await.is_err();
        });
    }
}

/// Carries one request and its answer.
async fn carry(mut client: TcpStream, server: SocketAddr, faults: &Faults) -> Result<(), Failure> {
    let request = read_request(&mut client).await?;
    let fault = fault_of(&request, &faults.rules);
    faults.changed.send_replace(());
    match fault {
        Some(Fault::Delay) => faults.healed().await,
        Some(Fault::LoseRequest) => return Ok(()),
        Some(Fault::Conflict) => {
            let code = "<Error><Code>ConditionalRequestConflict</Code></Error>";
            return answer(&mut client, "409 Conflict", code).await;
        }
        Some(Fault::LoseAnswer | Fault::FailAfterwards) | None => {}
    }
    let mut upstream = TcpStream::connect(server).await?;
    upstream.write_all(&closing(&request)?).await?;
    let mut received = Vec::new();
    upstream.read_to_end(&mut received).await?;
    match fault {
        Some(Fault::LoseAnswer) => Ok(()),
        Some(Fault::FailAfterwards) => {
            let code = "<Error><Code>InternalError</Code></Error>";
            answer(&mut client, "500 Internal Server Error", code).await
        }
        Some(Fault::LoseRequest | Fault::Conflict | Fault::Delay) | None => {
            client.write_all(&closing(&received)?).await?;
            client.shutdown().await?;
            Ok(())
        }
    }
}

async fn answer(client: &mut TcpStream, status: &str, body: &str) -> Result<(), Failure> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/xml\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(head.as_bytes()).await?;
    client.shutdown().await?;
    Ok(())
}

/// Finds the rule for a request, and counts that it was met.
fn fault_of(request: &[u8], rules: &Mutex<Vec<Rule>>) -> Option<Fault> {
    let end = (head_end(request)? + SEARCHED_BYTES).min(request.len());
    let text = String::from_utf8_lossy(&request[..end]).replace("%2F", "/");
    let mut rules = rules.lock().unwrap_or_else(PoisonError::into_inner);
    let rule = rules.iter_mut().find(|rule| {
        let is_method = text.split(' ').next() == Some(rule.method);
        rule.left > 0 && is_method && text.contains(&rule.name)
    })?;
    rule.left -= 1;
    rule.met += 1;
    Some(rule.fault)
}

async fn read_request(client: &mut TcpStream) -> Result<Vec<u8>, Failure> {
    let mut request = Vec::new();
    let body = loop {
        if let Some(end) = head_end(&request) {
            break end;
        }
        if request.len() > HEAD_BYTES_MAX || client.read_buf(&mut request).await? == 0 {
            return Err(Failure::new("no whole request"));
        }
    };
    let head = String::from_utf8_lossy(&request[..body]).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(Ok(0), |length| length.trim().parse::<usize>())?;
    if head.contains("transfer-encoding") {
        return Err(Failure::new("the proxy knows no chunked requests"));
    }
    while request.len() < body + length {
        if client.read_buf(&mut request).await? == 0 {
            return Err(Failure::new("no whole body"));
        }
    }
    Ok(request)
}

/// Returns where the head of a message ends and its body begins.
fn head_end(message: &[u8]) -> Option<usize> {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(end + 4)
}

/// Adds to a message that the connection ends with it, in the place of what it says about that.
fn closing(message: &[u8]) -> Result<Vec<u8>, Failure> {
    let body = head_end(message).ok_or_else(|| Failure::new("no whole head"))?;
    let head = std::str::from_utf8(&message[..body - 2])?;
    let mut changed = Vec::with_capacity(message.len() + 32);
    for line in head.split_inclusive("\r\n") {
        if !line.to_ascii_lowercase().starts_with("connection:") {
            changed.extend_from_slice(line.as_bytes());
        }
    }
    changed.extend_from_slice(b"connection: close\r\n\r\n");
    changed.extend_from_slice(&message[body..]);
    Ok(changed)
}
