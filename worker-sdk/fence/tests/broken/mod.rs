//! Stores that break the contract, each in one way that was seen in a real system or is easily made.
//!
//! Written apart from the crate's own store and rule, so that what the kit is measured with shares
//! no mistake with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure_fence::kit::{Harness, Holder, LocalGrants};
use tenure_fence::{
    Checkpoint, CheckpointError, CheckpointStore, Deletion, Epoch, FencingToken, Owner, Resource,
    Sequence, Write, WriteId,
};

/// What is wrong with a store. `Nothing` is wrong with the one that shows that the rest is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    // Fences.
    WriteIgnoresTheFence,
    WriteAllowsOneEpochBelow,
    WriteAllowsAnEpochAbove,
    WriteComparesOwnersOnly,
    WriteComparesEpochsOnly,
    WriteComparesEpochsAsText,
    WriteComparesEpochsAsFloats,
    WriteComparesEpochsIn32Bits,
    WriteKeepsHalfOfTheClusterId,
    WriteStoresBeforeItRefuses,
    WriteChecksThenWrites,
    SealIgnoresTheFence,
    SealRefusesTheSameEpoch,
    SealAcceptsAnotherOwner,
    SealRaisesTheFenceOnTheFirstWrite,
    SealReadsBeforeItRaises,
    SealForgetsTheData,
    SealIsLostInARestart,
    FenceIsSharedByAllResources,
    BatchStopsAtTheFirstRefusal,
    BatchAnswersInAnotherOrder,
    // Sequences.
    SequenceIgnored,
    SequenceAllowsALowerOne,
    EqualSequenceOverwrites,
    EqualSequenceIsAlwaysARetry,
    RetryIsRefused,
    RetryIsFoundAcrossEpochs,
    SequencesGoOnInANewEpoch,
    SequencesStartAfreshOnEverySeal,
    SequencesAreKeptAsFloats,
    SequencesAreLostInARestart,
    // Deletions and values.
    DeletionIgnoresTheFence,
    DeletionDropsTheFence,
    DeletionIgnoresItsSequence,
    DeletionTakesNoSequence,
    DeletionOfNothingTakesNoSequence,
    DeletionRetryIsRefused,
    DeletionForgetsTheSequences,
    DeletionKeepsTheData,
    ValuesAreCutOff,
    EmptyValueIsNone,
    LimitIsIgnored,
}

#[derive(Clone, Debug)]
struct Entry {
    epoch: Epoch,
    owner: Owner,
    latest: Option<(Sequence, WriteId)>,
    checkpoint: Option<Checkpoint>,
}

const LIMIT_BYTES: usize = 128 * 1024;

pub(crate) struct BrokenStore {
    fault: Fault,
    entries: Mutex<HashMap<Resource, Entry>>,
}

impl BrokenStore {
    fn key(&self, resource: &Resource) -> Resource {
        match self.fault {
            Fault::FenceIsSharedByAllResources => "lease/all".parse().unwrap(),
            _ => resource.clone(),
        }
    }

    fn entry(&self, resource: &Resource) -> Option<Entry> {
        self.entries
            .lock()
            .unwrap()
            .get(&self.key(resource))
            .cloned()
    }

    fn put(&self, resource: &Resource, entry: Entry) {
        self.entries
            .lock()
            .unwrap()
            .insert(self.key(resource), entry);
    }

    fn check_seal(&self, entry: &Entry, token: &FencingToken) -> Result<(), CheckpointError> {
        if token.epoch < entry.epoch && self.fault != Fault::SealIgnoresTheFence {
            return Err(fenced(token, entry));
        }
        if token.epoch == entry.epoch {
            if self.fault == Fault::SealRefusesTheSameEpoch {
                return Err(fenced(token, entry));
            }
            if token.owner != entry.owner && self.fault != Fault::SealAcceptsAnotherOwner {
                return Err(conflict(token));
            }
        }
        Ok(())
    }

