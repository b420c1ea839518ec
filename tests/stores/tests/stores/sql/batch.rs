//! Many seals at once.

use std::sync::Arc;

use cluster_tests::failure::Failure;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{CheckpointError, CheckpointStore, Isolation, Resource};

use super::data;
use super::database::{Database, options};
use crate::case::write;

/// Many at once: each answer is its own, whatever the others are.
pub(crate) async fn seals_of_a_batch_are_independent<D: Database>(
    database: &D,
    isolation: Isolation,
) -> Result<(), Failure> {
    let store = Arc::new(database.open_with(options(isolation)).await?);
    let mut grants = LocalGrants::new();
    let (mut tokens, mut older) = (Vec::new(), Vec::new());
    for _ in 0..600 {
        let resource = grants.fresh_resource();
        older.push(grants.next_tenure(&resource, Holder::New));
        tokens.push(grants.next_tenure(&resource, Holder::New));
    }
    let all_new = store.seal_many(&older).await;
    assert!(all_new.iter().all(|answer| matches!(answer, Ok(None))));
    for (place, token) in older.iter().enumerate().step_by(7) {
        store.write(token, write(1, place.to_string())).await?;
    }
    // Every tenth is refused for its epoch, every tenth for its owner; one is named twice.
    let mut asked = tokens.clone();
    for place in (0..asked.len()).step_by(10) {
        store.seal(&tokens[place]).await?;
        asked[place] = older[place].clone();
        store.seal(&tokens[place + 1]).await?;
        asked[place + 1] = grants.conflicting(&tokens[place + 1]);
    }
    asked.push(tokens[2].clone());

    // Two callers in opposite order: neither may wait for the other for ever.
    let turned: Vec<_> = asked.iter().rev().cloned().collect();
    let other = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.seal_many(&turned).await })
    };
    let answers = store.seal_many(&asked).await;
    let mut others = other.await?;
    others.reverse();
    for answers in [answers, others] {
        assert_eq!(answers.len(), asked.len());
        for (place, answer) in answers.into_iter().enumerate() {
            let token = &asked[place];
            let about = |named: &Resource| *named == token.resource;
            match place % 10 {
                _ if place == 600 => assert_eq!(answer?, None),
                0 => match answer {
                    Err(CheckpointError::Fenced { resource, .. }) if about(&resource) => {}
                    answer => panic!("{place}: {answer:?}"),
                },
                1 => match answer {
                    Err(CheckpointError::EpochConflict { resource, .. }) if about(&resource) => {}
                    answer => panic!("{place}: {answer:?}"),
                },
                _ if place % 7 == 0 => assert_eq!(data(answer?).unwrap(), place.to_string()),
                _ => assert_eq!(answer?, None, "{place}"),
            }
        }
    }
    Ok(())
}
