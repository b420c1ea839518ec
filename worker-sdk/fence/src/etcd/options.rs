//! How a store in an etcd cluster is opened.

use std::fmt;
use std::time::Duration;

/// The layout of the keys.
pub(super) const LAYOUT: u32 = 1;

/// How an [`EtcdStore`](super::EtcdStore) is opened.
#[derive(Clone, Debug)]
pub struct EtcdStoreOptions {
    /// The longest a call takes, with all its tries on all endpoints. 5 seconds by default, which
    /// outlasts the election of a new leader.
    pub deadline: Duration,
    /// The largest value, in bytes, inclusive. 1 MiB by default. etcd takes requests of 1.5 MiB unless
    /// its `--max-request-bytes` says otherwise.
    pub max_value_bytes: usize,
    /// What every key begins with. `tenure/` by default.
    pub prefix: String,
    /// Who to be, where etcd asks for it. `None` by default.
    pub user: Option<EtcdUser>,
    /// How to trust the servers, and be trusted. Needed for `https://` endpoints; `None` by default.
    pub tls: Option<EtcdTls>,
}

/// A user of etcd.
#[derive(Clone)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EtcdUser")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How to trust the servers, and be trusted.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The certificate, in PEM, of who vouches for the servers.
    pub root_certificate_pem: Vec<u8>,
    /// The name in the servers' certificates, where it is not the host of the endpoint.
    pub server_name: Option<String>,
    /// What to show them, where they ask for it.
    pub identity: Option<EtcdIdentity>,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct EtcdIdentity {
    /// The certificate, in PEM.
    pub certificate_pem: Vec<u8>,
    /// Its private key, in PEM.
    pub key_pem: Vec<u8>,
}

impl fmt::Debug for EtcdIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EtcdIdentity")
            .finish_non_exhaustive()
    }
}

/// Options or endpoints that make no sense.
#[derive(Debug, thiserror::Error)]
pub(super) enum OptionsError {
    #[error("at least one endpoint is needed")]
    NoEndpoint,
    #[error("{endpoint:?} is no endpoint: http://host:port or https://host:port")]
    Endpoint {
        endpoint: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("{0:?} asks for TLS, and the options name nobody to trust")]
    NoTls(String),
}

impl Default for EtcdStoreOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(5),
            max_value_bytes: 1 << 20,
            prefix: "tenure/".to_owned(),
            user: None,
            tls: None,
        }
    }
}