    fn sealed(&self, entry: Option<Entry>, token: &FencingToken) -> Entry {
        let Some(mut entry) = entry else {
            return Entry {
                epoch: token.epoch,
                owner: token.owner,
                latest: None,
                checkpoint: None,
            };
        };
        let afresh = match self.fault {
            Fault::SequencesStartAfreshOnEverySeal => true,
            Fault::SequencesGoOnInANewEpoch | Fault::RetryIsFoundAcrossEpochs => false,
            _ => token.epoch > entry.epoch,
        };
        if afresh {
            entry.latest = None;
        }
        if token.epoch > entry.epoch && self.fault == Fault::SealForgetsTheData {
            entry.checkpoint = None;
        }
        (entry.epoch, entry.owner) = (token.epoch, token.owner);
        entry
    }

    fn check_write(
        &self,
        entry: Option<&Entry>,
        token: &FencingToken,
    ) -> Result<(), CheckpointError> {
        let Some(entry) = entry else {
            let resource = token.resource.clone();
            return Err(CheckpointError::NotSealed {
                resource,
                epoch: token.epoch,
            });
        };
        let number = |epoch: Epoch| match self.fault {
            Fault::WriteComparesEpochsAsFloats => rounded(epoch.get()),
            Fault::WriteComparesEpochsIn32Bits => epoch.get() & u64::from(u32::MAX),
            _ => epoch.get(),
        };
        let (presented, current) = (number(token.epoch), number(entry.epoch));
        let half = |owner: Owner| (owner.cluster >> 64, owner.session);
        let (below, above, foreign) = match self.fault {
            Fault::WriteIgnoresTheFence => (false, false, false),
            Fault::WriteComparesOwnersOnly => (token.owner != entry.owner, false, false),
            Fault::WriteAllowsOneEpochBelow => (
                presented + 1 < current,
                presented > current,
                token.owner != entry.owner,
            ),
            Fault::WriteAllowsAnEpochAbove | Fault::SealRaisesTheFenceOnTheFirstWrite => (
                presented < current,
                false,
                presented == current && token.owner != entry.owner,
            ),
            Fault::WriteComparesEpochsAsText => {
                let (presented, current) = (presented.to_string(), current.to_string());
                (
                    presented < current,
                    presented > current,
                    token.owner != entry.owner,
                )
            }
            Fault::WriteComparesEpochsOnly => (presented < current, presented > current, false),
            Fault::WriteKeepsHalfOfTheClusterId => (
                presented < current,
                presented > current,
                half(token.owner) != half(entry.owner),
            ),
            _ => (
                presented < current,
                presented > current,
                token.owner != entry.owner,
            ),
        };
        if below {
            return Err(fenced(token, entry));
        }
        if above {
            let resource = token.resource.clone();
            return Err(CheckpointError::NotSealed {
                resource,
                epoch: token.epoch,
            });
        }
        if foreign {
            Err(conflict(token))
        } else {
            Ok(())
        }
    }

    /// Says whether a write or deletion is new.
    fn check_sequence(
        &self,
        entry: &Entry,
        token: &FencingToken,
        (sequence, write_id): (Sequence, WriteId),
    ) -> Result<bool, CheckpointError> {
        let Some((latest, written)) = entry.latest else {
            return Ok(true);
        };
        let number = |sequence: Sequence| match self.fault {
            Fault::SequencesAreKeptAsFloats => rounded(sequence.get()),
            _ => sequence.get(),
        };
        let (presented, highest) = (number(sequence), number(latest));
        let same = write_id == written;
        if self.fault == Fault::RetryIsFoundAcrossEpochs {
            // As a store does that finds a retry by its write id before it looks at the epoch, but
            // starts its sequences afresh.
            let of_this_epoch = entry
                .checkpoint
                .as_ref()
                .is_some_and(|written| written.epoch == token.epoch);
            if same {
                return Ok(false);
            }
            if !of_this_epoch {
                return Ok(true);
            }
        }
        let refused = CheckpointError::SequenceReused {
            resource: token.resource.clone(),
            presented: sequence,
            latest,
        };
        match self.fault {
            Fault::SequenceIgnored => Ok(true),
            Fault::SequenceAllowsALowerOne if presented < highest => Ok(true),
            Fault::EqualSequenceOverwrites if presented == highest => Ok(true),
            Fault::EqualSequenceIsAlwaysARetry if presented == highest => Ok(false),
            Fault::RetryIsRefused if presented == highest => Err(refused),
            _ if presented > highest => Ok(true),
            _ if presented == highest && same => Ok(false),
            _ => Err(refused),
        }
    }

