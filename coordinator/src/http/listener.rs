//! Accepts connections with TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustls::ServerConfig;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::incoming::{Connection, Incoming};

/// Longest time for a handshake: several round trips around the world.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Handshakes under way at one time; further connections wait in the kernel. Scrapers and browsers are
/// few, so this only bounds what a stranger can make the node do.
const HANDSHAKES_MAX: usize = 128;

type Accepted = (TlsStream<Connection>, SocketAddr);

/// A listener whose connections have done their handshakes. Handshakes run side by side, so that one
/// client that says nothing does not hold up the others.
pub(super) struct TlsListener {
    incoming: Incoming,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<Option<Accepted>>,
}

impl TlsListener {
    pub(super) fn new(incoming: Incoming, config: Arc<ServerConfig>) -> Self {
        Self {
            incoming,
            acceptor: TlsAcceptor::from(config),
            handshakes: JoinSet::new(),
        }
    }

    fn shake_hands(&mut self, stream: Connection, address: SocketAddr) {
        let acceptor = self.acceptor.clone();
        self.handshakes.spawn(async move {
            let shaken = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await;
            match shaken {
                Ok(Ok(stream)) => Some((stream, address)),
                Ok(Err(error)) => {
                    tracing::debug!(%address, %error, "handshake failed");
                    None
                }
                Err(_) => None,
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<Connection>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Accepted {
        loop {
            tokio::select! {
                Some(shaken) = self.handshakes.join_next() => {
                    if let Ok(Some(accepted)) = shaken {
                        return accepted;
                    }
                }
                (stream, address) = self.incoming.next(),
                    if self.handshakes.len() < HANDSHAKES_MAX =>
                {
                    self.shake_hands(stream, address);
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.incoming.local_addr()
    }
}
