//! Judging what was gathered.

use std::collections::BTreeSet;

use tenure_proto::v1;

use super::finding::{Finding, Findings};
use crate::text;

/// Log entries that a follower may lack before it is slow rather than busy.
const LAG_ENTRIES: u64 = 10_000;

/// Syncs that say something of a disk.
const SYNCS_MIN: u64 = 20;

/// A sync that takes longer holds up every grant by as much.
const SYNC_SLOW_US: u64 = 50_000;

/// Time over which two clocks can be compared.
const COMPARED_MIN_MS: u64 = 60_000;

/// A clock of a computer is right to a few hundred millionths; one that is set by steps shows more.
const CLOCK_ODD_PPM: u64 = 1_000;

/// What leases allow for: 5 %.
const CLOCK_WRONG_PPM: u64 = 50_000;

/// Free part of a disk, in hundredths.
const DISK_LOW_PERCENT: u64 = 15;
const DISK_FULL_PERCENT: u64 = 5;

/// What a node says of itself.
pub(super) struct Looked {
    pub(super) status: v1::StatusResponse,
    pub(super) diagnosis: v1::DiagnoseResponse,
}

/// All that was found out.
pub(super) struct Gathered {
    /// The cluster, as the node that was asked first sees it.
    pub(super) asked: v1::StatusResponse,
    /// Each member and what it says, or why it says nothing.
    pub(super) nodes: Vec<(v1::Member, Result<Looked, String>)>,
    pub(super) groups: Vec<v1::Group>,
}

/// Judges everything, the cluster before its nodes and the nodes before the groups.
pub(super) fn examine(gathered: &Gathered) -> Vec<Finding> {
    let mut list = Vec::new();
    if gathered.asked.cluster_id.is_empty() {
        Findings::of(&mut list, "cluster", "cluster").problem(
            "the node asked belongs to no cluster",
            "make one with `tenure cluster init`, or ask another node",
        );
        return list;
    }
    if gathered.asked.removed {
        Findings::of(&mut list, "cluster", node_name(gathered.asked.node_id)).problem(
            "the node asked was removed from the cluster; what it says is old",
            "stop it, remove its data folder, and ask another node",
        );
        return list;
    }
    quorum(gathered, &mut list);
    leader(gathered, &mut list);
    same_everywhere(gathered, &mut list);
    restored(gathered, &mut list);
    for (member, looked) in &gathered.nodes {
        node(gathered, member, looked, &mut list);
    }
    for group in &gathered.groups {
        owners(group, &mut list);
    }
    list
}

fn node_name(id: u64) -> String {
    format!("node {id}")
}

fn id_of(member: &v1::Member) -> u64 {
    member.node.as_ref().map_or(0, |node| node.id)
}

fn looked(gathered: &Gathered) -> impl Iterator<Item = &Looked> {
    gathered
        .nodes
        .iter()
        .filter_map(|(_, looked)| looked.as_ref().ok())
}

fn quorum(gathered: &Gathered, list: &mut Vec<Finding>) {
    let voters = gathered.nodes.iter().filter(|(member, _)| member.voter);
    let (mut count, mut answering) = (0_usize, 0_usize);
    for (_, looked) in voters {
        count += 1;
        answering += usize::from(looked.is_ok());
    }
    let majority = count / 2 + 1;
    let mut findings = Findings::of(list, "quorum", "cluster");
    let voters = format!("{answering} of {count} voters answer");
    match answering.checked_sub(majority) {
        None => findings.problem(
            format!("{voters}, {majority} are needed: nothing can be granted"),
            "start the others; if they are lost for good, restore a backup (docs/operations.md)",
        ),
        Some(0) if count == 1 => findings.warning(
            format!("{voters}: without it nothing works, and what its disk loses is lost"),
            "add two nodes with `tenure cluster add`",
        ),
        Some(0) => findings.problem(
            format!("{voters}: none more may be lost"),
            "start the others, or replace them (docs/operations.md)",
        ),
        Some(spare) if count.is_multiple_of(2) => findings.warning(
            format!("{voters}: {spare} more may be lost, which one node less would allow as well"),
            "an odd number of nodes serves better",
        ),
        Some(spare) => findings.ok(format!("{voters}: {spare} more may be lost")),
    }
}