    fn stored(&self, token: &FencingToken, write: Write) -> Checkpoint {
        let mut checkpoint = Checkpoint::of(token, write);
        if self.fault == Fault::ValuesAreCutOff {
            checkpoint.data.truncate(65_535);
        }
        checkpoint
    }

    fn shown(&self, entry: Option<Entry>) -> Option<Checkpoint> {
        let checkpoint = entry?.checkpoint?;
        let hidden = self.fault == Fault::EmptyValueIsNone && checkpoint.data.is_empty();
        (!hidden).then_some(checkpoint)
    }

    /// What a restart leaves.
    fn restarted(&self) -> Self {
        let mut entries = self.entries.lock().unwrap().clone();
        match self.fault {
            Fault::SealIsLostInARestart => entries.retain(|_, entry| {
                let Some(checkpoint) = &entry.checkpoint else {
                    return false;
                };
                (entry.epoch, entry.owner) = (checkpoint.epoch, checkpoint.owner);
                true
            }),
            Fault::SequencesAreLostInARestart => {
                entries.values_mut().for_each(|entry| entry.latest = None);
            }
            _ => {}
        }
        Self {
            fault: self.fault,
            entries: Mutex::new(entries),
        }
    }
}

#[async_trait]
impl CheckpointStore for BrokenStore {
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        if self.fault == Fault::SealReadsBeforeItRaises {
            let read = self.shown(self.entry(&token.resource));
            tokio::task::yield_now().await;
            let entry = self.entry(&token.resource);
            if let Some(entry) = &entry {
                self.check_seal(entry, token)?;
            }
            self.put(&token.resource, self.sealed(entry, token));
            return Ok(read);
        }
        let entry = self.entry(&token.resource);
        if let Some(entry) = &entry {
            self.check_seal(entry, token)?;
        }
        if self.fault == Fault::SealRaisesTheFenceOnTheFirstWrite && entry.is_some() {
            return Ok(self.shown(entry));
        }
        let sealed = self.sealed(entry, token);
        self.put(&token.resource, sealed.clone());
        Ok(self.shown(Some(sealed)))
    }

    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        let mut answers = Vec::new();
        for token in tokens {
            let answer = self.seal(token).await;
            let stop = self.fault == Fault::BatchStopsAtTheFirstRefusal && answer.is_err();
            answers.push(answer);
            if stop {
                break;
            }
        }
        if self.fault == Fault::BatchAnswersInAnotherOrder {
            answers.reverse();
        }
        answers
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        let length_bytes = write.data.len();
        if length_bytes > LIMIT_BYTES && self.fault != Fault::LimitIsIgnored {
            return Err(CheckpointError::TooLarge {
                length_bytes,
                max_bytes: LIMIT_BYTES,
            });
        }
        let mut entry = self.entry(&token.resource);
        let admitted = self.check_write(entry.as_ref(), token);
        if self.fault == Fault::WriteStoresBeforeItRefuses
            && let Some(mut entry) = self.entry(&token.resource)
            && admitted.is_err()
        {
            entry.checkpoint = Some(self.stored(token, write.clone()));
            self.put(&token.resource, entry);
        }
        admitted?;
        let entry = entry.get_or_insert_with(|| self.sealed(None, token));
        if self.fault == Fault::SealRaisesTheFenceOnTheFirstWrite {
            *entry = self.sealed(Some(entry.clone()), token);
        }
        if !self.check_sequence(entry, token, (write.sequence, write.write_id))? {
            return Ok(());
        }
        if self.fault == Fault::WriteChecksThenWrites {
            tokio::task::yield_now().await;
        }
        // Written into what is there by now: a fence that rose in between stays.
        let mut current = self.entry(&token.resource).unwrap_or_else(|| entry.clone());
        if self.fault == Fault::SealRaisesTheFenceOnTheFirstWrite {
            current = entry.clone();
        }
        current.latest = Some((write.sequence, write.write_id));
        current.checkpoint = Some(self.stored(token, write));
        self.put(&token.resource, current);
        Ok(())
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        Ok(self.shown(self.entry(resource)))
    }

    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        let entry = self.entry(&token.resource);
        if self.fault != Fault::DeletionIgnoresTheFence {
            self.check_write(entry.as_ref(), token)?;
        }
        let Some(mut entry) = entry else {
            return Ok(());
        };
        let presented = (deletion.sequence, deletion.write_id);
        if self.fault == Fault::DeletionRetryIsRefused && entry.latest == Some(presented) {
            return Err(CheckpointError::SequenceReused {
                resource: token.resource.clone(),
                presented: deletion.sequence,
                latest: deletion.sequence,
            });
        }
        if self.fault != Fault::DeletionIgnoresItsSequence
            && !self.check_sequence(&entry, token, presented)?
        {
            return Ok(());
        }
        let nothing = entry.checkpoint.is_none();
        match self.fault {
            Fault::DeletionDropsTheFence => {
                self.entries.lock().unwrap().remove(&token.resource);
                return Ok(());
            }
            Fault::DeletionIgnoresItsSequence | Fault::DeletionTakesNoSequence => {}
            Fault::DeletionOfNothingTakesNoSequence if nothing => {}
            Fault::DeletionForgetsTheSequences => entry.latest = None,
            _ => entry.latest = Some(presented),
        }
        if self.fault != Fault::DeletionKeepsTheData {
            entry.checkpoint = None;
        }
        self.put(&token.resource, entry);
        Ok(())
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        Ok(())
    }

    fn max_value_bytes(&self) -> usize {
        LIMIT_BYTES
    }
}

