//! Connections that can be cut.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tenure_coordinator::consensus::{Connector, InvalidAddress, Lane, PeerService, peer_endpoint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server, Uri};

/// Which addresses are cut off, from all others or from one.
#[derive(Default)]
pub(crate) struct Switchboard {
    cuts: Mutex<Cuts>,
}

#[derive(Default)]
struct Cuts {
    off: HashSet<String>,
    between: Vec<[String; 2]>,
}

impl Switchboard {
    pub(crate) fn cut(&self, address: &str) {
        self.cuts.lock().unwrap().off.insert(address.to_owned());
    }

    pub(crate) fn cut_between(&self, one: &str, other: &str) {
        let ends = [one.to_owned(), other.to_owned()];
        self.cuts.lock().unwrap().between.push(ends);
    }

    pub(crate) fn heal(&self, address: &str) {
        let mut cuts = self.cuts.lock().unwrap();
        cuts.off.remove(address);
        cuts.between
            .retain(|ends| ends.iter().all(|end| end != address));
    }

    fn check(&self, ends: &[String; 2]) -> io::Result<()> {
        let cuts = self.cuts.lock().unwrap();
        let is_off = ends.iter().any(|end| cuts.off.contains(end));
        let is_between = |cut: &[String; 2]| ends.iter().all(|end| cut.contains(end));
        if is_off || cuts.between.iter().any(is_between) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

pub(crate) struct SwitchedConnector {
    pub(crate) own: String,
    pub(crate) switchboard: Arc<Switchboard>,
}

impl Connector for SwitchedConnector {
    fn connect(&self, address: &str, lane: Lane) -> Result<Channel, InvalidAddress> {
        let endpoint = peer_endpoint(&format!("http://{address}"), lane).unwrap();
        Ok(endpoint.connect_with_connector_lazy(Dial {
            ends: [self.own.clone(), address.to_owned()],
            switchboard: Arc::clone(&self.switchboard),
        }))
    }
}

struct Dial {
    ends: [String; 2],
    switchboard: Arc<Switchboard>,
}

impl tower::Service<Uri> for Dial {
    type Response = TokioIo<SwitchedStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (ends, switchboard) = (self.ends.clone(), Arc::clone(&self.switchboard));
        Box::pin(async move {
            switchboard.check(&ends)?;
            let stream = TcpStream::connect(&ends[1]).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(SwitchedStream {
                stream,
                ends,
                switchboard,
            }))
        })
    }
}

pub(crate) struct SwitchedStream {
    stream: TcpStream,
    ends: [String; 2],
    switchboard: Arc<Switchboard>,
}

impl AsyncRead for SwitchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.switchboard.check(&self.ends)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for SwitchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.switchboard.check(&self.ends)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Serves peers until told to stop.
pub(crate) async fn serve(address: String, service: PeerService, stopped: oneshot::Receiver<()>) {
    let listener = TcpListener::bind(&address).await.unwrap();
    Server::builder()
        .tcp_nodelay(true)
        .add_service(service)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            let _ = stopped.await;
        })
        .await
        .unwrap();
}
