//! Who asks for a change and why, as requests say it in their metadata.
//!
//! | metadata | is |
//! |---|---|
//! | `tenure-by`, `tenure-reason` | who and why, in printable ASCII |
//! | `tenure-by-bin`, `tenure-reason-bin` | the same in UTF-8, for what is not ASCII |
//!
//! Every request may carry them. They are read once, before the handler, and everything that is proposed
//! while the request is handled carries them: a handler needs to know nothing of it.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::metadata::MetadataMap;
use tower::{Layer, Service};

use super::convert::Invalid;
use super::status;
use crate::consensus::Origin;

const BY: &str = "tenure-by";
const BY_ENCODED: &str = "tenure-by-bin";
const REASON: &str = "tenure-reason";
const REASON_ENCODED: &str = "tenure-reason-bin";

tokio::task_local! {
    /// Who asked for what this task handles.
    static ORIGIN: Option<Arc<Origin>>;
}

/// Returns who asked for what the running task handles; `None` if nobody said, or outside of a request.
pub(super) fn current() -> Option<Arc<Origin>> {
    ORIGIN.try_with(Clone::clone).ok().flatten()
}

/// Reads what the metadata of a request says.
fn read(metadata: &MetadataMap) -> Result<Option<Arc<Origin>>, Invalid> {
    let origin = Origin {
        by: text(metadata, BY, BY_ENCODED, Origin::BY_BYTES_MAX)?,
        reason: text(metadata, REASON, REASON_ENCODED, Origin::REASON_BYTES_MAX)?,
    };
    Ok((origin != Origin::default()).then(|| Arc::new(origin)))
}

fn text(
    metadata: &MetadataMap,
    plain: &'static str,
    encoded: &'static str,
    bytes_max: usize,
) -> Result<String, Invalid> {
    let (field, text) = match (metadata.get(plain), metadata.get_bin(encoded)) {
        (None, None) => return Ok(String::new()),
        (Some(_), Some(_)) => {
            return Err(Invalid::new(
                plain,
                format!("is given twice, see {encoded}"),
            ));
        }
        (Some(value), None) => {
            let text = value.to_str();
            let text = text.map_err(|_| Invalid::new(plain, "is not printable ASCII"))?;
            (plain, text.to_owned())
        }
        (None, Some(value)) => {
            let bytes = value.to_bytes();
            let bytes = bytes.map_err(|_| Invalid::new(encoded, "is not base64"))?;
            let text = String::from_utf8(bytes.to_vec());
            (
                encoded,
                text.map_err(|_| Invalid::new(encoded, "is not UTF-8"))?,
            )
        }
    };
    if text.len() > bytes_max {
        let problem = format!("has {} bytes, {bytes_max} are allowed", text.len());
        return Err(Invalid::new(field, problem));
    }
    // It ends up in log lines and on terminals.
    if text.chars().any(char::is_control) {
        return Err(Invalid::new(field, "has characters that are not printable"));
    }
    Ok(text)
}

/// Reads the origin of every request before it is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OriginLayer;

impl<S> Layer<S> for OriginLayer {
    type Service = OriginService<S>;

    fn layer(&self, inner: S) -> OriginService<S> {
        OriginService { inner }
    }
}

/// See [`OriginLayer`].
#[derive(Clone, Debug)]
pub(crate) struct OriginService<S> {
    inner: S,
}

impl<S> Service<http::Request<Body>> for OriginService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        // Nearly all requests are of workers and say nothing.
        let headers = request.headers();
        let said = [BY, BY_ENCODED, REASON, REASON_ENCODED];
        if !said.into_iter().any(|name| headers.contains_key(name)) {
            return self.inner.call(request).boxed();
        }
        match read(&MetadataMap::from_headers(headers.clone())) {
            Ok(origin) => ORIGIN.scope(origin, self.inner.call(request)).boxed(),
            Err(invalid) => {
                let answer = status::invalid(invalid).into_http();
                async move { Ok(answer) }.boxed()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataValue;

    use super::*;

    fn metadata(plain: &[(&'static str, &str)], encoded: &[(&'static str, &[u8])]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for (name, value) in plain {
            metadata.insert(*name, value.parse().unwrap());
        }
        for (name, value) in encoded {
            metadata.insert_bin(*name, MetadataValue::from_bytes(value));
        }
        metadata
    }

    fn refused(metadata: &MetadataMap) -> String {
        read(metadata).unwrap_err().to_string()
    }

    #[test]
    fn who_and_why_are_read_from_either_form() {
        assert_eq!(read(&MetadataMap::new()), Ok(None));
        let plain = metadata(&[(BY, "alice@laptop"), (REASON, "new kernel")], &[]);
        let origin = read(&plain).unwrap().unwrap();
        assert_eq!(
            (origin.by.as_str(), origin.reason.as_str()),
            ("alice@laptop", "new kernel")
        );
        let encoded = metadata(
            &[(BY, "bob@desk")],
            &[(REASON_ENCODED, "größere Platten".as_bytes())],
        );
        let origin = read(&encoded).unwrap().unwrap();
        assert_eq!(
            (origin.by.as_str(), origin.reason.as_str()),
            ("bob@desk", "größere Platten")
        );
    }

    #[test]
    fn what_is_too_long_or_cannot_be_printed_is_refused_by_name() {
        let long = "x".repeat(Origin::BY_BYTES_MAX + 1);
        assert_eq!(
            refused(&metadata(&[(BY, &long)], &[])),
            "tenure-by: has 129 bytes, 128 are allowed"
        );
        let most = "x".repeat(Origin::REASON_BYTES_MAX);
        assert!(read(&metadata(&[(REASON, &most)], &[])).is_ok());
        for (value, problem) in [
            (
                b"\x1b[31mred".as_slice(),
                "has characters that are not printable",
            ),
            (b"two\nlines", "has characters that are not printable"),
            (b"\xff", "is not UTF-8"),
        ] {
            assert_eq!(
                refused(&metadata(&[], &[(REASON_ENCODED, value)])),
                format!("tenure-reason-bin: {problem}")
            );
        }
        let both = metadata(&[(BY, "a")], &[(BY_ENCODED, b"a")]);
        assert_eq!(
            refused(&both),
            "tenure-by: is given twice, see tenure-by-bin"
        );
    }

    #[tokio::test]
    async fn what_is_handled_within_a_request_knows_who_asked() {
        assert_eq!(current(), None);
        let origin = Some(Arc::new(Origin {
            by: "alice".to_owned(),
            reason: String::new(),
        }));
        let seen = ORIGIN.scope(origin.clone(), async { current() }).await;
        assert_eq!(seen, origin);
        assert_eq!(current(), None);
    }
}
