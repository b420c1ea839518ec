//! The bytes of records and commands: what was written by one version is read by every later one.
//!
//! `tests/golden/*.hex` hold one example of everything that is encoded. A line that no longer
//! matches is a change of the format on disk: never change an existing line, add new ones. New lines
//! are written by `UPDATE=1 cargo test -p tenure-ownership --test encoding`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use minicbor::{Decoder, Encoder};
use tenure_fence::{Epoch, GroupName, Owner, Sequence, WriteId};
use tenure_ownership::command::{
    Assign, CreateGroup, DeleteCheckpoint, EndPause, Force, Grant, OneShard, PinShard, PinTo,
    Quarantine, Ready, Register, Release, ReleaseCause, Released, Restore, Revoke, Seal, SetFreeze,
    SetPolicy, SetWorkerMode, Tenure, WriteCheckpoint,
};
use tenure_ownership::event::EndCause;
use tenure_ownership::feature::Feature;
use tenure_ownership::ids::{
    ClusterId, GroupId, ProcessNonce, Revision, SessionId, ShardIndex, StoreName, WorkerName,
};
use tenure_ownership::policy::{BalanceBy, Policy};
use tenure_ownership::session::{SessionEnd, WorkerMode};
use tenure_ownership::shard::RevokeReason;
use tenure_ownership::{Command, Event, State, apply};

const CLUSTER: ClusterId = ClusterId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);

fn name(text: &str) -> GroupName {
    text.parse().unwrap()
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

fn owner(session: u64) -> Owner {
    Owner {
        cluster: CLUSTER.0,
        session,
    }
}

fn tenure(shard: u32, number: u64) -> Tenure {
    Tenure {
        shard: ShardIndex(shard),
        epoch: epoch(number),
    }
}

fn policy() -> Policy {
    Policy {
        restart_grace: Duration::from_secs(5),
        handoffs_in_flight_max: Some(3),
        worker_shards_max: Some(6),
        required_labels: [("disk".to_owned(), "ssd".to_owned())].into(),
        preferred_labels: [("rack".to_owned(), "r1".to_owned())].into(),
        zone_label: "zone".to_owned(),
        balance_by: BalanceBy::Load,
        moves_per_minute_max: Some(60),
        crashes_max: 5,
        ..Policy::default()
    }
}

fn register(worker: &str, nonce: u128) -> Register {
    Register {
        group: name("orders"),
        worker: WorkerName::new(worker).unwrap(),
        nonce: ProcessNonce(nonce),
        first: None,
        replaces: None,
        ttl: None,
        weight: 1,
        labels: BTreeMap::new(),
        address: String::new(),
    }
}

fn write(session: u64, at: Tenure) -> WriteCheckpoint {
    WriteCheckpoint {
        group: name("orders"),
        owner: owner(session),
        tenure: at,
        sequence: Sequence::new(300).unwrap(),
        write_id: WriteId::new(0xfeed),
        crc32c: 0xdead_beef,
        data: b"checkpoint".as_slice().into(),
    }
}

fn grant(shard: u32, seen: Option<u64>, to: u64) -> Grant {
    Grant {
        shard: ShardIndex(shard),
        seen: seen.map(epoch),
        to: SessionId(to),
    }
}

fn release(session: u64, at: Tenure, cause: ReleaseCause) -> Command {
    let releases = vec![Released { tenure: at, cause }];
    Command::Release(Release {
        session: SessionId(session),
        releases,
    })
}

fn assign(grants: Vec<Grant>, revokes: Vec<Revoke>) -> Command {
    Command::Assign(Assign {
        group: GroupId(2),
        grants,
        revokes,
    })
}

fn revoke(shard: u32, next: Option<u64>, reason: RevokeReason) -> Revoke {
    Revoke {
        shard: ShardIndex(shard),
        seen: epoch(1),
        next: next.map(SessionId),
        reason,
    }
}

/// The name of a command's kind. A new kind does not compile until it has one here, and then fails
/// until there is an example of it below.
fn kind(command: &Command) -> &'static str {
    match command {
        Command::InitCluster(_) => "InitCluster",
        Command::CreateGroup(_) => "CreateGroup",
        Command::SetPolicy(_) => "SetPolicy",
        Command::DeleteGroup(_) => "DeleteGroup",
        Command::RemoveGroup(_) => "RemoveGroup",
        Command::Register(_) => "Register",
        Command::Expire(_) => "Expire",
        Command::Leave(_) => "Leave",
        Command::SetWorkerMode(_) => "SetWorkerMode",
        Command::Assign(_) => "Assign",
        Command::Ready(_) => "Ready",
        Command::Release(_) => "Release",
        Command::Force(_) => "Force",
        Command::Seal(_) => "Seal",
        Command::WriteCheckpoint(_) => "WriteCheckpoint",
        Command::DeleteCheckpoint(_) => "DeleteCheckpoint",
        Command::EnableFeature(_) => "EnableFeature",
        Command::EndPause(_) => "EndPause",
        Command::SetFreeze(_) => "SetFreeze",
        Command::Restore(_) => "Restore",
        Command::Settle(_) => "Settle",
        Command::PinShard(_) => "PinShard",
        Command::UnpinShard(_) => "UnpinShard",
        Command::Quarantine(_) => "Quarantine",
        Command::RetryShard(_) => "RetryShard",
    }
}

