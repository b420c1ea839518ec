//! `tenure watch`: every event of a group, one line each.
//!
//! The cursor of the last line printed is where the next stream goes on, so a broken stream leaves no
//! gap and repeats nothing. Where that is not possible any more, the coordinator says so, the command
//! passes it on, and starts again from the state.

pub(crate) mod line;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use tenure_proto::v1;
use tenure_proto::v1::event::Event as Fact;
use tenure_proto::v1::ownership_service_client::OwnershipServiceClient;
use tenure_proto::v1::watch_response::Message;

use crate::command::WatchArguments;
use crate::connection::Connection;
use crate::console::Console;
use crate::error::CliError;
use crate::text::{self, Wide};

use self::line::{CursorView, Line};

/// Largest message taken: a part of the state with tens of thousands of shards.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// A stream that breaks at once again is opened at this pace.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

/// How a stream came to its end.
enum End {
    /// The group is gone.
    Removed,
    /// The coordinator wants the watcher to start again from the state.
    Resync,
    /// The connection broke or the node stopped.
    Broken(String),
}

pub(crate) async fn run(
    arguments: &WatchArguments,
    connection: &Connection,
    console: &mut Console<'_>,
    interrupted: impl Future<Output = ()>,
) -> Result<(), CliError> {
    let mut watch = Watch {
        group: &arguments.group,
        from_now: arguments.from_now,
        ..Watch::default()
    };
    tokio::select! {
        outcome = watch.follow(connection, console) => outcome,
        () = interrupted => Ok(()),
    }
}

#[derive(Default)]
pub(crate) struct Watch<'a> {
    group: &'a str,
    from_now: bool,
    /// Cursor of the last thing printed; `None` before the state is complete.
    after: Option<v1::Cursor>,
    /// Names of the live sessions, for lines that people can read.
    names: BTreeMap<u64, String>,
}

