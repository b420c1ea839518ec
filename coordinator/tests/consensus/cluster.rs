//! Elections, failures, restarts, snapshots and changes of the membership.

use std::time::Duration;

use tenure_coordinator::consensus::{MembershipError, ProposeError};
use tenure_ownership::State;
use tenure_ownership::command::Command;
use tenure_ownership::ids::{GroupId, SessionId};
use tenure_ownership::planner::{self, Observed};
use tokio::sync::oneshot;

use crate::support::{Cluster, WITHIN, create_group, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_leader_is_replaced_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let first = cluster.node(leader).propose_group("a").await;

    cluster.stop(leader).await;
    let next = cluster.leader().await;
    assert_ne!(next, leader);
    let second = cluster.node(next).propose_group("b").await;
    assert!(second > first);

    cluster.restart(leader).await;
    for id in cluster.ids() {
        let node = cluster.node(id);
        let revision = node.barrier().await;
        assert!(revision >= second);
        assert_eq!(node.groups(), ["a", "b"], "node {id}");
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_names_the_leader_to_proposers() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let follower = cluster.others(leader)[0];
    let refused = cluster
        .node(follower)
        .consensus()
        .propose(&create_group("a", 1), WITHIN)
        .await
        .unwrap_err();
    let ProposeError::NotLeader {
        leader: Some(named),
    } = refused
    else {
        panic!("unexpected answer {refused:?}");
    };
    assert_eq!(named.id, leader);
    assert_eq!(named.addresses, cluster.node(leader).addresses);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_commands_are_applied_in_their_order() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let node = cluster.node(leader);
    let mut proposals = Vec::new();
    for number in 0..500 {
        let command = create_group(&format!("g{number:04}"), 1);
        proposals.push(node.consensus().submit(&command, WITHIN).await.unwrap());
    }
    let mut last = None;
    for proposal in proposals {
        let applied = proposal.applied().await.unwrap();
        applied.outcome.unwrap();
        assert!(Some(applied.revision) > last);
        last = Some(applied.revision);
        // Observers are told before the proposer is answered.
        assert!(node.observer.last() >= applied.revision);
    }
    assert!(node.observer.is_ordered());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_applied_while_a_plan_is_made() {
    let mut cluster = Cluster::start(3).await;
    let node = cluster.node(cluster.leader().await);
    let group = GroupId(node.propose_sized("a", 1_000).await.0);
    node.propose_worker("a", "worker-1").await;
    let plan = move |state: &State| planner::plan(state, group, &Observed::default());

    let state = node.consensus().state();
    let (begun, has_begun) = oneshot::channel();
    // One word to one listener.
    let (go_on, may_go_on) = std::sync::mpsc::sync_channel(1);
    let planning = tokio::task::spawn_blocking(move || {
        begun.send(plan(&state)).unwrap();
        // As far as anybody else can tell, the planner has not looked at a shard yet.
        may_go_on.recv().unwrap();
        plan(&state)
    });
    let first = has_begun.await.unwrap();
    assert_eq!(first.grants.len(), 1_000);
    for command in first.clone().into_commands(100) {
        let applied = node.consensus().propose(&command, WITHIN).await.unwrap();
        assert_eq!(applied.outcome.unwrap().refused, []);
    }
    assert_eq!(node.state().group(group).unwrap().unowned_count(), 0);
    assert!(!planning.is_finished());

    go_on.send(()).unwrap();
    assert_eq!(planning.await.unwrap(), first);
    assert!(plan(&node.state()).is_empty());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_cluster_stopped_and_started_has_everything() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    for number in 0..20 {
        cluster
            .node(leader)
            .propose_group(&format!("g{number}"))
            .await;
    }
    let before = cluster.node(leader).groups();
    cluster.stop_all().await;
    for id in cluster.ids() {
        cluster.restart(id).await;
    }
    cluster.leader().await;
    for id in cluster.ids() {
        cluster.node(id).barrier().await;
        assert_eq!(cluster.node(id).groups(), before);
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lagging_node_catches_up_by_a_snapshot() {
    let mut cluster = Cluster::start_with(3, |options| {
        options.limits.snapshot_entries = 50;
        options.limits.kept_entries = 0;
    })
    .await;
    let leader = cluster.leader().await;
    let away = cluster.others(leader)[0];
    cluster.stop(away).await;
    let leader = cluster.leader().await;
    // More than one chunk of records.
    for number in 0..20 {
        cluster
            .node(leader)
            .propose_sized(&format!("large{number}"), 4096)
            .await;
    }
    for number in 0..3000 {
        cluster
            .node(leader)
            .propose_group(&format!("g{number}"))
            .await;
        let purged = cluster.node(leader).consensus().status().purged;
        if number > 200 && purged > cluster.last_seen(away) {
            break;
        }
    }
    let purged = cluster.node(leader).consensus().status().purged;
    assert!(purged > cluster.last_seen(away), "purged {purged:?}");

    cluster.restart(away).await;
    cluster.node(away).barrier().await;
    assert_eq!(cluster.node(away).observer.replacements(), 1);
    assert_eq!(cluster.node(away).state(), cluster.node(leader).state());

    // What was installed is on disk.
    cluster.stop(away).await;
    cluster.restart(away).await;
    cluster.node(away).barrier().await;
    assert_eq!(cluster.node(away).observer.replacements(), 0);
    assert_eq!(cluster.node(away).state(), cluster.node(leader).state());
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_moves_to_the_node_that_is_named() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let next = cluster.others(leader)[1];
    cluster
        .node(leader)
        .consensus()
        .transfer_leader(next, WITHIN)
        .await
        .unwrap();
    assert_eq!(cluster.leader().await, next);
    cluster.node(next).propose_group("a").await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_is_added_and_removed_and_its_id_never_comes_back() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    cluster.node(leader).propose_group("a").await;
    let added = cluster.add(leader).await;
    assert!(cluster.ids().iter().filter(|id| **id == added).count() == 1);
    cluster.node(added).barrier().await;
    assert_eq!(cluster.node(added).groups(), ["a"]);
    assert_eq!(cluster.voters(leader), 4);

    cluster
        .node(leader)
        .consensus()
        .remove_node(added, WITHIN)
        .await
        .unwrap();
    assert_eq!(cluster.voters(leader), 3);

    // It comes back with its old data, which nobody may count on.
    let addresses = cluster.node(added).addresses.clone();
    let refused = cluster
        .node(leader)
        .consensus()
        .add_node(addresses, WITHIN)
        .await;
    assert!(matches!(refused, Err(MembershipError::UsedNode { node, .. }) if node == added));

    // Emptied, it gets another id.
    cluster.wipe(added).await;
    let again = cluster.add_existing(leader, added).await;
    assert!(again > added);
    assert_eq!(cluster.voters(leader), 4);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_leader_answers_no_read_and_commits_nothing() {
    let mut cluster = Cluster::start(3).await;
    let old = cluster.leader().await;
    cluster.node(old).propose_group("a").await;
    cluster.cut_off(old);

    // From the cut on, no barrier of the old leader succeeds, whatever the others do meanwhile.
    let consensus = cluster.node(old).consensus().clone();
    let reading = tokio::spawn(async move {
        let mut refused = 0;
        for _ in 0..20 {
            consensus
                .read_barrier(Duration::from_millis(200))
                .await
                .unwrap_err();
            refused += 1;
        }
        refused
    });
    let new = cluster.leader_other_than(old).await;
    cluster.node(new).propose_group("b").await;
    assert_eq!(reading.await.unwrap(), 20);
    assert_eq!(cluster.node(old).groups(), ["a"]);

    cluster.heal(old);
    cluster.node(old).barrier().await;
    assert_eq!(cluster.node(old).groups(), ["a", "b"]);
    // Coming back disturbs nobody.
    assert_eq!(cluster.leader().await, new);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_of_few_large_entries_is_purged_for_its_size() {
    let mut cluster = Cluster::start_with(1, |options| {
        options.limits.log_bytes_max = 4 << 20;
    })
    .await;
    let leader = cluster.leader().await;
    cluster.node(leader).propose_group("a").await;
    // Refused by the rules, and yet in the log.
    let large = Command::Expire((0..300_000).map(SessionId).collect());
    for _ in 0..12 {
        cluster
            .node(leader)
            .consensus()
            .propose(&large, WITHIN)
            .await
            .unwrap();
    }
    let status = || cluster.node(leader).consensus().status();
    eventually("a purge", || status().purged.filter(|purged| purged.0 > 3)).await;
    assert!(status().snapshot >= status().purged);

    cluster.stop(leader).await;
    cluster.restart(leader).await;
    cluster.node(leader).barrier().await;
    assert_eq!(cluster.node(leader).groups(), ["a"]);
    cluster.stop_all().await;
}
