//! Several owners and readers at once, with a history that is checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checkpoint::{Deletion, Write};
use crate::error::CheckpointError;
use crate::store::CheckpointStore;
use crate::token::FencingToken;

use super::concurrency::joined;
use super::disturbed::{Disturbances, DisturbedStore};
use super::history::{self, Answer, Asked, Call, History};
use super::rule;
use super::stage::Stage;

/// How many histories are made with a store that answers, and as many with one that is disturbed.
const HISTORIES: u64 = 40;

/// Calls of one task of a history. Three tasks for each of two tenures, two seals more, stay well
/// below what a history holds.
const CALLS_EACH: u64 = 5;

pub(super) async fn cases(stage: &mut Stage<'_>) {
    stage.begin("overlapping_calls_have_one_order", rule::LINEAR);
    let paused = Disturbances {
        pauses_max: 3,
        ..Disturbances::default()
    };
    for _ in 0..HISTORIES {
        one_history(stage, paused).await;
    }

    stage.begin("calls_whose_answers_are_lost_have_one_order", rule::LINEAR);
    let lossy = Disturbances {
        pauses_max: 3,
        refused_one_in: 8,
        lost_one_in: 5,
        late_one_in: 5,
    };
    for _ in 0..HISTORIES {
        one_history(stage, lossy).await;
    }
}

/// Two tenures whose calls overlap: the older one goes on while the newer one seals and works.
async fn one_history(stage: &mut Stage<'_>, disturbances: Disturbances) {
    let seed = stage.random.number();
    let disturbed = DisturbedStore::new(Arc::clone(&stage.store), disturbances, seed);
    let recorder = Arc::new(Recorder {
        store: Arc::new(disturbed),
        moments: AtomicU64::new(0),
    });
    let mut history = History {
        seals_in_two_steps: stage.seals_in_two_steps(),
        ..History::default()
    };

    let old = stage.grant().await;
    history.grants.push((old.epoch, recorder.moment()));
    let mut tasks = tenure(stage, &recorder, &old);
    let pauses = stage.random.below(40);
    for _ in 0..pauses {
        tokio::task::yield_now().await;
    }
    // From here on the older tenure may be over, as far as a store knows of grants.
    let handed_over = recorder.moment();
    let new = stage.hand_over(&old).await;
    history.grants.push((new.epoch, handed_over));
    tasks.extend(tenure(stage, &recorder, &new));

    let mut wrong = None;
    for task in tasks {
        match joined(task).await {
            Ok(calls) => history.calls.extend(calls),
            Err(error) => wrong = Some(error),
        }
    }
    if let Some(error) = wrong {
        stage.broken(format_args!(
            "no call may be answered with: {error:?}{history}"
        ));
    }
    recorder.store.settled().await;
    let read = stage.store.read(&old.resource).await;
    let found = stage.success("a read at the end of a history", read);
    let (began, ended) = (recorder.moment(), recorder.moment());
    history.calls.push(Call {
        token: None,
        asked: Asked::Read,
        answer: Answer::found(found),
        began,
        ended,
    });
    if !history.is_linear() {
        stage.broken(format_args!(
            "these calls on {} have no order that explains their answers:{history}",
            old.resource
        ));
    }
}

type Recorded = tokio::task::JoinHandle<Result<Vec<Call>, CheckpointError>>;

/// What two tasks of a tenure and a reader do: chosen beforehand, so that the seed repeats it.
fn tenure(stage: &mut Stage<'_>, recorder: &Arc<Recorder>, token: &FencingToken) -> Vec<Recorded> {
    let mut plans: Vec<Vec<Planned>> = Vec::new();
    let mut number = 0;
    for task in 0..2 {
        let mut plan = Vec::new();
        if task == 0 {
            plan.push(Planned::Seal);
        }
        for _ in 0..CALLS_EACH {
            // Mostly the next sequence, sometimes the same or a lower one: the tasks race for them.
            number += stage.random.below(3);
            let write = stage.content(number.max(1), "");
            plan.push(match stage.random.below(8) {
                0 => Planned::Seal,
                1 => Planned::Delete(Deletion {
                    sequence: write.sequence,
                    write_id: write.write_id,
                }),
                _ => Planned::Write(Write {
                    data: history::data_of(write.write_id),
                    ..write
                }),
            });
        }
        plans.push(plan);
    }
    plans.push((0..2).map(|_| Planned::Read).collect());
    plans
        .into_iter()
        .map(|plan| {
            let (recorder, token) = (Arc::clone(recorder), token.clone());
            tokio::spawn(async move { recorder.carry_out(&token, plan).await })
        })
        .collect()
}

enum Planned {
    Seal,
    Write(Write),
    Delete(Deletion),
    Read,
}

/// Makes calls, and notes when they began and ended.
struct Recorder {
    store: Arc<DisturbedStore>,
    moments: AtomicU64,
}

impl Recorder {
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    async fn carry_out(
        &self,
        token: &FencingToken,
        plan: Vec<Planned>,
    ) -> Result<Vec<Call>, CheckpointError> {
        let mut calls = Vec::with_capacity(plan.len());
        for planned in plan {
            let began = self.moment();
            let (asked, answer) = match planned {
                Planned::Seal => {
                    let answer = self.store.seal(token).await;
                    (Asked::Seal, Answer::of(answer, Answer::found)?)
                }
                Planned::Write(write) => {
                    let asked = Asked::Write(write.sequence, write.write_id);
                    let answer = self.store.write(token, write).await;
                    (asked, Answer::of(answer, |()| Answer::Done)?)
                }
                Planned::Delete(deletion) => {
                    let asked = Asked::Delete(deletion.sequence, deletion.write_id);
                    let answer = self.store.delete(token, deletion).await;
                    (asked, Answer::of(answer, |()| Answer::Done)?)
                }
                Planned::Read => {
                    let answer = self.store.read(&token.resource).await;
                    (Asked::Read, Answer::of(answer, Answer::found)?)
                }
            };
            let ended = self.moment();
            // A call that was not made has no place in the order.
            if let Some(answer) = answer {
                calls.push(Call {
                    token: Some(token.clone()),
                    asked,
                    answer,
                    began,
                    ended,
                });
            }
        }
        Ok(calls)
    }
}
