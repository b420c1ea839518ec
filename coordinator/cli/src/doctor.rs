//! `tenure doctor`: asks every node, judges, and says what to do.
//!
//! `examine` judges what was gathered and asks nobody, so that each judgement is tested by itself.

mod examine;
mod finding;

use std::time::Duration;

use serde::Serialize;
use tenure_proto::v1;
use tenure_proto::v1::admin_service_client::AdminServiceClient;
use tenure_proto::v1::cluster_service_client::ClusterServiceClient;

use self::examine::{Gathered, Looked, examine};
use self::finding::{Finding, Severity};
use crate::command::DoctorArguments;
use crate::connection::{Connection, Intent};
use crate::console::{Column, Console};
use crate::error::CliError;
use crate::settings::Settings;

/// How long one node may take to be looked at: the others are to be looked at as well.
const NODE_MAX: Duration = Duration::from_secs(4);

/// Groups in one answer.
const PAGE: u32 = 1_000;

pub(crate) async fn run(
    arguments: &DoctorArguments,
    settings: &Settings,
    connection: &Connection,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    let gathered = gather(settings, connection).await?;
    let findings = examine(&gathered);
    let problems = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Problem)
        .count();
    show(console, &findings, arguments.all)?;
    match problems {
        0 => Ok(()),
        problems => Err(CliError::Unhealthy { problems }),
    }
}

async fn gather(settings: &Settings, connection: &Connection) -> Result<Gathered, CliError> {
    let status =
        connection
            .call(
                Intent::Read,
                v1::StatusRequest {},
                |service, request| async move {
                    ClusterServiceClient::new(service).status(request).await
                },
            )
            .await?;
    let mut nodes = Vec::new();
    for member in &status.members {
        let node = member.node.clone().unwrap_or_default();
        let looked = look(settings, &node.client_address).await;
        nodes.push((member.clone(), looked.map_err(|error| error.to_string())));
    }
    // A cluster that cannot answer this has findings enough.
    let groups = groups(connection).await.unwrap_or_default();
    Ok(Gathered {
        asked: status,
        nodes,
        groups,
    })
}

async fn look(settings: &Settings, address: &str) -> Result<Looked, CliError> {
    let settings = Settings {
        addresses: vec![address.to_owned()],
        timeout: settings.timeout.min(NODE_MAX),
        tls: settings.tls.clone(),
        origin: settings.origin.clone(),
    };
    let connection = Connection::new(&settings)?;
    let status =
        connection
            .call(
                Intent::Read,
                v1::StatusRequest {},
                |service, request| async move {
                    ClusterServiceClient::new(service).status(request).await
                },
            )
            .await?;
    let diagnosis =
        connection
            .call(
                Intent::Read,
                v1::DiagnoseRequest {},
                |service, request| async move {
                    ClusterServiceClient::new(service).diagnose(request).await
                },
            )
            .await?;
    Ok(Looked { status, diagnosis })
}

async fn groups(connection: &Connection) -> Result<Vec<v1::Group>, CliError> {
    let mut groups = Vec::new();
    let mut after = String::new();
    loop {
        let request = v1::ListGroupsRequest {
            after: after.clone(),
            page_size: PAGE,
        };
        let page = connection
            .call(Intent::Read, request, |service, request| async move {
                AdminServiceClient::new(service).list_groups(request).await
            })
            .await?;
        groups.extend(page.groups);
        if page.next.is_empty() {
            return Ok(groups);
        }
        after = page.next;
    }
}

fn show(console: &mut Console<'_>, findings: &[Finding], all: bool) -> Result<(), CliError> {
    if console.json() {
        return console.document(&Report { findings });
    }
    let shown: Vec<&Finding> = findings
        .iter()
        .filter(|finding| all || finding.severity != Severity::Ok)
        .collect();
    if !shown.is_empty() {
        let columns = [
            Column::Text("VERDICT"),
            Column::Text("CHECK"),
            Column::Text("WHERE"),
            Column::Text("FOUND"),
            Column::Text("TO DO"),
        ];
        let rows = shown.iter().map(|finding| {
            vec![
                finding.severity.word().to_owned(),
                finding.check.to_owned(),
                finding.place.clone(),
                finding.found.clone(),
                finding.advice.clone(),
            ]
        });
        console.table(&columns, rows.collect())?;
    }
    let count = |severity| {
        let of_it = findings
            .iter()
            .filter(|finding| finding.severity == severity);
        of_it.count()
    };
    console.note(format_args!(
        "{} well, {} to be watched, {} to be mended",
        count(Severity::Ok),
        count(Severity::Warning),
        count(Severity::Problem)
    ))
}

#[derive(Serialize)]
struct Report<'a> {
    findings: &'a [Finding],
}
