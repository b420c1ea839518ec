use std::time::Duration;

use prost_types::FieldMask;
use tenure_ownership::policy::Policy;

use super::*;

const CLUSTER: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xee];

fn ttl() -> TtlBounds {
    TtlBounds {
        min: Duration::from_secs(5),
        max: Duration::from_secs(60),
    }
}

fn session() -> pb::Session {
    pb::Session {
        cluster_id: CLUSTER.to_vec().into(),
        number: 9,
    }
}

fn shard_token() -> pb::FencingToken {
    pb::FencingToken {
        resource: "shard/orders/7".to_owned(),
        epoch: 3,
        owner: Some(session()),
    }
}

fn mask(paths: &[&str]) -> Option<FieldMask> {
    Some(FieldMask {
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
    })
}

fn field<T>(result: Result<T, Invalid>) -> String {
    result.err().expect("refused").field
}

#[test]
fn a_group_is_created_with_the_fields_its_mask_names_and_defaults_for_the_rest() {
    let request = pb::CreateGroupRequest {
        name: "orders".to_owned(),
        shard_count: 64,
        policy: Some(pb::Policy {
            ttl_ms: 8_000,
            drain_timeout_ms: 1,
            ..Default::default()
        }),
        policy_mask: mask(&["ttl_ms"]),
    };
    let create = create_group(request, &ttl()).unwrap();
    assert_eq!(create.policy.ttl, Duration::from_secs(8));
    assert_eq!(create.policy.drain_timeout, Policy::default().drain_timeout);
}

#[test]
fn a_group_out_of_bounds_is_refused_by_field() {
    let valid = pb::CreateGroupRequest {
        name: "orders".to_owned(),
        shard_count: 64,
        ..Default::default()
    };
    assert!(create_group(valid.clone(), &ttl()).is_ok());
    let with_policy = |policy: pb::Policy, path: &str| pb::CreateGroupRequest {
        policy: Some(policy),
        policy_mask: mask(&[path]),
        ..valid.clone()
    };
    for (request, expected) in [
        (
            pb::CreateGroupRequest {
                name: String::new(),
                ..valid.clone()
            },
            "name",
        ),
        (
            pb::CreateGroupRequest {
                name: "Orders".to_owned(),
                ..valid.clone()
            },
            "name",
        ),
        (
            pb::CreateGroupRequest {
                name: "a".repeat(65),
                ..valid.clone()
            },
            "name",
        ),
        (
            pb::CreateGroupRequest {
                shard_count: 0,
                ..valid.clone()
            },
            "shard_count",
        ),
        (
            pb::CreateGroupRequest {
                shard_count: 1_000_001,
                ..valid.clone()
            },
            "shard_count",
        ),
        (
            pb::CreateGroupRequest {
                policy: Some(pb::Policy {
                    ttl_ms: 8_000,
                    ..Default::default()
                }),
                ..valid.clone()
            },
            "policy_mask",
        ),
        (with_policy(pb::Policy::default(), "ttl"), "policy_mask"),
        // Within the rules, outside of what this server's configuration allows.
        (
            with_policy(
                pb::Policy {
                    ttl_ms: 4_000,
                    ..Default::default()
                },
                "ttl_ms",
            ),
            "policy.ttl_ms",
        ),
        (
            with_policy(
                pb::Policy {
                    ttl_ms: 61_000,
                    ..Default::default()
                },
                "ttl_ms",
            ),
            "policy.ttl_ms",
        ),
        (
            with_policy(
                pb::Policy {
                    ttl_ms: u64::MAX,
                    ..Default::default()
                },
                "ttl_ms",
            ),
            "policy.ttl_ms",
        ),
        (
            with_policy(
                pb::Policy {
                    disconnect_grace_ms: 99,
                    ..Default::default()
                },
                "disconnect_grace_ms",
            ),
            "policy.disconnect_grace_ms",
        ),
        (
            with_policy(
                pb::Policy {
                    handoffs_in_flight_max: 65,
                    ..Default::default()
                },
                "handoffs_in_flight_max",
            ),
            "policy.handoffs_in_flight_max",
        ),
        (
            with_policy(pb::Policy::default(), "load_factor_permille"),
            "policy.load_factor_permille",
        ),
    ] {
        let text = format!("{request:?}");
        assert_eq!(field(create_group(request, &ttl())), expected, "{text}");
    }
}

