//! The operator commands against a coordinator whose answers are known: what they print, how they
//! end, whom they ask.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::CommandFactory;
use support::{LARGEST, Node, Program, Ran, Role, at, tenure, tenure_until};
use tenure_cli::Environment;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

const TOKEN: &str = "shard/orders/0@9223372036854775807:5e11000000000000000000000000c0de/917";

/// Runs the commands one after another and compares everything they write with a file. `UPDATE=1` writes
/// the file anew; the difference is then judged by eye.
async fn transcript(name: &str, commands: &[&str]) {
    let mut text = String::new();
    for command in commands {
        // A node for each command, so that none depends on the one before.
        let node = Node::start(Role::Leader).await;
        let arguments: Vec<_> = command.split(' ').collect();
        let ran = tenure(&node.environment(), &arguments).await;
        assert!(
            !ran.out.contains('\x1b') && !ran.err.contains('\x1b'),
            "{command} has colours"
        );
        text.push_str(&format!("$ tenure {command}\n{}", ran.out));
        if !ran.err.is_empty() {
            text.push_str(&format!("--- stderr\n{}", ran.err));
        }
        text.push_str(&format!("--- exit {}\n\n", ran.exit));
        node.stop().await;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text,
        expected,
        "differs from {}; UPDATE=1 accepts it",
        path.display()
    );
}

#[tokio::test]
async fn group_commands_print_what_their_transcript_says() {
    transcript(
        "group.txt",
        &[
            "group list",
            "group list --json",
            "group show orders",
            "group show orders --json",
            "group show nowhere",
            "group create payments --shards 64 ttl=20s",
            "group create payments --shards 64 --json",
            "group create orders --shards 64",
            "group set orders ttl=20s",
            "group set orders ttl=20s --json",
            "group set orders ttl=11m",
            "group set orders ttl=20s --if-revision 11",
            "group set orders ttl=20s ttl=30s",
            "group freeze orders --reason release-day",
            "group freeze orders --reason release-day --json",
            "group freeze orders",
            "group unfreeze orders",
            "group delete orders --yes",
            "group delete orders",
            "group delete orders --yes --json",
            "group delete retired --yes",
        ],
    )
    .await;
}

#[tokio::test]
async fn shard_and_worker_commands_print_what_their_transcript_says() {
    transcript(
        "shard.txt",
        &[
            "shard list orders",
            "shard list orders --phase revoking --json",
            "shard list nowhere",
            "shard show orders/0",
            "shard show orders/1 --json --linearizable",
            "shard show orders/64",
            "shard lookup orders abc",
        ],
    )
    .await;
}

#[tokio::test]
async fn worker_commands_print_what_their_transcript_says() {
    transcript(
        "worker.txt",
        &[
            "worker list orders",
            "worker list orders --json",
            "worker cordon orders counter-1",
            "worker cordon orders counter-1 --json",
            "worker uncordon orders counter-1",
            "worker drain orders counter-1",
            "worker drain orders counter-1 --wait --wait-timeout 1ms",
            "worker drain orders counter-1 --wait-timeout 1ms",
            "worker pause orders counter-3 --for 1m",
            "worker pause orders counter-3 --for 0s",
            "worker resume orders counter-3",
            "worker resume orders counter-3 --wait --wait-timeout 1ms",
            "worker drain nowhere counter-1",
        ],
    )
    .await;
}

