//! Where the cases play: the store, its tokens, and the words to say what is wrong.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;

use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::CheckpointError;
use crate::resource::Resource;
use crate::sequence::{Sequence, WriteId};
use crate::store::CheckpointStore;
use crate::token::FencingToken;

use super::RESOURCES_MAX;
use super::disturbed::{Disturbances, DisturbedStore};
use super::harness::{Harness, Holder};
use super::random::Random;
use super::rule::{self, Rule};

pub(super) struct Stage<'h> {
    harness: &'h mut dyn Harness,
    pub(super) store: Arc<dyn CheckpointStore>,
    pub(super) random: Random,
    pub(super) value_bytes_max: usize,
    seed: u64,
    resources: usize,
    rule: Rule,
    cases: Vec<&'static str>,
    left_out: Vec<&'static str>,
}

impl<'h> Stage<'h> {
    pub(super) fn new(harness: &'h mut dyn Harness, seed: u64, value_bytes_max: usize) -> Self {
        Self {
            store: harness.store(),
            harness,
            random: Random::new(seed),
            value_bytes_max,
            seed,
            resources: 0,
            rule: rule::PROBE,
            cases: Vec::new(),
            left_out: Vec::new(),
        }
    }

    pub(super) fn into_cases(self) -> (Vec<&'static str>, Vec<&'static str>) {
        (self.cases, self.left_out)
    }

    /// Begins a case: what goes wrong from here on breaks `rule`.
    pub(super) fn begin(&mut self, case: &'static str, rule: Rule) {
        self.cases.push(case);
        self.rule = rule;
    }

    /// Says that the case just begun cannot be played.
    pub(super) fn leave_out(&mut self) {
        self.left_out.extend(self.cases.pop());
    }

    /// Ends the run: the store has broken the rule of the case.
    pub(super) fn broken(&self, seen: impl Display) -> ! {
        self.broken_rule(self.rule, seen)
    }

    fn broken_rule(&self, rule: Rule, seen: impl Display) -> ! {
        panic!(
            "the store breaks the contract\n  case: {}\n  rule: {}\n  from: {}\n  seen: {seen}\n  \
             seed: {} (TENURE_KIT_SEED)",
            self.cases.last().unwrap_or(&"set-up"),
            rule.says,
            rule.from,
            self.seed,
        )
    }

    // What the source of tokens gives.

    pub(super) async fn resource(&mut self) -> Resource {
        self.resources += 1;
        assert!(
            self.resources <= RESOURCES_MAX,
            "the kit asks for more resources than it says"
        );
        self.harness.fresh_resource().await
    }

    /// Grants a resource that has no tenure yet.
    pub(super) async fn grant(&mut self) -> FencingToken {
        let resource = self.resource().await;
        let token = self.harness.next_tenure(&resource, Holder::New).await;
        if token.resource != resource {
            self.broken_rule(
                rule::SOURCE,
                format!("asked for {resource}, was given {token}"),
            );
        }
        token
    }

    /// Grants the resource of `old` to an owner that never held it.
    pub(super) async fn hand_over(&mut self, old: &FencingToken) -> FencingToken {
        self.next_tenure(old, Holder::New).await
    }

    /// Grants the resource of `old`, again, to the owner of the latest tenure.
    pub(super) async fn grant_again(&mut self, old: &FencingToken) -> FencingToken {
        self.next_tenure(old, Holder::Same).await
    }

    async fn next_tenure(&mut self, old: &FencingToken, holder: Holder) -> FencingToken {
        let new = self.harness.next_tenure(&old.resource, holder).await;
        let right = new.resource == old.resource
            && new.epoch > old.epoch
            && (new.owner == old.owner) == (holder == Holder::Same);
        if !right {
            self.broken_rule(
                rule::SOURCE,
                format!("{old} was followed by {new} ({holder:?} owner)"),
            );
        }
        new
    }

