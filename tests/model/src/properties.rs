//! What must hold in every state that can be reached.

use stateright::Property;

use crate::model::Protocol;
use crate::ownership::Shard;
use crate::recovery;
use crate::state::State;
use crate::worker::Claim;

/// P1: a shard's epoch never falls, and no two grants share one.
pub const EPOCHS_RISE: &str = "P1: epochs only rise, and no two grants share one";
/// P2: storage accepts no write of an epoch below one it has sealed.
pub const FENCED: &str = "P2: no write below a seal is accepted";
/// P3: what `seal` returned is the last accepted write of all earlier epochs.
pub const NOTHING_LOST: &str = "P3: an owner goes on from the last write before it";
/// P4: a session that owns anything is live, and a worker name has at most one.
pub const OWNERS_LIVE: &str = "P4: who owns anything is live, and a name has one session";
/// P11: `is_current` is never true on two workers.
pub const ONE_BELIEVES: &str = "P11: no two processes believe that they own the shard";
/// One epoch has one owner, also in the store: the ground under P2 and P3.
pub const ONE_WRITER: &str = "an epoch has one writer";
/// A shard that is called served was sealed by its owner: what routers rely on.
pub const SERVED_IS_SEALED: &str = "who serves has sealed";
/// Half of P6: without a quorum no token is called current that is not.
pub const TOKENS_TRUE: &str = "P6: no old token is called current";
/// A leader that stood still ends nobody on waking.
pub const WAKING_ENDS_NOBODY: &str = "a leader that stood still ends nobody for that";
/// A newer process keeps its name.
pub const NAMES_STAY: &str = "a process that was replaced does not come back";
/// Every shard is in the end served.
pub const SERVED_IN_THE_END: &str = "when the faults are over, the shard is served";

/// Not a promise: it shows that a check has seen more than the first tenure.
pub const HANDED_OVER: &str = "a tenure after the first is served";

/// All of them. `SERVED_IN_THE_END` costs a run of its own for each state, so it is only asked where wanted.
pub fn properties(with_recovery: bool) -> Vec<Property<Protocol>> {
    let mut properties = vec![
        Property::always(EPOCHS_RISE, |_, state: &State| {
            !state.breaches.epoch_repeated
        }),
        Property::always(FENCED, |_, state: &State| {
            !state.breaches.accepted_below_a_seal
        }),
        Property::always(NOTHING_LOST, |_, state: &State| nothing_lost(state)),
        Property::always(OWNERS_LIVE, |_, state: &State| owners_live(state)),
        Property::always(ONE_BELIEVES, |model: &Protocol, state: &State| {
            one_believes(model, state)
        }),
        Property::always(ONE_WRITER, |_, state: &State| {
            !state.breaches.two_owners_of_one_epoch
        }),
        Property::always(SERVED_IS_SEALED, |_, state: &State| served_is_sealed(state)),
        Property::always(TOKENS_TRUE, |_, state: &State| !state.breaches.false_token),
        Property::always(WAKING_ENDS_NOBODY, |_, state: &State| {
            !state.breaches.ended_by_a_woken_leader
        }),
        Property::always(NAMES_STAY, |_, state: &State| {
            !state.breaches.name_taken_back
        }),
    ];
    properties.push(Property::sometimes(HANDED_OVER, |_, state: &State| {
        let later = state.committed.epoch > 1 && state.store.sealed > 1;
        later && matches!(state.committed.shard, Shard::Serving(_))
    }));
    if with_recovery {
        properties.push(Property::always(
            SERVED_IN_THE_END,
            |model: &Protocol, state: &State| recovery::is_served_in_the_end(model, state),
        ));
    }
    properties
}

fn nothing_lost(state: &State) -> bool {
    let as_read = state.processes.iter().all(|process| {
        let Some(held) = process.handle() else {
            return true;
        };
        match held.claim {
            Claim::None | Claim::Read(_) => true,
            Claim::Sealed(basis) => state
                .store
                .last_below(held.epoch)
                .is_none_or(|last| last == basis),
        }
    });
    as_read && !state.breaches.lost_update
}

fn owners_live(state: &State) -> bool {
    let owner = state.committed.shard.owner();
    let live = &state.committed.live;
    let owner_lives = owner == 0 || state.committed.session(owner).is_some();
    let one_each = live.iter().all(|one| {
        live.iter()
            .all(|other| one.session == other.session || one.name != other.name)
    });
    owner_lives && one_each
}

fn one_believes(model: &Protocol, state: &State) -> bool {
    let timing = &model.bounds.timing;
    let believing = state
        .processes
        .iter()
        .filter(|process| process.is_current(timing));
    believing.count() <= 1
}

fn served_is_sealed(state: &State) -> bool {
    match state.committed.shard {
        Shard::Serving(_) => state.store.sealed >= state.committed.epoch,
        _ => true,
    }
}