#[tokio::test]
async fn placement_commands_print_what_their_transcript_says() {
    transcript(
        "placement.txt",
        &[
            "plan orders",
            "plan orders --json",
            "rebalance orders --dry-run",
            "rebalance orders --max-moves 2",
            "rebalance orders --max-moves 1 --json",
            "shard pin orders/3 --to counter-1",
            "shard pin orders/3 --avoid counter-1 --avoid counter-2",
            "shard pin orders/3 --to counter-1 --json",
            "shard pin nowhere/3 --to counter-1",
            "shard unpin orders/3",
            "shard retry orders/7",
            "shard show orders/7",
            "shard show orders/7 --json",
            "group set orders required_labels=disk",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_drain_is_waited_for_until_nothing_is_left() {
    let node = Node::start(Role::Leader).await;
    let arguments = ["worker", "drain", "orders", "counter-2", "--wait"];
    let ran = tenure(&node.environment(), &arguments).await;
    assert_eq!((ran.exit, ran.out.as_str()), (0, ""));
    let said = "worker counter-2 is draining: 0 shards moved away in ";
    assert!(ran.err.starts_with(said), "{}", ran.err);
    node.stop().await;
}

#[tokio::test]
async fn who_stops_waiting_is_told_that_the_drain_goes_on() {
    let node = Node::start(Role::Leader).await;
    let arguments = ["worker", "drain", "orders", "counter-1", "--wait"];
    let soon = tokio::time::sleep(Duration::from_millis(300));
    let ran = tenure_until(&node.environment(), &arguments, soon).await;
    assert_eq!(ran.exit, 8);
    let said = "16 of 16 shards left\nerror: no longer waiting for it (16 of 16 shards left), and it goes on; \
         `tenure worker uncordon orders counter-1` takes it back\n";
    assert_eq!(ran.err, said);
    node.stop().await;
}

#[tokio::test]
async fn history_commands_print_what_their_transcript_says() {
    transcript(
        "history.txt",
        &[
            "events",
            "events --json",
            "events orders --last 1",
            "events --asked-for",
            "events --kind granted,operation",
            "events --since 2h --last 3",
            "events --shard 1",
            "shard history orders/1",
            "shard history orders/1 --json",
            "shard history nowhere/1",
        ],
    )
    .await;
}

#[tokio::test]
async fn followed_events_are_printed_once_until_interrupted() {
    let node = Node::start(Role::Leader).await;
    let interrupted = tokio::time::sleep(Duration::from_millis(2_500));
    let arguments = ["events", "--since", "2h", "--follow"];
    let ran = tenure_until(&node.environment(), &arguments, interrupted).await;
    assert_eq!((ran.exit, ran.out.lines().count()), (0, 5), "{}", ran.out);
    node.stop().await;
}

#[tokio::test]
async fn token_check_prints_what_its_transcript_says() {
    let stale = TOKEN.replace("@9223372036854775807", "@9223372036854775806");
    transcript(
        "token.txt",
        &[
            &format!("token check {TOKEN}"),
            &format!("token check {TOKEN} --json"),
            &format!("token check {stale}"),
            &format!("token check {stale} --json"),
        ],
    )
    .await;
}

#[tokio::test]
async fn cluster_commands_print_what_their_transcript_says() {
    let node = |id| format!("id={id},peer=10.0.0.{id}:7401,client=10.0.0.{id}:7400");
    transcript(
        "cluster.txt",
        &[
            "cluster status",
            "cluster status --json",
            &format!(
                "cluster init --node {} --node {} --node {}",
                node(1),
                node(2),
                node(3)
            ),
            &format!("cluster init --node {} --node {}", node(1), node(1)),
            &format!("cluster init --node {} --json", node(1)),
            "cluster add --node peer=10.0.0.4:7401,client=10.0.0.4:7400",
            &format!("cluster add --node {}", node(4)),
            "cluster add --node peer=10.0.0.1:7401,client=10.0.0.1:7400",
            "cluster remove 3 --yes",
            "cluster remove 3",
            "cluster remove 3 --yes --json",
            "cluster transfer-leader 1",
            "cluster transfer-leader 1 --json",
        ],
    )
    .await;
}

#[tokio::test]
async fn watch_prints_what_its_transcript_says() {
    transcript(
        "watch.txt",
        &[
            "watch orders",
            "watch orders --json",
            "watch orders --from-now",
            "watch nowhere",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_broken_watch_goes_on_after_the_last_event_it_printed() {
    let node = Node::start(Role::Leader).await;
    let ran = tenure(&node.environment(), &["watch", "orders", "--json"]).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
    // From the state, after the last event of the stream that broke, and after the resync from the
    // state again.
    assert_eq!(
        node.seen.lock().unwrap().watches,
        [None, Some(at(102, 2)), None]
    );
    for line in ran.out.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    node.stop().await;
}

#[tokio::test]
async fn ctrl_c_ends_a_watch_in_good_order() {
    let node = Node::start(Role::Leader).await;
    let seen = node.seen.clone();
    // The interrupt comes when the first stream has been opened, whatever it has brought by then.
    let interrupted = async move {
        while seen.lock().unwrap().watches.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let ran = tenure_until(&node.environment(), &["watch", "orders"], interrupted).await;
    assert_eq!((ran.exit, ran.err.as_str()), (0, ""));
    node.stop().await;
}

#[tokio::test]
async fn a_change_follows_the_hint_to_the_leader() {
    let leader = Node::start(Role::Leader).await;
    let follower = Node::start(Role::Follower(Some(leader.address.clone()))).await;
    let ran = tenure(
        &follower.environment(),
        &["cluster", "remove", "3", "--yes"],
    )
    .await;
    assert_eq!(
        (ran.exit, ran.err.as_str()),
        (0, "node 3 removed at revision 9223372036854775807\n")
    );
    assert_eq!(leader.seen.lock().unwrap().changes, ["remove"]);
    leader.stop().await;
    follower.stop().await;
}

#[tokio::test]
async fn a_node_that_is_down_and_one_that_knows_no_leader_are_passed_over() {
    let down = Node::start(Role::Leader).await;
    let down_address = down.address.clone();
    down.stop().await;
    let lost = Node::start(Role::Follower(None)).await;
    let leader = Node::start(Role::Leader).await;
    let addresses = format!("{down_address},{},{}", lost.address, leader.address);
    let environment = Environment {
        addresses: Some(addresses),
        ..Environment::default()
    };
    let ran = tenure(&environment, &["cluster", "remove", "3", "--yes"]).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
    assert_eq!(leader.seen.lock().unwrap().changes, ["remove"]);
    lost.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_cluster_without_a_leader_is_unavailable() {
    let lost = Node::start(Role::Follower(None)).await;
    let ran = tenure(
        &lost.environment(),
        &["group", "delete", "orders", "--yes", "--timeout", "2s"],
    )
    .await;
    assert_eq!(ran.exit, 5);
    let expected = format!(
        "error: no coordinator could answer within 2s, asked {}",
        lost.address
    );
    assert!(ran.err.starts_with(&expected), "{}", ran.err);
    assert!(ran.err.contains("this node does not lead"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1);
    lost.stop().await;
}

#[tokio::test]
async fn a_port_without_a_listener_is_unavailable() {
    let node = Node::start(Role::Leader).await;
    let environment = node.environment();
    node.stop().await;
    let ran = tenure(&environment, &["group", "list", "--timeout", "300ms"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (5, ""));
    assert!(
        ran.err.to_lowercase().contains("connection refused"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn a_change_without_an_answer_is_sent_once_and_its_outcome_is_unknown() {
    let node = Node::start(Role::Leader).await;
    let arguments = ["group", "delete", "hangs", "--yes", "--timeout", "300ms"];
    let ran = tenure(&node.environment(), &arguments).await;
    assert_eq!(ran.exit, 7, "{}", ran.err);
    assert!(ran.err.contains("it may have happened"), "{}", ran.err);
    assert_eq!(node.seen.lock().unwrap().changes, ["delete"]);
    node.stop().await;
}

#[tokio::test]
async fn only_the_fields_that_were_given_are_changed() {
    let node = Node::start(Role::Leader).await;
    let arguments = [
        "group",
        "set",
        "orders",
        "lock_delay=5s",
        "load_factor=1.5",
        "--if-revision",
        "12",
    ];
    let ran = tenure(&node.environment(), &arguments).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
    let request = node.seen.lock().unwrap().policy.take().unwrap();
    let mask = request.policy_mask.unwrap();
    assert_eq!(mask.paths, ["lock_delay_ms", "load_factor_permille"]);
    let policy = request.policy.unwrap();
    assert_eq!(
        (policy.lock_delay_ms, policy.load_factor_permille),
        (5_000, 1_500)
    );
    assert_eq!(request.seen_revision, 12);
    node.stop().await;
}

#[tokio::test]
async fn a_binary_has_arguments_of_its_own_beside_those_of_the_operator_commands() {
    Program::command().debug_assert();
    let ran = tenure(&Environment::default(), &["serve", "--config", "node.toml"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (0, "node.toml"));
    let ran = tenure(
        &Environment::default(),
        &["serve", "--config", "node.toml", "--json"],
    )
    .await;
    assert_eq!(
        ran.exit, 2,
        "an option of the operator commands got into another command"
    );
}

#[tokio::test]
async fn an_address_as_argument_wins_over_the_environment() {
    let node = Node::start(Role::Leader).await;
    let elsewhere = Environment {
        addresses: Some("127.0.0.1:1".to_owned()),
        ..Environment::default()
    };
    let ran = tenure(&elsewhere, &["group", "list", "--address", &node.address]).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
    node.stop().await;
}

#[tokio::test]
async fn numbers_of_64_bits_survive_json() {
    let node = Node::start(Role::Leader).await;
    let ran = tenure(
        &node.environment(),
        &["shard", "show", "orders/0", "--json"],
    )
    .await;
    let value: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(value["shard"]["epoch"], LARGEST.to_string());
    // What is shown as the token can be checked as it stands.
    assert_eq!(value["shard"]["token"], TOKEN);
    node.stop().await;
}

#[tokio::test]
async fn wrong_arguments_are_refused_with_the_field_and_what_is_allowed() {
    let nowhere = Environment {
        addresses: Some("127.0.0.1:1".to_owned()),
        ..Environment::default()
    };
    for (arguments, expected) in [
        (
            &["group", "set", "orders", "ttl=10"][..],
            "ttl is \"10\", allowed is 1s to 10m",
        ),
        (&["group", "set", "orders"], "<KEY=VALUE>..."),
        (&["shard", "show", "orders"], "GROUP/INDEX"),
        (&["token", "check", "orders/7@3"], "TOKEN"),
        (&["group", "list", "--timeout", "0s"], "above 0"),
        (
            &["cluster", "init", "--node", "id=1"],
            "peer and client are needed",
        ),
    ] {
        let ran = tenure(&nowhere, arguments).await;
        assert_eq!(ran.exit, 2, "{arguments:?}");
        assert!(ran.err.contains(expected), "{arguments:?}: {}", ran.err);
    }
}

/// A certificate authority with one server and one client certificate, as files.
struct Certificates {
    folder: tempfile::TempDir,
    server: Identity,
    authority: Certificate,
}

impl Certificates {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_pem = parameters.self_signed(&authority_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(parameters, authority_key);
        let issue = |name: &str| {
            let key = rcgen::KeyPair::generate().unwrap();
            let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            (
                parameters.signed_by(&key, &issuer).unwrap().pem(),
                key.serialize_pem(),
            )
        };
        let (server_cert, server_key) = issue("coordinator.internal");
        let (client_cert, client_key) = issue("operator");
        for (name, text) in [
            ("ca.pem", &authority_pem),
            ("own.pem", &client_cert),
            ("own.key", &client_key),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self {
            folder,
            server: Identity::from_pem(server_cert, server_key),
            authority: Certificate::from_pem(authority_pem),
        }
    }
}

#[tokio::test]
async fn coordinators_with_mutual_tls_are_reached_with_the_files_of_the_config() {
    let certificates = Certificates::make();
    let tls = ServerTlsConfig::new()
        .identity(certificates.server.clone())
        .client_ca_root(certificates.authority.clone());
    let node = Node::start_with(Role::Leader, Some(tls)).await;
    let config = certificates.folder.path().join("cli.toml");
    let text = format!(
        "addresses = ['{}']\n[tls]\nca = 'ca.pem'\ncert = 'own.pem'\nkey = 'own.key'\n\
         server_name = 'coordinator.internal'\n",
        node.address,
    );
    fs::write(&config, text).unwrap();
    let environment = Environment {
        config: Some(config),
        ..Environment::default()
    };
    let ran: Ran = tenure(&environment, &["group", "list"]).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);

    // Without a certificate of one's own, and with the wrong name for the server's.
    let ca = certificates.folder.path().join("ca.pem");
    let ca = ca.to_str().unwrap();
    for name in ["coordinator.internal", "elsewhere.internal"] {
        let arguments = [
            "group",
            "list",
            "--address",
            &node.address,
            "--tls-ca",
            ca,
            "--tls-server-name",
            name,
            "--timeout",
            "500ms",
        ];
        let ran = tenure(&Environment::default(), &arguments).await;
        assert_eq!((ran.exit, ran.out.as_str()), (5, ""), "{name}");
    }
    node.stop().await;
}

/// The bound of every wait in this file: far above what the slowest command needs.
#[tokio::test]
async fn a_hanging_command_ends_with_its_timeout() {
    let node = Node::start(Role::Leader).await;
    let environment = node.environment();
    let arguments = ["group", "delete", "hangs", "--yes", "--timeout", "100ms"];
    let ended = tokio::time::timeout(Duration::from_secs(30), tenure(&environment, &arguments));
    assert_eq!(ended.await.unwrap().exit, 7);
    node.stop().await;
}
