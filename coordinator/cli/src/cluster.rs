//! `tenure cluster`.

use std::collections::BTreeSet;

use serde::Serialize;
use tenure_proto::v1;
use tenure_proto::v1::cluster_service_client::ClusterServiceClient;

use crate::backup;
use crate::command::{ClusterCommand, NodeArgument};
use crate::connection::{Connection, Intent};
use crate::console::{Column, Console};
use crate::error::CliError;
use crate::features;
use crate::group::Changed;
use crate::restore::{self, Offline};
use crate::text::{self, Wide};

pub(crate) async fn run(
    command: &ClusterCommand,
    connection: &Connection,
    offline: &Offline,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    match command {
        ClusterCommand::Init { nodes } => init(connection, console, nodes).await,
        ClusterCommand::Status => status(connection, console).await,
        ClusterCommand::Add { node } => add(connection, console, node).await,
        ClusterCommand::Remove { id, yes } => {
            console.confirm(*yes, format_args!("node {id} will be removed for good"))?;
            remove(connection, console, *id).await
        }
        ClusterCommand::TransferLeader { to } => transfer_leader(connection, console, *to).await,
        ClusterCommand::Features => features::list(connection, console).await,
        ClusterCommand::EnableFeature { name, yes } => {
            console.confirm(
                *yes,
                format_args!("{name} will be switched on for all nodes"),
            )?;
            features::enable(connection, console, name).await
        }
        ClusterCommand::Backup(arguments) => backup::run(connection, console, arguments).await,
        ClusterCommand::Restore(arguments) => restore::run(arguments, offline, console),
    }
}

async fn init(
    connection: &Connection,
    console: &mut Console<'_>,
    nodes: &[NodeArgument],
) -> Result<(), CliError> {
    let mut ids = BTreeSet::new();
    for NodeArgument(node) in nodes {
        if node.id > 0 && !ids.insert(node.id) {
            let message = format!("--node: id {} is given twice", node.id);
            return Err(CliError::Usage { message });
        }
    }
    let request = v1::InitRequest {
        nodes: nodes.iter().map(|node| node.0.clone()).collect(),
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            ClusterServiceClient::new(service).init(request).await
        })
        .await?;
    let cluster_id = text::cluster_id(&answer.cluster_id);
    if console.json() {
        return console.document(&Made { cluster_id });
    }
    console.note(format_args!(
        "cluster {cluster_id} made of {} nodes",
        nodes.len()
    ))
}

async fn status(connection: &Connection, console: &mut Console<'_>) -> Result<(), CliError> {
    let answer =
        connection
            .call(
                Intent::Read,
                v1::StatusRequest {},
                |service, request| async move {
                    ClusterServiceClient::new(service).status(request).await
                },
            )
            .await?;
    if console.json() {
        return console.document(&StatusView::from(&answer));
    }
    let or_none = |number: u64| match number {
        0 => "-".to_owned(),
        number => number.to_string(),
    };
    console.details(vec![
        (
            "cluster",
            text::or_dash(&text::cluster_id(&answer.cluster_id)),
        ),
        ("node", answer.node_id.to_string()),
        ("version", text::or_dash(&answer.version)),
        ("term", answer.term.to_string()),
        ("leader", or_none(answer.leader_id)),
        ("last_log_index", answer.last_log_index.to_string()),
        ("applied_index", answer.applied_index.to_string()),
        ("snapshot_index", or_none(answer.snapshot_index)),
    ])?;
    if answer.removed {
        console.note(
            "the node was removed from the cluster: stop it, and remove its data folder; what it \
             shows is old",
        )?;
    }
    if answer.settling_ms > 0 {
        console.note(format_args!(
            "the cluster was restored from a backup: nothing is granted until a leader has waited {}",
            text::millis(answer.settling_ms)
        ))?;
    }
    if answer.cluster_id.is_empty() {
        return console.note("the node belongs to no cluster; `tenure cluster init` makes one");
    }
    console.line("")?;
    let columns = [
        Column::Number("NODE"),
        Column::Text("ROLE"),
        Column::Number("MATCHED"),
        Column::Text("CLIENT"),
        Column::Text("PEER"),
        Column::Text("HTTP"),
    ];
    let rows = answer.members.iter().map(|member| {
        let node = member.node.clone().unwrap_or_default();
        vec![
            node.id.to_string(),
            role(member, answer.leader_id).to_owned(),
            or_none(member.matched_index),
            text::or_dash(&node.client_address),
            text::or_dash(&node.peer_address),
            text::or_dash(&node.http_address),
        ]
    });
    console.table(&columns, rows.collect())
}

