//! The gRPC services: one file per service. Handlers translate, they do not think.
//!
//! ```text
//!   request ─▶ convert ─▶ propose, or read ─▶ present ─▶ answer
//!                │ Invalid    │ error, rejection
//!                └────────────┴──▶ status
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `convert` | all validation of input |
//! | `status` | the one table from errors to codes and details |
//! | `present` | words of the domain as messages |
//! | `context` | what handlers share: consensus, events, limits, deadlines |
//! | `origin` | who asks and why, from the metadata of a request into what is proposed for it |
//! | `ownership`, `watch`, `encoded` | who owns what; events, encoded once for all watchers |
//! | `history` | what happened |
//! | `worker` | the worker stream |
//! | `checkpoint`, `admin`, `cluster`, `health` | the other services |
//! | `backup` | a backup on its way |
//! | `diagnosis`, `features` | what a node has measured; behaviours that are switched on |
//!
//! # Invariants
//!
//! * Every request has a deadline and a size limit.
//! * Nothing here changes state: changes are proposed.

mod admin;
mod backup;
mod checkpoint;
mod cluster;
mod context;
mod convert;
mod diagnosis;
mod encoded;
mod features;
#[cfg(fuzzing)]
pub mod fuzzing;
mod health;
mod history;
mod origin;
mod ownership;
mod ownership_routes;
mod present;
mod state_cache;
mod status;
mod watch;
mod worker;

use std::sync::Arc;

use tenure_proto::v1::admin_service_server::AdminServiceServer;
use tenure_proto::v1::checkpoint_service_server::CheckpointServiceServer;
use tenure_proto::v1::cluster_service_server::ClusterServiceServer;
use tenure_proto::v1::history_service_server::HistoryServiceServer;
use tonic::Request;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;

use crate::control::Control;

pub use self::context::{About, RequestLimits, RpcContext};
pub(crate) use self::health::report as report_health;
pub(crate) use self::origin::OriginLayer;

/// Largest request that carries no checkpoint, in bytes: a key of 64 KiB, or a seal of 1,000 tenures.
const REQUEST_BYTES_MAX: usize = 256 << 10;

/// Largest request that carries a checkpoint, in bytes. Above the checkpoint itself, so that one that
/// is a little too large is refused by name.
const CHECKPOINT_REQUEST_BYTES_MAX: usize = convert::CHECKPOINT_BYTES_MAX + (256 << 10);

/// Returns the public services but health.
///
/// # Errors
///
/// What the reflection service says of the descriptors.
pub fn routes(
    context: &RpcContext,
    control: Arc<Control>,
) -> Result<Routes, tonic_reflection::server::Error> {
    let admin = AdminServiceServer::new(admin::Admin::new(context.clone(), Arc::clone(&control)))
        .max_decoding_message_size(REQUEST_BYTES_MAX);
    let cluster = ClusterServiceServer::new(cluster::Cluster::new(context.clone()))
        .max_decoding_message_size(REQUEST_BYTES_MAX);
    let checkpoint = CheckpointServiceServer::new(checkpoint::Checkpoints::new(context.clone()))
        .max_decoding_message_size(CHECKPOINT_REQUEST_BYTES_MAX);
    let history = HistoryServiceServer::new(history::History::new(context.clone()))
        .max_decoding_message_size(REQUEST_BYTES_MAX);
    let ownership =
        ownership_routes::OwnershipRoutes::new(ownership::Ownership::new(context.clone()));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(tenure_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    // What a removed node has is old, and stays so: it only says what it is.
    let removed = context.removed();
    let members_only = move |request: Request<()>| match *removed.borrow() {
        true => Err(status::removed()),
        false => Ok(request),
    };
    let worker = worker::service(context.clone(), control);
    Ok(
        Routes::new(InterceptedService::new(admin, members_only.clone()))
            .add_service(cluster)
            .add_service(InterceptedService::new(checkpoint, members_only.clone()))
            .add_service(InterceptedService::new(history, members_only.clone()))
            .add_service(InterceptedService::new(ownership, members_only.clone()))
            .add_service(InterceptedService::new(worker, members_only))
            .add_service(reflection),
    )
}
