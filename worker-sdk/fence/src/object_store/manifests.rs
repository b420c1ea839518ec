//! Reading manifests, and replacing them on condition.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::admission::Refusal;
use crate::error::{CheckpointError, StoreError};
use crate::record::Record;
use crate::resource::Resource;
use crate::token::FencingToken;

use super::backend::{ATTEMPTS, Backend, BackendError, repeated, within};
use super::cache::Cache;
use super::layout::Layout;
use super::manifest::{Manifest, Stored};
use super::pause::Pause;

/// The manifests of a bucket.
#[derive(Debug)]
pub(super) struct Manifests {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) layout: Layout,
    pub(super) cache: Cache,
    /// How long one request for a manifest may take.
    pub(super) request_deadline: Duration,
}

/// One call of the store: knows whether the call may have changed something already.
#[derive(Debug, Default)]
pub(super) struct Call {
    changed: AtomicBool,
}

impl Call {
    fn may_change(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    fn has_not_changed(&self) {
        self.changed.store(false, Ordering::Relaxed);
    }

    /// The outcome of a call that ends here with an error of the bucket.
    pub(super) fn failed(&self, source: StoreError) -> CheckpointError {
        self.ended(CheckpointError::Unavailable { source })
    }

    /// The outcome of a call that ends here with an error that says that nothing was changed.
    fn ended(&self, error: CheckpointError) -> CheckpointError {
        if self.changed.load(Ordering::Relaxed) {
            return error.in_doubt();
        }
        error
    }
}

/// What a change has led to.
#[derive(Debug)]
pub(super) struct Change {
    /// What this call has stored, or found to be stored already.
    pub(super) record: Record,
    /// What it has replaced, if it has.
    pub(super) replaced: Option<Record>,
}

/// What came of the attempt to put a manifest in the place of another.
enum Install {
    /// It is there, or was until it was replaced in its turn.
    Done(Record),
    /// Another was put there. Carries it; what was to be put there is not, and never will be.
    Beaten(Option<Stored>),
}

impl Manifests {
    /// Reads a manifest.
    pub(super) async fn read(&self, resource: &Resource) -> Result<Option<Stored>, FetchError> {
        let name = self.layout.manifest(resource);
        let object = repeated(self.request_deadline, || self.backend.get(&name)).await?;
        let Some(object) = object else {
            return Ok(None);
        };
        let manifest =
            Manifest::decode(&object.bytes).map_err(|error| FetchError::Corrupt(error.into()))?;
        Ok(Some(Stored {
            manifest,
            version: object.version,
        }))
    }

    /// Reads a manifest and remembers it.
    pub(super) async fn fetch(&self, resource: &Resource) -> Result<Option<Stored>, FetchError> {
        let stored = self.read(resource).await;
        match &stored {
            Ok(Some(stored)) => self.cache.put(resource, stored.clone()),
            // Or the next call would ask for its place again, instead of telling the damage.
            Ok(None) | Err(FetchError::Corrupt(_)) => self.cache.forget(resource),
            Err(FetchError::Backend(_)) => {}
        }
        stored
    }

    /// Decides without changing anything, from what was last seen if that says yes.
    ///
    /// Returns whether there is anything to change.
    pub(super) async fn ask(
        &self,
        call: &Call,
        token: &FencingToken,
        decide: impl Fn(Option<&Record>) -> Result<Option<Record>, Refusal> + Send + Sync,
    ) -> Result<bool, CheckpointError> {
        let resource = &token.resource;
        if let Some(seen) = self.cache.get(resource)
            && let Ok(Some(_)) = decide(Some(&seen.manifest.record))
        {
            return Ok(true);
        }
        let stored = self.fetch(resource).await;
        let stored = stored.map_err(|error| error.during(call, resource))?;
        let decision = decide(stored.as_ref().map(|stored| &stored.manifest.record));
        let next = decision.map_err(|refusal| CheckpointError::refused(token, refusal))?;
        Ok(next.is_some())
    }

