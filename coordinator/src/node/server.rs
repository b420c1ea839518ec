//! The two gRPC listeners.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic::transport::{Server, ServerTlsConfig};
use tonic_health::pb::health_server::{Health, HealthServer};

use super::error::NodeError;
use crate::consensus::PeerService;
use crate::control::Control;
use crate::incoming::Incoming;
use crate::rpc::{self, RpcContext};

/// How often an idle connection is pinged, and how long an answer may take: a client that lost its
/// power never closes its socket.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The same for peers, whose streams hold up a commit.
const PEER_KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Longest time for a TLS handshake: several round trips around the world.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Bytes of one stream on their way. The usual 64 KiB would make a checkpoint of 1 MiB wait for sixteen
/// round trips.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;

/// Bytes of one connection on their way.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// A bound port and what it needs to be served.
pub(super) struct Listening {
    pub(super) incoming: Incoming,
    pub(super) tls: Option<ServerTlsConfig>,
    pub(super) stop: CancellationToken,
}

/// What clients are served.
pub(super) struct ClientServices<H: Health> {
    pub(super) context: RpcContext,
    pub(super) control: Arc<Control>,
    pub(super) health: HealthServer<H>,
}

fn ended(error: impl std::error::Error) -> NodeError {
    let mut reason = error.to_string();
    if let Some(source) = error.source() {
        reason = format!("{reason}: {source}");
    }
    NodeError::Ended { reason }
}

fn builder(tls: Option<ServerTlsConfig>, keep_alive: Duration) -> Result<Server, NodeError> {
    let server = Server::builder()
        .http2_keepalive_interval(Some(keep_alive))
        .http2_keepalive_timeout(Some(keep_alive))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    match tls {
        Some(tls) => server.tls_config(tls.timeout(HANDSHAKE_MAX)).map_err(ended),
        None => Ok(server),
    }
}

/// Serves clients until told to stop and every request has ended.
pub(super) async fn client<H: Health>(
    port: Listening,
    services: ClientServices<H>,
) -> Result<(), NodeError> {
    let routes = rpc::routes(&services.context, services.control)
        .map_err(ended)?
        .add_service(services.health);
    let incoming = port.incoming.into_stream();
    builder(port.tls, KEEP_ALIVE)?
        .layer(rpc::OriginLayer)
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, port.stop.cancelled_owned())
        .await
        .map_err(ended)
}

/// Serves peers until told to stop and every stream has ended.
pub(super) async fn peer(port: Listening, service: PeerService) -> Result<(), NodeError> {
    let incoming = port.incoming.into_stream();
    builder(port.tls, PEER_KEEP_ALIVE)?
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, port.stop.cancelled_owned())
        .await
        .map_err(ended)
}
