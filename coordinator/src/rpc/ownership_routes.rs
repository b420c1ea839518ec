//! Serves watches from bytes that were encoded once for all watchers.
//!
//! The generated service encodes every message for every stream. With ten thousand watchers of one
//! group that is ten thousand times the same work, so the path of `Watch` is served here with a codec
//! that copies; everything else goes to the generated service.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tenure_proto::v1 as pb;
use tenure_proto::v1::ownership_service_server::OwnershipServiceServer;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService, ServerStreamingService};
use tonic::{Request, Response, Status};
use tower::Service;

use super::REQUEST_BYTES_MAX;
use super::encoded::{CopyCodec, EncodedStream};
use super::ownership::Ownership;

const WATCH: &str = "/tenure.v1.OwnershipService/Watch";

/// The ownership service, with watches from encoded messages.
#[derive(Clone)]
pub(super) struct OwnershipRoutes {
    ownership: Arc<Ownership>,
    generated: OwnershipServiceServer<Ownership>,
}

impl OwnershipRoutes {
    pub(super) fn new(ownership: Ownership) -> Self {
        let ownership = Arc::new(ownership);
        let generated = OwnershipServiceServer::from_arc(Arc::clone(&ownership))
            .max_decoding_message_size(REQUEST_BYTES_MAX);
        Self {
            ownership,
            generated,
        }
    }
}

impl NamedService for OwnershipRoutes {
    const NAME: &'static str = <OwnershipServiceServer<Ownership> as NamedService>::NAME;
}

impl Service<http::Request<Body>> for OwnershipRoutes {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != WATCH {
            return self.generated.call(request);
        }
        let watch = EncodedWatch {
            ownership: Arc::clone(&self.ownership),
        };
        let codec = CopyCodec::<pb::WatchRequest>::new();
        async move {
            let mut grpc =
                Grpc::new(codec).apply_max_message_size_config(Some(REQUEST_BYTES_MAX), None);
            Ok(grpc.server_streaming(watch, request).await)
        }
        .boxed()
    }
}

struct EncodedWatch {
    ownership: Arc<Ownership>,
}

impl ServerStreamingService<pb::WatchRequest> for EncodedWatch {
    type Response = Bytes;
    type ResponseStream = EncodedStream;
    type Future = BoxFuture<'static, Result<Response<EncodedStream>, Status>>;

    fn call(&mut self, request: Request<pb::WatchRequest>) -> Self::Future {
        let ownership = Arc::clone(&self.ownership);
        async move { ownership.watch_encoded(request).await }.boxed()
    }
}