/// How many kinds [`kind`] knows.
const KINDS: usize = 25;

fn commands() -> Vec<Command> {
    let full_register = Register {
        first: Some(SessionId(3)),
        replaces: Some(SessionId(4)),
        ttl: Some(Duration::from_millis(2_500)),
        weight: 20,
        labels: [("zone".to_owned(), "south".to_owned())].into(),
        address: "10.0.0.7:9000".to_owned(),
        ..register("worker-1", 0xabc)
    };
    vec![
        Command::InitCluster(CLUSTER),
        Command::CreateGroup(CreateGroup {
            name: name("orders"),
            shard_count: 6,
            policy: policy(),
        }),
        Command::SetPolicy(SetPolicy {
            group: name("orders"),
            seen: Some(Revision(2)),
            policy: Policy::default(),
        }),
        Command::SetPolicy(SetPolicy {
            group: name("orders"),
            seen: None,
            policy: Policy::default(),
        }),
        Command::DeleteGroup(name("orders")),
        Command::RemoveGroup(GroupId(2)),
        Command::Register(Box::new(register("worker-1", 0xabc))),
        Command::Register(Box::new(full_register)),
        Command::Expire(vec![SessionId(3), SessionId(400)]),
        Command::Leave(SessionId(70_000)),
        Command::SetWorkerMode(SetWorkerMode {
            group: name("orders"),
            worker: WorkerName::new("worker-1").unwrap(),
            mode: WorkerMode::Draining,
            pause_timeout: None,
        }),
        Command::SetWorkerMode(SetWorkerMode {
            group: name("orders"),
            worker: WorkerName::new("worker-1").unwrap(),
            mode: WorkerMode::Paused,
            pause_timeout: Some(Duration::from_secs(300)),
        }),
        Command::EndPause(EndPause {
            group: GroupId(2),
            worker: WorkerName::new("worker-1").unwrap(),
            since: Revision(70),
        }),
        Command::SetFreeze(SetFreeze {
            group: name("orders"),
            reason: Some("release day".to_owned()),
        }),
        Command::SetFreeze(SetFreeze {
            group: name("orders"),
            reason: None,
        }),
        assign(
            vec![grant(0, None, 3), grant(1, Some(7), 4)],
            vec![
                revoke(2, None, RevokeReason::Draining),
                revoke(3, Some(4), RevokeReason::Rebalance),
                revoke(4, Some(4), RevokeReason::OpeningDeadline),
                revoke(5, None, RevokeReason::GroupDeleted),
                revoke(6, Some(4), RevokeReason::Stopping),
                revoke(6, None, RevokeReason::Placement),
            ],
        ),
        Command::Ready(Ready {
            session: SessionId(3),
            stores: vec![StoreName::new("main").unwrap()],
            tenures: vec![tenure(0, 1), tenure(1, 8)],
        }),
        Command::Release(Release {
            session: SessionId(3),
            releases: vec![
                Released {
                    tenure: tenure(0, 1),
                    cause: ReleaseCause::Finished,
                },
                Released {
                    tenure: tenure(1, 8),
                    cause: ReleaseCause::OpenFailed("disk full".to_owned()),
                },
                Released {
                    tenure: tenure(2, 9),
                    cause: ReleaseCause::StoreAhead(epoch(40)),
                },
                Released {
                    tenure: tenure(3, 9),
                    cause: ReleaseCause::Lost,
                },
            ],
        }),
        Command::Force(Force {
            group: GroupId(2),
            tenures: vec![tenure(0, 1)],
        }),
        Command::Seal(Seal {
            group: name("orders"),
            owner: owner(3),
            tenures: vec![tenure(0, 1)],
        }),
        Command::WriteCheckpoint(write(3, tenure(0, 1))),
        Command::DeleteCheckpoint(DeleteCheckpoint {
            group: name("orders"),
            owner: owner(3),
            tenure: tenure(0, 1),
            sequence: Sequence::new(301).unwrap(),
            write_id: WriteId::new(0xdead),
        }),
        Command::EnableFeature(Feature::Baseline),
        Command::Restore(Restore {
            from: CLUSTER,
            to: ClusterId(9),
            floor_min: 1 << 40,
            quiet_min: Duration::from_secs(30),
        }),
        Command::Settle(Revision(12)),
        pin(1, PinTo::Worker(worker("worker-1"))),
        pin(
            2,
            PinTo::AnyBut([worker("worker-1"), worker("worker-2")].into()),
        ),
        Command::UnpinShard(one_shard(1)),
        Command::Quarantine(quarantine(4)),
        Command::RetryShard(one_shard(4)),
    ]
}

