//! The HTTP client of all remote buckets.

use std::sync::Arc;
use std::time::Duration;

use ::object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use ::object_store::{ClientConfigKey, ClientOptions};
use async_trait::async_trait;
use reqwest::StatusCode;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use super::backend::BackendError;
use super::bucket_error::BucketError;

/// How long it may take to reach a server. Shorter than any deadline of a call, so that an address
/// where nobody answers is told apart from a server that is slow.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Creates a client that uses rustls with ring, without a provider for the whole process, and trusts
/// the certificates of the system.
pub(super) fn client(https_only: bool) -> Result<reqwest::Client, BucketError> {
    let mut roots = RootCertStore::empty();
    // One that cannot be read is passed over: without it some servers are refused, none is trusted
    // more. A system without any still reaches buckets over plain HTTP.
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| BucketError::new(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .https_only(https_only)
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirected put would lose its signature; a wrong region is to be told, not followed.
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| BucketError::new(error.into()))
}

/// Gives the client to the crate `object_store`.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> ::object_store::Result<HttpClient> {
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let client = client(allow_http.as_deref() != Some("true"));
        let client = client.map_err(|error| ::object_store::Error::Generic {
            store: "http client",
            source: error.into(),
        })?;
        Ok(HttpClient::new(Service(client)))
    }
}

/// Makes an error of every answer that the crate `object_store` would hide behind a text.
#[derive(Debug)]
struct Service(reqwest::Client);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.call(request).await?;
        let status = response.status();
        // These the crate makes variants of its own of.
        let is_told = status.is_success()
            || status.is_redirection()
            || matches!(status.as_u16(), 401 | 403 | 404 | 409 | 412);
        if is_told {
            return Ok(response);
        }
        let body = response.into_body().bytes().await?;
        let error = StatusError::new(status, &body);
        Err(HttpError::new(HttpErrorKind::Unknown, error))
    }
}

/// A server's answer that is not success.
#[derive(Debug, thiserror::Error)]
#[error("the server answered {status}: {body}")]
pub(super) struct StatusError {
    status: StatusCode,
    body: String,
}

/// What is kept of an answer's text.
const BODY_SHOWN_BYTES: usize = 500;

impl StatusError {
    pub(super) fn new(status: StatusCode, body: &[u8]) -> Self {
        let shown = body.get(..BODY_SHOWN_BYTES).unwrap_or(body);
        Self {
            status,
            body: String::from_utf8_lossy(shown).into_owned(),
        }
    }

    /// Whether the request may have been carried out in spite of the answer.
    ///
    /// A server that fails may do so after it has applied a request, and so may what stands before
    /// it. All that an answer below 500 says is that the request was not carried out, except that
    /// 408 may be said of one whose answer was lost; and 501 says that it cannot be.
    pub(super) fn is_ambiguous(&self) -> bool {
        match self.status {
            StatusCode::REQUEST_TIMEOUT => true,
            StatusCode::NOT_IMPLEMENTED => false,
            status => status.is_server_error(),
        }
    }

    pub(super) fn into_backend_error(self) -> BackendError {
        match self.status.as_u16() {
            409 | 412 => BackendError::Refused(self.into()),
            _ if self.is_ambiguous() => BackendError::Unknown(self.into()),
            _ => BackendError::NotDone(self.into()),
        }
    }
}
