//! Many fenced writers, and a server that is killed while they write.
//!
//! Each of 200 resources is written by its owner, and beside every write its previous owner, which was
//! replaced, presents one too. In the middle of it the server is killed and started again; half of the
//! resources change hands while it is down. What must be true whatever the store answered meanwhile:
//!
//! 1. No acknowledged write is lost: a seal returns the last one that was acknowledged, or a later one
//!    whose outcome was unknown.
//! 2. No write of a replaced owner is accepted.
//! 3. Nothing is reported wrongly: what was said not to have happened has not happened, and nothing is
//!    refused to the owner.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cluster_tests::failure::Failure;
use cluster_tests::wait;
use rand::Rng;
use tenure_fence::kit::{Holder, LocalGrants};
use tenure_fence::{
    Checkpoint, CheckpointError, CheckpointStore, FencingToken, Sequence, Write, WriteId,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::server::Crash;

/// Owners that write at the same time.
pub const WRITERS: usize = 200;

/// Acknowledged writes, for each owner on average, before the server is killed; and for each of them
/// after it has come back.
const WRITES: u64 = 5;

/// Size of a value: that of a small checkpoint.
const VALUE_BYTES: usize = 256;

/// How long a writer pauses after an answer that asks for a repetition. A server that is down refuses
/// at once.
const PAUSE: Duration = Duration::from_millis(20);

/// How long everything may take, with a slow server on a busy machine.
const TIME: Duration = Duration::from_secs(300);

/// What the writers were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Answers that left the outcome of a write open.
    pub unknown: u64,
    /// Answers that said that a write did not happen.
    pub unavailable: u64,
    /// Writes of replaced owners that were refused.
    pub fenced: u64,
    /// Resources that changed hands while the server was down.
    pub handed_over: u64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.unavailable += other.unavailable;
        self.fenced += other.fenced;
        self.handed_over += other.handed_over;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{WRITERS} writers: {} writes acknowledged, {} unknown, {} unavailable; {} writes of replaced \
             owners fenced; {} resources handed over while the server was down",
            self.acknowledged, self.unknown, self.unavailable, self.fenced, self.handed_over
        )
    }
}

/// Lets 200 owners write to `store`, kills its server in the middle, and requires that nothing
/// acknowledged is lost, nothing stale accepted and nothing reported wrongly.
///
/// `store` stays open all the time. The server stays down until as many calls have failed as there are
/// writers: it may start so quickly that the store's own repetitions would bridge the gap.
///
/// # Errors
///
/// Says which resource was treated wrongly, and how.
pub async fn survive_a_crash(
    store: Arc<dyn CheckpointStore>,
    server: &mut dyn Crash,
) -> Result<Count, Failure> {
    let mut grants = LocalGrants::new();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let failed = Arc::new(AtomicU64::new(0));
    let (act, acts) = watch::channel(Act::Before);
    let mut lanes = JoinSet::new();
    for number in 0..WRITERS {
        let resource = grants.fresh_resource();
        let mut tenure = || Tenure::new(grants.next_tenure(&resource, Holder::New));
        let lane = Lane {
            store: Arc::clone(&store),
            replaced: tenure(),
            owner: tenure(),
            next: (number % 2 == 0).then(tenure),
            acts: acts.clone(),
            acknowledged: Arc::clone(&acknowledged),
            failed: Arc::clone(&failed),
            count: Count::default(),
        };
        lanes.spawn(lane.run());
    }

    let play = async {
        let middle = WRITES * WRITERS as u64;
        reach(
            "writes that are acknowledged",
            &acknowledged,
            middle,
            &mut lanes,
        )
        .await?;
        act.send_replace(Act::During);
        server.kill().await?;
        let noticed = failed.load(Ordering::Relaxed) + WRITERS as u64;
        reach("calls that have failed", &failed, noticed, &mut lanes).await?;
        server.restart().await?;
        act.send_replace(Act::After);
        let mut count = Count::default();
        while let Some(lane) = lanes.join_next().await {
            count.add(lane??);
        }
        Ok::<_, Failure>(count)
    };
    let count = match tokio::time::timeout(TIME, play).await {
        Ok(played) => played?,
        Err(_) => {
            return Err(Failure::new(format!(
                "writers have not ended within {TIME:?}"
            )));
        }
    };
    println!("{count}");
    Ok(count)
}

