//! Peers that speak over mutual TLS, with the connector of a real node.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tenure_coordinator::consensus::{
    Consensus, ConsensusOptions, Envelope, MembershipError, NodeAddresses, Observer, Outcome,
    TcpConnector,
};
use tenure_coordinator::storage::MemoryStorage;
use tenure_ownership::ids::{ClusterId, Revision};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, Server, ServerTlsConfig};

const WITHIN: Duration = Duration::from_secs(20);

struct Blind;

impl Observer for Blind {
    fn applied(&self, _: Revision, _: &Envelope, _: &Outcome) {}
    fn replaced(&self, _: Revision) {}
}

/// A certificate authority and a certificate for the loopback address.
struct Pki {
    authority: Certificate,
    identity: Identity,
}

impl Pki {
    fn new() -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Self {
            authority: Certificate::from_pem(issuer.pem()),
            identity: Identity::from_pem(certificate.pem(), key.serialize_pem()),
        }
    }

    fn client(&self) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .ca_certificate(self.authority.clone())
            .identity(self.identity.clone())
    }

    fn server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new()
            .identity(self.identity.clone())
            .client_ca_root(self.authority.clone())
    }
}

struct Node {
    consensus: Consensus,
    addresses: NodeAddresses,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

async fn start(server: ServerTlsConfig, client: Option<ClientTlsConfig>, port: u16) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = NodeAddresses {
        raft: listener.local_addr().unwrap().to_string(),
        // Not served here, but no two may be the same.
        client: format!("127.0.0.1:{port}"),
        http: String::new(),
    };
    let (consensus, service) = Consensus::start(
        ConsensusOptions::new(addresses.clone()),
        Arc::new(MemoryStorage::new()),
        Arc::new(TcpConnector::new(client, Duration::from_secs(1))),
        Arc::new(Blind),
    )
    .await
    .unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = Server::builder()
        .tls_config(server)
        .unwrap()
        .add_service(service)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            let _ = stopped.await;
        });
    let server = tokio::spawn(async move { serving.await.unwrap() });
    Node {
        consensus,
        addresses,
        stop,
        server,
    }
}

async fn stop(node: Node) {
    node.stop.send(()).unwrap();
    node.consensus.shutdown().await;
    node.server.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_with_certificates_form_a_cluster_and_others_do_not() {
    let pki = Pki::new();
    let strange = Pki::new();
    let first = start(pki.server(), Some(pki.client()), 1).await;
    let second = start(pki.server(), Some(pki.client()), 2).await;
    let plain = start(pki.server(), None, 3).await;
    let stranger = start(strange.server(), Some(strange.client()), 4).await;

    for outsider in [&plain, &stranger] {
        let others = vec![second.addresses.clone()];
        let refused = outsider
            .consensus
            .initialize(ClusterId(9), others, WITHIN)
            .await;
        assert!(
            matches!(refused, Err(MembershipError::Peer { .. })),
            "{refused:?}"
        );
        assert_eq!(second.consensus.identity(), None);
    }

    let others = vec![second.addresses.clone()];
    first
        .consensus
        .initialize(ClusterId(7), others, WITHIN)
        .await
        .unwrap();
    first
        .consensus
        .leadership()
        .wait_for(|now| now.leader.is_some())
        .await
        .unwrap();
    // A barrier here takes the vote of both.
    second
        .consensus
        .leadership()
        .wait_for(|now| now.leader.is_some())
        .await
        .unwrap();
    let barrier = async {
        while second
            .consensus
            .read_barrier(Duration::from_secs(1))
            .await
            .is_err()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WITHIN, barrier).await.unwrap();
    for node in [first, second, plain, stranger] {
        stop(node).await;
    }
}