fn worker(name: &str) -> WorkerName {
    WorkerName::new(name).unwrap()
}

fn one_shard(shard: u32) -> OneShard {
    OneShard {
        group: name("orders"),
        shard: ShardIndex(shard),
    }
}

fn pin(shard: u32, to: PinTo) -> Command {
    let OneShard { group, shard } = one_shard(shard);
    Command::PinShard(PinShard { group, shard, to })
}

fn quarantine(shard: u32) -> Quarantine {
    Quarantine {
        group: GroupId(2),
        shard: ShardIndex(shard),
        seen: epoch(1),
        crashes: 3,
    }
}

/// A state with a record of every kind, and with shards in every state.
fn example() -> State {
    let session = 5;
    let next = 6;
    let history = [
        Command::InitCluster(CLUSTER),
        Command::CreateGroup(CreateGroup {
            name: name("orders"),
            shard_count: 8,
            policy: policy(),
        }),
        Command::CreateGroup(CreateGroup {
            name: name("gone"),
            shard_count: 1,
            policy: Policy::default(),
        }),
        Command::EnableFeature(Feature::Baseline),
        commands().swap_remove(6),
        Command::Register(Box::new(Register {
            labels: [("zone".to_owned(), "south".to_owned())].into(),
            address: "10.0.0.7:9000".to_owned(),
            ..register("worker-2", 0xdef)
        })),
        assign(
            (0..7).map(|shard| grant(shard, None, session)).collect(),
            Vec::new(),
        ),
        Command::Ready(Ready {
            session: SessionId(session),
            stores: vec![
                StoreName::new("main").unwrap(),
                StoreName::new("side").unwrap(),
            ],
            tenures: vec![tenure(1, 1)],
        }),
        Command::Seal(Seal {
            group: name("orders"),
            owner: owner(session),
            tenures: vec![tenure(1, 1), tenure(2, 1), tenure(3, 1)],
        }),
        Command::WriteCheckpoint(write(session, tenure(1, 1))),
        Command::WriteCheckpoint(write(session, tenure(2, 1))),
        Command::DeleteCheckpoint(DeleteCheckpoint {
            group: name("orders"),
            owner: owner(session),
            tenure: tenure(2, 1),
            sequence: Sequence::new(301).unwrap(),
            write_id: WriteId::new(0xdead),
        }),
        assign(
            Vec::new(),
            vec![revoke(3, Some(next), RevokeReason::Rebalance)],
        ),
        release(
            session,
            tenure(4, 1),
            ReleaseCause::OpenFailed("disk full".to_owned()),
        ),
        release(session, tenure(5, 1), ReleaseCause::StoreAhead(epoch(40))),
        Command::SetWorkerMode(SetWorkerMode {
            group: name("orders"),
            worker: WorkerName::new("worker-2").unwrap(),
            mode: WorkerMode::Draining,
            pause_timeout: None,
        }),
        Command::SetWorkerMode(SetWorkerMode {
            group: name("orders"),
            worker: WorkerName::new("worker-3").unwrap(),
            mode: WorkerMode::Paused,
            pause_timeout: Some(Duration::from_secs(300)),
        }),
        Command::SetFreeze(SetFreeze {
            group: name("orders"),
            reason: Some("release day".to_owned()),
        }),
        assign(
            Vec::new(),
            vec![revoke(6, None, RevokeReason::OpeningDeadline)],
        ),
        pin(1, PinTo::Worker(worker("worker-1"))),
        pin(2, PinTo::AnyBut([worker("worker-2")].into())),
        Command::Quarantine(quarantine(4)),
        Command::DeleteGroup(name("gone")),
        Command::RemoveGroup(GroupId(3)),
    ];
    let mut state = State::new();
    for (index, command) in (1..).zip(history) {
        let applied = apply(&mut state, Revision(index), command);
        let effect = applied.outcome.unwrap();
        assert_eq!(effect.refused, []);
    }
    state
}

