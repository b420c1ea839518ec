//! What operators say of workers.

use super::entry::{Entry, active_group};
use super::sessions::require_room;
use crate::command::{EndPause, SetWorkerMode};
use crate::event::Event;
use crate::ids::{GroupId, WorkerName};
use crate::rejection::Rejection;
use crate::session::{self, Pause, WorkerMode};

/// Says whether shards may be placed on a worker. Nothing happens if it is so already, except that a
/// pause begins anew: who asks again wants the whole time.
pub(super) fn set_worker_mode(
    entry: &mut Entry<'_>,
    command: SetWorkerMode,
) -> Result<(), Rejection> {
    let SetWorkerMode {
        group,
        worker,
        mode,
        pause_timeout,
    } = command;
    let found = active_group(entry.state(), &group)?;
    let since = entry.revision();
    let pause = match (mode, pause_timeout) {
        (WorkerMode::Paused, Some(timeout)) if session::PAUSE_TIMEOUT.contains(&timeout) => {
            Some(Pause { since, timeout })
        }
        (WorkerMode::Active | WorkerMode::Draining | WorkerMode::Cordoned, None) => None,
        _ => {
            let (least, most) = session::PAUSE_TIMEOUT.into_inner();
            return Err(Rejection::OutOfBounds {
                field: "pause_timeout",
                allowed: format!("{least:?} to {most:?} with the mode paused, and nothing else"),
            });
        }
    };
    let known = found.workers.get(&worker).map(|known| known.mode);
    if known.unwrap_or_default() == mode && pause.is_none() {
        return Ok(());
    }
    require_room(found, &worker)?;
    let group = found.header.id;
    change(entry, group, worker, mode, pause);
    Ok(())
}

/// Ends a pause whose time is over. From then on the worker is like any other: what waited for it goes
/// elsewhere if it is not back.
pub(super) fn end_pause(entry: &mut Entry<'_>, command: EndPause) -> Result<(), Rejection> {
    let EndPause {
        group,
        worker,
        since,
    } = command;
    let Some(found) = entry.state().group(group) else {
        return Err(Rejection::GroupGone { group });
    };
    let pause = found.workers.get(&worker).and_then(|known| known.pause);
    if pause.is_none_or(|pause| pause.since != since) {
        return Err(Rejection::NotPaused { worker });
    }
    change(entry, group, worker, WorkerMode::Active, None);
    Ok(())
}

fn change(
    entry: &mut Entry<'_>,
    group: GroupId,
    worker: WorkerName,
    mode: WorkerMode,
    pause: Option<Pause>,
) {
    entry.change_worker(group, worker.clone(), |known| {
        known.mode = mode;
        known.pause = pause;
    });
    entry.record(Event::WorkerModeSet {
        group,
        worker,
        mode,
    });
}