fn role(member: &v1::Member, leader: u64) -> &'static str {
    let id = member.node.as_ref().map_or(0, |node| node.id);
    match member.voter {
        true if id == leader => "leader",
        true => "voter",
        false => "catching-up",
    }
}

async fn add(
    connection: &Connection,
    console: &mut Console<'_>,
    node: &NodeArgument,
) -> Result<(), CliError> {
    if node.0.id > 0 {
        let message = "--node: the cluster gives an added node its id, leave it out".to_owned();
        return Err(CliError::Usage { message });
    }
    let request = v1::AddNodeRequest {
        node: Some(node.0.clone()),
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            ClusterServiceClient::new(service).add_node(request).await
        })
        .await?;
    changed(
        console,
        answer.revision,
        format_args!("node {} added", answer.id),
    )
}

async fn remove(
    connection: &Connection,
    console: &mut Console<'_>,
    id: u64,
) -> Result<(), CliError> {
    let answer = connection
        .call(
            Intent::Change,
            v1::RemoveNodeRequest { id },
            |service, request| async move {
                ClusterServiceClient::new(service)
                    .remove_node(request)
                    .await
            },
        )
        .await?;
    changed(console, answer.revision, format_args!("node {id} removed"))
}

pub(crate) fn changed(
    console: &mut Console<'_>,
    revision: u64,
    what: std::fmt::Arguments<'_>,
) -> Result<(), CliError> {
    if console.json() {
        return console.document(&Changed {
            revision: Wide(revision),
        });
    }
    console.note(format_args!("{what} at revision {revision}"))
}

async fn transfer_leader(
    connection: &Connection,
    console: &mut Console<'_>,
    to: u64,
) -> Result<(), CliError> {
    let answer = connection
        .call(
            Intent::Change,
            v1::TransferLeaderRequest { to },
            |service, request| async move {
                ClusterServiceClient::new(service)
                    .transfer_leader(request)
                    .await
            },
        )
        .await?;
    if console.json() {
        return console.document(&Transferred {
            leader_id: Wide(to),
            term: Wide(answer.term),
        });
    }
    console.note(format_args!("node {to} leads in term {}", answer.term))
}

#[derive(Serialize)]
struct Made {
    cluster_id: String,
}

#[derive(Serialize)]
struct Transferred {
    leader_id: Wide,
    term: Wide,
}

#[derive(Serialize)]
struct StatusView {
    /// Absent for a node that belongs to no cluster.
    cluster_id: Option<String>,
    node_id: Wide,
    version: String,
    term: Wide,
    leader_id: Option<Wide>,
    last_log_index: Wide,
    applied_index: Wide,
    snapshot_index: Option<Wide>,
    /// Whether the node that answered was removed from the cluster.
    removed: bool,
    /// Absent in ordinary life.
    settling_ms: Option<Wide>,
    members: Vec<MemberView>,
}

#[derive(Serialize)]
struct MemberView {
    id: Wide,
    role: &'static str,
    matched_index: Option<Wide>,
    client_address: String,
    peer_address: String,
    http_address: Option<String>,
}

impl From<&v1::StatusResponse> for StatusView {
    fn from(status: &v1::StatusResponse) -> Self {
        let some = |number: u64| Some(Wide(number)).filter(|number| number.0 > 0);
        let members = status.members.iter().map(|member| {
            let node = member.node.clone().unwrap_or_default();
            MemberView {
                id: Wide(node.id),
                role: role(member, status.leader_id),
                matched_index: some(member.matched_index),
                client_address: node.client_address,
                peer_address: node.peer_address,
                http_address: Some(node.http_address).filter(|address| !address.is_empty()),
            }
        });
        Self {
            cluster_id: Some(text::cluster_id(&status.cluster_id)).filter(|id| !id.is_empty()),
            node_id: Wide(status.node_id),
            version: status.version.clone(),
            term: Wide(status.term),
            leader_id: some(status.leader_id),
            last_log_index: Wide(status.last_log_index),
            applied_index: Wide(status.applied_index),
            snapshot_index: some(status.snapshot_index),
            removed: status.removed,
            settling_ms: some(status.settling_ms),
            members: members.collect(),
        }
    }
}