/// What becomes of a number that is kept as JSON by a careless library.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the loss is the fault that is shown"
)]
fn rounded(number: u64) -> u64 {
    (number as f64) as u64
}

fn fenced(token: &FencingToken, entry: &Entry) -> CheckpointError {
    CheckpointError::Fenced {
        resource: token.resource.clone(),
        presented: token.epoch,
        current: entry.epoch,
    }
}

fn conflict(token: &FencingToken) -> CheckpointError {
    CheckpointError::EpochConflict {
        resource: token.resource.clone(),
        epoch: token.epoch,
    }
}

pub(crate) struct BrokenHarness {
    store: Arc<BrokenStore>,
    grants: LocalGrants,
    /// Makes the source hand out the epoch of the latest tenure again.
    pub(crate) repeats_epochs: bool,
    latest: Option<FencingToken>,
}

impl BrokenHarness {
    pub(crate) fn new(fault: Fault) -> Self {
        let store = Arc::new(BrokenStore {
            fault,
            entries: Mutex::default(),
        });
        Self {
            store,
            grants: LocalGrants::new(),
            repeats_epochs: false,
            latest: None,
        }
    }
}

#[async_trait]
impl Harness for BrokenHarness {
    fn store(&self) -> Arc<dyn CheckpointStore> {
        self.store.clone()
    }

    async fn fresh_resource(&mut self) -> Resource {
        self.grants.fresh_resource()
    }

    async fn next_tenure(&mut self, resource: &Resource, holder: Holder) -> FencingToken {
        let mut token = self.grants.next_tenure(resource, holder);
        if let Some(latest) = &self.latest
            && self.repeats_epochs
            && latest.resource == token.resource
        {
            token.epoch = latest.epoch;
        }
        self.latest = Some(token.clone());
        token
    }

    async fn conflicting(&mut self, token: &FencingToken) -> Option<FencingToken> {
        Some(self.grants.conflicting(token))
    }

    async fn reopen(&mut self) {
        self.store = Arc::new(self.store.restarted());
    }
}
