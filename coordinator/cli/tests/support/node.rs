//! A node that answers what the files beside this one say, as a leader or as a follower.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tenure_cli::Environment;
use tenure_proto::reason;
use tenure_proto::v1;
use tenure_proto::v1::admin_service_server::AdminServiceServer;
use tenure_proto::v1::cluster_service_server::ClusterServiceServer;
use tenure_proto::v1::history_service_server::HistoryServiceServer;
use tenure_proto::v1::ownership_service_server::OwnershipServiceServer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// How a fake node answers changes.
#[derive(Clone, Default)]
pub(crate) enum Role {
    #[default]
    Leader,
    /// Names this address as the leader's; with none, it knows no leader.
    Follower(Option<String>),
}

/// What is seen of a fake node from outside.
#[derive(Default)]
pub(crate) struct Seen {
    /// Names of the changes that reached it.
    pub(crate) changes: Vec<String>,
    /// The cursor that each watch asked for.
    pub(crate) watches: Vec<Option<v1::Cursor>>,
    pub(crate) policy: Option<v1::SetPolicyRequest>,
}

#[derive(Clone, Default)]
pub(super) struct Fake {
    pub(super) role: Role,
    pub(super) seen: Arc<Mutex<Seen>>,
}

pub(crate) struct Node {
    pub(crate) address: String,
    pub(crate) seen: Arc<Mutex<Seen>>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start(role: Role) -> Self {
        Self::start_with(role, None).await
    }

    pub(crate) async fn start_with(role: Role, tls: Option<ServerTlsConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let fake = Fake {
            role,
            seen: Arc::default(),
        };
        let seen = fake.seen.clone();
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let router = server
            .add_service(AdminServiceServer::new(fake.clone()))
            .add_service(OwnershipServiceServer::new(fake.clone()))
            .add_service(HistoryServiceServer::new(fake.clone()))
            .add_service(ClusterServiceServer::new(fake));
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(async move {
            tokio::select! {
                served = router.serve_with_incoming(TcpListenerStream::new(listener)) => served.unwrap(),
                _ = stopped => {}
            }
        });
        Self {
            address,
            seen,
            stop: Some(stop),
            server,
        }
    }

    pub(crate) async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.server.await.unwrap();
    }

    pub(crate) fn environment(&self) -> Environment {
        Environment {
            addresses: Some(self.address.clone()),
            config: None,
            user: Some("alice@laptop".to_owned()),
        }
    }
}

pub(super) fn refused(code: Code, reason: &str, message: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason, reason::DOMAIN, HashMap::new());
    Status::with_error_details(code, message, details)
}

impl Fake {
    /// What every change goes through.
    pub(super) fn change(&self, name: &str) -> Result<(), Status> {
        let Role::Follower(leader) = &self.role else {
            self.seen.lock().unwrap().changes.push(name.to_owned());
            return Ok(());
        };
        let mut metadata = HashMap::new();
        if let Some(address) = leader {
            metadata.insert(reason::LEADER_ADDRESS.to_owned(), address.clone());
        }
        let details = ErrorDetails::with_error_info(reason::NOT_LEADER, reason::DOMAIN, metadata);
        Err(Status::with_error_details(
            Code::Unavailable,
            "this node does not lead",
            details,
        ))
    }
}

pub(super) fn no_group(name: &str) -> Status {
    refused(
        Code::NotFound,
        reason::GROUP_NOT_FOUND,
        &format!("no group is named {name}"),
    )
}
