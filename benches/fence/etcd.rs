//! A client of etcd, as plain as can be: a message each for what is measured.
//!
//! Names of services and numbers of fields are etcd's.

use bytes::Bytes;
use cluster_tests::failure::Failure;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

const PUT: &str = "/etcdserverpb.KV/Put";
const TXN: &str = "/etcdserverpb.KV/Txn";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// What a comparison looks at: the value of the key.
const TARGET_VALUE: i32 = 3;

/// One connection to one member.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    channel: Channel,
}

/// Who a member is, and whom it follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub(crate) member: u64,
    pub(crate) leader: u64,
}

impl Client {
    /// Creates a client, which connects when it is first used.
    pub(crate) fn new(endpoint: &str) -> Result<Self, Failure> {
        let endpoint = Endpoint::from_shared(endpoint.to_owned())?.tcp_nodelay(true);
        Ok(Self {
            channel: endpoint.connect_lazy(),
        })
    }

    pub(crate) async fn put(&self, key: Bytes, value: Bytes) -> Result<(), Failure> {
        let _: PutResponse = self.call(PUT, PutRequest { key, value }).await?;
        Ok(())
    }

    /// Puts if the fence is as expected. Returns whether it was.
    pub(crate) async fn put_fenced(
        &self,
        fence: Bytes,
        expected: Bytes,
        key: Bytes,
        value: Bytes,
    ) -> Result<bool, Failure> {
        let request = TxnRequest {
            compare: vec![Compare {
                target: TARGET_VALUE,
                key: fence,
                value: expected,
                ..Compare::default()
            }],
            success: vec![RequestOp {
                put: Some(PutRequest { key, value }),
            }],
        };
        let answer: TxnResponse = self.call(TXN, request).await?;
        Ok(answer.succeeded)
    }

    pub(crate) async fn status(&self) -> Result<Status, Failure> {
        let answer: StatusResponse = self.call(STATUS, StatusRequest {}).await?;
        Ok(Status {
            member: answer.header.map_or(0, |header| header.member_id),
            leader: answer.leader,
        })
    }

    async fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Failure>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await?;
        let path = PathAndQuery::from_static(path);
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(Request::new(message), path, codec).await?;
        Ok(answer.into_inner())
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

/// Compares for equality, which is the default.
#[derive(Clone, PartialEq, prost::Message)]
struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "7")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RequestOp {
    #[prost(message, optional, tag = "2")]
    put: Option<PutRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TxnResponse {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}
