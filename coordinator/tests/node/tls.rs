//! TLS and mutual TLS on every port.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tenure_coordinator::config::{Config, TlsConfig};
use tenure_coordinator::node::{Node, NodeError};
use tenure_proto::v1 as pb;
use tenure_proto::v1::cluster_service_client::ClusterServiceClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use crate::support::{config, ready, soon};

/// A certificate and its key as PEM.
struct Pair {
    cert: String,
    key: String,
}

/// A certificate authority with a folder for what it issues.
struct Authority {
    folder: TempDir,
    cert: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), &cert).unwrap();
        Self {
            folder,
            cert,
            issuer,
        }
    }

    /// Issues a certificate for this machine.
    fn issue(&self) -> Pair {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &self.issuer)
            .unwrap();
        Pair {
            cert: cert.pem(),
            key: key.serialize_pem(),
        }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Settings of a port; with `mutual`, clients must have a certificate of this authority.
    fn port(&self, mutual: bool) -> TlsConfig {
        let pair = self.issue();
        TlsConfig {
            cert: self.file("node.pem", &pair.cert),
            key: self.file("node.key", &pair.key),
            ca: mutual.then(|| self.folder.path().join("ca.pem")),
        }
    }
}

async fn connect(node: &Node, tls: ClientTlsConfig) -> Result<Channel, tonic::transport::Error> {
    let uri = format!("https://{}", node.addresses().client);
    let endpoint = Channel::from_shared(uri).unwrap().tls_config(tls)?;
    soon(endpoint.connect()).await
}

/// Whether a request gets through. With TLS 1.3 a client without a certificate learns of its refusal
/// only after the handshake.
async fn is_served(node: &Node, tls: ClientTlsConfig) -> bool {
    let Ok(channel) = connect(node, tls).await else {
        return false;
    };
    soon(ClusterServiceClient::new(channel).status(pb::StatusRequest {}))
        .await
        .is_ok()
}

async fn start(folder: &Path, change: impl FnOnce(&mut Config)) -> Node {
    let mut settings = config(folder.to_owned());
    change(&mut settings);
    Node::start(&settings).await.unwrap()
}

fn trusting(authority: &Authority) -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority.cert))
}

fn presenting(authority: &Authority, pair: &Pair) -> ClientTlsConfig {
    trusting(authority).identity(Identity::from_pem(&pair.cert, &pair.key))
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_trust_the_node_are_served_and_others_and_plain_ones_are_not() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let data = tempfile::tempdir().unwrap();
    let tls = authority.port(false);
    let node = start(&data.path().join("data"), |config| {
        config.client.tls = Some(tls)
    })
    .await;
    assert!(is_served(&node, trusting(&authority)).await);
    assert!(!is_served(&node, trusting(&stranger)).await);
    let plain = Channel::from_shared(format!("http://{}", node.addresses().client)).unwrap();
    let refused = match soon(plain.connect()).await {
        Ok(channel) => soon(ClusterServiceClient::new(channel).status(pb::StatusRequest {}))
            .await
            .is_err(),
        Err(_) => true,
    };
    assert!(refused);
    soon(node.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_mutual_tls_a_client_without_a_certificate_of_the_authority_is_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let data = tempfile::tempdir().unwrap();
    let tls = authority.port(true);
    let node = start(&data.path().join("data"), |config| {
        config.client.tls = Some(tls)
    })
    .await;
    assert!(is_served(&node, presenting(&authority, &authority.issue())).await);
    assert!(!is_served(&node, trusting(&authority)).await);
    assert!(!is_served(&node, presenting(&authority, &stranger.issue())).await);
    soon(node.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_agree_over_mutual_tls_and_a_stranger_cannot_join() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let data = tempfile::tempdir().unwrap();
    let mut nodes = Vec::new();
    for number in 0..3 {
        let tls = authority.port(true);
        let folder = data.path().join(number.to_string());
        nodes.push(start(&folder, |config| config.peer.tls = Some(tls)).await);
    }
    let described = |node: &Node| pb::Node {
        id: 0,
        peer_address: node.addresses().raft.clone(),
        client_address: node.addresses().client.clone(),
        http_address: String::new(),
    };
    let channel = crate::support::connect(&nodes[0].addresses().client).await;
    let mut client = ClusterServiceClient::new(channel);
    let nodes_of_request = nodes.iter().map(described).collect();
    soon(client.init(pb::InitRequest {
        nodes: nodes_of_request,
    }))
    .await
    .unwrap();
    for node in &nodes {
        ready(node).await;
    }

    let tls = stranger.port(true);
    let fourth = start(&data.path().join("3"), |config| config.peer.tls = Some(tls)).await;
    let mut request = tonic::Request::new(pb::AddNodeRequest {
        node: Some(described(&fourth)),
    });
    request.set_timeout(std::time::Duration::from_secs(3));
    assert!(soon(client.add_node(request)).await.is_err());
    assert_eq!(fourth.consensus().identity(), None);
    soon(fourth.shutdown()).await;
    for node in nodes {
        soon(node.shutdown()).await;
    }
}

/// Asks for a page over TLS; the answer's first line, or why there is none.
async fn page(node: &Node, authority: &Authority, pair: Option<&Pair>) -> Result<String, String> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.cert.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let asking = async {
        let stream = TcpStream::connect(&node.addresses().http).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?;
        let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer.lines().next().unwrap_or_default().to_owned())
    };
    soon(asking).await.map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_served_over_mutual_tls_while_a_silent_client_holds_up_nobody() {
    let authority = Authority::new();
    let data = tempfile::tempdir().unwrap();
    let tls = authority.port(true);
    let node = start(&data.path().join("data"), |config| {
        config.http.as_mut().unwrap().tls = Some(tls);
    })
    .await;
    let silent = TcpStream::connect(&node.addresses().http).await.unwrap();
    let pair = authority.issue();
    assert_eq!(
        page(&node, &authority, Some(&pair)).await.unwrap(),
        "HTTP/1.1 200 OK"
    );
    assert!(page(&node, &authority, None).await.is_err());
    drop(silent);
    soon(node.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_used_are_named_in_one_line() {
    let authority = Authority::new();
    let data = tempfile::tempdir().unwrap();
    let refused = async |tls: TlsConfig| {
        let mut settings = config(data.path().join("data"));
        settings.client.tls = Some(tls);
        let error = Node::start(&settings).await.expect_err("it must not start");
        assert!(
            matches!(error, NodeError::Tls { port: "client", .. }),
            "{error:?}"
        );
        assert!(!data.path().join("data").exists());
        error.line()
    };
    let missing = TlsConfig {
        key: authority.folder.path().join("no.key"),
        ..authority.port(false)
    };
    assert!(refused(missing).await.contains("no.key cannot be read"));
    let text = authority.file("text.pem", "not a certificate");
    let empty = TlsConfig {
        cert: text,
        ..authority.port(false)
    };
    assert!(
        refused(empty)
            .await
            .contains("text.pem cannot be used: it holds no certificate")
    );
    let other = authority.issue();
    let mixed = TlsConfig {
        key: authority.file("other.key", &other.key),
        ..authority.port(false)
    };
    assert!(refused(mixed).await.contains("node.pem cannot be used"));
}
