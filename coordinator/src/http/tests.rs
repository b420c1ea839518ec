use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::metrics;

/// The pages on a free port, and what they show.
struct Pages {
    address: std::net::SocketAddr,
    health: watch::Sender<Health>,
    readiness: watch::Sender<Readiness>,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<io::Result<()>>,
}

impl Pages {
    async fn serve() -> Self {
        let (health, healths) = watch::channel(Health::Well);
        let (readiness, readinesses) = watch::channel(Readiness::NoLeader);
        let context = HttpContext {
            health: healths,
            readiness: readinesses,
            metrics: metrics::install().unwrap(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve(
            context,
            Incoming::new(Box::new(listener), 16),
            None,
            stop.clone(),
        ));
        Self {
            address,
            health,
            readiness,
            stop,
            served,
        }
    }

    async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

#[tokio::test]
async fn pages_tell_health_readiness_and_metrics() {
    let pages = Pages::serve().await;
    assert!(pages.get("/healthz").await.starts_with("HTTP/1.1 200"));
    let answer = pages.get("/readyz").await;
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("no leader is known"),
        "{answer}"
    );
    pages.readiness.send_replace(Readiness::Ready);
    assert!(pages.get("/readyz").await.starts_with("HTTP/1.1 200"));

    let reason = "storage cannot sync: no space left on device".to_owned();
    pages.health.send_replace(Health::Failed { reason });
    let answer = pages.get("/healthz").await;
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("no space left"),
        "{answer}"
    );

    let answer = pages.get("/metrics").await;
    assert!(answer.contains("text/plain; version=0.0.4"), "{answer}");
    assert!(
        answer.contains("# TYPE tenure_grants_total counter"),
        "{answer}"
    );
    assert!(pages.get("/nothing").await.starts_with("HTTP/1.1 404"));

    pages.stop.cancel();
    pages.served.await.unwrap().unwrap();
}
