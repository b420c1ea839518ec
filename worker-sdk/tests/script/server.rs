//! A server on a port of its own.

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Router;

/// A server that runs until it is stopped.
pub(crate) struct Serving {
    pub(crate) address: String,
    stop: CancellationToken,
    server: JoinHandle<()>,
}

impl Serving {
    /// Serves `routes` on a free port.
    pub(crate) async fn start(routes: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let server = tokio::spawn(async move {
            let serving = routes.serve_with_incoming(TcpListenerStream::new(listener));
            // Cut off, as a killed process would be.
            stopped
                .run_until_cancelled(serving)
                .await
                .map(Result::unwrap);
        });
        Self {
            address,
            stop,
            server,
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.server.await.unwrap();
    }
}