/// Waits until the writers have come so far. None of them ends meanwhile, unless something is wrong.
async fn reach(
    what: &str,
    counter: &AtomicU64,
    enough: u64,
    lanes: &mut JoinSet<Result<Count, Failure>>,
) -> Result<(), Failure> {
    wait::until(what, TIME, async || {
        match (lanes.try_join_next(), counter.load(Ordering::Relaxed)) {
            (Some(Ok(Err(failure))), _) => Ok(Err(failure)),
            (Some(ended), _) => Ok(Err(Failure::new(format!("a writer has ended: {ended:?}")))),
            (None, count) if count >= enough => Ok(Ok(())),
            (None, few) => Err(format!("{few} of {enough}")),
        }
    })
    .await?
}

/// Where the play is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Before,
    /// The server is being killed and started again.
    During,
    After,
}

/// One resource: its owner, the one before, and perhaps the one after.
struct Lane {
    store: Arc<dyn CheckpointStore>,
    replaced: Tenure,
    owner: Tenure,
    next: Option<Tenure>,
    acts: watch::Receiver<Act>,
    /// Writes of all lanes.
    acknowledged: Arc<AtomicU64>,
    /// Writes of all lanes that were answered with neither success nor a refusal.
    failed: Arc<AtomicU64>,
    count: Count,
}

impl Lane {
    async fn run(mut self) -> Result<Count, Failure> {
        let played = self.play().await;
        played.map_err(|failure| failure.during(&self.owner.token.resource))?;
        Ok(self.count)
    }

    async fn play(&mut self) -> Result<(), Failure> {
        let store = Arc::clone(&self.store);
        self.replaced
            .require(seal(&store, &self.replaced.token).await?.as_ref())?;
        while self.replaced.acknowledged.is_none() {
            if self.replaced.present(&store).await? == Answer::Fenced {
                return Err(self.replaced.fenced_although_owner());
            }
        }
        self.replaced
            .require(seal(&store, &self.owner.token).await?.as_ref())?;

        while *self.acts.borrow() == Act::Before {
            self.write_beside_the_replaced().await?;
        }
        if let Some(next) = self.next.take() {
            self.hand_over(next).await?;
        }
        let mut left = WRITES;
        while left > 0 {
            // What was begun while the server was down does not count.
            let after = *self.acts.borrow() == Act::After;
            let acknowledged = self.write_beside_the_replaced().await?;
            left -= u64::from(after && acknowledged);
        }
        self.owner
            .require(seal(&store, &self.owner.token).await?.as_ref())
    }

    /// Presents a write of the owner and one of the owner before at the same time. Returns whether the
    /// owner's was acknowledged.
    async fn write_beside_the_replaced(&mut self) -> Result<bool, Failure> {
        let (answer, stale) = tokio::join!(
            self.owner.present(&self.store),
            self.replaced.present(&self.store)
        );
        let (answer, stale) = (answer?, stale?);
        self.count(answer);
        self.failed
            .fetch_add(u64::from(stale.has_failed()), Ordering::Relaxed);
        match stale {
            Answer::Acknowledged => return Err(self.replaced.accepted_although_replaced()),
            Answer::Fenced => self.count.fenced += 1,
            Answer::Unknown | Answer::Unavailable => {}
        }
        match answer {
            Answer::Fenced => Err(self.owner.fenced_although_owner()),
            answer => Ok(answer == Answer::Acknowledged),
        }
    }

