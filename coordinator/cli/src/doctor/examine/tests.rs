//! Each judgement, on a cluster in which nothing else is wrong.

use super::*;
use crate::doctor::finding::Severity;

fn member(id: u64) -> v1::Member {
    v1::Member {
        node: Some(v1::Node {
            id,
            peer_address: format!("n{id}:7401"),
            client_address: format!("n{id}:7400"),
            http_address: String::new(),
        }),
        voter: true,
        matched_index: 100,
    }
}

fn well(id: u64) -> Looked {
    let peers = (1..=3).filter(|peer| *peer != id);
    Looked {
        status: v1::StatusResponse {
            cluster_id: vec![7; 16].into(),
            node_id: id,
            leader_id: 1,
            last_log_index: 100,
            members: (1..=3).map(member).collect(),
            ..v1::StatusResponse::default()
        },
        diagnosis: v1::DiagnoseResponse {
            node_id: id,
            version: "0.1.0".to_owned(),
            addresses: member(id).node,
            heartbeat_interval_ms: 100,
            election_timeout_min_ms: 600,
            election_timeout_max_ms: 1_200,
            snapshot_entries: 1_000,
            log_syncs: Some(v1::LogSyncs {
                count: 100,
                p50_us: 1_000,
                p99_us: 2_345,
                max_us: 9_000,
            }),
            disk: Some(v1::Disk {
                free_bytes: 50 << 30,
                total_bytes: 100 << 30,
            }),
            clock: Some(v1::ClockReading {
                compared_ms: 3_600_000,
                wall_faster_ppm: -12,
            }),
            last_log_index: 100,
            peers: peers
                .map(|node_id| v1::PeerReading {
                    node_id,
                    round_trip_us: Some(400),
                    features: Vec::new(),
                })
                .collect(),
            ..v1::DiagnoseResponse::default()
        },
    }
}

fn group() -> v1::Group {
    v1::Group {
        name: "orders".to_owned(),
        shard_count: 4,
        serving: 4,
        workers: 2,
        ..v1::Group::default()
    }
}

fn healthy() -> Gathered {
    Gathered {
        asked: well(2).status,
        nodes: (1..=3).map(|id| (member(id), Ok(well(id)))).collect(),
        groups: vec![group()],
    }
}

/// What is not well, as `verdict check where`.
fn wrong(gathered: &Gathered) -> Vec<String> {
    let findings = examine(gathered);
    let wrong = findings.iter().filter(|it| it.severity != Severity::Ok);
    wrong
        .map(|it| format!("{} {} {}", it.severity.word(), it.check, it.place))
        .collect()
}

fn with(change: impl FnOnce(&mut Gathered)) -> Vec<String> {
    let mut gathered = healthy();
    change(&mut gathered);
    wrong(&gathered)
}

fn with_node(change: impl FnOnce(&mut Looked)) -> Vec<String> {
    with(|gathered| {
        if let Some((_, Ok(looked))) = gathered.nodes.get_mut(1) {
            change(looked);
        }
    })
}

#[test]
fn nothing_is_wrong_with_a_healthy_cluster_and_everything_was_looked_at() {
    let findings = examine(&healthy());
    assert_eq!(wrong(&healthy()), [""; 0]);
    let checks: BTreeSet<&str> = findings.iter().map(|finding| finding.check).collect();
    let expected = [
        "clock rate",
        "config",
        "disk space",
        "disk sync",
        "group",
        "leader",
        "log",
        "member",
        "network",
        "quorum",
        "version",
    ];
    assert_eq!(checks, expected.into());
}

#[test]
fn a_node_that_is_down_is_a_problem_of_the_node_and_of_the_quorum() {
    let down = |gathered: &mut Gathered, place: usize| {
        gathered.nodes[place].1 = Err("connection refused".to_owned());
    };
    let one = with(|gathered| down(gathered, 2));
    assert_eq!(one, ["problem quorum cluster", "problem reach node 3"]);
    let five = with(|gathered| {
        for id in 4..=5 {
            gathered.nodes.push((member(id), Ok(well(id))));
        }
        down(gathered, 2);
    });
    assert_eq!(five, ["problem reach node 3"]);
}

