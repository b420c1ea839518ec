//! One life of a group as text, to be reviewed by eye: a change of the planner shows here as a diff.
//!
//! `UPDATE=1 cargo test -p tenure-ownership --test planner` writes the file anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use tenure_ownership::planner::{Observed, Plan};
use tenure_ownership::session::WorkerMode;

use crate::world::World;

#[allow(
    clippy::disallowed_methods,
    reason = "the rules read no environment and do no I/O; this test does"
)]
#[test]
fn plans_are_those_of_the_golden_file() {
    let mut text = String::from("# 24 shards. Plans as they are carried out, by worker.\n");
    let mut world = World::new(24, Default::default());
    let quiet = Observed::default();

    world.join("ada", 1);
    world.join("ben", 1);
    step(&mut text, &mut world, "two workers", &quiet);
    world.join("cleo", 2);
    step(&mut text, &mut world, "one of double weight joins", &quiet);
    let end = world.expire("ben");
    let grace = Observed {
        restart_graces: BTreeSet::from([end]),
        ..Observed::default()
    };
    step(
        &mut text,
        &mut world,
        "ben is lost, and its shards wait",
        &grace,
    );
    step(&mut text, &mut world, "the grace is over", &quiet);
    world.join("dora", 1);
    world.set_mode("ada", WorkerMode::Draining);
    step(&mut text, &mut world, "dora joins, ada drains", &quiet);
    world.leave("ada");
    step(&mut text, &mut world, "ada leaves, empty", &quiet);
    let away = Observed {
        disconnected: BTreeSet::from([world.session("cleo").unwrap()]),
        ..Observed::default()
    };
    world.leave("dora");
    step(
        &mut text,
        &mut world,
        "dora leaves while cleo has no stream",
        &away,
    );
    step(&mut text, &mut world, "cleo is back", &quiet);

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planner/golden.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, golden, "plans differ from {}", path.display());
}

/// Writes down every plan until the group has settled.
fn step(text: &mut String, world: &mut World, title: &str, observed: &Observed) {
    writeln!(text, "\n== {title}").unwrap();
    loop {
        world.open_all();
        let plan = world.plan(observed);
        write_plan(text, world, &plan);
        if plan.is_empty() {
            break;
        }
        world.carry_out(plan);
        world.release_all();
    }
    let loads: Vec<String> = world
        .loads()
        .iter()
        .map(|(name, load)| format!("{name}={load}"))
        .collect();
    writeln!(text, "loads {}", loads.join(" ")).unwrap();
}

fn write_plan(text: &mut String, world: &World, plan: &Plan) {
    let worker = |session| world.state.session(session).unwrap().worker.to_string();
    let mut moves: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for grant in &plan.grants {
        moves
            .entry(format!("grant to {}", worker(grant.to)))
            .or_default()
            .push(grant.shard.to_string());
    }
    for revoke in &plan.revokes {
        let owner = worker(world.shard(revoke.shard.0).owner().unwrap());
        let next = revoke.next.map_or("nobody".to_owned(), worker);
        let title = format!("revoke from {owner} for {next}, {:?}", revoke.reason);
        moves
            .entry(title)
            .or_default()
            .push(revoke.shard.to_string());
    }
    writeln!(text, "plan").unwrap();
    for (title, shards) in moves {
        writeln!(text, "  {title}: {}", shards.join(" ")).unwrap();
    }
    for line in plan.report.to_string().lines() {
        writeln!(text, "  not done, {line}").unwrap();
    }
}