    /// Seals for the next owner while the present one, which knows nothing of it, goes on writing.
    async fn hand_over(&mut self, next: Tenure) -> Result<(), Failure> {
        let store = Arc::clone(&self.store);
        let is_sealed = AtomicBool::new(false);
        let sealing = async {
            let found = seal(&store, &next.token).await;
            is_sealed.store(true, Ordering::SeqCst);
            found
        };
        let mut answers = Vec::new();
        let owner = &mut self.owner;
        let writing = async {
            while answers.last() != Some(&Answer::Fenced) {
                let late = is_sealed.load(Ordering::SeqCst);
                let answer = owner.present(&store).await?;
                if late && answer == Answer::Acknowledged {
                    return Err(owner.accepted_although_replaced());
                }
                answers.push(answer);
            }
            Ok(())
        };
        let (found, written) = tokio::join!(sealing, writing);
        written?;
        // Of all that was acknowledged to the old owner, also while the seal was on its way.
        self.owner.require(found?.as_ref())?;
        for answer in answers {
            self.count(answer);
        }
        self.count.handed_over += 1;
        self.replaced = std::mem::replace(&mut self.owner, next);
        Ok(())
    }

    fn count(&mut self, answer: Answer) {
        self.failed
            .fetch_add(u64::from(answer.has_failed()), Ordering::Relaxed);
        match answer {
            Answer::Acknowledged => {
                self.count.acknowledged += 1;
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Answer::Unknown => self.count.unknown += 1,
            Answer::Unavailable => self.count.unavailable += 1,
            Answer::Fenced => self.count.fenced += 1,
        }
    }
}

/// What a store may answer to a write in this play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Acknowledged,
    Unknown,
    Unavailable,
    Fenced,
}

impl Answer {
    fn has_failed(self) -> bool {
        matches!(self, Self::Unknown | Self::Unavailable)
    }
}

/// One tenure, and what it has presented.
struct Tenure {
    token: FencingToken,
    /// The sequence of the next write: one that no write has that may have happened.
    next: Sequence,
    /// The latest write, while its outcome is unknown.
    unknown: Option<Write>,
    acknowledged: Option<Sequence>,
    /// The writes that the store may hold: acknowledged, or unknown.
    possible: BTreeMap<Sequence, Write>,
}

impl Tenure {
    fn new(token: FencingToken) -> Self {
        Self {
            token,
            next: Sequence::FIRST,
            unknown: None,
            acknowledged: None,
            possible: BTreeMap::new(),
        }
    }

    /// Presents the next write and keeps what it was answered. Pauses after an answer that asks for a
    /// repetition.
    async fn present(&mut self, store: &Arc<dyn CheckpointStore>) -> Result<Answer, Failure> {
        let write = self.next_write();
        let answer = match store.write(&self.token, write.clone()).await {
            Ok(()) => Answer::Acknowledged,
            Err(CheckpointError::OutcomeUnknown { .. }) => Answer::Unknown,
            Err(CheckpointError::Unavailable { .. }) => Answer::Unavailable,
            Err(CheckpointError::Fenced {
                presented, current, ..
            }) if presented == self.token.epoch && presented < current => Answer::Fenced,
            Err(error) => {
                let (sequence, token) = (write.sequence, &self.token);
                return Err(Failure::from(error)
                    .during(format!("write {sequence} of {token} was answered wrongly")));
            }
        };
        self.keep(write, answer);
        if answer.has_failed() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(answer)
    }

    /// Repeats the write whose outcome is unknown, or goes on with another: both is allowed.
    fn next_write(&mut self) -> Write {
        let mut random = rand::rng();
        match self.unknown.take() {
            Some(write) if random.random() => write,
            _ => Write {
                sequence: self.next,
                write_id: WriteId::new(random.random()),
                data: random
                    .random_iter::<u8>()
                    .take(VALUE_BYTES)
                    .collect::<Vec<_>>()
                    .into(),
            },
        }
    }

    fn keep(&mut self, write: Write, answer: Answer) {
        let sequence = write.sequence;
        match answer {
            Answer::Acknowledged => self.acknowledged = Some(sequence),
            Answer::Unknown => self.unknown = Some(write.clone()),
            // A repetition that did not happen says nothing about the first attempt.
            Answer::Unavailable if self.possible.contains_key(&sequence) => {
                self.unknown = Some(write);
                return;
            }
            // It has not happened, so the next write may have its sequence. If it has happened after
            // all, that one is answered with SequenceReused, which is wrong.
            Answer::Unavailable | Answer::Fenced => return,
        }
        self.possible.insert(sequence, write);
        self.next = sequence.next().unwrap_or(Sequence::MAX);
    }