fn leader(gathered: &Gathered, list: &mut Vec<Finding>) {
    let said: BTreeSet<u64> = looked(gathered)
        .map(|looked| looked.status.leader_id)
        .collect();
    let mut findings = Findings::of(list, "leader", "cluster");
    let ids: Vec<u64> = said.iter().copied().collect();
    match ids.as_slice() {
        [] => {}
        [0] => findings.problem(
            "no node knows a leader: nothing can be granted",
            "see that a majority of the nodes reach each other at their peer addresses",
        ),
        [leader] => findings.ok(format!("node {leader} leads, and all that answer say so")),
        _ => findings.warning(
            format!("the nodes name different leaders: {}", listed(&ids)),
            "ask again in a moment; if it stays so, some nodes do not reach the others",
        ),
    }
}

fn listed(ids: &[u64]) -> String {
    let name = |id: &u64| match id {
        0 => "none".to_owned(),
        id => format!("node {id}"),
    };
    ids.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn same_everywhere(gathered: &Gathered, list: &mut Vec<Finding>) {
    let timings: BTreeSet<(u64, u64, u64)> = looked(gathered)
        .map(|looked| {
            let found = &looked.diagnosis;
            (
                found.heartbeat_interval_ms,
                found.election_timeout_min_ms,
                found.election_timeout_max_ms,
            )
        })
        .collect();
    let mut findings = Findings::of(list, "config", "cluster");
    if timings.len() > 1 {
        findings.problem(
            format!("the nodes have different raft timings (heartbeat, election min, max in ms): {timings:?}"),
            "give all nodes the same [raft] section and restart them one after another",
        );
    } else {
        findings.ok("all nodes that answer have the same raft timings");
    }
    let versions: BTreeSet<&str> = looked(gathered)
        .map(|looked| looked.diagnosis.version.as_str())
        .collect();
    let shown = versions.iter().copied().collect::<Vec<_>>().join(", ");
    let mut findings = Findings::of(list, "version", "cluster");
    if versions.len() > 1 {
        findings.warning(
            format!("the nodes have different versions: {shown}"),
            "finish the update: restart the older ones, one after another",
        );
    } else {
        findings.ok(format!("all nodes that answer have version {shown}"));
    }
}

fn restored(gathered: &Gathered, list: &mut Vec<Finding>) {
    if gathered.asked.settling_ms > 0 {
        Findings::of(list, "restore", "cluster").warning(
            format!(
                "restored from a backup: nothing is granted until a leader has waited {}",
                text::millis(gathered.asked.settling_ms)
            ),
            "wait; it ends by itself",
        );
    }
}

fn node(
    gathered: &Gathered,
    member: &v1::Member,
    looked: &Result<Looked, String>,
    list: &mut Vec<Finding>,
) {
    let place = node_name(id_of(member));
    let looked = match looked {
        Ok(looked) => looked,
        Err(error) => {
            Findings::of(list, "reach", &place).problem(
                format!("does not answer: {error}"),
                "start it, or look at its log; replace it if it is lost (docs/operations.md)",
            );
            return;
        }
    };
    standing(gathered, member, looked, list);
    log_syncs(&place, &looked.diagnosis, list);
    disk(&place, &looked.diagnosis, list);
    clock(&place, &looked.diagnosis, list);
    log(&place, &looked.diagnosis, list);
    peers(&place, &looked.diagnosis, list);
}

/// Whether the node is the one that the cluster takes it for, and keeps up.
fn standing(gathered: &Gathered, member: &v1::Member, looked: &Looked, list: &mut Vec<Finding>) {
    let place = node_name(id_of(member));
    let mut findings = Findings::of(list, "member", &place);
    if looked.status.node_id != id_of(member)
        || looked.status.cluster_id != gathered.asked.cluster_id
    {
        return findings.problem(
            format!(
                "at its address answers node {} of cluster {}",
                looked.status.node_id,
                text::or_dash(&text::cluster_id(&looked.status.cluster_id))
            ),
            "its data folder was mixed up or lost: replace the node (docs/operations.md)",
        );
    }
    let known = member.node.clone().unwrap_or_default();
    let own = looked.diagnosis.addresses.clone().unwrap_or_default();
    if (&known.peer_address, &known.client_address) != (&own.peer_address, &own.client_address) {
        return findings.problem(
            format!(
                "the cluster reaches it at {} and {}, its configuration says {} and {}",
                known.peer_address, known.client_address, own.peer_address, own.client_address
            ),
            "correct `advertise` in its configuration, or replace it under its new addresses",
        );
    }
    if !member.voter {
        return findings.warning(
            "is catching up and has no vote yet",
            "wait; if it was added long ago, repeat `tenure cluster add`",
        );
    }
    let leader = looked_leader(gathered);
    let matched = leader.and_then(|leader| {
        let members = &leader.status.members;
        let of_it = members.iter().find(|other| id_of(other) == id_of(member));
        of_it.map(|other| (leader.status.last_log_index, other.matched_index))
    });
    match matched {
        Some((last, matched)) if matched > 0 && last.saturating_sub(matched) > LAG_ENTRIES => {
            findings.warning(
                format!("lacks {} entries of the log", last.saturating_sub(matched)),
                "see whether its disk or its network is slower than the others'",
            );
        }
        _ => findings.ok("is the voter that the cluster takes it for"),
    }
}

fn looked_leader(gathered: &Gathered) -> Option<&Looked> {
    looked(gathered).find(|looked| looked.status.leader_id == looked.status.node_id)
}

fn log_syncs(place: &str, diagnosis: &v1::DiagnoseResponse, list: &mut Vec<Finding>) {
    let syncs = diagnosis.log_syncs.unwrap_or_default();
    let mut findings = Findings::of(list, "disk sync", place);
    let shown = format!(
        "99 of 100 syncs of the log took at most {} ms, half {} ms, the longest {} ms ({} measured)",
        tenths(syncs.p99_us),
        tenths(syncs.p50_us),
        tenths(syncs.max_us),
        syncs.count
    );
    let patience_us = diagnosis.election_timeout_min_ms.saturating_mul(1_000) / 2;
    if syncs.count < SYNCS_MIN {
        findings.ok(format!(
            "only {} syncs of the log were measured",
            syncs.count
        ));
    } else if syncs.p99_us > patience_us {
        findings.problem(
            format!("{shown}: the cluster may lose its leader over it"),
            "give the data folder a disk of its own, or a faster one",
        );
    } else if syncs.p99_us > SYNC_SLOW_US {
        findings.warning(
            format!("{shown}: every grant waits for it"),
            "see what else writes to the disk of the data folder",
        );
    } else {
        findings.ok(shown);
    }
}

/// Thousandths as a number with one decimal place.
fn tenths(us: u64) -> String {
    format!("{}.{}", us / 1_000, us % 1_000 / 100)
}

fn disk(place: &str, diagnosis: &v1::DiagnoseResponse, list: &mut Vec<Finding>) {
    let Some(disk) = diagnosis.disk else { return };
    let mut findings = Findings::of(list, "disk space", place);
    let percent = disk.free_bytes.saturating_mul(100) / disk.total_bytes.max(1);
    let shown = format!(
        "{} MiB of {} MiB are free ({percent} %)",
        disk.free_bytes >> 20,
        disk.total_bytes >> 20
    );
    if percent < DISK_FULL_PERCENT {
        findings.problem(
            format!("{shown}: a node that cannot write stops"),
            "make room now",
        );
    } else if percent < DISK_LOW_PERCENT {
        findings.warning(shown, "make room");
    } else {
        findings.ok(shown);
    }
}

fn clock(place: &str, diagnosis: &v1::DiagnoseResponse, list: &mut Vec<Finding>) {
    let Some(clock) = diagnosis.clock else { return };
    let mut findings = Findings::of(list, "clock rate", place);
    if clock.compared_ms < COMPARED_MIN_MS {
        return findings.ok(format!(
            "compared for {} only, which says nothing yet",
            text::millis(clock.compared_ms)
        ));
    }
    let shown = format!(
        "its wall clock went {} millionths {} than the one leases are measured with, over {}",
        clock.wall_faster_ppm.unsigned_abs(),
        if clock.wall_faster_ppm < 0 {
            "slower"
        } else {
            "faster"
        },
        text::millis(clock.compared_ms)
    );
    match clock.wall_faster_ppm.unsigned_abs() {
        ppm if ppm > CLOCK_WRONG_PPM => findings.problem(
            format!("{shown}: more than the 5 % that `is_current()` allows for"),
            "unless somebody has set the clock since the node was started, move the node elsewhere",
        ),
        ppm if ppm > CLOCK_ODD_PPM => findings.warning(
            shown,
            "somebody has set the clock, or it is a bad one: see what keeps it right",
        ),
        // It cannot be seen from one machine that both of its clocks go wrong together.
        _ => findings.ok(shown),
    }
}

fn log(place: &str, diagnosis: &v1::DiagnoseResponse, list: &mut Vec<Finding>) {
    let mut findings = Findings::of(list, "log", place);
    let since = diagnosis
        .last_log_index
        .saturating_sub(diagnosis.snapshot_index);
    let kept = diagnosis
        .last_log_index
        .saturating_sub(diagnosis.purged_index);
    let shown = format!("{since} entries since the last snapshot, {kept} kept");
    if since > diagnosis.snapshot_entries.saturating_mul(2) {
        findings.warning(
            format!("{shown}: a snapshot is due after {}", diagnosis.snapshot_entries),
            "look into its log for a snapshot that cannot be built: the log grows, and a restart takes long",
        );
    } else {
        findings.ok(shown);
    }
}

fn peers(place: &str, diagnosis: &v1::DiagnoseResponse, list: &mut Vec<Finding>) {
    let mut findings = Findings::of(list, "network", place);
    for peer in &diagnosis.peers {
        let to = node_name(peer.node_id);
        let Some(round_trip_us) = peer.round_trip_us else {
            findings.problem(
                format!("does not reach {to} at its peer address"),
                "see that it runs, and what is between the two",
            );
            continue;
        };
        let shown = format!("{to} answers within {} ms", tenths(round_trip_us));
        if round_trip_us > diagnosis.heartbeat_interval_ms.saturating_mul(1_000) {
            findings.warning(
                format!("{shown}, longer than a heartbeat interval"),
                "raise the raft timings of all nodes, or bring the nodes closer together",
            );
        } else {
            findings.ok(shown);
        }
    }
}

fn owners(group: &v1::Group, list: &mut Vec<Finding>) {
    let mut findings = Findings::of(list, "group", format!("group {}", group.name));
    let unserved = group.unowned + group.opening;
    if group.deleting {
        findings.ok("is being deleted");
    } else if group.workers == 0 {
        findings.warning(
            format!(
                "has no worker: {} shards are served by nobody",
                group.shard_count
            ),
            "start workers, or delete the group",
        );
    } else if unserved > 0 {
        findings.warning(
            format!(
                "{unserved} of {} shards are not served ({} without an owner, {} being opened)",
                group.shard_count, group.unowned, group.opening
            ),
            "look again in a moment, then at one of them with `tenure shard show`",
        );
    } else {
        findings.ok(format!(
            "{} shards are served by {} workers",
            group.shard_count, group.workers
        ));
    }
}

#[cfg(test)]
mod tests;