    pub(super) async fn conflicting(&mut self, token: &FencingToken) -> Option<FencingToken> {
        let other = self.harness.conflicting(token).await?;
        let right = other.resource == token.resource
            && other.epoch == token.epoch
            && other.owner != token.owner;
        if !right {
            self.broken_rule(
                rule::SOURCE,
                format!("{other} does not conflict with {token}"),
            );
        }
        Some(other)
    }

    pub(super) fn seals_in_two_steps(&self) -> bool {
        self.harness.seals_in_two_steps()
    }

    /// Stops every call from here on for a while at each point at which it waits.
    pub(super) fn paused(&mut self, pauses_max: u64) {
        let disturbances = Disturbances {
            pauses_max,
            ..Disturbances::default()
        };
        let (store, seed) = (Arc::clone(&self.store), self.random.number());
        self.store = Arc::new(DisturbedStore::new(store, disturbances, seed));
    }

    /// Ends [`paused`](Self::paused).
    pub(super) fn not_paused(&mut self) {
        self.store = self.harness.store();
    }

    pub(super) async fn reopen(&mut self) {
        self.harness.reopen().await;
        self.store = self.harness.store();
    }

    /// Makes a write: the same content each time it is presented, other content than any other.
    pub(super) fn content(&mut self, number: u64, data: impl Into<Bytes>) -> Write {
        Write {
            sequence: sequence(number),
            write_id: WriteId::new(self.random.wide_number()),
            data: data.into(),
        }
    }

    /// Makes a deletion: the same one each time it is presented.
    pub(super) fn deletion(&mut self, number: u64) -> Deletion {
        Deletion {
            sequence: sequence(number),
            write_id: WriteId::new(self.random.wide_number()),
        }
    }

    // What must succeed.

    /// Grants a resource that has no tenure yet, and seals it.
    pub(super) async fn sealed(&mut self) -> FencingToken {
        let token = self.grant().await;
        let found = self.seal(&token).await;
        self.same(&format!("the first seal, {token},"), found.as_ref(), None);
        token
    }

    /// Hands the resource of `old` over, and seals it.
    pub(super) async fn succeeded(
        &mut self,
        old: &FencingToken,
    ) -> (FencingToken, Option<Checkpoint>) {
        let new = self.hand_over(old).await;
        let found = self.seal(&new).await;
        (new, found)
    }

    pub(super) async fn seal(&self, token: &FencingToken) -> Option<Checkpoint> {
        let sealed = self.store.seal(token).await;
        self.success(&format!("the seal of the current owner, {token},"), sealed)
    }

    /// Writes as the current owner, and returns the checkpoint that must be there now.
    pub(super) async fn write(&self, token: &FencingToken, write: &Write) -> Checkpoint {
        let written = self.store.write(token, write.clone()).await;
        let sequence = write.sequence;
        self.success(
            &format!("write {sequence} of the current owner, {token},"),
            written,
        );
        Checkpoint::of(token, write.clone())
    }

    /// Deletes as the current owner.
    pub(super) async fn delete(&self, token: &FencingToken, deletion: Deletion) {
        let deleted = self.store.delete(token, deletion).await;
        let sequence = deletion.sequence;
        self.success(
            &format!("deletion {sequence} of the current owner, {token},"),
            deleted,
        );
    }

    pub(super) fn success<T>(&self, what: &str, answer: Result<T, CheckpointError>) -> T {
        match answer {
            Ok(value) => value,
            Err(error) => self.broken(format_args!("{what} was answered with: {error:?}")),
        }
    }

    /// Requires that the store has `expected` for a resource.
    pub(super) async fn holds(&self, resource: &Resource, expected: Option<&Checkpoint>) {
        let read = self.store.read(resource).await;
        let found = self.success(&format!("a read of {resource}"), read);
        self.same(&format!("a read of {resource}"), found.as_ref(), expected);
    }

    /// Requires that what was returned is what had to be.
    pub(super) fn same(
        &self,
        what: &str,
        found: Option<&Checkpoint>,
        expected: Option<&Checkpoint>,
    ) {
        if found != expected {
            let (found, expected) = (shown(found), shown(expected));
            self.broken(format_args!(
                "{what} returned {found} instead of {expected}"
            ));
        }
    }

