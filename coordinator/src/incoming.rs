//! Accepts connections: no more than there is room for, and none for long that says nothing.
//!
//! Every connection holds a file descriptor, and so does every file of the storage. Without a bound a
//! thousand idle sockets would keep the storage from opening its next file, and end the node.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use futures::{Stream, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{self, Sleep};
use tonic::transport::server::Connected;

use crate::network::{Listening, Socket};

/// How long a new connection may say less than [`GREETING_BYTES`]. Pings take over after that.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Less than the shortest beginning of HTTP/2 (24), TLS and an HTTP/1 request.
const GREETING_BYTES: usize = 16;

/// Pause after a connection could not be accepted, which is seldom mended at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A port, and how many more connections it may have.
pub struct Incoming {
    listener: Box<dyn Listening>,
    places: Arc<Semaphore>,
}

impl Incoming {
    /// Bounds what a listener accepts. Further connections wait in the kernel until one has ended.
    pub fn new(listener: Box<dyn Listening>, connections_max: usize) -> Self {
        let places = connections_max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            listener,
            places: Arc::new(Semaphore::new(places)),
        }
    }

    /// Waits for a connection, and for room for it.
    pub async fn next(&mut self) -> (Connection, SocketAddr) {
        let place = match Arc::clone(&self.places).acquire_owned().await {
            Ok(place) => place,
            // It is never closed.
            Err(_) => std::future::pending().await,
        };
        loop {
            match self.listener.accept().await {
                Ok((socket, address)) => {
                    return (Connection::new(socket, address, place), address);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// Returns the connections, for a server that takes a stream of them.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Connection>> {
        stream::unfold(self, |mut incoming| async {
            let (connection, _) = incoming.next().await;
            Some((Ok(connection), incoming))
        })
    }
}

impl Listener for Incoming {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        self.next().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.address()
    }
}

/// A connection that has its place until it is dropped.
pub struct Connection {
    socket: Box<dyn Socket>,
    peer: SocketAddr,
    greeting: Option<Greeting>,
    _place: OwnedSemaphorePermit,
}

/// What a new connection has said so far, and until when it has to say more.
#[derive(Debug)]
struct Greeting {
    heard_bytes: usize,
    until: Pin<Box<Sleep>>,
}

impl Connection {
    fn new(socket: Box<dyn Socket>, peer: SocketAddr, place: OwnedSemaphorePermit) -> Self {
        Self {
            socket,
            peer,
            greeting: Some(Greeting {
                heard_bytes: 0,
                until: Box::pin(time::sleep(SILENCE_MAX)),
            }),
            _place: place,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        let Some(greeting) = &mut self.greeting else {
            return read;
        };
        if read.is_pending() {
            ready!(greeting.until.as_mut().poll(context));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        greeting.heard_bytes += buffer.filled().len() - before;
        if greeting.heard_bytes >= GREETING_BYTES {
            self.greeting = None;
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

impl Connected for Connection {
    /// The address of the other end.
    type ConnectInfo = SocketAddr;

    fn connect_info(&self) -> SocketAddr {
        self.peer
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Longer than anything here takes; only a test that fails waits for it.
    const PATIENCE: Duration = Duration::from_secs(60);

    async fn listening(connections_max: usize) -> (Incoming, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Incoming::new(Box::new(listener), connections_max), address)
    }

    #[tokio::test]
    async fn a_connection_is_accepted_only_where_there_is_room() {
        let (mut incoming, address) = listening(2).await;
        let _clients = [
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        ];
        let (first, _) = incoming.next().await;
        let (_second, _) = incoming.next().await;
        let mut third = std::pin::pin!(incoming.next());
        assert!(futures::poll!(third.as_mut()).is_pending());
        drop(first);
        time::timeout(PATIENCE, third).await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_is_closed_and_one_that_has_greeted_is_kept() {
        let (mut incoming, address) = listening(2).await;
        let _silent = TcpStream::connect(address).await.unwrap();
        let (mut silent, _) = incoming.next().await;
        let mut speaking = TcpStream::connect(address).await.unwrap();
        let (mut spoken, _) = incoming.next().await;
        speaking.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut line = [0; GREETING_BYTES];
        spoken.read_exact(&mut line).await.unwrap();

        time::pause();
        let closed = silent.read_u8().await.unwrap_err();
        assert_eq!(closed.kind(), io::ErrorKind::TimedOut);
        let more = time::timeout(2 * SILENCE_MAX, spoken.read_u8()).await;
        assert!(more.is_err(), "{more:?}");
    }
}
