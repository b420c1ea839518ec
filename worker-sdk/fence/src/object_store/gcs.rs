//! Google Cloud Storage, by its JSON API.
//!
//! Not by the crate `object_store`, which speaks the XML API: the JSON API is the one whose
//! preconditions every server keeps that is made to be tested against.

use std::fmt;

use ::object_store::gcp::{GcpCredentialProvider, GoogleCloudStorageBuilder, GoogleConfigKey};
use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;

use super::backend::{Backend, BackendError, Object, Version};
use super::bucket_error::BucketError;
use super::http::{self, StatusError};
use super::remote::no_retry;

/// Where Google's own service is.
const BASE_URL: &str = "https://storage.googleapis.com";

/// A bucket of Google Cloud Storage.
pub(super) struct Gcs {
    client: reqwest::Client,
    base_url: String,
    bucket: String,
    /// `None` for a server that asks for none.
    credentials: Option<GcpCredentialProvider>,
}

impl Gcs {
    /// Takes bucket, address and credentials from a builder of the crate `object_store`, which knows
    /// all the ways credentials are found in.
    pub(super) fn new(builder: GoogleCloudStorageBuilder) -> Result<Self, BucketError> {
        let config = |key| builder.get_config_value(&key);
        let bucket = config(GoogleConfigKey::Bucket)
            .ok_or_else(|| BucketError::new("the bucket has no name".into()))?;
        let base_url = config(GoogleConfigKey::BaseUrl).unwrap_or_else(|| BASE_URL.to_owned());
        let is_anonymous = config(GoogleConfigKey::SkipSignature).as_deref() == Some("true");
        let credentials = if is_anonymous {
            None
        } else {
            let builder = builder
                .with_retry(no_retry())
                .with_http_connector(http::Connector);
            let store = builder
                .build()
                .map_err(|error| BucketError::new(error.into()))?;
            Some(store.credentials().clone())
        };
        // A token is never sent in the clear.
        let client = http::client(credentials.is_some())?;
        Ok(Self {
            client,
            base_url: base_url.trim_end_matches('/').to_owned(),
            bucket,
            credentials,
        })
    }

    fn object_url(&self, name: &str) -> String {
        // The one character of a name that is not itself in a path segment.
        let name = name.replace('/', "%2F");
        format!("{}/storage/v1/b/{}/o/{name}", self.base_url, self.bucket)
    }

    /// Sends a request. Answers that are no success are errors, but for 404, which is `None`.
    async fn send(&self, request: RequestBuilder) -> Result<Option<Response>, BackendError> {
        let request = match &self.credentials {
            None => request,
            Some(credentials) => {
                let credential = credentials.get_credential().await;
                let credential = credential.map_err(|error| BackendError::NotDone(error.into()))?;
                request.bearer_auth(&credential.bearer)
            }
        };
        let response = request.send().await.map_err(not_answered)?;
        let status = response.status();
        if status.is_success() {
            return Ok(Some(response));
        }
        let body = response.bytes().await.unwrap_or_default();
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        Err(StatusError::new(status, &body).into_backend_error())
    }

    async fn upload(
        &self,
        name: &str,
        bytes: &Bytes,
        generation: Option<&str>,
    ) -> Result<Version, BackendError> {
        let url = format!("{}/upload/storage/v1/b/{}/o", self.base_url, self.bucket);
        let request = self.client.request(Method::POST, url);
        let request = request.query(&[("uploadType", "multipart")]);
        let request = match generation {
            Some(generation) => request.query(&[("ifGenerationMatch", generation)]),
            None => request,
        };
        let (content_type, body) = related(name, bytes);
        let request = request.header(CONTENT_TYPE, content_type).body(body);
        let missing = || BackendError::NotDone("there is no such bucket".into());
        let response = self.send(request).await?.ok_or_else(missing)?;
        let answer: Uploaded = response.json().await.map_err(not_answered)?;
        Ok(Version::text(answer.generation))
    }

    async fn page(
        &self,
        folder: &str,
        query: &[(&str, &str)],
        page: Option<&str>,
    ) -> Result<Page, BackendError> {
        let url = format!("{}/storage/v1/b/{}/o", self.base_url, self.bucket);
        let prefix = format!("{folder}/");
        let request = self.client.request(Method::GET, url).query(&[
            ("prefix", prefix.as_str()),
            ("delimiter", "/"),
            ("fields", "items(name),prefixes,nextPageToken"),
        ]);
        let mut request = request.query(query);
        if let Some(page) = page {
            request = request.query(&[("pageToken", page)]);
        }
        let missing = || BackendError::NotDone("there is no such bucket".into());
        let response = self.send(request).await?.ok_or_else(missing)?;
        response.json().await.map_err(not_answered)
    }
}

