//! The network: turmoil's, one host for each machine.
//!
//! ```text
//!   process (a runtime of its own)          kernel (a host of turmoil)
//!   ┌──────────────┐   listen, connect     ┌───────────────┐
//!   │ node, worker │──────────────────────▶│ Kernel::serve │◀── links: delay, loss, partitions
//!   │              │◀══ buffered sockets ══▶│ pumps         │
//!   └──────────────┘                       └───────────────┘
//! ```
//!
//! The process is not turmoil's, because turmoil cannot stop one and let it go on later. So what
//! remains on the host is what remains of a stopped process in reality: its kernel, which keeps
//! connections open and buffers what arrives. When a process dies its sockets are closed.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use hyper_util::rt::TokioIo;
use tenure::connection::Dialer;
use tenure_coordinator::consensus::{Connector, InvalidAddress, Lane, peer_endpoint};
use tenure_coordinator::network::{Listening, Network, Socket};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{mpsc, oneshot};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tower::service_fn;
use turmoil::net::{TcpListener, TcpStream};

/// Bytes that a socket buffers in each direction.
const SOCKET_BYTES: usize = 256 << 10;

/// Bytes of one segment, at most.
const SEGMENT_BYTES: usize = 16 << 10;

/// Calls that may wait for the kernel's next turn, and connections for their process.
const CALLS_MAX: usize = 1_024;

/// How long a peer may take to be connected to, as in production.
const PEER_CONNECT_MAX: std::time::Duration = std::time::Duration::from_millis(500);

type Accepted = (DuplexStream, SocketAddr);

/// What a process asks of its kernel.
enum Call {
    Listen {
        port: u16,
        accepted: mpsc::Sender<Accepted>,
        bound: oneshot::Sender<io::Result<()>>,
    },
    Connect {
        host: String,
        port: u16,
        connected: oneshot::Sender<io::Result<DuplexStream>>,
    },
}

/// What went over all wires, so that a trace differs as soon as one byte does.
#[derive(Debug, Default)]
pub struct Meter {
    bytes: AtomicU64,
    digest: AtomicU64,
}

impl Meter {
    fn count(&self, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.bytes.fetch_add(length, Ordering::Relaxed);
        let mut digest = self.digest.load(Ordering::Relaxed);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            if let Some(part) = word.get_mut(..chunk.len()) {
                part.copy_from_slice(chunk);
            }
            digest = (digest.rotate_left(5) ^ u64::from_le_bytes(word))
                .wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        self.digest.store(digest, Ordering::Relaxed);
    }

    /// Returns how many bytes there were, and a digest of all of them in order.
    #[must_use]
    pub fn read(&self) -> (u64, u64) {
        (
            self.bytes.load(Ordering::Relaxed),
            self.digest.load(Ordering::Relaxed),
        )
    }
}

/// The kernel's side of a machine's network.
pub struct Kernel {
    calls: mpsc::Receiver<Call>,
    meter: Arc<Meter>,
}

/// The process's side of a machine's network. Clones are the same.
#[derive(Clone, Debug)]
pub struct MachineNetwork {
    calls: mpsc::Sender<Call>,
}

/// Creates both sides of a machine's network.
#[must_use]
pub fn machine_network(meter: Arc<Meter>) -> (MachineNetwork, Kernel) {
    let (sender, calls) = mpsc::channel(CALLS_MAX);
    (MachineNetwork { calls: sender }, Kernel { calls, meter })
}

impl Kernel {
    /// Serves the processes of its machine, one after the other, for as long as the run lasts.
    pub async fn serve(mut self) {
        while let Some(call) = self.calls.recv().await {
            let meter = Arc::clone(&self.meter);
            match call {
                Call::Listen {
                    port,
                    accepted,
                    bound,
                } => {
                    tokio::spawn(listen(port, accepted, bound, meter));
                }
                Call::Connect {
                    host,
                    port,
                    connected,
                } => {
                    tokio::spawn(connect(host, port, connected, meter));
                }
            }
        }
    }
}

async fn listen(
    port: u16,
    accepted: mpsc::Sender<Accepted>,
    bound: oneshot::Sender<io::Result<()>>,
    meter: Arc<Meter>,
) {
    let listener = match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await {
        Ok(listener) => listener,
        Err(error) => {
            let _gone = bound.send(Err(error));
            return;
        }
    };
    let _gone = bound.send(Ok(()));
    loop {
        let stream = tokio::select! {
            biased;
            // The process has died, and its port with it.
            () = accepted.closed() => return,
            stream = listener.accept() => stream,
        };
        let Ok((stream, peer)) = stream else { continue };
        let (near, far) = tokio::io::duplex(SOCKET_BYTES);
        if accepted.send((near, peer)).await.is_err() {
            return;
        }
        tokio::spawn(pump(far, stream, Arc::clone(&meter)));
    }
}