#[test]
fn every_field_of_a_policy_can_be_set_by_its_name_on_the_wire() {
    let values = pb::Policy {
        ttl_ms: 20_000,
        disconnect_grace_ms: 200,
        restart_grace_ms: 1,
        lock_delay_ms: 2,
        drain_timeout_ms: 3,
        opening_deadline_ms: 4_000,
        handoffs_in_flight_max: 5,
        load_factor_permille: 1_200,
        checkpoint_bytes_max: 6,
        checkpoint_total_bytes_max: 7,
        worker_shards_max: 8,
        required_labels: [("disk".to_owned(), "ssd".to_owned())].into(),
        preferred_labels: [("rack".to_owned(), "9".to_owned())].into(),
        zone_label: "zone".to_owned(),
        balance_by: pb::BalanceBy::Load.into(),
        imbalance_tolerated_permille: 10,
        moves_per_minute_max: 11,
        crashes_max: 12,
    };
    let names = [
        "ttl_ms",
        "disconnect_grace_ms",
        "restart_grace_ms",
        "lock_delay_ms",
        "drain_timeout_ms",
        "opening_deadline_ms",
        "handoffs_in_flight_max",
        "load_factor_permille",
        "checkpoint_bytes_max",
        "checkpoint_total_bytes_max",
        "worker_shards_max",
        "required_labels",
        "preferred_labels",
        "zone_label",
        "balance_by",
        "imbalance_tolerated_permille",
        "moves_per_minute_max",
        "crashes_max",
    ];
    let edit = PolicyEdit::new(Some(values.clone()), mask(&names)).unwrap();
    let edited = edit.apply_to(Policy::default(), 64, &ttl()).unwrap();
    assert_eq!(crate::rpc::present::policy(&edited), values);
}

#[test]
fn what_a_later_version_balances_by_is_refused() {
    let values = pb::Policy {
        balance_by: 77,
        ..pb::Policy::default()
    };
    let edit = PolicyEdit::new(Some(values), mask(&["balance_by"]));
    assert_eq!(edit.err().unwrap().field, "policy.balance_by");
}

#[test]
fn a_shard_is_pinned_to_one_worker_or_kept_off_some() {
    let request = |to: &str, kept_off: &[&str]| pb::PinShardRequest {
        shard: Some(pb::ShardRef {
            group: "orders".to_owned(),
            index: 7,
        }),
        to: to.to_owned(),
        kept_off: kept_off.iter().copied().map(str::to_owned).collect(),
    };
    assert!(pin_shard(request("a", &[])).is_ok());
    assert!(pin_shard(request("", &["a", "b"])).is_ok());
    for (wrong, expected) in [
        (request("", &[]), "to"),
        (request("a b", &[]), "to"),
        (request("a", &["b"]), "kept_off"),
        (request("", &["a b"]), "kept_off"),
        (request("", &["a"; 9]), "kept_off"),
        (
            pb::PinShardRequest {
                shard: None,
                ..request("a", &[])
            },
            "shard",
        ),
    ] {
        assert_eq!(field(pin_shard(wrong)), expected);
    }
}

#[test]
fn an_edit_of_nothing_is_refused() {
    let request = pb::SetPolicyRequest {
        group: "orders".to_owned(),
        ..Default::default()
    };
    assert_eq!(field(set_policy(request)), "policy_mask");
}

#[test]
fn a_token_is_refused_by_the_part_that_is_wrong() {
    let valid = shard_token();
    assert!(token(Some(valid.clone())).is_ok());
    let short = pb::Session {
        cluster_id: CLUSTER[1..].to_vec().into(),
        number: 9,
    };
    for (given, expected) in [
        (None, "token"),
        (
            Some(pb::FencingToken {
                resource: "orders/7".to_owned(),
                ..valid.clone()
            }),
            "token.resource",
        ),
        (
            Some(pb::FencingToken {
                epoch: 0,
                ..valid.clone()
            }),
            "token.epoch",
        ),
        (
            Some(pb::FencingToken {
                epoch: 1 << 63,
                ..valid.clone()
            }),
            "token.epoch",
        ),
        (
            Some(pb::FencingToken {
                owner: None,
                ..valid.clone()
            }),
            "token.owner",
        ),
        (
            Some(pb::FencingToken {
                owner: Some(short),
                ..valid.clone()
            }),
            "token.owner.cluster_id",
        ),
    ] {
        assert_eq!(field(token(given)), expected);
    }
}