#[test]
fn a_node_alone_and_an_even_number_are_warned_of() {
    let alone = with(|gathered| gathered.nodes.truncate(1));
    assert_eq!(alone, ["warning quorum cluster"]);
    let four = with(|gathered| gathered.nodes.push((member(4), Ok(well(4)))));
    assert_eq!(four, ["warning quorum cluster"]);
}

#[test]
fn what_differs_between_nodes_is_found() {
    let timings = with_node(|looked| looked.diagnosis.election_timeout_min_ms = 700);
    assert_eq!(timings, ["problem config cluster"]);
    let versions = with_node(|looked| looked.diagnosis.version = "0.2.0".to_owned());
    assert_eq!(versions, ["warning version cluster"]);
    let leaders = with_node(|looked| looked.status.leader_id = 3);
    assert_eq!(leaders, ["warning leader cluster"]);
}

#[test]
fn a_node_that_is_another_or_elsewhere_is_found() {
    let other = with_node(|looked| looked.status.node_id = 9);
    assert_eq!(other, ["problem member node 2"]);
    let elsewhere = with_node(|looked| {
        looked.diagnosis.addresses = member(8).node;
    });
    assert_eq!(elsewhere, ["problem member node 2"]);
    let learner = with(|gathered| gathered.nodes[2].0.voter = false);
    assert_eq!(learner, ["problem quorum cluster", "warning member node 3"]);
}

#[test]
fn slow_disks_full_disks_and_odd_clocks_are_found() {
    let sync = |p99_us| {
        with_node(move |looked| {
            looked.diagnosis.log_syncs = Some(v1::LogSyncs {
                count: 100,
                p99_us,
                ..v1::LogSyncs::default()
            });
        })
    };
    assert_eq!(sync(60_000), ["warning disk sync node 2"]);
    assert_eq!(sync(400_000), ["problem disk sync node 2"]);
    let space = |free_bytes| {
        with_node(move |looked| {
            looked.diagnosis.disk = Some(v1::Disk {
                free_bytes,
                total_bytes: 100,
            });
        })
    };
    assert_eq!(space(14), ["warning disk space node 2"]);
    assert_eq!(space(4), ["problem disk space node 2"]);
    let clock = |compared_ms, wall_faster_ppm| {
        with_node(move |looked| {
            looked.diagnosis.clock = Some(v1::ClockReading {
                compared_ms,
                wall_faster_ppm,
            });
        })
    };
    assert_eq!(clock(61_000, 2_000), ["warning clock rate node 2"]);
    assert_eq!(clock(61_000, -60_000), ["problem clock rate node 2"]);
    assert_eq!(clock(1_000, 900_000), [""; 0], "nothing can be said yet");
}

#[test]
fn a_log_that_grows_and_a_way_that_is_cut_are_found() {
    let grown = with_node(|looked| looked.diagnosis.last_log_index = 2_001);
    assert_eq!(grown, ["warning log node 2"]);
    let cut = with_node(|looked| looked.diagnosis.peers[0].round_trip_us = None);
    assert_eq!(cut, ["problem network node 2"]);
    let far = with_node(|looked| looked.diagnosis.peers[0].round_trip_us = Some(150_000));
    assert_eq!(far, ["warning network node 2"]);
}

#[test]
fn groups_that_are_not_served_and_a_restore_that_waits_are_found() {
    let idle = with(|gathered| gathered.groups[0].workers = 0);
    assert_eq!(idle, ["warning group group orders"]);
    let unowned = with(|gathered| gathered.groups[0].unowned = 1);
    assert_eq!(unowned, ["warning group group orders"]);
    let restored = with(|gathered| gathered.asked.settling_ms = 10_000);
    assert_eq!(restored, ["warning restore cluster"]);
}
