//! Three ZooKeeper servers, and a client of their protocol with just what is measured.
//!
//! The client sends what it is given at once and matches the answers by their order, which the protocol
//! promises: as plain as can be, and without a library in between.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use cluster_tests::failure::Failure;
use cluster_tests::ports::Ports;
use store_tests::server::{Program, Server};
use store_tests::site::Site;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Servers of an ensemble: the fewest that survive the loss of one.
const SERVERS: usize = 3;

/// Where Debian's package `libzookeeper-java` puts the server; its manifest names what it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// The longest session that the servers grant with these settings: the client sends no pings, and what is
/// measured beside it may take a while.
const SESSION_MS: i32 = 40_000;

/// Three ZooKeeper servers on this machine.
pub(crate) struct Ensemble {
    servers: Vec<Server<Member>>,
    _ports: Ports,
}

/// One of them.
struct Member {
    number: usize,
    client: SocketAddr,
    /// All of them, as every one is told.
    servers: String,
}

impl Ensemble {
    /// Starts three servers and waits until each has found the others.
    pub(crate) async fn start() -> Result<Self, Failure> {
        let mut ports = Ports::reserve()?;
        let mut clients = Vec::with_capacity(SERVERS);
        let mut servers = String::new();
        for number in 1..=SERVERS {
            clients.push(ports.take()?);
            let (quorum, election) = (ports.take()?, ports.take()?);
            let line = format!("server.{number}={quorum}:{}\n", election.port());
            servers.push_str(&line);
        }
        let starting = clients.iter().enumerate().map(|(place, client)| {
            let member = Member {
                number: place + 1,
                client: *client,
                servers: servers.clone(),
            };
            Server::start(member)
        });
        // All at once: one alone answers nobody.
        let servers = futures::future::try_join_all(starting).await?;
        Ok(Self {
            servers,
            _ports: ports,
        })
    }

    /// Returns where the server that comes in turn listens.
    pub(crate) fn address(&self, turn: usize) -> SocketAddr {
        self.servers[turn % SERVERS].program().client
    }
}

#[async_trait]
impl Program for Member {
    fn name(&self) -> String {
        format!("ZooKeeper {}", self.number)
    }

    async fn prepare(&self, site: &Site) -> Result<(), Failure> {
        std::fs::create_dir(site.folder().join("data"))?;
        site.write("data/myid", &self.number.to_string())?;
        let settings = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=data\nclientPortAddress={}\nclientPort={}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n{}",
            self.client.ip(),
            self.client.port(),
            self.servers,
        );
        site.write("zoo.cfg", &settings)?;
        Ok(())
    }

    fn command(&self, site: &Site) -> Result<Command, Failure> {
        if !std::path::Path::new(JAR).is_file() {
            return Err(Failure::new(format!(
                "{JAR} is not there: run `make bench`, which installs it"
            )));
        }
        let mut command = site.command("java");
        command
            .arg("-Xmx1000m")
            .args(["-cp", JAR])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg("zoo.cfg");
        Ok(command)
    }

    async fn answers(&self) -> Result<(), String> {
        let asked = async {
            let mut stream = TcpStream::connect(self.client).await?;
            stream.write_all(b"srvr").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = asked.await.map_err(|error| error.to_string())?;
        if answer.contains("Mode: leader") || answer.contains("Mode: follower") {
            return Ok(());
        }
        Err(format!("it says {answer:?}"))
    }
}

/// Numbers of operations.
const CREATE: i32 = 1;
const SET_DATA: i32 = 5;
const CHECK: i32 = 13;
const MULTI: i32 = 14;

/// One session. Many may use it at the same time.
pub(crate) struct Session {
    sending: tokio::sync::Mutex<OwnedWriteHalf>,
    waiting: Arc<Mutex<VecDeque<oneshot::Sender<Bytes>>>>,
    reading: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Session {
    pub(crate) async fn open(server: SocketAddr) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut hello = BytesMut::new();
        hello.put_i32(0); // version of the protocol
        hello.put_i64(0); // last transaction seen
        hello.put_i32(SESSION_MS);
        hello.put_i64(0); // a new session
        put_bytes(&mut hello, &[0; 16])?; // its password
        hello.put_u8(0); // not only for reading
        stream.write_all(&framed(&hello)?).await?;
        let answer = read_frame(&mut stream).await?;
        if answer.len() < 16 || answer.slice(8..16).get_i64() == 0 {
            return Err(Failure::new("ZooKeeper refuses a session"));
        }
        let (reader, writer) = stream.into_split();
        let waiting = Arc::new(Mutex::new(VecDeque::new()));
        Ok(Self {
            sending: tokio::sync::Mutex::new(writer),
            reading: tokio::spawn(read_answers(reader, Arc::clone(&waiting))),
            waiting,
        })
    }