async fn connect(
    host: String,
    port: u16,
    mut connected: oneshot::Sender<io::Result<DuplexStream>>,
    meter: Arc<Meter>,
) {
    let stream = tokio::select! {
        biased;
        () = connected.closed() => return,
        stream = TcpStream::connect((host, port)) => stream,
    };
    match stream {
        Ok(stream) => {
            let (near, far) = tokio::io::duplex(SOCKET_BYTES);
            if connected.send(Ok(near)).is_ok() {
                pump(far, stream, meter).await;
            }
        }
        Err(error) => {
            let _gone = connected.send(Err(error));
        }
    }
}

/// Carries bytes between a process's socket and the network, until both directions are closed or one
/// is broken.
async fn pump(process: DuplexStream, network: TcpStream, meter: Arc<Meter>) {
    let (from_process, to_process) = tokio::io::split(process);
    let (from_network, to_network) = network.into_split();
    let out = carry(from_process, to_network, Some(meter));
    let back = carry(from_network, to_process, None);
    // Whatever breaks it, both ends learn it from the closed sockets.
    let _broken = futures::future::try_join(out, back).await;
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    meter: Option<Arc<Meter>>,
) -> io::Result<()> {
    let mut buffer = vec![0; SEGMENT_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        let bytes = buffer.get(..length).unwrap_or_default();
        if bytes.is_empty() {
            return to.shutdown().await;
        }
        if let Some(meter) = &meter {
            meter.count(bytes);
        }
        to.write_all(bytes).await?;
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NetworkDown, "the run has ended")
}

impl MachineNetwork {
    async fn connect(&self, host: String, port: u16) -> io::Result<DuplexStream> {
        let (connected, connection) = oneshot::channel();
        let call = Call::Connect {
            host,
            port,
            connected,
        };
        self.calls.send(call).await.map_err(|_| gone())?;
        connection.await.map_err(|_| gone())?
    }

    fn connector(
        &self,
    ) -> impl tower::Service<
        http::Uri,
        Response = TokioIo<DuplexStream>,
        Error = io::Error,
        Future: Send + 'static,
    > + Send
    + 'static {
        let network = self.clone();
        service_fn(move |uri: http::Uri| {
            let network = network.clone();
            async move {
                let host = uri.host().unwrap_or_default().to_owned();
                let port = uri.port_u16().unwrap_or_default();
                network.connect(host, port).await.map(TokioIo::new)
            }
        })
    }
}

struct Listener {
    address: SocketAddr,
    accepted: mpsc::Receiver<Accepted>,
}

#[async_trait]
impl Listening for Listener {
    async fn accept(&mut self) -> io::Result<(Box<dyn Socket>, SocketAddr)> {
        match self.accepted.recv().await {
            Some((stream, peer)) => Ok((Box::new(stream), peer)),
            // Only at the end of the run, when nobody waits any more.
            None => std::future::pending().await,
        }
    }

    fn address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[async_trait]
impl Network for MachineNetwork {
    async fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listening>> {
        let (accepted, connections) = mpsc::channel(CALLS_MAX);
        let (bound, result) = oneshot::channel();
        let call = Call::Listen {
            port: address.port(),
            accepted,
            bound,
        };
        self.calls.send(call).await.map_err(|_| gone())?;
        result.await.map_err(|_| gone())??;
        Ok(Box::new(Listener {
            address,
            accepted: connections,
        }))
    }

    fn connector(&self, _tls: Option<ClientTlsConfig>) -> Arc<dyn Connector> {
        Arc::new(self.clone())
    }
}

impl Connector for MachineNetwork {
    fn connect(&self, address: &str, lane: Lane) -> Result<Channel, InvalidAddress> {
        let endpoint = peer_endpoint(&format!("http://{address}"), lane)
            .map_err(|error| InvalidAddress {
                address: address.to_owned(),
                reason: error.to_string(),
            })?
            .connect_timeout(PEER_CONNECT_MAX);
        Ok(endpoint.connect_with_connector_lazy(Self::connector(self)))
    }
}

#[async_trait]
impl Dialer for MachineNetwork {
    async fn dial(&self, endpoint: Endpoint) -> Result<Channel, tonic::transport::Error> {
        endpoint.connect_with_connector(self.connector()).await
    }
}
