//! `tenure cluster features` and `tenure cluster enable-feature`.

use std::collections::BTreeMap;

use serde::Serialize;
use tenure_proto::v1;
use tenure_proto::v1::cluster_service_client::ClusterServiceClient;

use crate::cluster::changed;
use crate::connection::{Connection, Intent};
use crate::console::{Column, Console};
use crate::error::CliError;
use crate::text::Wide;

pub(crate) async fn list(
    connection: &Connection,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    let request = v1::DiagnoseRequest {};
    let answer = connection
        .call(Intent::Read, request, |service, request| async move {
            ClusterServiceClient::new(service).diagnose(request).await
        })
        .await?;
    let features = views(&answer);
    if console.json() {
        return console.document(&List { features });
    }
    let columns = [
        Column::Text("FEATURE"),
        Column::Text("ENABLED"),
        Column::Text("KNOWN BY"),
        Column::Text("NOT KNOWN BY"),
        Column::Text("DOES"),
    ];
    let ids = |ids: &[Wide]| match ids {
        [] => "-".to_owned(),
        ids => ids
            .iter()
            .map(|id| id.0.to_string())
            .collect::<Vec<_>>()
            .join(" "),
    };
    let rows = features.iter().map(|feature| {
        vec![
            feature.name.clone(),
            if feature.enabled { "yes" } else { "no" }.to_owned(),
            ids(&feature.known_by),
            ids(&feature.not_known_by),
            feature.description.clone(),
        ]
    });
    console.table(&columns, rows.collect())
}

/// What the node asked knows, and what the others have told it. A behaviour that only another one knows has
/// no description here.
fn views(answer: &v1::DiagnoseResponse) -> Vec<View> {
    let mut features: BTreeMap<&str, View> = BTreeMap::new();
    for feature in &answer.features {
        let view = View {
            name: feature.name.clone(),
            description: feature.description.clone(),
            enabled: feature.enabled,
            known_by: vec![Wide(answer.node_id)],
            not_known_by: Vec::new(),
        };
        features.insert(&feature.name, view);
    }
    for name in answer.peers.iter().flat_map(|peer| &peer.features) {
        features.entry(name).or_insert_with(|| View {
            name: name.clone(),
            description: "-".to_owned(),
            enabled: false,
            known_by: Vec::new(),
            not_known_by: vec![Wide(answer.node_id)],
        });
    }
    for peer in &answer.peers {
        for feature in features.values_mut() {
            let list = match peer.features.contains(&feature.name) {
                true => &mut feature.known_by,
                false => &mut feature.not_known_by,
            };
            list.push(Wide(peer.node_id));
        }
    }
    features.into_values().collect()
}

pub(crate) async fn enable(
    connection: &Connection,
    console: &mut Console<'_>,
    name: &str,
) -> Result<(), CliError> {
    let request = v1::EnableFeatureRequest {
        name: name.to_owned(),
    };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            ClusterServiceClient::new(service)
                .enable_feature(request)
                .await
        })
        .await?;
    changed(console, answer.revision, format_args!("{name} is on"))
}

#[derive(Serialize)]
struct List {
    features: Vec<View>,
}

#[derive(Serialize)]
struct View {
    name: String,
    description: String,
    enabled: bool,
    known_by: Vec<Wide>,
    /// Also of nodes that did not answer.
    not_known_by: Vec<Wide>,
}