    /// Requires that what a seal found is the latest write of this tenure.
    fn require(&self, found: Option<&Checkpoint>) -> Result<(), Failure> {
        let wrong = |what: &str| {
            let found = found.map(|c| (c.epoch, c.sequence, c.write_id));
            Err(Failure::new(format!(
                "{what}: after {} had write {:?} acknowledged, a seal found {found:?}",
                self.token, self.acknowledged
            )))
        };
        let Some(checkpoint) = found.filter(|found| found.epoch == self.token.epoch) else {
            let newer = found.is_some_and(|found| found.epoch > self.token.epoch);
            return match self.acknowledged {
                Some(_) => wrong("an acknowledged write is lost"),
                None if newer => wrong("the checkpoint is of an epoch to come"),
                None => Ok(()),
            };
        };
        if self.acknowledged > Some(checkpoint.sequence) {
            return wrong("an acknowledged write is lost");
        }
        let presented = self.possible.get(&checkpoint.sequence);
        let presented = presented.map(|write| Checkpoint::of(&self.token, write.clone()));
        if presented.as_ref() != Some(checkpoint) {
            return wrong("a write is there that was said not to have happened");
        }
        Ok(())
    }

    fn fenced_although_owner(&self) -> Failure {
        Failure::new(format!("the owner {} was fenced", self.token))
    }

    fn accepted_although_replaced(&self) -> Failure {
        Failure::new(format!(
            "a write of {}, which was replaced, was accepted",
            self.token
        ))
    }
}

