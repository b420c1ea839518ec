//! Where a node is reached and how it reaches its peers, behind a trait so that a simulation brings a
//! network of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tonic::transport::ClientTlsConfig;

use crate::consensus::{Connector, TcpConnector};

/// How long a connection to a peer may take: shorter than an election.
const PEER_CONNECT_MAX: Duration = Duration::from_millis(500);

/// One end of a connection.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Socket for S {}

/// A port that is bound.
#[async_trait]
pub trait Listening: Send + 'static {
    /// Waits for a connection. Returns it and the address of its other end.
    ///
    /// # Errors
    ///
    /// An error that concerns one connection, or passes: it may be called again.
    async fn accept(&mut self) -> io::Result<(Box<dyn Socket>, SocketAddr)>;

    /// Returns the address that was really bound.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    fn address(&self) -> io::Result<SocketAddr>;
}

/// A network that a node can live in.
#[async_trait]
pub trait Network: Send + Sync + 'static {
    /// Binds a port.
    ///
    /// # Errors
    ///
    /// An error if the address is not this machine's, or is taken.
    async fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listening>>;

    /// Returns what makes connections to peers, with TLS if it is given a configuration for it.
    fn connector(&self, tls: Option<ClientTlsConfig>) -> Arc<dyn Connector>;
}

/// The network of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpNetwork;

#[async_trait]
impl Network for TcpNetwork {
    async fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listening>> {
        Ok(Box::new(TcpListener::bind(address).await?))
    }

    fn connector(&self, tls: Option<ClientTlsConfig>) -> Arc<dyn Connector> {
        Arc::new(TcpConnector::new(tls, PEER_CONNECT_MAX))
    }
}

#[async_trait]
impl Listening for TcpListener {
    async fn accept(&mut self) -> io::Result<(Box<dyn Socket>, SocketAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        // A socket that does not take the option is slower, not wrong.
        let _delayed = stream.set_nodelay(true);
        Ok((Box::new(stream), peer))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}
