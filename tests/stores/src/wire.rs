//! A proxy that loses answers, for any protocol over TCP.
//!
//! ```text
//!   adapter ──▶ proxy ──▶ server      everything that the adapter sends arrives
//!           ◀── proxy ◀── server      so many pieces of what the server answers arrive; with the next
//!                     ✗               all connections break, and no other is made until it is healed
//! ```
//!
//! With a store behind it whose answers are lost from the first piece on, then from the second, and so
//! forth, a call is cut off at every point at which the network can do so.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster_tests::failure::Failure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How much is carried at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A proxy. It ends when it is dropped, with all its connections.
#[derive(Debug)]
pub struct Wire {
    address: SocketAddr,
    state: Arc<State>,
    listener: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    /// Pieces that still arrive.
    left: AtomicU64,
    /// Whether the wire is cut.
    cut: watch::Sender<bool>,
}

impl Wire {
    /// Starts a proxy before a server. Everything arrives.
    ///
    /// # Errors
    ///
    /// When no port can be listened on.
    pub async fn start(server: SocketAddr) -> Result<Self, Failure> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = socket.local_addr()?;
        let state = Arc::new(State {
            left: AtomicU64::new(u64::MAX),
            cut: watch::Sender::new(false),
        });
        let listener = tokio::spawn(listen(socket, server, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            listener,
        })
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loses what the server answers after so many pieces, and then all that follows.
    pub fn lose_answers_after(&self, pieces: u64) {
        self.state.left.store(pieces, Ordering::SeqCst);
    }

    /// Lets everything through again, on new connections. Returns whether anything was lost.
    pub fn heal(&self) -> bool {
        self.state.left.store(u64::MAX, Ordering::SeqCst);
        self.state.cut.send_replace(false)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl State {
    /// Says whether one more piece arrives; cuts the wire if not.
    fn lets_through(&self) -> bool {
        let one_less = |left: u64| match left {
            u64::MAX => Some(left),
            left => left.checked_sub(1),
        };
        let counted = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        if counted.is_err() {
            self.cut.send_replace(true);
        }
        counted.is_ok()
    }
}

async fn listen(socket: TcpListener, server: SocketAddr, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = socket.accept().await;
        while connections.try_join_next().is_some() {}
        let Ok((client, _)) = accepted else { return };
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let mut cut = state.cut.subscribe();
            tokio::select! {
                // Either side may go away at any time: that is what a wire is like.
                _ended = carry(client, server, &state) => {}
                _cut = cut.wait_for(|cut| *cut) => {}
            }
        });
    }
}

async fn carry(client: TcpStream, server: SocketAddr, state: &State) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(
        pieces(from_client, to_server, || true),
        pieces(from_server, to_client, || state.lets_through()),
    )?;
    Ok(())
}

/// Carries pieces one way until the sender has no more, or one is not let through.
async fn pieces(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    lets_through: impl Fn() -> bool,
) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        if !lets_through() {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        to.write_all(&piece[..length]).await?;
    }
}
