//! Answers that are lost at every point at which they can be: scenarios 6 and 7, for every server that
//! is reached over a connection of its own protocol.

use std::net::SocketAddr;

use async_trait::async_trait;
use cluster_tests::failure::Failure;
use store_tests::wire::Wire;
use tenure_fence::{Checkpoint, CheckpointError, CheckpointStore};

use crate::case::{Case, Place, write};

/// A place that is reached over the network.
#[async_trait]
pub(crate) trait Remote: Place {
    /// Where its server listens; of several, the first.
    fn address(&self) -> SocketAddr;

    /// Opens the store as if its server listened elsewhere, with a deadline that a test waits for.
    async fn open_at(&self, address: SocketAddr) -> Result<Self::Store, CheckpointError>;
}

/// More pieces than the answers to any write come in.
const PIECES_MAX: u64 = 200;

/// More calls than it takes to find out that all connections of a store are broken.
const CALLS_MAX: usize = 50;

/// Cuts a write off after the first piece of an answer, after the second, and so forth, until one gets
/// through. Each time it must be reported as what it is, whatever became of it:
///
/// * success only if it is there;
/// * `Unavailable` only if it is not, and never will be;
/// * otherwise `OutcomeUnknown`, and then the very same write succeeds, once (every other time); or, if a
///   new owner has sealed meanwhile, is refused, and what the new owner found stays.
pub(crate) async fn are_reported_as_what_they_are<P: Remote>(place: P) -> Result<(), Failure> {
    let mut case = Case::new(place).await?;
    let wire = Wire::start(case.place.address()).await?;
    let store = case.place.open_at(wire.address()).await?;
    let mut token = case.grant();
    let (mut number, mut unknown) = (0, 0);
    let mut left: Option<Checkpoint> = None;
    for pieces in 0..PIECES_MAX {
        // A connection that is there: what is lost is lost of the write.
        let found = settled(async || store.seal(&token).await).await?;
        assert_eq!(found, left, "{pieces}");
        number += 1;
        let cut_off = write(number, format!("cut off after {pieces} pieces"));
        let written = Checkpoint::of(&token, cut_off.clone());
        wire.lose_answers_after(pieces);
        let answer = store.write(&token, cut_off.clone()).await;
        let is_cut = wire.heal();
        let is_unknown = match answer {
            Ok(()) => false,
            Err(CheckpointError::OutcomeUnknown { .. }) => true,
            Err(CheckpointError::Unavailable { .. }) => {
                let next = case.hand_over(&token);
                let found = case.store.seal(&next).await?;
                assert_eq!(found, left, "{pieces}: it is there all the same");
                token = next;
                number = 0;
                continue;
            }
            Err(error) => panic!("{pieces}: {error:?}"),
        };
        unknown += u64::from(is_unknown);
        if is_unknown && pieces % 2 == 1 {
            let next = case.hand_over(&token);
            let found = case.store.seal(&next).await?;
            assert!(
                found == left || found.as_ref() == Some(&written),
                "{pieces}: {found:?}"
            );
            let late = settled(async || store.write(&token, cut_off.clone()).await).await;
            assert!(
                matches!(late, Err(CheckpointError::Fenced { .. })),
                "{pieces}: {late:?}"
            );
            assert_eq!(case.store.read(&next.resource).await?, found, "{pieces}");
            (token, left, number) = (next, found, 0);
            continue;
        }
        // Also when it has succeeded: there is one of it.
        settled(async || store.write(&token, cut_off.clone()).await).await?;
        let found = case.store.read(&token.resource).await?;
        assert_eq!(found.as_ref(), Some(&written), "{pieces}");
        left = found;
        if !is_cut {
            assert!(unknown > 0, "no outcome was left open");
            println!("{unknown} of {pieces} outcomes were left open");
            return Ok(());
        }
    }
    Err(Failure::new(format!(
        "a write did not get through within {PIECES_MAX} pieces"
    )))
}

/// Makes a call again while its connections turn out to be broken.
async fn settled<T>(
    call: impl AsyncFn() -> Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    let mut answer = call().await;
    for _ in 0..CALLS_MAX {
        match answer {
            Err(error) if error.is_retryable() => answer = call().await,
            answer => return answer,
        }
    }
    answer
}
