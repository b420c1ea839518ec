//! HTTP for people and scrapers: `/healthz`, `/readyz` and `/metrics`, on a port of their own.
//!
//! | path | 200 | 503 |
//! |---|---|---|
//! | `/healthz` | the process runs and its log can be synced | the node has failed for good: restart it |
//! | `/readyz` | a leader is known and this node has caught up | do not send requests here now |
//! | `/metrics` | always: the metrics in Prometheus' text format | |

mod listener;

use std::future::IntoFuture as _;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::listener::TlsListener;
use crate::consensus::Health;
use crate::incoming::Incoming;
use crate::readiness::Readiness;

/// What the pages show.
#[derive(Clone)]
pub struct HttpContext {
    /// Whether the node has failed.
    pub health: watch::Receiver<Health>,
    /// Whether it should be sent requests.
    pub readiness: watch::Receiver<Readiness>,
    /// Its metrics.
    pub metrics: PrometheusHandle,
}

/// Serves the pages until `stop` is cancelled and the last answer is sent.
///
/// # Errors
///
/// What the listener says when it ends by itself.
pub async fn serve(
    context: HttpContext,
    incoming: Incoming,
    tls: Option<Arc<ServerConfig>>,
    stop: CancellationToken,
) -> io::Result<()> {
    let routes = routes(context);
    let stopped = stop.cancelled_owned();
    match tls {
        None => {
            axum::serve(incoming, routes)
                .with_graceful_shutdown(stopped)
                .into_future()
                .await
        }
        Some(tls) => {
            let listener = TlsListener::new(incoming, tls);
            axum::serve(listener, routes)
                .with_graceful_shutdown(stopped)
                .into_future()
                .await
        }
    }
}

fn routes(context: HttpContext) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(context)
}

async fn healthz(State(context): State<HttpContext>) -> impl IntoResponse {
    match &*context.health.borrow() {
        Health::Well => (StatusCode::OK, "ok\n".to_owned()),
        Health::Failed { reason } => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

async fn readyz(State(context): State<HttpContext>) -> impl IntoResponse {
    let readiness = *context.readiness.borrow();
    let code = match readiness {
        Readiness::Ready => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, format!("{}\n", readiness.describe()))
}

async fn metrics(State(context): State<HttpContext>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4")],
        context.metrics.render(),
    )
}

#[cfg(test)]
mod tests;