    /// Replaces a manifest with what `decide` makes of it.
    ///
    /// Repeats until nobody else replaces it in between; the caller bounds that in time. Whatever is
    /// decided from a manifest that was only remembered is decided again from the one that is stored,
    /// unless the condition of a successful put has shown that the two are the same.
    pub(super) async fn change(
        &self,
        call: &Call,
        token: &FencingToken,
        decide: impl Fn(Option<&Record>) -> Result<Option<Record>, Refusal> + Send + Sync,
    ) -> Result<Change, CheckpointError> {
        let resource = &token.resource;
        let mut base = self.cache.get(resource);
        let mut is_fresh = false;
        loop {
            if base.is_none() && !is_fresh {
                let stored = self.fetch(resource).await;
                base = stored.map_err(|error| error.during(call, resource))?;
                is_fresh = true;
            }
            let current = base.as_ref().map(|base| &base.manifest.record);
            let next = match decide(current) {
                Ok(Some(next)) => next,
                Ok(None) | Err(_) if !is_fresh => {
                    base = None;
                    continue;
                }
                Ok(None) => return Change::none(base, token),
                Err(refusal) => return Err(CheckpointError::refused(token, refusal)),
            };
            let next = Manifest::after(base.as_ref(), next);
            match self.install(call, resource, base.as_ref(), next).await? {
                Install::Done(record) => {
                    let replaced = base.map(|base| base.manifest.record);
                    return Ok(Change { record, replaced });
                }
                // Again at once, without a pause: one that waits after it has read comes too late
                // again, and an old owner that writes all the time would keep a new one from
                // sealing. Somebody wins each time, and each time takes requests, so it does not spin.
                Install::Beaten(stored) => base = stored,
            }
            is_fresh = true;
        }
    }