#[test]
fn commands_are_encoded_as_ever() {
    let commands = commands();
    let kinds: BTreeSet<_> = commands.iter().map(kind).collect();
    assert_eq!(kinds.len(), KINDS, "an example of some kind is missing");
    let lines = commands
        .iter()
        .map(|command| (kind(command).to_owned(), command.encode()));
    let committed = compare("commands.hex", lines.collect());
    // What an earlier version wrote is read, also where this one would write it differently.
    for ((_, bytes), command) in committed.iter().zip(&commands) {
        assert_eq!(Command::decode(bytes).unwrap(), *command);
    }
}

/// The name of an event's kind: none is missing below.
const EVENT_KINDS: usize = 21;

/// One event of every kind, and a tenure that ended in every way.
fn events() -> Vec<Event> {
    let (group, shard, owner) = (GroupId(2), ShardIndex(3), SessionId(70_000));
    let worker = WorkerName::new("worker-1").unwrap();
    let ended = |cause| Event::TenureEnded {
        group,
        shard,
        epoch: epoch(9),
        owner,
        cause,
    };
    vec![
        Event::ClusterInitialized { cluster: CLUSTER },
        Event::GroupCreated {
            group,
            name: name("orders"),
            shard_count: 6,
        },
        Event::PolicySet { group },
        Event::GroupDeleting { group },
        Event::GroupRemoved {
            group,
            name: name("orders"),
        },
        Event::Registered {
            group,
            worker: worker.clone(),
            session: owner,
        },
        Event::SessionEnded {
            group,
            worker: worker.clone(),
            session: owner,
            end: SessionEnd::Replaced,
        },
        Event::WorkerModeSet {
            group,
            worker: worker.clone(),
            mode: WorkerMode::Draining,
        },
        Event::Granted {
            group,
            shard,
            epoch: epoch(9),
            owner,
        },
        Event::Serving {
            group,
            shard,
            epoch: epoch(9),
            owner,
        },
        Event::Revoking {
            group,
            shard,
            epoch: epoch(9),
            owner,
            next: Some(SessionId(5)),
            reason: RevokeReason::Rebalance,
        },
        Event::Revoking {
            group,
            shard,
            epoch: epoch(9),
            owner,
            next: None,
            reason: RevokeReason::Draining,
        },
        ended(EndCause::Released),
        ended(EndCause::OpenFailed("disk full".to_owned())),
        ended(EndCause::Lost),
        ended(EndCause::Forced),
        ended(EndCause::SessionEnded(SessionEnd::Expired)),
        Event::FloorRaised {
            group,
            shard,
            floor: 1 << 40,
        },
        Event::FreezeSet {
            group,
            reason: Some("release day".to_owned()),
        },
        Event::FreezeSet {
            group,
            reason: None,
        },
        Event::FeatureEnabled {
            feature: Feature::Baseline,
        },
        Event::ClusterRestored {
            from: CLUSTER,
            to: ClusterId(9),
        },
        Event::ClusterSettled,
        Event::ShardPinned {
            group,
            shard: ShardIndex(1),
            to: Some(worker.clone()),
            kept_off: BTreeSet::new(),
        },
        Event::ShardPinned {
            group,
            shard: ShardIndex(1),
            to: None,
            kept_off: [worker.clone()].into(),
        },
        Event::ShardQuarantined {
            group,
            shard: ShardIndex(1),
            crashes: 3,
        },
        Event::QuarantineEnded {
            group,
            shard: ShardIndex(1),
        },
    ]
}

#[test]
fn events_are_encoded_as_ever() {
    let events = events();
    let kinds: BTreeSet<_> = events.iter().map(|event| event.subject().kind).collect();
    assert_eq!(
        kinds.len(),
        EVENT_KINDS,
        "an example of some kind is missing"
    );
    let lines = events
        .iter()
        .map(|event| (event.subject().kind.to_owned(), event.encode()));
    let committed = compare("events.hex", lines.collect());
    for ((_, bytes), event) in committed.iter().zip(&events) {
        assert_eq!(Event::decode(bytes).unwrap(), *event);
    }
}

