//! What operators say of workers, and of groups as a whole.

use std::time::Duration;

use tenure_ownership::command::{SetFreeze, SetWorkerMode};
use tenure_ownership::group::Freeze;
use tenure_ownership::session::{PAUSE_TIMEOUT, WorkerMode};
use tenure_proto::v1 as pb;

use super::{Invalid, group_name, text, worker_name};

/// How long a pause lasts unless the request says. Long enough for a process that is replaced by a newer
/// version, short enough that nobody forgets it for a day.
const PAUSE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);

pub(in crate::rpc) fn set_worker_mode(
    request: &pb::SetWorkerModeRequest,
) -> Result<SetWorkerMode, Invalid> {
    let mode = match request.mode() {
        pb::WorkerMode::Active => WorkerMode::Active,
        pb::WorkerMode::Draining => WorkerMode::Draining,
        pb::WorkerMode::Cordoned => WorkerMode::Cordoned,
        pb::WorkerMode::Paused => WorkerMode::Paused,
        pb::WorkerMode::Unspecified => return Err(Invalid::missing("mode")),
    };
    Ok(SetWorkerMode {
        group: group_name("group", &request.group)?,
        worker: worker_name("worker", &request.worker)?,
        mode,
        pause_timeout: pause_timeout(mode, request.pause_timeout_ms)?,
    })
}

fn pause_timeout(mode: WorkerMode, wish_ms: u64) -> Result<Option<Duration>, Invalid> {
    if mode != WorkerMode::Paused {
        if wish_ms == 0 {
            return Ok(None);
        }
        return Err(Invalid::new(
            "pause_timeout_ms",
            "is for the mode PAUSED alone",
        ));
    }
    if wish_ms == 0 {
        return Ok(Some(PAUSE_TIMEOUT_DEFAULT));
    }
    let wish = Duration::from_millis(wish_ms);
    if PAUSE_TIMEOUT.contains(&wish) {
        return Ok(Some(wish));
    }
    let (least, most) = PAUSE_TIMEOUT.into_inner();
    let allowed = format!(
        "is {wish_ms}, allowed is {} to {}",
        least.as_millis(),
        most.as_millis()
    );
    Err(Invalid::new("pause_timeout_ms", allowed))
}

pub(in crate::rpc) fn set_freeze(request: pb::SetFreezeRequest) -> Result<SetFreeze, Invalid> {
    text("reason", &request.reason, Freeze::REASON_BYTES_MAX)?;
    if request.reason.chars().any(char::is_control) {
        return Err(Invalid::new(
            "reason",
            "must not contain line breaks or control characters",
        ));
    }
    Ok(SetFreeze {
        group: group_name("group", &request.group)?,
        reason: Some(request.reason).filter(|reason| !reason.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(mode: pb::WorkerMode, pause_timeout_ms: u64) -> pb::SetWorkerModeRequest {
        pb::SetWorkerModeRequest {
            group: "orders".to_owned(),
            worker: "w".to_owned(),
            mode: mode.into(),
            pause_timeout_ms,
        }
    }

    #[test]
    fn a_pause_has_a_length_and_no_other_mode_has_one() {
        let length =
            |mode, wish| set_worker_mode(&request(mode, wish)).map(|set| set.pause_timeout);
        let five_minutes = Duration::from_secs(300);
        assert_eq!(length(pb::WorkerMode::Paused, 0), Ok(Some(five_minutes)));
        let second = Duration::from_secs(1);
        assert_eq!(length(pb::WorkerMode::Paused, 1_000), Ok(Some(second)));
        assert_eq!(length(pb::WorkerMode::Cordoned, 0), Ok(None));
        for (mode, wish) in [
            (pb::WorkerMode::Paused, 999),
            (pb::WorkerMode::Paused, 86_400_001),
            (pb::WorkerMode::Draining, 1_000),
        ] {
            assert_eq!(length(mode, wish).unwrap_err().field, "pause_timeout_ms");
        }
    }

    #[test]
    fn a_freeze_without_a_reason_is_the_end_of_one() {
        let freeze = |reason: &str| {
            set_freeze(pb::SetFreezeRequest {
                group: "orders".to_owned(),
                reason: reason.to_owned(),
            })
        };
        assert_eq!(freeze("").unwrap().reason, None);
        assert_eq!(freeze("deploy").unwrap().reason.as_deref(), Some("deploy"));
        assert_eq!(freeze(&"x".repeat(257)).unwrap_err().field, "reason");
        assert_eq!(freeze("two\nlines").unwrap_err().field, "reason");
    }
}
