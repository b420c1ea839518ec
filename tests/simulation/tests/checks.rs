//! Every check of the history can fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

use std::time::Duration;

use simulation::history::History;
use simulation::totals::Totals;
use tenure_fence::Epoch;
use tenure_ownership::Event;
use tenure_ownership::ids::{GroupId, SessionId, ShardIndex};

fn granted(shard: u32, epoch: u64, owner: u64) -> Event {
    Event::Granted {
        group: GroupId(3),
        shard: ShardIndex(shard),
        epoch: Epoch::new(epoch).unwrap(),
        owner: SessionId(owner),
    }
}

#[track_caller]
fn assert_broken(history: &History, promise: &str) {
    let broken = history.violations();
    assert!(
        broken.len() == 1 && broken[0].starts_with(promise),
        "{broken:?}"
    );
}

#[test]
fn an_epoch_with_two_owners_is_noticed() {
    let mut history = History::default();
    history.published(0, (5, 0), &granted(1, 1, 4), 0);
    history.published(1, (5, 0), &granted(1, 1, 4), 0);
    assert_eq!(history.violations(), Vec::<String>::new());
    history.published(0, (6, 0), &granted(1, 1, 5), 0);
    assert_broken(&history, "P1: ");
}

#[test]
fn nodes_that_tell_different_stories_are_noticed() {
    let mut history = History::default();
    history.published(0, (5, 0), &granted(1, 1, 4), 0);
    history.published(1, (5, 0), &granted(2, 1, 4), 0);
    assert_broken(&history, "P9: ");
}

#[test]
fn a_lost_write_is_noticed() {
    let mut history = History::default();
    history.wrote("shared", 1, 2, 7);
    history.found("shared", 1, 3, 7);
    history.found("replicated", 1, 3, 0);
    history.left("shared", 1, 7, 8);
    assert_eq!(history.violations(), Vec::<String>::new());
    history.found("shared", 1, 4, 6);
    assert_broken(&history, "P3, P5: ");
}

#[test]
fn a_write_of_an_earlier_owner_that_a_claim_has_not_found_is_noticed_whoever_is_told_first() {
    let mut history = History::default();
    history.found("shared", 1, 3, 7);
    history.wrote("shared", 1, 2, 7);
    history.wrote("shared", 1, 3, 8);
    assert_eq!(history.violations(), Vec::<String>::new());
    history.wrote("shared", 1, 2, 8);
    assert_broken(&history, "P3, P5: ");
}

#[test]
fn a_claim_that_is_answered_late_is_not_held_against_what_its_successor_has_written() {
    let mut history = History::default();
    history.found("shared", 1, 4, 9);
    history.wrote("shared", 1, 4, 10);
    history.found("shared", 1, 3, 9);
    assert_eq!(history.violations(), Vec::<String>::new());
}

#[test]
fn a_stale_read_of_the_owner_is_noticed() {
    let mut history = History::default();
    history.read_as_owner("replicated", 1, 7, 7, "the owner");
    assert_eq!(history.violations(), Vec::<String>::new());
    history.read_as_owner("replicated", 1, 7, 6, "the owner");
    assert_broken(&history, "P5: ");
}

#[test]
fn a_token_that_is_called_current_after_the_next_grant_is_noticed() {
    let mut history = History::default();
    history.published(0, (5, 0), &granted(1, 1, 4), 0);
    assert!(!history.is_superseded(1, 1));
    history.published(0, (6, 0), &granted(1, 2, 5), 0);
    assert!(history.is_superseded(1, 1));
    history.verified(1, 1, false, true);
    history.verified(1, 1, true, false);
    assert_eq!(history.violations(), Vec::<String>::new());
    history.verified(1, 1, true, true);
    assert_broken(&history, "P6: ");
}

#[test]
fn an_event_that_a_watcher_misses_or_sees_twice_is_noticed() {
    let story = || {
        let mut history = History::default();
        history.published(0, (5, 0), &granted(1, 1, 4), 0);
        history.published(0, (6, 0), &granted(2, 1, 4), 0);
        history
    };
    let first = ((5, 0), "granted shard=1 epoch=1 owner=4".to_owned());
    let second = ((6, 0), "granted shard=2 epoch=1 owner=4".to_owned());

    let mut history = story();
    history.watched((0, 0), (5, 0), std::slice::from_ref(&first));
    history.watched((5, 0), (6, 0), std::slice::from_ref(&second));
    assert_eq!(history.violations(), Vec::<String>::new());
    history.watched((5, 0), (5, 0), std::slice::from_ref(&first));
    assert_broken(&history, "P8: ");

    let mut history = story();
    history.watched((0, 0), (6, 0), &[second]);
    assert_broken(&history, "P8: ");

    let mut history = story();
    history.watched(
        (0, 0),
        (5, 0),
        &[((5, 0), "granted shard=1 epoch=2".to_owned())],
    );
    assert_broken(&history, "P8: ");
}

#[test]
fn a_seed_in_which_little_happens_is_noticed() {
    let enough = Totals {
        simulated: Duration::from_secs(60),
        handoffs: 20,
        faults: [("worker paused".into(), 3), ("link cut".into(), 2)].into(),
        ..Totals::default()
    };
    assert_eq!(enough.too_little(), None);
    let little = [
        Totals {
            simulated: Duration::from_millis(59_999),
            ..enough.clone()
        },
        Totals {
            handoffs: 19,
            ..enough.clone()
        },
        Totals {
            faults: [("link cut".into(), 4)].into(),
            ..enough.clone()
        },
    ];
    for totals in little {
        assert!(totals.too_little().is_some(), "{totals}");
    }
}
