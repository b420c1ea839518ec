//! Owners that act at the same time.

use std::panic;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::CheckpointError;
use crate::store::CheckpointStore;
use crate::token::FencingToken;

use super::rule;
use super::stage::Stage;

/// How the race between old owners that write and new owners that seal went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RaceCount {
    /// How often a resource changed hands while its old owner was writing.
    pub rounds: u32,
    /// How many writes and deletions of old owners landed, and were what the seal returned if they
    /// were the last.
    pub landed: u64,
    /// How many came too late, and were refused.
    pub fenced: u64,
}

pub(super) async fn cases(stage: &mut Stage<'_>, race_rounds: u32) -> RaceCount {
    contents_that_race_for_a_sequence_have_one_winner(stage).await;
    racing_retries_of_one_write_all_succeed(stage).await;
    higher_of_two_racing_writes_stays(stage).await;
    seals_that_race_leave_the_highest_epoch(stage).await;
    two_owners_that_write_at_once_leave_only_the_new_ones(stage).await;
    stage.paused(PAUSES_MAX);
    let race = seal_and_write_that_race_have_two_outcomes(stage, race_rounds).await;
    stage.not_paused();
    race
}

/// How often a call of the race is stopped, at most, at each point at which it waits.
const PAUSES_MAX: u64 = 3;

/// How often the smaller races are run. Each is a handful of calls.
const SMALL_RACES: u64 = 30;

async fn contents_that_race_for_a_sequence_have_one_winner(stage: &mut Stage<'_>) {
    stage.begin(
        "contents_that_race_for_a_sequence_have_one_winner",
        rule::ATOMIC,
    );
    let token = stage.sealed().await;
    for number in 1..=SMALL_RACES {
        let changes: Vec<_> = (0..3)
            .map(|racer| change(stage, number, &format!("racer {racer}")))
            .collect();
        let answers = race(stage, &token, &changes).await;
        let mut winners = Vec::new();
        for (change, answer) in changes.iter().zip(answers) {
            match answer {
                Ok(()) => winners.push(change),
                Err(CheckpointError::SequenceReused { .. }) => {}
                Err(error) => stage.broken(format_args!("a racing write was answered: {error:?}")),
            }
        }
        let [winner] = winners.as_slice() else {
            stage.broken(format_args!(
                "{} of 3 contents were accepted at sequence {number} of {token}",
                winners.len()
            ));
        };
        let left = winner.leaves(&token);
        stage.holds(&token.resource, left.as_ref()).await;
    }
}

async fn racing_retries_of_one_write_all_succeed(stage: &mut Stage<'_>) {
    stage.begin("racing_retries_of_one_write_all_succeed", rule::RETRY);
    let token = stage.sealed().await;
    for number in 1..=SMALL_RACES {
        let change = change(stage, number, "presented three times");
        let answers = race(
            stage,
            &token,
            &[change.clone(), change.clone(), change.clone()],
        )
        .await;
        for answer in answers {
            stage.success("a racing retry", answer);
        }
        let left = change.leaves(&token);
        stage.holds(&token.resource, left.as_ref()).await;
    }
}

async fn higher_of_two_racing_writes_stays(stage: &mut Stage<'_>) {
    stage.begin("higher_of_two_racing_writes_stays", rule::UNKNOWN);
    let token = stage.sealed().await;
    for round in 1..=SMALL_RACES {
        let unknown = change(stage, 2 * round, "X, still on its way");
        let other = change(stage, 2 * round + 1, "Y");
        let mut answers = race(stage, &token, &[unknown, other.clone()])
            .await
            .into_iter();
        match answers.next() {
            Some(Ok(()) | Err(CheckpointError::SequenceReused { .. })) | None => {}
            Some(Err(error)) => stage.broken(format_args!("X was answered with: {error:?}")),
        }
        for answer in answers {
            stage.success("Y, at the higher sequence,", answer);
        }
        let left = other.leaves(&token);
        stage.holds(&token.resource, left.as_ref()).await;
    }
}

