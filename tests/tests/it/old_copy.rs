//! A node comes back with an older copy of its data, as after a machine was rolled back.

use std::fs;
use std::path::Path;
use std::process::Command;

use cluster_tests::cluster::Cluster;
use cluster_tests::failure::Failure;
use cluster_tests::wait;
use tenure_proto::v1::{Policy, StatusResponse};

use crate::story::{PATIENCE, turn};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_an_old_copy_of_its_data_does_not_end_the_leader() -> Result<(), Failure> {
    let _turn = turn().await;
    let mut cluster = Cluster::start().await?;
    let (leader, follower) = (cluster.leader().await?, cluster.follower().await?);
    let data = cluster.folder().join(format!("node-{follower}"));
    let copy = cluster.folder().join("old-copy");
    create_groups(&cluster, "before").await?;

    cluster.kill(follower).await?;
    copied(&data, &copy)?;
    cluster.start_node(follower).await?;
    create_groups(&cluster, "between").await?;
    caught_up(&cluster, follower).await?;
    let term = status(&cluster, leader).await?.term;

    cluster.kill(follower).await?;
    fs::remove_dir_all(&data)?;
    fs::rename(&copy, &data)?;
    cluster.start_node(follower).await?;
    // What it has lost and had acknowledged is noticed, and the other two go on.
    wait::until("the leader to notice", PATIENCE, async || {
        let log = cluster.folder().join(format!("node-{leader}.log"));
        let log = fs::read_to_string(log).map_err(|error| error.to_string())?;
        match log.contains("has lost entries") {
            true => Ok(()),
            false => Err("its log does not say so".to_owned()),
        }
    })
    .await?;
    create_groups(&cluster, "after").await?;
    let now = status(&cluster, leader).await?;
    assert_eq!((now.leader_id, now.term), (leader, term));
    cluster.shutdown().await
}

async fn create_groups(cluster: &Cluster, when: &str) -> Result<(), Failure> {
    for number in 0..10 {
        let name = format!("{when}-{number}");
        let client = cluster.client();
        client
            .create_group(&name, 1, Policy::default(), &[])
            .await?;
    }
    Ok(())
}

fn copied(from: &Path, to: &Path) -> Result<(), Failure> {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    if copied.success() {
        return Ok(());
    }
    Err(Failure::new(format!("cp ended with {copied}")))
}

async fn status(cluster: &Cluster, node: u64) -> Result<StatusResponse, Failure> {
    let address = cluster.node(node)?.address();
    Ok(cluster.client().status(address).await?)
}

/// Waits until a node has applied, and so has acknowledged, what the leader has.
async fn caught_up(cluster: &Cluster, node: u64) -> Result<(), Failure> {
    let leader = cluster.leader().await?;
    let applied = status(cluster, leader).await?.applied_index;
    wait::until("the node to catch up", PATIENCE, async || {
        let now = status(cluster, node).await;
        let now = now.map_err(|failure| failure.to_string())?.applied_index;
        match now >= applied {
            true => Ok(()),
            false => Err(format!("it is at {now} of {applied}")),
        }
    })
    .await
}
