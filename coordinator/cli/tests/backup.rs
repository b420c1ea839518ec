//! `cluster backup` and `cluster restore`, against a coordinator that only answers, and a binary that only
//! pretends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unused_imports,
    reason = "helpers of tests fail by panicking, and the other operator tests use the rest of them"
)]

mod support;

use std::fs;

use support::{Node, Role, tenure};
use tenure_cli::Environment;

#[tokio::test]
async fn a_backup_appears_whole_and_nothing_is_replaced_unasked() {
    let node = Node::start(Role::Leader).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tenure.backup");
    let to = file.to_str().unwrap();
    let ran = tenure(&node.environment(), &["cluster", "backup", "--to", to]).await;
    assert_eq!((ran.exit, ran.err.as_str()), (0, ""), "{}", ran.err);
    assert_eq!(fs::read(&file).unwrap(), b"twelve bytes");
    for line in [
        "shards         64",
        "revision       9223372036854775807",
        "size           12 B",
    ] {
        assert!(ran.out.contains(line), "{}", ran.out);
    }

    fs::write(&file, "older").unwrap();
    let ran = tenure(&node.environment(), &["cluster", "backup", "--to", to]).await;
    assert_eq!(ran.exit, 4, "{}", ran.err);
    assert!(
        ran.err
            .contains("exists; name another file, or add --overwrite")
    );
    assert_eq!(fs::read(&file).unwrap(), b"older");

    let arguments = ["cluster", "backup", "--to", to, "--overwrite", "--json"];
    let ran = tenure(&node.environment(), &arguments).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["revision"], "9223372036854775807");
    assert_eq!(json["bytes"], "12");
    assert_eq!(fs::read(&file).unwrap(), b"twelve bytes");
    node.stop().await;
}

#[tokio::test]
async fn a_backup_that_breaks_off_leaves_nothing_behind() {
    let node = Node::start(Role::Leader).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tenure.backup");
    let to = file.to_str().unwrap();
    let arguments = ["cluster", "backup", "--local", "--to", to];
    let ran = tenure(&node.environment(), &arguments).await;
    assert_eq!(ran.exit, 5, "{}", ran.err);
    assert!(ran.err.contains("this node is stopping"), "{}", ran.err);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

    fs::write(&file, "older").unwrap();
    let arguments = ["cluster", "backup", "--local", "--overwrite", "--to", to];
    assert_eq!(tenure(&node.environment(), &arguments).await.exit, 5);
    assert_eq!(fs::read(&file).unwrap(), b"older");
    node.stop().await;
}

#[tokio::test]
async fn a_restore_asks_and_says_what_it_has_made() {
    let nobody = Environment::default();
    let node = "peer=10.0.0.1:7401,client=10.0.0.1:7400";
    let restore = ["cluster", "restore", "--data-dir", "d", "--node", node];
    let with = |more: &[&'static str]| [&restore[..], more].concat();

    let ran = tenure(&nobody, &with(&["--from", "good"])).await;
    assert_eq!(ran.exit, 2);
    assert!(ran.err.contains("add --yes to do it"), "{}", ran.err);

    let ran = tenure(&nobody, &with(&["--from", "good", "--yes"])).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
    assert!(ran.out.contains("grants_nothing_for  10s"), "{}", ran.out);
    assert!(ran.err.starts_with("start the node with this data folder"));

    let ran = tenure(&nobody, &with(&["--from", "good", "--yes", "--json"])).await;
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["cluster_id"], "0000000000000000000000000000000b");
    assert_eq!(json["wait_ms"], "10000");

    let ran = tenure(&nobody, &with(&["--from", "bad", "--yes"])).await;
    assert_eq!(
        (ran.exit, ran.err.as_str()),
        (1, "error: the backup is damaged\n")
    );
}

#[tokio::test]
async fn features_are_listed_with_the_nodes_that_know_them_and_enabled_after_a_yes() {
    let node = Node::start(Role::Leader).await;
    let environment = node.environment();
    let ran = tenure(&environment, &["cluster", "features"]).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
    let line = ran
        .out
        .lines()
        .find(|line| line.starts_with("later"))
        .unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..5], ["later", "no", "2", "1", "3"], "{line}");

    let ran = tenure(&environment, &["cluster", "enable-feature", "baseline"]).await;
    assert_eq!(ran.exit, 2, "{}", ran.err);
    let arguments = ["cluster", "enable-feature", "baseline", "--yes"];
    let ran = tenure(&environment, &arguments).await;
    assert_eq!(
        (ran.exit, ran.err.as_str()),
        (0, "baseline is on at revision 9223372036854775807\n")
    );
    let ran = tenure(
        &environment,
        &["cluster", "enable-feature", "later", "--yes"],
    )
    .await;
    assert_eq!(ran.exit, 4);
    assert!(
        ran.err.contains("node 3 does not know later"),
        "{}",
        ran.err
    );
    node.stop().await;
}

#[tokio::test]
async fn doctor_says_what_is_wrong_and_ends_with_a_status_of_its_own() {
    let node = Node::start(Role::Leader).await;
    // Nobody listens at the addresses of the members.
    let arguments = ["doctor", "--timeout", "1s"];
    let ran = tenure(&node.environment(), &arguments).await;
    assert_eq!(ran.exit, 9, "{}", ran.err);
    assert!(ran.out.contains("does not answer"), "{}", ran.out);
    assert!(ran.err.contains("problems were found"), "{}", ran.err);
    let arguments = ["doctor", "--timeout", "1s", "--json"];
    let ran = tenure(&node.environment(), &arguments).await;
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["findings"][0]["check"], "quorum");
    assert_eq!(json["findings"][0]["severity"], "problem");
    node.stop().await;
}