async fn seals_that_race_leave_the_highest_epoch(stage: &mut Stage<'_>) {
    stage.begin("seals_that_race_leave_the_highest_epoch", rule::ATOMIC);
    let mut first = stage.sealed().await;
    let mut written: Option<Checkpoint> = None;
    for round in 0..SMALL_RACES {
        let older = stage.hand_over(&first).await;
        let newer = stage.hand_over(&older).await;
        let tokens = if round % 2 == 0 {
            [&older, &newer]
        } else {
            [&newer, &older]
        };
        let tasks = tokens.map(|token| {
            let (store, token) = (Arc::clone(&stage.store), token.clone());
            let pauses = stage.random.below(4);
            tokio::spawn(async move {
                pause(pauses).await;
                let answer = store.seal(&token).await;
                (token, answer)
            })
        });
        for task in tasks {
            match joined(task).await {
                (_, Ok(found)) => stage.same("a racing seal", found.as_ref(), written.as_ref()),
                (token, answer @ Err(_)) if token == older => {
                    stage.fenced("a racing seal", &older, &newer, answer);
                }
                (token, Err(error)) => stage.broken(format_args!(
                    "the seal of the highest epoch, {token}, was answered with: {error:?}"
                )),
            }
        }
        let stale = stage.content(1, "below the highest");
        let answer = stage.store.write(&older, stale).await;
        stage.fenced("a write after racing seals", &older, &newer, answer);
        let write = stage.content(1, format!("round {round}"));
        written = Some(stage.write(&newer, &write).await);
        first = newer;
    }
}

async fn two_owners_that_write_at_once_leave_only_the_new_ones(stage: &mut Stage<'_>) {
    stage.begin(
        "two_owners_that_write_at_once_leave_only_the_new_ones",
        rule::STALE,
    );
    let mut old = stage.sealed().await;
    for _ in 0..SMALL_RACES {
        let (new, _) = stage.succeeded(&old).await;
        let stale: Vec<_> = (1..=4)
            .map(|number| plan(stage, number, "old owner's"))
            .collect();
        let fresh: Vec<_> = (1..=4)
            .map(|number| plan(stage, number, "new owner's"))
            .collect();
        let (old_task, _) = writer(stage, &old, stale);
        let (new_task, _) = writer(stage, &new, fresh);
        for (_, answer) in joined(old_task).await {
            stage.fenced("a write beside the new owner's", &old, &new, answer);
        }
        let mut left = None;
        for (change, answer) in joined(new_task).await {
            stage.success("a write beside the old owner's", answer);
            left = change.leaves(&new);
        }
        stage.holds(&new.resource, left.as_ref()).await;
        old = new;
    }
}

/// Scenario 3. In each round the owner writes while the resource is granted on and sealed, at a
/// moment that the seed chooses. A write that was acknowledged must be returned by the seal, if it
/// was the last; one that was refused must never be seen; there is no third outcome.
async fn seal_and_write_that_race_have_two_outcomes(
    stage: &mut Stage<'_>,
    rounds: u32,
) -> RaceCount {
    stage.begin(
        "seal_and_write_that_race_have_two_outcomes",
        rule::SEAL_BEFORE_READ,
    );
    let mut count = RaceCount::default();
    let mut old = stage.sealed().await;
    let mut latest: Option<Checkpoint> = None;
    for round in 1..=rounds {
        // The handoff begins once so many writes were answered, and the owner goes on beside it.
        let before = stage.random.below(5);
        let writes = before + 1 + stage.random.below(16);
        let plans = (1..=writes)
            .map(|number| plan(stage, number, &format!("round {round}, write {number}")))
            .collect();
        let (before_grant, before_seal) = (stage.random.below(4), stage.random.below(4));

        let (task, mut progress) = writer(stage, &old, plans);
        reached(&mut progress, before).await;
        pause(before_grant).await;
        let new = stage.hand_over(&old).await;
        pause(before_seal).await;
        let found = stage.seal(&new).await;
        for (change, answer) in joined(task).await {
            if answer.is_ok() {
                latest = change.leaves(&old);
                count.landed += 1;
                continue;
            }
            stage.fenced("a write that races with a seal", &old, &new, answer);
            count.fenced += 1;
        }
        let what = format!("in round {round} the seal that raced with writes, {new},");
        stage.same(&what, found.as_ref(), latest.as_ref());

        let late = stage.content(writes + 1, "after the seal");
        let answer = stage.store.write(&old, late).await;
        stage.fenced("a write after the seal", &old, &new, answer);
        stage.holds(&new.resource, latest.as_ref()).await;
        old = new;
        count.rounds += 1;
    }
    count
}

