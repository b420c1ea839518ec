//! Where the coordinators are, how to talk to them, and how long to wait.

use std::sync::Arc;
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::dialer::{Dialer, TcpDialer};

/// How long to wait for a connection. A node that is there answers within milliseconds; one that is
/// gone must not use up the time in which another could be asked.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);

/// How long one call may take with all its repetitions: long enough to outlast a change of leader,
/// about two seconds.
const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// Silence after which a peer is asked whether it is still there, and how long it may take to say so.
/// A connection whose other end vanished without a word is noticed after the sum.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Certificates for talking to a coordinator that uses TLS.
#[derive(Clone, Default)]
pub struct TlsOptions {
    authority_pem: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
}

impl TlsOptions {
    /// Creates options that trust servers certified by the given authority, in PEM.
    #[must_use]
    pub fn new(authority_pem: impl Into<Vec<u8>>) -> Self {
        Self {
            authority_pem: Some(authority_pem.into()),
            ..Self::default()
        }
    }

    /// Presents a certificate to the server (mutual TLS): the chain and its private key, in PEM.
    #[must_use]
    pub fn identity(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.identity = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Expects this name in the servers' certificates instead of the host of the address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    fn client_config(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new();
        if let Some(authority) = &self.authority_pem {
            config = config.ca_certificate(Certificate::from_pem(authority));
        }
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        config
    }
}

/// Without the private key.
impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TlsOptions")
            .field("authority", &self.authority_pem.is_some())
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish()
    }
}

/// Where the coordinators are and how long to wait for them.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    pub(crate) addresses: Vec<String>,
    pub(crate) tls: Option<TlsOptions>,
    connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) dialer: Arc<dyn Dialer>,
}

impl ConnectionOptions {
    /// Creates options with the client addresses of some or all coordinators, each "host:port".
    ///
    /// One that answers is enough: the leader is found from there.
    #[must_use]
    pub fn new(addresses: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            addresses: addresses.into_iter().map(Into::into).collect(),
            tls: None,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            call_timeout: CALL_TIMEOUT_DEFAULT,
            dialer: Arc::new(TcpDialer),
        }
    }

    /// Replaces TCP: for tests.
    #[must_use]
    pub fn dialer(mut self, dialer: Arc<dyn Dialer>) -> Self {
        self.dialer = dialer;
        self
    }

    /// Uses TLS.
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets how long to wait for a connection to one node; 1 s unless set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long one call may take with all its repetitions; 5 s unless set.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Makes the description of a connection to one address.
    pub(crate) fn endpoint(&self, address: &str) -> Result<Endpoint, ConnectionError> {
        let refused = |source| ConnectionError::Address {
            address: address.to_owned(),
            source,
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(refused)?
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        if let Some(tls) = &self.tls {
            endpoint = endpoint.tls_config(tls.client_config()).map_err(refused)?;
        }
        Ok(endpoint)
    }

    /// Checks that every address can be used at all.
    pub(crate) fn validate(&self) -> Result<(), ConnectionError> {
        if self.addresses.is_empty() {
            return Err(ConnectionError::NoAddress);
        }
        for address in &self.addresses {
            self.endpoint(address)?;
        }
        Ok(())
    }
}

/// Why a connection cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// No address was given.
    #[error("no coordinator address is given")]
    NoAddress,
    /// An address is malformed, or the certificates do not fit.
    #[error("{address} cannot be used")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        #[source]
        source: tonic::transport::Error,
    },
}