    /// Puts `next` in the place of `base`, and finds out what came of it.
    ///
    /// The very same put may be made again after any answer: it succeeds at most once, because it
    /// replaces exactly `base`, which never comes back.
    async fn install(
        &self,
        call: &Call,
        resource: &Resource,
        base: Option<&Stored>,
        next: Manifest,
    ) -> Result<Install, CheckpointError> {
        let name = self.layout.manifest(resource);
        let bytes = next.encode();
        let condition = base.map(|base| &base.version);
        let mut pause = Pause::new();
        let (mut is_unknown, mut is_refused) = (false, false);
        let mut last: StoreError = "no attempt was made".into();
        for _ in 0..ATTEMPTS {
            call.may_change();
            let put = self.backend.put_if(&name, bytes.clone(), condition);
            match within(self.request_deadline, put).await {
                Ok(version) => {
                    let record = next.record.clone();
                    let manifest = next;
                    self.cache.put(resource, Stored { manifest, version });
                    return Ok(Install::Done(record));
                }
                Err(BackendError::NotDone(source)) => {
                    if !is_unknown {
                        call.has_not_changed();
                    }
                    last = source;
                    is_refused = false;
                }
                Err(BackendError::Refused(source)) => {
                    last = source;
                    is_refused = true;
                }
                Err(BackendError::Unknown(source)) => {
                    last = source;
                    is_unknown = true;
                }
            }
            // Also after a refusal: something between here and the server may have repeated the
            // request, and then the refusal was the repetition's.
            match self.fetch(resource).await {
                Ok(stored) => match settle(base, &next, stored.as_ref()) {
                    Settled::Installed => {
                        call.may_change();
                        return Ok(Install::Done(next.record));
                    }
                    Settled::Beaten => {
                        call.has_not_changed();
                        return Ok(Install::Beaten(stored));
                    }
                    Settled::Untouched if is_unknown => {}
                    Settled::Untouched => call.has_not_changed(),
                    Settled::Unknown => {
                        call.may_change();
                        return Err(call.failed(last));
                    }
                },
                Err(error @ FetchError::Corrupt(_)) => return Err(error.during(call, resource)),
                // Which of the two failures is told does not matter.
                Err(FetchError::Backend(error)) => {
                    last = error.into_source();
                    is_unknown |= is_refused;
                }
            }
            pause.wait().await;
        }
        self.cache.forget(resource);
        Err(call.failed(last))
    }
}

impl Change {
    fn none(base: Option<Stored>, token: &FencingToken) -> Result<Self, CheckpointError> {
        // Nothing to change means that the record is as asked for, so there is one.
        let base = base.ok_or_else(|| CheckpointError::refused(token, Refusal::NotSealed))?;
        Ok(Self {
            record: base.manifest.record,
            replaced: None,
        })
    }
}

/// What a look at the bucket says about a put that did not succeed plainly.
#[derive(Debug, PartialEq, Eq)]
enum Settled {
    /// It has replaced the base.
    Installed,
    /// Another has replaced the base, so this one never can.
    Beaten,
    /// The base is still there: the put may be made again.
    Untouched,
    /// The base was replaced so often since that nothing tells any more whether it was this put that
    /// came first.
    Unknown,
}

/// Finds out what became of a put, by what is there after it, whatever it was answered: a refusal too
/// may be that of a repetition, which something between here and the server has made.
fn settle(base: Option<&Stored>, next: &Manifest, found: Option<&Stored>) -> Settled {
    let Some(found) = found else {
        // Gone although there was a base: somebody has deleted it, and what followed it.
        return match base {
            None => Settled::Untouched,
            Some(_) => Settled::Unknown,
        };
    };
    let found = &found.manifest;
    let base_nonce = base.map(|base| base.manifest.nonce);
    if found.line().any(|manifest| manifest.nonce == next.nonce) {
        return Settled::Installed;
    }
    if base_nonce == Some(found.nonce) {
        return Settled::Untouched;
    }
    // A seal that was passed changes nothing any more. What is there now is decided from anew: the
    // fence is at its epoch, or above, or never was.
    let Some((sequence, _)) = next.record.latest else {
        return Settled::Beaten;
    };
    // The one that followed the base is known, or the base was the last of its epoch.
    if found
        .line()
        .any(|manifest| base_nonce == Some(manifest.nonce))
    {
        return Settled::Beaten;
    }
    // The last of the epoch has the highest sequence. A write that is at that sequence, but has
    // another nonce, was put there by another call.
    let epoch = next.record.fence.epoch;
    match found.line().find(|manifest| manifest.epoch == epoch) {
        Some(last) if last.sequence <= Some(sequence) => Settled::Beaten,
        Some(_) | None => Settled::Unknown,
    }
}

/// Why a manifest could not be read.
#[derive(Debug)]
pub(super) enum FetchError {
    Backend(BackendError),
    Corrupt(StoreError),
}

impl From<BackendError> for FetchError {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl FetchError {
    /// The outcome of a call that has ended with it.
    pub(super) fn during(self, call: &Call, resource: &Resource) -> CheckpointError {
        match self {
            Self::Backend(error) => call.failed(error.into_source()),
            Self::Corrupt(source) => call.ended(CheckpointError::Corrupt {
                resource: resource.clone(),
                source,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Write;
    use crate::object_store::backend::Version;
    use crate::sequence::{Sequence, WriteId};

    fn token(epoch: u64) -> FencingToken {
        format!("shard/orders/7@{epoch}:00000000000000000000000000c0ffee/{epoch}")
            .parse()
            .unwrap()
    }

    fn stored(manifest: Manifest) -> Stored {
        let version = Version(manifest.encode());
        Stored { manifest, version }
    }

    fn sealed(base: Option<&Stored>, token: &FencingToken) -> Manifest {
        let current = base.map(|base| &base.manifest.record);
        Manifest::after(base, Record::seal(current, token).unwrap().unwrap())
    }

    fn write(number: u64) -> Write {
        Write {
            sequence: Sequence::new(number).unwrap(),
            write_id: WriteId::new(u128::from(number)),
            data: "data".into(),
        }
    }

    fn written(base: &Stored, token: &FencingToken, number: u64) -> Manifest {
        let current = Some(&base.manifest.record);
        let record = Record::write(current, token, write(number)).unwrap();
        Manifest::after(Some(base), record.unwrap())
    }

    fn settle_write(base: &Stored, next: &Manifest, found: &Stored) -> Settled {
        settle(Some(base), next, Some(found))
    }

    /// Puts writes or deletions after a manifest, numbered from `first`.
    fn many(base: &Stored, token: &FencingToken, first: u64, count: u64) -> Stored {
        let mut latest = base.clone();
        for number in first..first + count {
            latest = stored(written(&latest, token, number));
        }
        latest
    }

    #[test]
    fn a_put_is_settled_by_what_is_found_after_it() {
        let base = stored(sealed(None, &token(7)));
        let next = written(&base, &token(7), 1);
        let mine = stored(next.clone());
        let after_mine = stored(sealed(Some(&mine), &token(8)));
        let long_after_mine = many(&after_mine, &token(8), 1, 5);
        let other = stored(sealed(Some(&base), &token(8)));
        let after_other = many(&other, &token(8), 1, 5);
        let settled = |found: &Stored| settle_write(&base, &next, found);
        assert_eq!(settled(&base), Settled::Untouched);
        assert_eq!(settled(&mine), Settled::Installed);
        assert_eq!(settled(&after_mine), Settled::Installed);
        assert_eq!(settled(&long_after_mine), Settled::Installed);
        assert_eq!(settled(&other), Settled::Beaten);
        assert_eq!(settled(&after_other), Settled::Beaten);
    }

    #[test]
    fn an_owner_that_was_replaced_learns_it_however_much_was_written_since() {
        let base = many(&stored(sealed(None, &token(7))), &token(7), 1, 20);
        // Also by a handle whose memory is older than the end of its tenure.
        let end = many(&base, &token(7), 21, 20);
        let next = written(&base, &token(7), 41);
        let mut latest = end;
        for epoch in 8..12 {
            latest = stored(sealed(Some(&latest), &token(epoch)));
            latest = many(&latest, &token(epoch), 1, 1_000);
            assert_eq!(settle_write(&base, &next, &latest), Settled::Beaten);
        }
        // The retry of what another call has put there is no less too late.
        let retry = written(&base, &token(7), 40);
        assert_eq!(settle_write(&base, &retry, &latest), Settled::Beaten);
    }

    #[test]
    fn a_write_that_a_new_owner_may_have_found_is_not_said_to_have_been_beaten() {
        let base = stored(sealed(None, &token(7)));
        let next = written(&base, &token(7), 1);
        let mine = stored(next.clone());
        // Two seals between a put and the look for it: both manifests go on referring to its value.
        let second = stored(sealed(Some(&mine), &token(8)));
        let third = stored(sealed(Some(&second), &token(9)));
        assert_eq!(settle_write(&base, &next, &third), Settled::Installed);
    }

    #[test]
    fn what_cannot_be_seen_any_more_is_unknown() {
        let base = stored(sealed(None, &token(7)));
        let next = written(&base, &token(7), 1);
        let settled = |found: &Stored| settle_write(&base, &next, found);
        // The owner's own later writes may have followed it, or another that came first.
        for first in [stored(next.clone()), base.clone()] {
            let later = many(&first, &token(7), 2, 100);
            assert_eq!(settled(&later), Settled::Unknown);
            let sealed_since = stored(sealed(Some(&later), &token(8)));
            assert_eq!(
                settled(&many(&sealed_since, &token(8), 1, 100)),
                Settled::Unknown
            );
        }
        // More tenures have passed than are kept.
        let mut latest = base.clone();
        for epoch in 8..40 {
            latest = stored(sealed(Some(&latest), &token(epoch)));
        }
        assert_eq!(settled(&latest), Settled::Unknown);
        // Somebody has deleted the manifest.
        assert_eq!(settle(Some(&base), &next, None), Settled::Unknown);
    }

    #[test]
    fn a_first_seal_is_settled_like_any_other_put() {
        let next = sealed(None, &token(7));
        let settled = |found: Option<&Stored>| settle(None, &next, found);
        assert_eq!(settled(None), Settled::Untouched);
        let mine = stored(next.clone());
        assert_eq!(settled(Some(&mine)), Settled::Installed);
        assert_eq!(
            settled(Some(&many(&mine, &token(7), 1, 5))),
            Settled::Installed
        );
        let other = stored(sealed(None, &token(8)));
        assert_eq!(settled(Some(&other)), Settled::Beaten);
        assert_eq!(
            settled(Some(&many(&other, &token(8), 1, 100))),
            Settled::Beaten
        );
    }

    #[test]
    fn an_error_after_a_put_in_doubt_does_not_say_that_nothing_happened() {
        let corrupt = || FetchError::Corrupt("nonsense".into());
        let call = Call::default();
        let resource = token(7).resource;
        let before = corrupt().during(&call, &resource);
        assert!(
            matches!(before, CheckpointError::Corrupt { .. }),
            "{before:?}"
        );
        call.may_change();
        let after = corrupt().during(&call, &resource);
        assert!(after.may_have_happened(), "{after:?}");
    }
}