type Answer = Result<(), CheckpointError>;

/// A write or a deletion.
#[derive(Clone)]
enum Change {
    Write(Write),
    Deletion(Deletion),
}

impl Change {
    async fn present(&self, store: &dyn CheckpointStore, token: &FencingToken) -> Answer {
        match self {
            Self::Write(write) => store.write(token, write.clone()).await,
            Self::Deletion(deletion) => store.delete(token, *deletion).await,
        }
    }

    /// Returns what is there once the change was accepted under `token`.
    fn leaves(&self, token: &FencingToken) -> Option<Checkpoint> {
        match self {
            Self::Write(write) => Some(Checkpoint::of(token, write.clone())),
            Self::Deletion(_) => None,
        }
    }
}

/// Makes a write, or, one time in four, a deletion in its place.
fn change(stage: &mut Stage<'_>, number: u64, data: &str) -> Change {
    if stage.random.below(4) == 0 {
        return Change::Deletion(stage.deletion(number));
    }
    Change::Write(stage.content(number, data.to_owned()))
}

/// A change, and how often its task lets others go first.
struct Planned {
    pauses: u64,
    change: Change,
}

fn plan(stage: &mut Stage<'_>, number: u64, data: &str) -> Planned {
    Planned {
        pauses: stage.random.below(4),
        change: change(stage, number, data),
    }
}

/// Presents changes one after the other, up to and including the first that is fenced. The receiver
/// tells how many have been answered.
fn writer(
    stage: &Stage<'_>,
    token: &FencingToken,
    plans: Vec<Planned>,
) -> (JoinHandle<Vec<(Change, Answer)>>, watch::Receiver<u64>) {
    let (store, token) = (Arc::clone(&stage.store), token.clone());
    let (answered, progress) = watch::channel(0);
    let task = tokio::spawn(async move {
        let mut answers = Vec::with_capacity(plans.len());
        for Planned { pauses, change } in plans {
            pause(pauses).await;
            let answer = change.present(store.as_ref(), &token).await;
            let fenced = matches!(answer, Err(CheckpointError::Fenced { .. }));
            answers.push((change, answer));
            answered.send_modify(|count| *count += 1);
            if fenced {
                break;
            }
        }
        answers
    });
    (task, progress)
}

/// How often `reached` looks before it waits: half a millisecond's worth, which a store in memory
/// needs and any other does not notice.
const LOOKS: u32 = 5_000;

/// Waits until a writer has had `count` answers, or has ended.
async fn reached(progress: &mut watch::Receiver<u64>, count: u64) {
    // To be woken takes longer than a whole round does on a store in memory, and then there is no
    // race. So first look again and again, and only then wait.
    for _ in 0..LOOKS {
        if *progress.borrow() >= count {
            return;
        }
        tokio::task::yield_now().await;
    }
    // An error means that the writer has ended, and then its answers say what was wrong.
    let _ended = progress
        .wait_for(|answered| *answered >= count)
        .await
        .is_err();
}

/// Presents changes at the same time; the answers stand in the order of the changes.
async fn race(stage: &mut Stage<'_>, token: &FencingToken, changes: &[Change]) -> Vec<Answer> {
    let mut tasks = Vec::with_capacity(changes.len());
    for change in changes {
        let pauses = stage.random.below(4);
        let (store, token, change) = (Arc::clone(&stage.store), token.clone(), change.clone());
        tasks.push(tokio::spawn(async move {
            pause(pauses).await;
            change.present(store.as_ref(), &token).await
        }));
    }
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        answers.push(joined(task).await);
    }
    answers
}

/// Lets other tasks go first, `times` times.
async fn pause(times: u64) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

/// Waits for a task of the kit, and passes its panic on.
pub(super) async fn joined<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(payload) => panic::resume_unwind(payload),
            Err(error) => panic!("a task of the kit was cancelled: {error}"),
        },
    }
}