#[test]
fn a_write_is_for_a_shard_and_carries_the_checksum_of_its_bytes() {
    let request = pb::WriteRequest {
        token: Some(shard_token()),
        sequence: 4,
        write_id: vec![1; 16].into(),
        data: b"123456789".to_vec().into(),
    };
    let command = write(request.clone()).unwrap();
    assert_eq!(command.crc32c, 0xe306_9283);
    assert_eq!(command.owner.cluster, 0xc0_ffee);
    assert_eq!(command.tenure.shard, ShardIndex(7));

    let lease = pb::FencingToken {
        resource: "lease/nightly".to_owned(),
        ..shard_token()
    };
    let of_lease = pb::WriteRequest {
        token: Some(lease),
        ..request.clone()
    };
    assert_eq!(field(write(of_lease)), "token.resource");
    assert_eq!(
        field(write(pb::WriteRequest {
            sequence: 0,
            ..request.clone()
        })),
        "sequence"
    );
    let short = pb::WriteRequest {
        write_id: vec![1; 15].into(),
        ..request
    };
    assert_eq!(field(write(short)), "write_id");
}

#[test]
fn a_deletion_has_a_sequence_and_an_id() {
    let request = pb::DeleteRequest {
        token: Some(shard_token()),
        sequence: 4,
        write_id: vec![1; 16].into(),
    };
    let command = delete_checkpoint(request.clone()).unwrap();
    assert_eq!(command.sequence.get(), 4);
    assert_eq!(command.write_id.get().to_be_bytes(), [1; 16]);
    assert_eq!(command.tenure.shard, ShardIndex(7));

    let unordered = pb::DeleteRequest {
        sequence: 0,
        ..request.clone()
    };
    assert_eq!(field(delete_checkpoint(unordered)), "sequence");
    let anonymous = pb::DeleteRequest {
        write_id: Vec::new().into(),
        ..request
    };
    assert_eq!(field(delete_checkpoint(anonymous)), "write_id");
}

#[test]
fn a_seal_names_each_shard_once() {
    let tenure = |shard| pb::SealTenure { shard, epoch: 1 };
    let request = pb::SealRequest {
        group: "orders".to_owned(),
        owner: Some(session()),
        tenures: vec![tenure(1), tenure(2)],
    };
    assert_eq!(seal(request.clone()).unwrap().tenures.len(), 2);
    let twice = pb::SealRequest {
        tenures: vec![tenure(1), tenure(1)],
        ..request.clone()
    };
    assert_eq!(field(seal(twice)), "tenures[1].shard");
    let none = pb::SealRequest {
        tenures: Vec::new(),
        ..request.clone()
    };
    assert_eq!(field(seal(none)), "tenures");
    let many = pb::SealRequest {
        tenures: (0..1_001).map(tenure).collect(),
        ..request
    };
    assert_eq!(field(seal(many)), "tenures");
}

#[test]
fn lists_have_pages_within_bounds() {
    let request = pb::ListShardsRequest {
        group: "orders".to_owned(),
        ..Default::default()
    };
    assert_eq!(shard_query(request.clone()).unwrap().page_size, 1_000);
    let large = pb::ListShardsRequest {
        page_size: 10_001,
        ..request.clone()
    };
    assert_eq!(field(shard_query(large)), "page_size");
    let phase = pb::ListShardsRequest {
        phase: 17,
        ..request.clone()
    };
    assert_eq!(field(shard_query(phase)), "phase");
    let worker = pb::ListShardsRequest {
        worker: "a b".to_owned(),
        ..request
    };
    assert_eq!(field(shard_query(worker)), "worker");
    let groups = pb::ListGroupsRequest {
        page_size: 1_001,
        ..Default::default()
    };
    assert_eq!(field(group_query(&groups)), "page_size");
}

#[test]
fn a_key_may_be_empty_or_64_kib_and_no_longer() {
    let request = |length| pb::LookupKeyRequest {
        group: "orders".to_owned(),
        key: vec![0; length].into(),
    };
    assert!(lookup_key(&request(0)).is_ok());
    assert!(lookup_key(&request(KEY_BYTES_MAX)).is_ok());
    assert_eq!(field(lookup_key(&request(KEY_BYTES_MAX + 1))), "key");
}

fn registration() -> pb::Register {
    pb::Register {
        group: "orders".to_owned(),
        worker: "worker-1".to_owned(),
        nonce: vec![7; 16].into(),
        attempt: 1,
        ..Default::default()
    }
}

#[test]
fn a_registration_takes_defaults_for_what_it_leaves_out() {
    let (register, first) = register(registration(), &ttl()).unwrap();
    assert_eq!((register.ttl, register.weight), (None, 1));
    assert_eq!((first, register.replaces), (None, None));
}

