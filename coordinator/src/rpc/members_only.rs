//! A node that was removed from its cluster answers no request but those about the cluster: whatever else it
//! showed would be old, and stay so.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tenure_proto::v1::cluster_service_server;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::http;
use tower::{Layer, Service};

use super::status;

/// Refuses requests once the node is removed.
#[derive(Clone, Debug)]
pub(crate) struct MembersOnlyLayer {
    removed: watch::Receiver<bool>,
}

impl MembersOnlyLayer {
    /// Creates a layer that refuses while `removed` is so.
    pub(crate) fn new(removed: watch::Receiver<bool>) -> Self {
        Self { removed }
    }
}

impl<S> Layer<S> for MembersOnlyLayer {
    type Service = MembersOnlyService<S>;

    fn layer(&self, inner: S) -> MembersOnlyService<S> {
        MembersOnlyService {
            inner,
            removed: self.removed.clone(),
        }
    }
}

/// See [`MembersOnlyLayer`].
#[derive(Clone, Debug)]
pub(crate) struct MembersOnlyService<S> {
    inner: S,
    removed: watch::Receiver<bool>,
}

impl<S> Service<http::Request<Body>> for MembersOnlyService<S>
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
        if *self.removed.borrow() && asks_for_data(request.uri().path()) {
            let answer = status::removed().into_http();
            return async move { Ok(answer) }.boxed();
        }
        self.inner.call(request).boxed()
    }
}

/// Whether a method is of one of Tenure's services, but not of the one that says what the node is.
fn asks_for_data(path: &str) -> bool {
    let service = path.trim_start_matches('/').split('/').next();
    service.is_some_and(|service| {
        service.starts_with("tenure.") && service != cluster_service_server::SERVICE_NAME
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_node_is_may_be_asked_and_what_it_has_may_not() {
        assert!(asks_for_data("/tenure.v1.OwnershipService/Watch"));
        assert!(asks_for_data("/tenure.v1.AdminService/ListGroups"));
        assert!(!asks_for_data("/tenure.v1.ClusterService/Status"));
        assert!(!asks_for_data("/grpc.health.v1.Health/Check"));
    }
}
