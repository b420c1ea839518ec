//! The ports of a node: bound first, served later.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use super::error::NodeError;
use super::server::Listening;
use super::tls::Tls;
use crate::config::{Config, Port};
use crate::consensus::NodeAddresses;
use crate::incoming::Incoming;
use crate::network::{Listening as BoundPort, Network};

/// All ports of a node.
pub(super) struct Ports {
    pub(super) client: Bound,
    pub(super) peer: Bound,
    pub(super) http: Option<Bound>,
}

impl Ports {
    /// Reads the files of TLS and binds every port.
    pub(super) async fn bind(config: &Config, network: &dyn Network) -> Result<Self, NodeError> {
        let client = bind(network, "client", &config.client).await?;
        let peer = bind(network, "peer", &config.peer).await?;
        let http = match &config.http {
            Some(port) => Some(bind(network, "http", port).await?),
            None => None,
        };
        Ok(Self { client, peer, http })
    }

    /// Returns where others reach the node, with the ports that were really bound.
    pub(super) fn addresses(&self) -> NodeAddresses {
        let http = self.http.as_ref();
        NodeAddresses {
            raft: self.peer.advertised.clone(),
            client: self.client.advertised.clone(),
            http: http.map(|http| http.advertised.clone()).unwrap_or_default(),
        }
    }
}

/// A listener that is bound but not served yet.
pub(super) struct Bound {
    pub(super) listener: Box<dyn BoundPort>,
    pub(super) address: SocketAddr,
    advertised: String,
    pub(super) tls: Option<Tls>,
}

async fn bind(network: &dyn Network, name: &'static str, port: &Port) -> Result<Bound, NodeError> {
    let tls = match &port.tls {
        Some(files) => {
            Some(Tls::load(files).map_err(|source| NodeError::Tls { port: name, source })?)
        }
        None => None,
    };
    let refused = |source| NodeError::Listen {
        port: name,
        address: port.listen,
        source,
    };
    let listener = network.listen(port.listen).await.map_err(refused)?;
    let address = listener.address().map_err(refused)?;
    let advertised = port
        .advertise
        .clone()
        .unwrap_or_else(|| address.to_string());
    Ok(Bound {
        listener,
        address,
        advertised,
        tls,
    })
}

impl Bound {
    /// For a port that speaks gRPC.
    pub(super) fn listening(self, connections_max: usize, stop: CancellationToken) -> Listening {
        Listening {
            incoming: Incoming::new(self.listener, connections_max),
            tls: self.tls.map(|tls| tls.grpc_server()),
            stop,
        }
    }

    /// What a port that speaks HTTP needs for TLS.
    pub(super) fn http_tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().map(Tls::http_server)
    }
}
