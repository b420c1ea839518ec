//! The state as text.

use std::fmt::Write;

use tenure_ownership::group::Group;
use tenure_ownership::ids::ShardIndex;
use tenure_ownership::record::checkpoint_key;
use tenure_ownership::shard::{Shard, ShardState};

use super::Run;

/// Shows one kind of thing of all groups.
pub(super) fn show(run: &Run, what: &str) -> Result<String, String> {
    let mut text = String::new();
    match what {
        "groups" => groups(run, &mut text),
        "sessions" => sessions(run, &mut text),
        "workers" => workers(run, &mut text),
        "shards" => shards(run, &mut text),
        "placements" => placements(run, &mut text),
        _ => return Err("nothing like that to show".to_owned()),
    }
    if text.is_empty() {
        text.push_str("none\n");
    }
    Ok(run.with_names(&text))
}

fn groups(run: &Run, text: &mut String) {
    for group in run.state.groups() {
        let header = &group.header;
        let bytes = run.state.checkpoint_bytes(header.id);
        writeln!(
            text,
            "group {} #{} {:?} shards={} policy_revision={} checkpoint_bytes={bytes}",
            header.name, header.id, header.phase, header.shard_count, header.policy_revision
        )
        .unwrap();
    }
    let names = ["orders", "other"].map(|name| name.parse().unwrap());
    for name in &names {
        if let Some(tombstone) = run.state.tombstone(name) {
            let (floor, at) = (tombstone.floor, tombstone.removed_at);
            writeln!(text, "tombstone {name} floor={floor} removed_at={at}").unwrap();
        }
    }
}

fn sessions(run: &Run, text: &mut String) {
    for (id, session) in run.state.sessions() {
        let owned = run
            .state
            .owned(id)
            .map(|index| index.to_string())
            .collect::<Vec<_>>();
        writeln!(
            text,
            "session={id} worker={} ttl={:?} window={:?} weight={} owned={}",
            session.worker,
            session.ttl,
            session.window,
            session.weight,
            owned.join(",")
        )
        .unwrap();
    }
}

fn workers(run: &Run, text: &mut String) {
    for (name, worker) in run.state.groups().flat_map(|group| group.workers.iter()) {
        let session = worker
            .session
            .map_or_else(|| "none".to_owned(), |id| id.to_string());
        writeln!(text, "worker {name} {:?} session={session}", worker.mode).unwrap();
    }
}

fn placements(run: &Run, text: &mut String) {
    for group in run.state.groups() {
        for (index, placement) in group.placements.iter() {
            write!(text, "shard {index}").unwrap();
            if let Some(worker) = &placement.pinned_to {
                write!(text, " pinned to {worker}").unwrap();
            }
            for worker in &placement.kept_off {
                write!(text, " kept off {worker}").unwrap();
            }
            if let Some(quarantine) = placement.quarantine {
                write!(text, " in quarantine after {} crashes", quarantine.crashes).unwrap();
            }
            writeln!(text).unwrap();
        }
    }
}

fn shards(run: &Run, text: &mut String) {
    for group in run.state.groups() {
        for (index, shard) in group.indexed_shards() {
            writeln!(text, "shard {index} {}", shard_line(shard)).unwrap();
            details(run, text, group, index, shard);
        }
    }
}

fn shard_line(shard: &Shard) -> String {
    let epoch = shard
        .epoch
        .map_or_else(|| "none".to_owned(), |epoch| epoch.to_string());
    let state = match &shard.state {
        ShardState::Unowned(None) => "unowned".to_owned(),
        ShardState::Unowned(Some(end)) => {
            let how = if end.clean { "clean" } else { "unclean" };
            format!("unowned last={} {how}", end.worker)
        }
        ShardState::Opening(owner) => format!("opening owner={owner}"),
        ShardState::Serving(owner) => format!("serving owner={owner}"),
        ShardState::Revoking(revocation) => {
            let owner = revocation.owner;
            let next = revocation
                .next
                .map_or_else(String::new, |next| format!(" next={next}"));
            format!(
                "revoking owner={owner}{next} reason={:?}",
                revocation.reason
            )
        }
    };
    let floor = if shard.floor == 0 {
        String::new()
    } else {
        format!(" floor={}", shard.floor)
    };
    format!("epoch={epoch}{floor} {state}")
}

fn details(run: &Run, text: &mut String, group: &Group, index: ShardIndex, shard: &Shard) {
    for ready in &shard.stores {
        writeln!(text, "  store {} ready at {}", ready.store, ready.epoch).unwrap();
    }
    if let Some(failure) = &shard.open_failure {
        let (count, worker, reason) = (failure.count, &failure.worker, &failure.reason);
        writeln!(
            text,
            "  failed to open {count} times, last on {worker}: {reason}"
        )
        .unwrap();
    }
    let Some(replicated) = &shard.replicated else {
        return;
    };
    writeln!(
        text,
        "  fence {} session={}",
        replicated.epoch, replicated.owner.session
    )
    .unwrap();
    let Some(latest) = &replicated.latest else {
        return;
    };
    let blob = run.disk.get(&checkpoint_key(group.header.id, index));
    let data = blob.map(|data| String::from_utf8_lossy(data).into_owned());
    assert_eq!(
        latest.content.map(|content| u64::from(content.length)),
        data.as_ref().map(|data| data.len() as u64)
    );
    let data = data.map_or_else(|| "deleted".to_owned(), |data| format!("{data:?}"));
    writeln!(
        text,
        "  write {} sequence {}: {data}",
        latest.epoch, latest.sequence
    )
    .unwrap();
}
