//! The HTTP client for buckets, set up as the store sets up its own.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tenure_fence::object_store::builders::client::{HttpClient, HttpConnector};
use tenure_fence::object_store::builders::{ClientOptions, Error, Result};

/// Gives plain buckets their client.
#[derive(Debug)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> Result<HttpClient> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::Generic {
            store: "http client",
            source,
        };
        // Nothing is asked over TLS here, but a client without it cannot be made.
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.into()))?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| failed(error.into()))?;
        Ok(HttpClient::new(client))
    }
}