impl Watch<'_> {
    /// Knows names of sessions: for lines of events that do not come from a watch.
    pub(crate) fn knowing(names: BTreeMap<u64, String>) -> Self {
        Self {
            names,
            ..Self::default()
        }
    }

    async fn follow(
        &mut self,
        connection: &Connection,
        console: &mut Console<'_>,
    ) -> Result<(), CliError> {
        loop {
            let request = v1::WatchRequest {
                group: self.group.to_owned(),
                after: self.after,
            };
            let mut stream = connection
                .subscribe(request, |channel, request| async move {
                    OwnershipServiceClient::new(channel)
                        .max_decoding_message_size(MESSAGE_BYTES_MAX)
                        .watch(request)
                        .await
                })
                .await?;
            match self.print_stream(&mut stream, console).await? {
                End::Removed => return console.note(format_args!("group {} is gone", self.group)),
                End::Resync => self.resync(console)?,
                End::Broken(cause) => {
                    console.note(format_args!("the stream broke ({cause}): {}", self.place()))?;
                    tokio::time::sleep(REOPEN_PAUSE).await;
                }
            }
        }
    }

    async fn print_stream(
        &mut self,
        stream: &mut tonic::Streaming<v1::WatchResponse>,
        console: &mut Console<'_>,
    ) -> Result<End, CliError> {
        loop {
            let message = match stream.message().await {
                Ok(Some(response)) => response.message,
                Ok(None) => return Ok(End::Broken("the node ended it".to_owned())),
                // The node says by a code of its own what cannot be helped by asking again.
                Err(status) => match CliError::from_status(&status) {
                    error @ (CliError::NotFound { .. }
                    | CliError::Refused { .. }
                    | CliError::Usage { .. }) => return Err(error),
                    other => return Ok(End::Broken(other.to_string())),
                },
            };
            match message {
                Some(Message::State(part)) => self.state(part, console)?,
                Some(Message::Events(batch)) => {
                    let removed = self.events(batch, console)?;
                    if removed {
                        return Ok(End::Removed);
                    }
                }
                Some(Message::Progress(cursor)) => self.after = Some(cursor),
                Some(Message::Resync(_)) => return Ok(End::Resync),
                // A kind of message that is newer than this build; the cursors tell what it was about.
                None => {}
            }
        }
    }

    fn place(&self) -> String {
        match self.after {
            Some(cursor) => format!("going on after {}", CursorView::from(cursor)),
            None => "starting again".to_owned(),
        }
    }

    fn resync(&mut self, console: &mut Console<'_>) -> Result<(), CliError> {
        let after = self.after.take();
        let at = after.map_or_else(String::new, |at| format!(" after {}", CursorView::from(at)));
        console.note(format_args!(
            "resync: events{at} are not kept any more, so some are missing here; \
             starting again from the state"
        ))?;
        self.names.clear();
        // What is printed from here on must show what was missed.
        self.from_now = false;
        if console.json() {
            return console.json_line(&Line {
                kind: "resync".into(),
                ..Line::default()
            });
        }
        Ok(())
    }

    fn state(&mut self, part: v1::WatchState, console: &mut Console<'_>) -> Result<(), CliError> {
        for worker in part.workers {
            self.names.insert(worker.session, worker.worker);
        }
        if !self.from_now {
            for shard in part.shards {
                let line = Line {
                    shard: Some(shard.index),
                    phase: Some(text::phase(shard.phase)),
                    ..self
                        .line(part.at, "state")
                        .tenure(shard.epoch, shard.owner, &self.names)
                };
                print(&line, console)?;
            }
            console.flush()?;
        }
        // Before the last part a broken stream must start the state again.
        if part.last {
            self.after = part.at;
        }
        Ok(())
    }

    /// Prints the events of one message. Returns whether the group is gone.
    fn events(
        &mut self,
        batch: v1::WatchEvents,
        console: &mut Console<'_>,
    ) -> Result<bool, CliError> {
        let mut removed = false;
        let mut ended = Vec::new();
        for event in batch.events {
            let cursor = event.cursor;
            let Some(fact) = event.event else {
                console.note("an event of a kind that this program is too old for was left out")?;
                continue;
            };
            removed |= is_removal(&fact);
            if let Fact::Registered(registered) = &fact {
                self.names
                    .insert(registered.session, registered.worker.clone());
            }
            let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
            let line = Line {
                at_ms: Some(Wide(batch.at_ms)).filter(|at| at.0 > 0),
                by: given(&batch.by),
                reason: given(&batch.reason),
                ..self.line_of(cursor, &fact)
            };
            print(&line, console)?;
            if let Fact::SessionEnded(event) = &fact {
                ended.push(event.session);
            }
            self.after = cursor.or(self.after);
        }
        // The ends of its tenures follow the end of a session, and shall name the worker.
        for session in ended {
            self.names.remove(&session);
        }
        self.after = batch.at.or(self.after);
        console.flush()?;
        Ok(removed)
    }

    fn line(&self, cursor: Option<v1::Cursor>, kind: &'static str) -> Line {
        Line {
            cursor: Some(cursor.unwrap_or_default().into()),
            kind: kind.into(),
            ..Line::default()
        }
    }

    pub(crate) fn line_of(&self, cursor: Option<v1::Cursor>, fact: &Fact) -> Line {
        let names = &self.names;
        let line = |kind| self.line(cursor, kind);
        match fact {
            Fact::Registered(event) => Line {
                session: Some(Wide(event.session)),
                worker: Some(event.worker.clone()),
                address: Some(event.address.clone()).filter(|address| !address.is_empty()),
                ..line("registered")
            },
            Fact::SessionEnded(event) => Line {
                session: Some(Wide(event.session)),
                worker: Some(event.worker.clone()),
                cause: Some(text::session_end(event.end)),
                ..line("session-ended")
            },
            Fact::Granted(event) => Line {
                shard: Some(event.shard),
                ..line("granted")
            }
            .tenure(event.epoch, event.owner, names),
            Fact::Serving(event) => Line {
                shard: Some(event.shard),
                ..line("serving")
            }
            .tenure(event.epoch, event.owner, names),
            Fact::Revoking(event) => Line {
                shard: Some(event.shard),
                cause: Some(text::revoke_reason(event.reason)),
                next_session: Some(Wide(event.next)).filter(|next| next.0 > 0),
                next_worker: names.get(&event.next).cloned(),
                ..line("revoking")
            }
            .tenure(event.epoch, event.owner, names),
            Fact::TenureEnded(event) => Line {
                shard: Some(event.shard),
                cause: Some(text::end_cause(event.cause)),
                detail: Some(event.detail.clone()).filter(|detail| !detail.is_empty()),
                ..line("tenure-ended")
            }
            .tenure(event.epoch, event.owner, names),
            Fact::FloorRaised(event) => Line {
                shard: Some(event.shard),
                floor: Some(Wide(event.floor)),
                ..line("floor-raised")
            },
            Fact::GroupChanged(event) => Line {
                cause: Some(text::group_change(event.change)),
                detail: Some(event.reason.clone()).filter(|reason| !reason.is_empty()),
                ..line("group-changed")
            },
            Fact::WorkerModeSet(event) => Line {
                worker: Some(event.worker.clone()),
                mode: Some(text::worker_mode(event.mode)),
                ..line("worker-mode-set")
            },
            Fact::ShardPinned(event) => Line {
                shard: Some(event.shard),
                worker: Some(event.to.clone()).filter(|worker| !worker.is_empty()),
                kept_off: Some(event.kept_off.clone()).filter(|workers| !workers.is_empty()),
                ..line("shard-pinned")
            },
            Fact::ShardQuarantined(event) => Line {
                shard: Some(event.shard),
                crashes: Some(event.crashes),
                ..line("quarantined")
            },
            Fact::QuarantineEnded(event) => Line {
                shard: Some(event.shard),
                ..line("quarantine-ended")
            },
        }
    }
}

fn is_removal(fact: &Fact) -> bool {
    matches!(fact, Fact::GroupChanged(event) if event.change() == v1::GroupChange::Removed)
}

fn print(line: &Line, console: &mut Console<'_>) -> Result<(), CliError> {
    if console.json() {
        return console.json_line(line);
    }
    console.line(&line.for_people())
}
