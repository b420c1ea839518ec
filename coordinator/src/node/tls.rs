//! TLS from files: read, checked and turned into what each listener and connector takes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

use crate::config::TlsConfig;

/// Why TLS cannot be set up. Names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file does not hold what it should, or key and certificate do not belong together.
    #[error("{} cannot be used: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// The certificates and the key of one port.
pub(super) struct Tls {
    cert: Vec<u8>,
    key: Vec<u8>,
    ca: Option<Vec<u8>>,
    server: Arc<ServerConfig>,
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

fn unusable(path: &Path, problem: impl ToString) -> TlsError {
    TlsError::Unusable {
        path: path.to_owned(),
        problem: problem.to_string(),
    }
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| unusable(path, error))?;
    if certificates.is_empty() {
        return Err(unusable(path, "it holds no certificate"));
    }
    Ok(certificates)
}

impl Tls {
    /// Reads the files and checks that a server can be made of them. Blocks.
    pub(super) fn load(config: &TlsConfig) -> Result<Self, TlsError> {
        let (cert, key) = (read(&config.cert)?, read(&config.key)?);
        let chain = certificates(&config.cert, &cert)?;
        let private =
            PrivateKeyDer::from_pem_slice(&key).map_err(|error| unusable(&config.key, error))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&config.cert, error))?;
        let (ca, builder) = match &config.ca {
            None => (None, builder.with_no_client_auth()),
            Some(path) => {
                let pem = read(path)?;
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path, &pem)? {
                    roots
                        .add(certificate)
                        .map_err(|error| unusable(path, error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| unusable(path, error))?;
                (Some(pem), builder.with_client_cert_verifier(verifier))
            }
        };
        let server = builder
            .with_single_cert(chain, private)
            .map_err(|error| unusable(&config.cert, error))?;
        Ok(Self {
            cert,
            key,
            ca,
            server: Arc::new(server),
        })
    }

    /// For a listener that speaks gRPC.
    pub(super) fn grpc_server(&self) -> ServerTlsConfig {
        let config = ServerTlsConfig::new().identity(Identity::from_pem(&self.cert, &self.key));
        match &self.ca {
            Some(ca) => config.client_ca_root(Certificate::from_pem(ca)),
            None => config,
        }
    }

    /// For connections to peers, who are checked by the same certificates that check them when they
    /// connect here.
    pub(super) fn grpc_client(&self) -> ClientTlsConfig {
        let config = ClientTlsConfig::new().identity(Identity::from_pem(&self.cert, &self.key));
        match &self.ca {
            Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
            None => config,
        }
    }

    /// For a listener that speaks HTTP.
    pub(super) fn http_server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }
}
