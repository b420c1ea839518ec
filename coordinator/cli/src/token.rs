//! `tenure token`.

use serde::Serialize;
use tenure_fence::FencingToken;
use tenure_proto::v1;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;

use crate::command::TokenCommand;
use crate::connection::{Connection, Intent};
use crate::console::Console;
use crate::error::CliError;
use crate::text::Wide;

pub(crate) async fn run(
    command: &TokenCommand,
    connection: &Connection,
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    match command {
        TokenCommand::Check { token } => check(connection, console, token).await,
    }
}

async fn check(
    connection: &Connection,
    console: &mut Console<'_>,
    token: &FencingToken,
) -> Result<(), CliError> {
    let owner = v1::Session {
        cluster_id: token.owner.cluster.to_be_bytes().to_vec().into(),
        number: token.owner.session,
    };
    let request = v1::CheckTokenRequest {
        token: Some(v1::FencingToken {
            resource: token.resource.to_string(),
            epoch: token.epoch.get(),
            owner: Some(owner),
        }),
    };
    let answer = connection
        .call(Intent::QuorumRead, request, |service, request| async move {
            OwnershipServiceClient::new(service)
                .check_token(request)
                .await
        })
        .await?;
    print(console, token, &answer)?;
    if answer.current {
        return Ok(());
    }
    console.flush()?;
    Err(CliError::Stale {
        reason: answer.reason,
    })
}

fn print(
    console: &mut Console<'_>,
    token: &FencingToken,
    answer: &v1::CheckTokenResponse,
) -> Result<(), CliError> {
    if console.json() {
        return console.document(&Checked {
            token: token.to_string(),
            current: answer.current,
            current_epoch: Wide(answer.current_epoch),
            reason: Some(answer.reason.as_str()).filter(|reason| !reason.is_empty()),
            revision: Wide(answer.revision),
        });
    }
    let epoch = match answer.current_epoch {
        0 => "-".to_owned(),
        epoch => epoch.to_string(),
    };
    console.details(vec![
        ("token", token.to_string()),
        (
            "state",
            if answer.current { "current" } else { "stale" }.to_owned(),
        ),
        ("current_epoch", epoch),
        ("revision", answer.revision.to_string()),
    ])
}

#[derive(Serialize)]
struct Checked<'a> {
    token: String,
    current: bool,
    current_epoch: Wide,
    reason: Option<&'a str>,
    revision: Wide,
}
