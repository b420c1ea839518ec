//! How a node reaches its peers.

use std::time::Duration;

use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

/// What a connection is for. Each has a connection of its own, so that one kind of traffic never
/// waits behind another in the same socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Heartbeats, votes, read rounds and transfers: small, and late is as bad as lost.
    Control,
    /// Log entries.
    Append,
    /// Snapshots.
    Snapshot,
}

/// Makes connections to peers. A simulation brings its own.
pub trait Connector: Send + Sync + 'static {
    /// Returns a channel that connects when it is first used and again whenever it breaks.
    ///
    /// # Errors
    ///
    /// [`InvalidAddress`] if no connection to such an address can ever be made.
    fn connect(&self, address: &str, lane: Lane) -> Result<Channel, InvalidAddress>;
}

/// An address that cannot be connected to.
#[derive(Debug, thiserror::Error)]
#[error("{address:?} is not the address of a peer: {reason}")]
pub struct InvalidAddress {
    /// The address given.
    pub address: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Connects over TCP, with TLS if it is given a configuration for it.
#[derive(Clone, Debug)]
pub struct TcpConnector {
    tls: Option<ClientTlsConfig>,
    connect_timeout: Duration,
}

impl TcpConnector {
    /// Returns a connector. A connection that is not made within `connect_timeout` failed.
    pub fn new(tls: Option<ClientTlsConfig>, connect_timeout: Duration) -> Self {
        Self {
            tls,
            connect_timeout,
        }
    }
}

impl Connector for TcpConnector {
    fn connect(&self, address: &str, lane: Lane) -> Result<Channel, InvalidAddress> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let invalid = |error: tonic::transport::Error| InvalidAddress {
            address: address.to_owned(),
            reason: error.to_string(),
        };
        let endpoint = peer_endpoint(&format!("{scheme}://{address}"), lane)
            .map_err(invalid)?
            .connect_timeout(self.connect_timeout);
        let endpoint = match &self.tls {
            Some(tls) => endpoint.tls_config(tls.clone()).map_err(invalid)?,
            None => endpoint,
        };
        Ok(endpoint.connect_lazy())
    }
}

/// Returns an endpoint with the settings every connection to a peer should have.
///
/// # Errors
///
/// What tonic says if the text is not a URI.
pub fn peer_endpoint(uri: &str, lane: Lane) -> Result<Endpoint, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(uri.to_owned())?
        .tcp_nodelay(true)
        // A peer that lost its power never closes its socket. Pings find out, also while nothing is
        // being sent.
        .http2_keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(2))
        .keep_alive_while_idle(true);
    Ok(match lane {
        Lane::Control => endpoint,
        // The default window of 64 KiB makes every megabyte wait for sixteen round trips.
        Lane::Append | Lane::Snapshot => endpoint
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(8 << 20),
    })
}
