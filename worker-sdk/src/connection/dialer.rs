//! What makes the connections.

use std::fmt;

use async_trait::async_trait;
use tonic::transport::{Channel, Endpoint};

/// Makes a connection. A trait, so that a simulation brings a network of its own.
#[async_trait]
pub trait Dialer: fmt::Debug + Send + Sync + 'static {
    /// Connects to an endpoint, within its connect timeout.
    ///
    /// # Errors
    ///
    /// When it cannot be reached.
    async fn dial(&self, endpoint: Endpoint) -> Result<Channel, tonic::transport::Error>;
}

/// Connects over TCP, with TLS if the endpoint has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDialer;

#[async_trait]
impl Dialer for TcpDialer {
    async fn dial(&self, endpoint: Endpoint) -> Result<Channel, tonic::transport::Error> {
        endpoint.connect().await
    }
}