/// Seals, again and again while the store asks for it.
async fn seal(
    store: &Arc<dyn CheckpointStore>,
    token: &FencingToken,
) -> Result<Option<Checkpoint>, Failure> {
    loop {
        match store.seal(token).await {
            Ok(found) => return Ok(found),
            Err(error) if error.is_retryable() => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                return Err(Failure::from(error).during(format!("the seal of {token} was refused")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use tenure_fence::{Deletion, MemoryStore, Resource};

    use super::*;

    /// What is wrong with a store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        Nothing,
        /// Acknowledges writes that it does not keep.
        LosesWrites,
        /// Says of writes that have happened that they have not.
        SaysUnavailable,
        /// Acknowledges the writes of replaced owners.
        AcceptsStale,
        /// Refuses writes of the owner.
        FencesOwners,
    }

    /// A store in memory with a server that can be down, which leaves outcomes open.
    struct Faulty {
        memory: MemoryStore,
        fault: Fault,
        is_down: AtomicBool,
        failed: AtomicU64,
    }

    impl Faulty {
        fn new(fault: Fault) -> Arc<Self> {
            Arc::new(Self {
                memory: MemoryStore::new(),
                fault,
                is_down: AtomicBool::new(false),
                failed: AtomicU64::new(0),
            })
        }

        /// Fails, while the server is down, in one of the ways in which a call can fail.
        fn fails(&self) -> Option<Fails> {
            if !self.is_down.load(Ordering::SeqCst) {
                return None;
            }
            self.failed.fetch_add(1, Ordering::SeqCst);
            let failures = [Fails::Before, Fails::UnknownBefore, Fails::After];
            failures.get(rand::rng().random_range(0..3)).copied()
        }
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Fails {
        Before,
        UnknownBefore,
        After,
    }

    fn unavailable() -> CheckpointError {
        let source = "no connection".into();
        CheckpointError::Unavailable { source }
    }

    fn unknown() -> CheckpointError {
        let source = "no answer".into();
        CheckpointError::OutcomeUnknown { source }
    }

    #[async_trait]
    impl CheckpointStore for Faulty {
        async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
            tokio::task::yield_now().await;
            match self.fails() {
                Some(Fails::Before) => Err(unavailable()),
                Some(Fails::UnknownBefore) => Err(unknown()),
                Some(Fails::After) => self.memory.seal(token).await.and(Err(unknown())),
                None => self.memory.seal(token).await,
            }
        }

        async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
            tokio::task::yield_now().await;
            let fails = self.fails();
            match fails {
                Some(Fails::Before) => return Err(unavailable()),
                Some(Fails::UnknownBefore) => return Err(unknown()),
                Some(Fails::After) | None => {}
            }
            if self.fault == Fault::LosesWrites && rand::rng().random() {
                return Ok(());
            }
            let presented = token.epoch;
            let answer = self.memory.write(token, write).await;
            match (self.fault, answer) {
                (_, Ok(())) if fails.is_none() => match self.fault {
                    Fault::FencesOwners if rand::rng().random_ratio(1, 50) => {
                        Err(CheckpointError::Fenced {
                            resource: token.resource.clone(),
                            presented,
                            current: presented.next().unwrap(),
                        })
                    }
                    _ => Ok(()),
                },
                (Fault::SaysUnavailable, Ok(())) => Err(unavailable()),
                (_, Ok(())) => Err(unknown()),
                (Fault::AcceptsStale, Err(_)) => Ok(()),
                (_, refused) => refused,
            }
        }

        async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
            self.memory.read(resource).await
        }

        async fn delete(
            &self,
            token: &FencingToken,
            deletion: Deletion,
        ) -> Result<(), CheckpointError> {
            self.memory.delete(token, deletion).await
        }

        async fn probe(&self) -> Result<(), CheckpointError> {
            Ok(())
        }

        fn max_value_bytes(&self) -> usize {
            self.memory.max_value_bytes()
        }
    }

    /// Lets calls fail until many have.
    struct Down(Arc<Faulty>);

    #[async_trait]
    impl Crash for Down {
        async fn kill(&mut self) -> Result<(), Failure> {
            self.0.is_down.store(true, Ordering::SeqCst);
            Ok(())
        }

        async fn restart(&mut self) -> Result<(), Failure> {
            let mut ticks = tokio::time::interval(PAUSE);
            while self.0.failed.load(Ordering::SeqCst) < 5 * WRITERS as u64 {
                ticks.tick().await;
            }
            self.0.is_down.store(false, Ordering::SeqCst);
            Ok(())
        }
    }

    async fn play(fault: Fault) -> Result<Count, Failure> {
        let store = Faulty::new(fault);
        survive_a_crash(store.clone(), &mut Down(store)).await
    }

    async fn is_caught(fault: Fault, expected: &str) {
        let failure = play(fault).await.unwrap_err().to_string();
        assert!(failure.contains(expected), "{failure}");
    }

    #[tokio::test]
    async fn a_right_store_survives_a_crash() {
        let count = play(Fault::Nothing).await.unwrap();
        assert_eq!(count.handed_over, WRITERS as u64 / 2);
        assert!(count.acknowledged >= 2 * WRITES * WRITERS as u64);
        assert!(count.unknown > 0 && count.unavailable > 0 && count.fenced > 0);
    }

    #[tokio::test]
    async fn a_store_that_loses_what_it_acknowledged_is_caught() {
        is_caught(Fault::LosesWrites, "an acknowledged write is lost").await;
    }

    #[tokio::test]
    async fn a_store_that_says_unavailable_of_what_happened_is_caught() {
        // Found by the next write at the same sequence, or by the seal of the next owner.
        let failure = play(Fault::SaysUnavailable).await.unwrap_err().to_string();
        let expected = ["is used, the latest is", "said not to have happened"];
        assert!(expected.iter().any(|e| failure.contains(e)), "{failure}");
    }

    #[tokio::test]
    async fn a_store_that_accepts_a_replaced_owner_is_caught() {
        is_caught(Fault::AcceptsStale, "which was replaced, was accepted").await;
    }

    #[tokio::test]
    async fn a_store_that_fences_an_owner_is_caught() {
        is_caught(Fault::FencesOwners, "was fenced").await;
    }
}