    // What must be refused.

    pub(super) fn fenced<T>(
        &self,
        what: &str,
        old: &FencingToken,
        new: &FencingToken,
        answer: Result<T, CheckpointError>,
    ) {
        let right = matches!(
            &answer,
            Err(CheckpointError::Fenced { resource, presented, current })
                if *resource == old.resource && *presented == old.epoch && *current == new.epoch
        );
        if !right {
            let answer = outcome(answer);
            self.broken(format_args!(
                "{what} under {old} was answered with {answer} instead of Fenced, the current \
                 tenure being {new}"
            ));
        }
    }

    pub(super) fn not_sealed<T>(
        &self,
        what: &str,
        token: &FencingToken,
        answer: Result<T, CheckpointError>,
    ) {
        let right = matches!(
            &answer,
            Err(CheckpointError::NotSealed { resource, epoch })
                if *resource == token.resource && *epoch == token.epoch
        );
        if !right {
            let answer = outcome(answer);
            self.broken(format_args!(
                "{what} under {token}, which never sealed, was answered with {answer} instead of \
                 NotSealed"
            ));
        }
    }

    pub(super) fn conflict<T>(
        &self,
        what: &str,
        token: &FencingToken,
        answer: Result<T, CheckpointError>,
    ) {
        let right = matches!(
            &answer,
            Err(CheckpointError::EpochConflict { resource, epoch })
                if *resource == token.resource && *epoch == token.epoch
        );
        if !right {
            let answer = outcome(answer);
            self.broken(format_args!(
                "{what} under {token}, whose epoch is another owner's, was answered with {answer} \
                 instead of EpochConflict"
            ));
        }
    }

    /// Presents a write whose sequence is used or too low, and requires that it is refused.
    pub(super) async fn sequence_refused(
        &self,
        token: &FencingToken,
        write: &Write,
        latest_number: u64,
    ) {
        let answer = self.store.write(token, write.clone()).await;
        self.reused(
            "other content",
            token,
            write.sequence,
            latest_number,
            answer,
        );
    }

    /// Presents a deletion whose sequence is used or too low, and requires that it is refused.
    pub(super) async fn deletion_refused(
        &self,
        token: &FencingToken,
        deletion: Deletion,
        latest_number: u64,
    ) {
        let answer = self.store.delete(token, deletion).await;
        let presented = deletion.sequence;
        self.reused("a deletion", token, presented, latest_number, answer);
    }

    fn reused(
        &self,
        what: &str,
        token: &FencingToken,
        presented_now: Sequence,
        latest_number: u64,
        answer: Result<(), CheckpointError>,
    ) {
        let right = matches!(
            &answer,
            Err(CheckpointError::SequenceReused { resource, presented, latest })
                if *resource == token.resource
                    && *presented == presented_now
                    && latest.get() == latest_number
        );
        if !right {
            let answer = outcome(answer);
            self.broken(format_args!(
                "{what} at sequence {presented_now} under {token} was answered with {answer} \
                 instead of SequenceReused, the latest being {latest_number}"
            ));
        }
    }
}

/// Makes a sequence of a number that the kit knows to be one.
pub(super) fn sequence(number: u64) -> Sequence {
    match Sequence::new(number) {
        Some(sequence) => sequence,
        None => panic!("the kit uses a sequence out of range: {number}"),
    }
}

fn outcome<T>(answer: Result<T, CheckpointError>) -> String {
    match answer {
        Ok(_) => "success".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

/// Shows a checkpoint shortly: a value may be large.
fn shown(checkpoint: Option<&Checkpoint>) -> String {
    const SHOWN_BYTES: usize = 32;
    let Some(checkpoint) = checkpoint else {
        return "nothing".to_owned();
    };
    let Checkpoint {
        epoch,
        owner,
        sequence,
        write_id,
        data,
    } = checkpoint;
    let start = data.slice(..data.len().min(SHOWN_BYTES));
    format!(
        "write {sequence} of epoch {epoch} (owner {owner}, write id {write_id}, {} bytes, from \
         {start:?})",
        data.len()
    )
}