#[test]
fn a_registration_out_of_bounds_is_refused_by_field() {
    let valid = registration();
    let label = |key: &str, value: &str| pb::Register {
        labels: [(key.to_owned(), value.to_owned())].into(),
        ..valid.clone()
    };
    let many = (0..33)
        .map(|number| (number.to_string(), String::new()))
        .collect();
    for (message, expected) in [
        (
            pb::Register {
                group: String::new(),
                ..valid.clone()
            },
            "group",
        ),
        (
            pb::Register {
                worker: "a b".to_owned(),
                ..valid.clone()
            },
            "worker",
        ),
        (
            pb::Register {
                worker: "é".to_owned(),
                ..valid.clone()
            },
            "worker",
        ),
        (
            pb::Register {
                nonce: vec![1].into(),
                ..valid.clone()
            },
            "nonce",
        ),
        (
            pb::Register {
                ttl_ms: 1,
                ..valid.clone()
            },
            "ttl_ms",
        ),
        (
            pb::Register {
                weight: 10_001,
                ..valid.clone()
            },
            "weight",
        ),
        (
            pb::Register {
                address: "a".repeat(257),
                ..valid.clone()
            },
            "address",
        ),
        (
            pb::Register {
                address: "a b".to_owned(),
                ..valid.clone()
            },
            "address",
        ),
        (
            pb::Register {
                labels: many,
                ..valid.clone()
            },
            "labels",
        ),
        (label(&"k".repeat(129), ""), "labels"),
        (label("", "v"), "labels"),
        (
            pb::Register {
                first: Some(pb::Session::default()),
                ..valid.clone()
            },
            "first.cluster_id",
        ),
    ] {
        let text = format!("{message:?}");
        assert_eq!(field(register(message, &ttl())), expected, "{text}");
    }
}

#[test]
fn reports_of_a_worker_are_checked_tenure_by_tenure() {
    let bad = pb::Tenure { shard: 1, epoch: 0 };
    let held = pb::Holding {
        set_revision: 5,
        tenures: vec![bad],
    };
    assert_eq!(field(holding(&held)), "tenures.epoch");
    let twice = pb::Ready {
        stores: vec!["a".to_owned(), "a".to_owned()],
        ..Default::default()
    };
    assert_eq!(field(ready(&twice)), "stores");
    let release = |cause: pb::ReleaseCause, store_fence| pb::Released {
        releases: vec![pb::Release {
            tenure: Some(pb::Tenure { shard: 1, epoch: 1 }),
            cause: cause.into(),
            detail: String::new(),
            store_fence,
        }],
    };
    assert_eq!(
        field(releases(release(pb::ReleaseCause::Unspecified, 0))),
        "releases.cause"
    );
    assert_eq!(
        field(releases(release(pb::ReleaseCause::StoreAhead, 0))),
        "releases.store_fence"
    );
    assert!(releases(release(pb::ReleaseCause::StoreAhead, 9)).is_ok());
}

fn named_node(id: u64, host: &str) -> pb::Node {
    pb::Node {
        id,
        peer_address: format!("{host}:7401"),
        client_address: format!("{host}:7400"),
        http_address: String::new(),
    }
}

#[test]
fn a_cluster_begins_with_the_node_asked_and_an_odd_number_of_others() {
    let init_of = |nodes: Vec<pb::Node>| init(pb::InitRequest { nodes }, "b:7401");
    let nodes = vec![named_node(0, "a"), named_node(0, "b"), named_node(0, "c")];
    let others = init_of(nodes).unwrap();
    let others: Vec<&str> = others.iter().map(|node| node.raft.as_str()).collect();
    assert_eq!(others, ["a:7401", "c:7401"]);

    assert_eq!(
        field(init_of(vec![named_node(0, "b"), named_node(0, "c")])),
        "nodes"
    );
    assert_eq!(field(init_of(vec![named_node(0, "a")])), "nodes");
    // The node asked gets id 1.
    let wrong = vec![named_node(1, "a"), named_node(2, "b"), named_node(3, "c")];
    assert_eq!(field(init_of(wrong)), "nodes[1].id");
    let right = vec![named_node(1, "b"), named_node(2, "a"), named_node(3, "c")];
    assert_eq!(init_of(right).unwrap().len(), 2);
    let portless = pb::Node {
        client_address: "b".to_owned(),
        ..named_node(0, "b")
    };
    assert_eq!(field(init_of(vec![portless])), "nodes[0].client_address");
}

#[test]
fn an_added_node_has_no_id_yet() {
    assert!(node(Some(named_node(0, "d"))).is_ok());
    assert_eq!(field(node(Some(named_node(4, "d")))), "node.id");
    assert_eq!(field(node(None)), "node");
}