    /// Creates a node that anybody may do anything with.
    pub(crate) async fn create(&self, path: &str) -> Result<(), Failure> {
        let mut body = BytesMut::new();
        put_bytes(&mut body, path.as_bytes())?;
        put_bytes(&mut body, b"")?;
        body.put_i32(1); // one rule of access
        body.put_i32(31); // everything
        put_bytes(&mut body, b"world")?;
        put_bytes(&mut body, b"anyone")?;
        body.put_i32(0); // kept until it is deleted
        self.call(CREATE, &body).await?;
        Ok(())
    }

    /// Sets the data of a node whatever its version.
    pub(crate) async fn set(&self, path: &str, value: &[u8]) -> Result<(), Failure> {
        let mut body = BytesMut::new();
        put_set(&mut body, path, value)?;
        self.call(SET_DATA, &body).await?;
        Ok(())
    }

    /// Sets the data of a node if the fence is at a version, in one step. Returns whether it was.
    pub(crate) async fn set_fenced(
        &self,
        fence: &str,
        version: i32,
        path: &str,
        value: &[u8],
    ) -> Result<bool, Failure> {
        let mut body = BytesMut::with_capacity(value.len() + 128);
        put_multi_head(&mut body, CHECK);
        put_bytes(&mut body, fence.as_bytes())?;
        body.put_i32(version);
        put_multi_head(&mut body, SET_DATA);
        put_set(&mut body, path, value)?;
        body.put_i32(-1);
        body.put_u8(1); // the end
        body.put_i32(-1);
        let mut answer = self.call(MULTI, &body).await?;
        // What became of the first of them: an operation's number, or −1 for an error.
        if answer.remaining() < 4 {
            return Err(Failure::new("ZooKeeper answers with nothing"));
        }
        Ok(answer.get_i32() == CHECK)
    }

    /// Sends a request and waits for the rest of its answer.
    async fn call(&self, operation: i32, body: &[u8]) -> Result<Bytes, Failure> {
        let mut request = BytesMut::with_capacity(body.len() + 8);
        request.put_i32(1); // its number, which nobody looks at
        request.put_i32(operation);
        request.put_slice(body);
        let request = framed(&request)?;
        let (answered, answer) = oneshot::channel();
        {
            let mut sending = self.sending.lock().await;
            self.waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push_back(answered);
            sending.write_all(&request).await?;
        }
        let mut answer = answer
            .await
            .map_err(|_| Failure::new("ZooKeeper has closed the session"))?;
        if answer.remaining() < 16 {
            return Err(Failure::new("ZooKeeper's answer is cut off"));
        }
        answer.advance(12); // the request's number and the transaction's
        match answer.get_i32() {
            0 => Ok(answer),
            error => Err(Failure::new(format!(
                "ZooKeeper answers with error {error}"
            ))),
        }
    }
}

/// Hands the answers out in the order of the requests, until the connection ends.
async fn read_answers(
    mut reader: OwnedReadHalf,
    waiting: Arc<Mutex<VecDeque<oneshot::Sender<Bytes>>>>,
) {
    while let Ok(answer) = read_frame(&mut reader).await {
        let next = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        if let Some(next) = next {
            // Whoever has waited may have given up.
            let _ = next.send(answer);
        }
    }
    // Those that still wait are told by this that nobody will answer.
    waiting
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
}

async fn read_frame(reader: &mut (impl tokio::io::AsyncRead + Unpin)) -> Result<Bytes, Failure> {
    let length = usize::try_from(reader.read_i32().await?)?;
    let mut frame = vec![0; length];
    reader.read_exact(&mut frame).await?;
    Ok(frame.into())
}

fn framed(body: &[u8]) -> Result<Bytes, Failure> {
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    put_bytes(&mut frame, body)?;
    Ok(frame.freeze())
}

/// Writes bytes after their length.
fn put_bytes(buffer: &mut BytesMut, bytes: &[u8]) -> Result<(), Failure> {
    buffer.put_i32(i32::try_from(bytes.len())?);
    buffer.put_slice(bytes);
    Ok(())
}

fn put_set(buffer: &mut BytesMut, path: &str, value: &[u8]) -> Result<(), Failure> {
    put_bytes(buffer, path.as_bytes())?;
    put_bytes(buffer, value)?;
    buffer.put_i32(-1); // whatever its version
    Ok(())
}

fn put_multi_head(buffer: &mut BytesMut, operation: i32) {
    buffer.put_i32(operation);
    buffer.put_u8(0); // more follow
    buffer.put_i32(-1);
}
