//! `tenure events`: what happened, from the history that a coordinator keeps.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, SystemTime};

use tenure_proto::v1;
use tenure_proto::v1::history_event::What;
use tenure_proto::v1::history_service_client::HistoryServiceClient;

use crate::command::EventsArguments;
use crate::connection::{Connection, Intent};
use crate::console::Console;
use crate::error::CliError;
use crate::text::Wide;
use crate::watch::Watch;
use crate::watch::line::Line;

/// Events in one answer.
const PAGE: u32 = 1_000;
/// How often is asked for what is new.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(
    arguments: &EventsArguments,
    connection: &Connection,
    console: &mut Console<'_>,
    interrupted: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let mut listing = Listing {
        connection,
        filter: filter(arguments)?,
        last: None,
        noted: false,
    };
    tokio::select! {
        outcome = listing.run(arguments, console) => outcome,
        () = interrupted => Ok(()),
    }
}

/// What is asked for, but the page.
fn filter(arguments: &EventsArguments) -> Result<v1::ListEventsRequest, CliError> {
    let mut request = v1::ListEventsRequest {
        group: arguments.group.clone().unwrap_or_default(),
        worker: arguments.worker.clone().unwrap_or_default(),
        kinds: arguments.kinds.clone(),
        asked_for: arguments.asked_for,
        shard: arguments.shard,
        page_size: PAGE,
        ..v1::ListEventsRequest::default()
    };
    if request.shard.is_some() && request.group.is_empty() {
        return Err(CliError::Usage {
            message: "--shard needs the group of the shard".to_owned(),
        });
    }
    if let Some(since) = arguments.since {
        request.since_ms = now_ms().saturating_sub(millis(since)).max(1);
    }
    Ok(request)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The time of day here; that of the coordinators may differ a little.
#[allow(
    clippy::disallowed_methods,
    reason = "an operator asks by the time of day; nothing is decided by it"
)]
fn now_ms() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, millis)
}

struct Listing<'a> {
    connection: &'a Connection,
    filter: v1::ListEventsRequest,
    /// Cursor of the newest event printed.
    last: Option<v1::Cursor>,
    /// Where history begins was said.
    noted: bool,
}

impl Listing<'_> {
    async fn run(
        &mut self,
        arguments: &EventsArguments,
        console: &mut Console<'_>,
    ) -> Result<(), CliError> {
        if arguments.since.is_some() {
            self.print_on(console).await?;
        } else {
            self.print_latest(arguments.last, console).await?;
        }
        if !arguments.follow {
            return Ok(());
        }
        loop {
            if self.last.is_none() && self.filter.since_ms == 0 {
                self.filter.since_ms = now_ms().max(1);
            }
            tokio::time::sleep(FOLLOW_INTERVAL).await;
            self.print_on(console).await?;
        }
    }

    /// Prints the latest events, the newest last.
    async fn print_latest(
        &mut self,
        count: u32,
        console: &mut Console<'_>,
    ) -> Result<(), CliError> {
        let wanted = usize::try_from(count).unwrap_or(usize::MAX);
        let mut lines = Vec::new();
        let mut from = None;
        loop {
            let request = v1::ListEventsRequest {
                newest_first: true,
                from,
                page_size: count.clamp(1, PAGE),
                ..self.filter.clone()
            };
            let page = self.ask(request).await?;
            let names = names(&page);
            let newest = page.events.first().and_then(|event| event.cursor);
            self.last = self.last.or(newest);
            lines.extend(page.events.iter().map(|event| line(event, &names)));
            from = page.next;
            if from.is_none() {
                self.note(&page, console)?;
            }
            if from.is_none() || lines.len() >= wanted {
                break;
            }
        }
        lines.truncate(wanted);
        for line in lines.iter().rev() {
            print(line, console)?;
        }
        console.flush()
    }

    /// Prints what comes after the last event printed, the newest last.
    async fn print_on(&mut self, console: &mut Console<'_>) -> Result<(), CliError> {
        let mut from = self.last;
        loop {
            let request = v1::ListEventsRequest {
                from,
                ..self.filter.clone()
            };
            let page = self.ask(request).await?;
            self.note(&page, console)?;
            let names = names(&page);
            for event in &page.events {
                print(&line(event, &names), console)?;
                self.last = event.cursor.or(self.last);
            }
            console.flush()?;
            from = page.next;
            if from.is_none() {
                return Ok(());
            }
            self.last = from;
        }
    }

    /// Says once since when history is known.
    fn note(
        &mut self,
        page: &v1::ListEventsResponse,
        console: &mut Console<'_>,
    ) -> Result<(), CliError> {
        if self.noted {
            return Ok(());
        }
        self.noted = true;
        note_since(page.node_id, page.since_revision, &page.gaps, console)
    }

    async fn ask(
        &self,
        request: v1::ListEventsRequest,
    ) -> Result<v1::ListEventsResponse, CliError> {
        self.connection
            .call(Intent::Read, request, |service, request| async move {
                HistoryServiceClient::new(service)
                    .max_decoding_message_size(64 << 20)
                    .list_events(request)
                    .await
            })
            .await
    }
}

/// Says since when a node knows what happened, and where it does not.
pub(crate) fn note_since(
    node: u64,
    since: u64,
    gaps: &[v1::HistoryGap],
    console: &mut Console<'_>,
) -> Result<(), CliError> {
    console.note(format_args!(
        "node {node} has kept what happened since revision {since}"
    ))?;
    for gap in gaps {
        console.note(format_args!(
            "node {node} does not know what happened after revision {} up to {}",
            gap.after_revision, gap.until_revision
        ))?;
    }
    Ok(())
}

/// What makes lines of events, with the names in a page.
fn names(page: &v1::ListEventsResponse) -> Watch<'static> {
    let names = page.workers.iter();
    Watch::knowing(
        names
            .map(|name| (name.session, name.worker.clone()))
            .collect::<BTreeMap<u64, String>>(),
    )
}

fn line(event: &v1::HistoryEvent, names: &Watch<'_>) -> Line {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let mut line = match &event.what {
        Some(What::Event(event)) => match &event.event {
            Some(fact) => names.line_of(event.cursor, fact),
            None => Line::default(),
        },
        Some(What::Operation(operation)) => detail(operation),
        Some(What::Members(changed)) => detail(&members(changed)),
        Some(What::Text(text)) => detail(text),
        // A kind that is newer than this program.
        None => Line::default(),
    };
    // What happened to a group is in the kind already.
    if event.kind.starts_with("group-") || event.kind == "policy-set" {
        line.cause = None;
    }
    Line {
        cursor: event.cursor.map(Into::into),
        kind: Cow::Owned(event.kind.clone()),
        group: given(&event.group),
        at_ms: Some(Wide(event.at_ms)).filter(|at| at.0 > 0),
        by: given(&event.by),
        reason: given(&event.reason),
        ..line
    }
}

fn detail(text: &str) -> Line {
    Line {
        detail: Some(text.to_owned()),
        ..Line::default()
    }
}

fn members(changed: &v1::MembersChanged) -> String {
    let members: Vec<String> = changed
        .members
        .iter()
        .map(|member| {
            let role = if member.voter { "" } else { " (catching up)" };
            format!("{}={}{role}", member.id, member.peer_address)
        })
        .collect();
    members.join(", ")
}

fn print(line: &Line, console: &mut Console<'_>) -> Result<(), CliError> {
    if console.json() {
        return console.json_line(line);
    }
    console.line(&line.with_time())
}