impl fmt::Debug for Gcs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Gcs({}/{})", self.base_url, self.bucket)
    }
}

#[async_trait]
impl Backend for Gcs {
    async fn get(&self, name: &str) -> Result<Option<Object>, BackendError> {
        let request = self.client.request(Method::GET, self.object_url(name));
        let request = request.query(&[("alt", "media")]);
        let Some(response) = self.send(request).await? else {
            return Ok(None);
        };
        let version = generation(response.headers())?;
        let bytes = response.bytes().await.map_err(not_answered)?;
        Ok(Some(Object { bytes, version }))
    }

    async fn put_if(
        &self,
        name: &str,
        bytes: Bytes,
        condition: Option<&Version>,
    ) -> Result<Version, BackendError> {
        // Generation 0 is that of an object that is not there.
        let generation = condition.map_or("0", Version::as_text);
        self.upload(name, &bytes, Some(generation)).await
    }

    async fn put(&self, name: &str, bytes: Bytes) -> Result<(), BackendError> {
        self.upload(name, &bytes, None).await?;
        Ok(())
    }

    async fn list(
        &self,
        folder: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, BackendError> {
        let start = after.map(|after| format!("{folder}/{after}"));
        let start = start.as_deref().map(|start| [("startOffset", start)]);
        let query = start.as_ref().map_or(&[][..], |start| start.as_slice());
        let mut names = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let page = self.page(folder, query, next.as_deref()).await?;
            for item in page.items {
                let name = item.name.strip_prefix(folder).unwrap_or_default();
                let name = name.strip_prefix('/').unwrap_or_default();
                // The offset is where the list begins, not what it begins after.
                if name.is_empty() || after.is_some_and(|after| name <= after) {
                    continue;
                }
                if names.len() == limit {
                    return Ok(names);
                }
                names.push(name.to_owned());
            }
            next = page.next_page_token;
            if next.is_none() || names.len() == limit {
                return Ok(names);
            }
        }
    }

    async fn folders(&self, folder: &str) -> Result<Vec<String>, BackendError> {
        let mut names = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let page = self.page(folder, &[], next.as_deref()).await?;
            for prefix in page.prefixes {
                let name = prefix.trim_end_matches('/').rsplit('/').next();
                names.extend(name.map(str::to_owned));
            }
            next = page.next_page_token;
            if next.is_none() {
                return Ok(names);
            }
        }
    }

    async fn delete(&self, name: &str) -> Result<(), BackendError> {
        let request = self.client.request(Method::DELETE, self.object_url(name));
        self.send(request).await?;
        Ok(())
    }
}

/// What an upload is answered with.
#[derive(Deserialize)]
struct Uploaded {
    /// A number as text: it does not fit the numbers of JSON.
    generation: String,
}

/// One page of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(default)]
    items: Vec<Item>,
    #[serde(default)]
    prefixes: Vec<String>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    name: String,
}

/// Makes the body of an upload in one request: the name, then the bytes.
fn related(name: &str, bytes: &Bytes) -> (String, Bytes) {
    // Random, so that no bytes can hold it by more than chance.
    let boundary = format!("{:032x}", rand::random::<u128>());
    let mut body = BytesMut::with_capacity(bytes.len() + 512);
    body.put_slice(format!("--{boundary}\r\ncontent-type: application/json\r\n\r\n").as_bytes());
    // A name has no character that JSON would escape.
    body.put_slice(format!("{{\"name\":\"{name}\"}}\r\n--{boundary}\r\n").as_bytes());
    body.put_slice(b"content-type: application/octet-stream\r\n\r\n");
    body.put_slice(bytes);
    body.put_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    let content_type = format!("multipart/related; boundary={boundary}");
    (content_type, body.freeze())
}

fn generation(headers: &HeaderMap) -> Result<Version, BackendError> {
    let generation = headers.get("x-goog-generation");
    let generation = generation.and_then(|value| value.to_str().ok());
    let generation =
        generation.ok_or_else(|| BackendError::Unknown("the answer names no generation".into()))?;
    Ok(Version::text(generation.to_owned()))
}

/// Says what is known of the effect of a request that was not answered, or not to the end.
fn not_answered(error: reqwest::Error) -> BackendError {
    // The URL is that of the object, which the caller knows.
    let error = error.without_url();
    if error.is_connect() {
        return BackendError::NotDone(error.into());
    }
    BackendError::Unknown(error.into())
}
