//! What happens when no more faults do: every process acts, every message arrives.
//!
//! From a state it takes one fair course, always the same one: connections are made anew, messages are
//! delivered, proposals commit, and when nothing is left to do a tick passes. A shard that is not served
//! after some ticks of that is stuck.

use crate::action::Action;
use crate::bounds::Bounds;
use crate::bounds::Budget;
use crate::ids::ProcessId;
use crate::leader::Lease;
use crate::model::Protocol;
use crate::ownership::Shard;
use crate::rules::Rules;
use crate::state::PROCESSES;
use crate::state::State;
use crate::worker::Claim;
use crate::worker::Held;
use crate::worker::Phase;

/// Most steps within one tick. Far more than any course needs, so that one that never ends is noticed.
const STEPS_MAX: usize = 400;

/// Whether the shard is served within a bounded time once the faults are over.
///
/// True also if no process is left to serve it.
pub fn is_served_in_the_end(model: &Protocol, state: &State) -> bool {
    let (rules, bounds) = (&model.rules, &model.bounds);
    let mut state = state.clone();
    state.left = Budget::NONE;
    state.leader.paused = false;
    state.step_down();
    let timing = &bounds.timing;
    // A session that is not heard of any more, a drain, a replacement, and a session again: each once in full.
    let patience = 2 * (timing.ttl + timing.window + timing.drain) + 4;
    for _ in 0..patience {
        if !settle_down(&mut state, rules, bounds) {
            return false;
        }
        let running = state.processes.iter().any(|process| process.is_running());
        if !running || is_served(&state, bounds) {
            return true;
        }
        state.take(rules, bounds, Action::Tick);
    }
    false
}

/// Whether a process serves the shard, knows it, and may believe it.
fn is_served(state: &State, bounds: &Bounds) -> bool {
    let Shard::Serving(owner) = state.committed.shard else {
        return false;
    };
    state.processes.iter().any(|process| {
        let sealed = |held: Held| {
            held.epoch == state.committed.epoch && matches!(held.claim, Claim::Sealed(_))
        };
        process.session == owner
            && process.handle().is_some_and(sealed)
            && process.is_current(&bounds.timing)
    })
}

/// What a process does once a tick, because it may come to nothing and is then tried again.
#[derive(Clone, Copy, Default)]
struct Tried {
    connect: [bool; PROCESSES],
    heartbeat: [bool; PROCESSES],
}

/// Takes every step that is due within the tick. Returns whether that came to an end.
fn settle_down(state: &mut State, rules: &Rules, bounds: &Bounds) -> bool {
    let mut tried = Tried::default();
    for _ in 0..STEPS_MAX {
        let Some(action) = next(state, rules, bounds, &tried) else {
            return true;
        };
        match action {
            Action::Connect(id, _) => tried.connect[usize::from(id)] = true,
            Action::Heartbeat(id) => tried.heartbeat[usize::from(id)] = true,
            _ => {}
        }
        state.take(rules, bounds, action);
    }
    false
}

/// The step that is due first: what is under way before what begins something.
fn next(state: &State, rules: &Rules, bounds: &Bounds, tried: &Tried) -> Option<Action> {
    let mut steps = Vec::with_capacity(32);
    state.steps(rules, bounds, &mut steps);
    // Of what needs a budget nothing is left, so everything else is something that is due.
    let due = |action: &&Action| match action {
        Action::Tick => false,
        Action::Heartbeat(id) => !tried.heartbeat[usize::from(*id)],
        _ => true,
    };
    if let Some(action) = steps.iter().find(due) {
        return Some(*action);
    }
    let connects = |id: &ProcessId| {
        let process = state.process(*id);
        let stream = state.streams.find(|stream| stream.process == *id);
        process.is_running() && stream.is_none() && !tried.connect[usize::from(*id)]
    };
    if let Some(id) = State::process_ids().find(connects) {
        return Some(Action::Connect(id, state.leader.term));
    }
    let unowned = state.committed.shard == Shard::Unowned && !state.committed.deleting;
    let to = |lease: &Lease| lease.stream != 0 && lease.undecided == 0;
    let to = state.leader.leases.find(to);
    to.filter(|_| unowned && state.leader.acts() && state.pending.is_empty())
        .map(|lease| Action::Grant(state.leader.term, lease.session))
}

/// The first processes register, and process 0 is granted the shard and serves it, as if nothing ever went
/// wrong.
///
/// # Panics
///
/// If that does not happen.
pub fn warm(bounds: &Bounds, mut state: State, registered: usize) -> State {
    let rules = Rules::default();
    let left = state.left;
    let phases = state.processes.map(|process| process.phase);
    for process in state.processes.iter_mut().skip(registered) {
        process.phase = Phase::Waiting;
    }
    state.left = Budget::NONE;
    let ended = settle_down(&mut state, &rules, bounds);
    assert!(ended, "a warm start comes to an end");
    assert!(is_served(&state, bounds), "a warm start serves: {state:?}");
    state.left = left;
    for (process, phase) in state.processes.iter_mut().zip(phases) {
        process.phase = phase;
    }
    state
}
