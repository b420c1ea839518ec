//! `tenure plan` and `tenure rebalance`.

use std::collections::BTreeMap;

use serde::Serialize;
use tenure_proto::v1;
use tenure_proto::v1::admin_service_client::AdminServiceClient;

use crate::command::{PlanArguments, RebalanceArguments};
use crate::connection::{Connection, Intent};
use crate::console::{Column, Console};
use crate::error::CliError;
use crate::text::{self, Wide};

/// Shards that a row names before it says how many more there are.
const SHARDS_SHOWN: usize = 8;

pub(crate) async fn show(
    arguments: &PlanArguments,
    connection: &Connection,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    let request = v1::PlanPreviewRequest {
        group: arguments.group.clone(),
        rebalance: false,
        moves_max: 0,
    };
    let (plan, revision) = preview(connection, request).await?;
    print(console, &plan, revision, "would move")
}

pub(crate) async fn rebalance(
    arguments: &RebalanceArguments,
    connection: &Connection,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    let (group, moves_max) = (arguments.group.clone(), arguments.max_moves.unwrap_or(0));
    if arguments.dry_run {
        let request = v1::PlanPreviewRequest {
            group,
            rebalance: true,
            moves_max,
        };
        let (plan, revision) = preview(connection, request).await?;
        return print(console, &plan, revision, "would move");
    }
    let request = v1::RebalanceRequest { group, moves_max };
    let answer = connection
        .call(Intent::Change, request, |service, request| async move {
            AdminServiceClient::new(service).rebalance(request).await
        })
        .await?;
    let plan = answer
        .plan
        .ok_or_else(|| CliError::incomplete("the plan"))?;
    print(console, &plan, answer.revision, "move")
}

async fn preview(
    connection: &Connection,
    request: v1::PlanPreviewRequest,
) -> Result<(v1::Plan, u64), CliError> {
    let answer = connection
        .call(Intent::QuorumRead, request, |service, request| async move {
            AdminServiceClient::new(service).plan_preview(request).await
        })
        .await?;
    let plan = answer
        .plan
        .ok_or_else(|| CliError::incomplete("the plan"))?;
    Ok((plan, answer.revision))
}

fn print(
    console: &mut Console<'_>,
    plan: &v1::Plan,
    revision: u64,
    verb: &str,
) -> Result<(), CliError> {
    if console.json() {
        return console.document(&One {
            plan: plan.into(),
            revision: Wide(revision),
        });
    }
    let mut rows = moves(plan);
    rows.extend(not_moved(plan));
    let columns = [
        Column::Number("SHARDS"),
        Column::Text("FROM"),
        Column::Text("TO"),
        Column::Text("WHY"),
        Column::Text("WHICH"),
    ];
    if !rows.is_empty() {
        console.table(&columns, rows)?;
    }
    let (total, in_flight) = (plan.moves_total, plan.in_flight);
    console.note(format_args!(
        "{total} shards {verb}, {in_flight} were on the move before, at revision {revision}"
    ))
}

/// One row for each pair of workers and reason.
fn moves(plan: &v1::Plan) -> Vec<Vec<String>> {
    let mut together: BTreeMap<(&str, &str, String), Vec<u32>> = BTreeMap::new();
    for planned in &plan.moves {
        let key = (planned.from.as_str(), planned.to.as_str(), why(planned));
        together.entry(key).or_default().push(planned.shard);
    }
    let rows = together.into_iter().map(|((from, to, why), shards)| {
        let count = shards.len().to_string();
        let (from, to) = (text::or_dash(from), text::or_dash(to));
        vec![count, from, to, why, which(&shards, shards.len())]
    });
    rows.collect()
}

fn why(planned: &v1::PlannedMove) -> String {
    if planned.from.is_empty() {
        return "unowned".to_owned();
    }
    text::revoke_reason(planned.reason)
}

/// One row for each reason why shards stay.
fn not_moved(plan: &v1::Plan) -> Vec<Vec<String>> {
    let rows = plan.not_moved.iter().map(|left| {
        let count = usize::try_from(left.moves).unwrap_or(usize::MAX);
        vec![
            left.moves.to_string(),
            "not moved".to_owned(),
            "-".to_owned(),
            left.reason.clone(),
            which(&left.shards, count),
        ]
    });
    rows.collect()
}

fn which(shards: &[u32], count: usize) -> String {
    let named: Vec<String> = shards
        .iter()
        .take(SHARDS_SHOWN)
        .map(u32::to_string)
        .collect();
    let more = count.saturating_sub(named.len());
    match (named.is_empty(), more) {
        (true, _) => "-".to_owned(),
        (false, 0) => named.join(" "),
        (false, more) => format!("{} and {more} more", named.join(" ")),
    }
}

#[derive(Serialize)]
struct One {
    plan: PlanView,
    revision: Wide,
}

#[derive(Serialize)]
struct PlanView {
    moves: Vec<MoveView>,
    moves_total: u32,
    not_moved: Vec<NotMovedView>,
    in_flight: u32,
}

#[derive(Serialize)]
struct MoveView {
    shard: u32,
    from: Option<String>,
    to: Option<String>,
    reason: String,
}

#[derive(Serialize)]
struct NotMovedView {
    reason: String,
    moves: u32,
    shards: Vec<u32>,
}

impl From<&v1::Plan> for PlanView {
    fn from(plan: &v1::Plan) -> Self {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let moves = plan.moves.iter().map(|planned| MoveView {
            shard: planned.shard,
            from: given(&planned.from),
            to: given(&planned.to),
            reason: why(planned),
        });
        let not_moved = plan.not_moved.iter().map(|left| NotMovedView {
            reason: left.reason.clone(),
            moves: left.moves,
            shards: left.shards.clone(),
        });
        Self {
            moves: moves.collect(),
            moves_total: plan.moves_total,
            not_moved: not_moved.collect(),
            in_flight: plan.in_flight,
        }
    }
}