#[test]
fn records_are_encoded_as_ever() {
    let state = example();
    let lines = state
        .records()
        .map(|(key, value)| (hex(&key), value.to_vec()));
    let committed = compare("records.hex", lines.collect());
    let kinds: BTreeSet<_> = committed
        .iter()
        .map(|(key, _)| key[..2].to_owned())
        .collect();
    let expected = [b'm', b'g', b't', b'w', b's', b'h', b'p'].map(|kind| hex(&[kind]));
    assert_eq!(kinds, expected.into());

    let records = committed
        .into_iter()
        .map(|(key, value)| (unhex(&key), value));
    assert_eq!(State::from_records(records).unwrap(), state);
}

#[test]
fn a_record_with_a_field_of_a_later_version_is_read() {
    let state = example();
    let grown = state
        .records()
        .map(|(key, value)| (key, with_another_field(&value)));
    assert_eq!(State::from_records(grown).unwrap(), state);
}

#[test]
fn a_command_with_a_field_of_a_later_version_is_read() {
    let command = Command::Force(Force {
        group: GroupId(2),
        tenures: vec![tenure(0, 1)],
    });
    let encoded = command.encode();
    // [12, [{0: 2, 1: [[0, 1]]}]]: the fields are the last item, and its header is known.
    let fields = encoded.iter().position(|byte| *byte == 0xa2).unwrap();
    let grown = [&encoded[..fields], &with_another_field(&encoded[fields..])].concat();
    assert_eq!(Command::decode(&grown).unwrap(), command);
}

#[test]
fn a_command_of_a_later_version_is_refused() {
    let mut encoder = Encoder::new(Vec::new());
    encoder.array(2).unwrap().u8(200).unwrap().array(0).unwrap();
    assert!(Command::decode(encoder.writer()).is_err());

    let mut feature = Encoder::new(Vec::new());
    feature
        .array(2)
        .unwrap()
        .u8(16)
        .unwrap()
        .array(1)
        .unwrap()
        .u8(200)
        .unwrap();
    assert!(Command::decode(feature.writer()).is_err());
}

#[test]
fn bytes_after_a_command_or_a_record_are_damage() {
    let longer = [&Command::Leave(SessionId(1)).encode()[..], &[0]].concat();
    assert!(Command::decode(&longer).is_err());

    let records: Vec<_> = example().records().collect();
    for damaged in 0..records.len() {
        let read = records.iter().enumerate().map(|(position, (key, value))| {
            let tail: &[u8] = if position == damaged { &[0] } else { &[] };
            (key.clone(), [&value[..], tail].concat())
        });
        assert!(State::from_records(read).is_err());
    }
}

#[test]
fn a_missing_record_is_noticed() {
    let records: Vec<_> = example()
        .records()
        .map(|(key, value)| (key, value.to_vec()))
        .collect();
    for lost in [b'g', b's'] {
        let read = records
            .iter()
            .filter(|(key, _)| key.first() != Some(&lost))
            .cloned();
        assert!(
            State::from_records(read).is_err(),
            "without {}",
            char::from(lost)
        );
    }
}

/// The same map with one more field: number 99, a value that takes several bytes.
fn with_another_field(map: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::new(map);
    let fields = decoder.map().unwrap().unwrap();
    let mut encoder = Encoder::new(Vec::new());
    encoder.map(fields + 1).unwrap();
    let mut grown = encoder.into_writer();
    grown.extend_from_slice(&map[decoder.position()..]);
    let mut encoder = Encoder::new(grown);
    encoder
        .u8(99)
        .unwrap()
        .array(2)
        .unwrap()
        .str("later")
        .unwrap()
        .u64(u64::MAX)
        .unwrap();
    encoder.into_writer()
}

/// Compares with a committed file and returns what that says.
fn compare(file: &str, lines: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let path = format!("{}/tests/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    for (label, bytes) in &lines {
        writeln!(text, "{label} {}", hex(bytes)).unwrap();
    }
    if update() {
        store(&path, &text);
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(committed == text, "{file} has changed:\n{text}");
    let split = |line: &str| {
        let (label, bytes) = line.split_once(' ').unwrap();
        (label.to_owned(), unhex(bytes))
    };
    committed.lines().map(split).collect()
}

#[allow(
    clippy::disallowed_methods,
    reason = "the rules read no environment; this test does"
)]
fn update() -> bool {
    std::env::var_os("UPDATE").is_some()
}

#[allow(
    clippy::disallowed_methods,
    reason = "the rules do no I/O; this test does"
)]
fn store(path: &str, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}
