//! Proxies that carry connections with a delay: the kernel may lack what delays packets.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::failure::Failure;

/// Bytes that are read at one time.
const CHUNK_BYTES: usize = 16 * 1024;

/// Chunks on their way in one direction. Beyond it the sender waits, as with a full pipe.
const CHUNKS_MAX: usize = 256;

/// A proxy before one port. Its connections are closed when it is dropped.
#[derive(Debug)]
pub struct DelayProxy {
    port: u16,
    // Aborted when dropped.
    _accepting: JoinSet<()>,
}

impl DelayProxy {
    /// Listens at a free port of `address`, and carries what arrives to `target`, each way later by `delay`.
    ///
    /// # Errors
    ///
    /// When it cannot listen.
    pub async fn open(
        address: Ipv4Addr,
        target: SocketAddr,
        delay: Duration,
    ) -> Result<Self, Failure> {
        let listener = TcpListener::bind((address, 0)).await?;
        let port = listener.local_addr()?.port();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, target, delay));
        Ok(Self {
            port,
            _accepting: accepting,
        })
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, delay: Duration) {
    let mut carried = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // One connection that cannot be accepted is gone; the next may be.
                if let Ok((stream, _)) = accepted {
                    carried.spawn(carry(stream, target, delay));
                }
            }
            Some(_) = carried.join_next(), if !carried.is_empty() => {}
        }
    }
}

/// Carries one connection until either end closes it.
async fn carry(near: TcpStream, target: SocketAddr, delay: Duration) {
    let Ok(far) = TcpStream::connect(target).await else {
        return;
    };
    // Only what the network does is delayed.
    if near.set_nodelay(true).and(far.set_nodelay(true)).is_err() {
        return;
    }
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::select! {
        () = later(near_read, far_write, delay) => {}
        () = later(far_read, near_write, delay) => {}
    }
}

/// Carries one direction.
async fn later(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    delay: Duration,
) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let reading = async move {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            match from.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(length) => chunk.truncate(length),
            }
            if sender.send((Instant::now() + delay, chunk)).await.is_err() {
                return;
            }
        }
    };
    let writing = async {
        while let Some((due, chunk)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&chunk).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_carried_arrives_whole_and_late() {
        const DELAY: Duration = Duration::from_millis(50);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let target = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut read, mut write) = stream.split();
            tokio::io::copy(&mut read, &mut write).await.unwrap();
        });
        let proxy = DelayProxy::open(Ipv4Addr::LOCALHOST, target, DELAY)
            .await
            .unwrap();
        let address = (Ipv4Addr::LOCALHOST, proxy.port());
        let mut stream = TcpStream::connect(address).await.unwrap();
        let sent = Instant::now();
        let text = vec![7; 3 * CHUNK_BYTES];
        stream.write_all(&text).await.unwrap();
        let mut echoed = vec![0; text.len()];
        stream.read_exact(&mut echoed).await.unwrap();
        assert_eq!(echoed, text);
        assert!(sent.elapsed() >= 2 * DELAY);
    }
}
