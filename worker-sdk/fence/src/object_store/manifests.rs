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
        if self.changed.load(Ordering::Relaxed) {
            return CheckpointError::OutcomeUnknown { source };
        }
        CheckpointError::Unavailable { source }
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
    /// What was to be brought about is there already, by whomever.
    Found(Record),
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
        let stored = self.read(resource).await?;
        match &stored {
            Some(stored) => self.cache.put(resource, stored.clone()),
            None => self.cache.forget(resource),
        }
        Ok(stored)
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
            match self
                .install(call, token, base.as_ref(), next, &decide)
                .await?
            {
                Install::Done(record) => {
                    let replaced = base.map(|base| base.manifest.record);
                    return Ok(Change { record, replaced });
                }
                Install::Found(record) => {
                    return Ok(Change {
                        record,
                        replaced: None,
                    });
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
        token: &FencingToken,
        base: Option<&Stored>,
        next: Manifest,
        decide: &(impl Fn(Option<&Record>) -> Result<Option<Record>, Refusal> + Send + Sync),
    ) -> Result<Install, CheckpointError> {
        let resource = &token.resource;
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
                Ok(stored) => match settle(base, &next, stored.as_ref(), is_unknown, decide) {
                    Settled::Installed => {
                        call.may_change();
                        return Ok(Install::Done(next.record));
                    }
                    Settled::Found(record) => {
                        call.may_change();
                        return Ok(Install::Found(record));
                    }
                    Settled::Beaten => {
                        call.has_not_changed();
                        return Ok(Install::Beaten(stored));
                    }
                    Settled::Untouched if is_unknown => {}
                    Settled::Untouched => call.has_not_changed(),
                    Settled::Unknown => return Err(call.failed(last)),
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
    /// What it was to bring about is there: this record.
    Found(Record),
    /// Another has replaced the base, so this one never can.
    Beaten,
    /// The base is still there: the put may be made again.
    Untouched,
    /// The base was replaced more than once since; whether it was this put that came first cannot
    /// be seen any more.
    Unknown,
}

fn settle(
    base: Option<&Stored>,
    next: &Manifest,
    stored: Option<&Stored>,
    is_unknown: bool,
    decide: &impl Fn(Option<&Record>) -> Result<Option<Record>, Refusal>,
) -> Settled {
    let base_nonce = base.map_or(0, |base| base.manifest.nonce);
    let Some(stored) = stored else {
        // Gone although there was a base: somebody has deleted it, and no put can replace it now.
        return match base {
            None => Settled::Untouched,
            Some(_) => Settled::Beaten,
        };
    };
    let Manifest {
        nonce,
        previous,
        record,
    } = &stored.manifest;
    if *nonce == next.nonce || *previous == next.nonce {
        return Settled::Installed;
    }
    if base.is_some() && *nonce == base_nonce {
        return Settled::Untouched;
    }
    if *previous == base_nonce || !is_unknown {
        return Settled::Beaten;
    }
    // Several have followed. If what was asked for is there, it does not matter who did it.
    match decide(Some(record)) {
        Ok(None) => Settled::Found(record.clone()),
        Ok(Some(_)) | Err(_) => Settled::Unknown,
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
            Self::Corrupt(source) => CheckpointError::Corrupt {
                resource: resource.clone(),
                source,
            },
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

    /// Settles the first write of a tenure, whose put was answered with anything but success.
    fn settle_write(base: &Stored, next: &Manifest, found: &Stored, is_unknown: bool) -> Settled {
        let decide = |current: Option<&Record>| Record::write(current, &token(7), write(1));
        settle(Some(base), next, Some(found), is_unknown, &decide)
    }

    #[test]
    fn a_put_is_settled_by_what_is_found_after_it() {
        let base = stored(sealed(None, &token(7)));
        let next = written(&base, &token(7), 1);
        let mine = stored(next.clone());
        let after_mine = stored(sealed(Some(&mine), &token(8)));
        let other = stored(sealed(Some(&base), &token(8)));
        for is_unknown in [false, true] {
            let settled = |found| settle_write(&base, &next, found, is_unknown);
            assert_eq!(settled(&base), Settled::Untouched);
            assert_eq!(settled(&mine), Settled::Installed);
            assert_eq!(settled(&after_mine), Settled::Installed);
            assert_eq!(settled(&other), Settled::Beaten);
        }
    }

    #[test]
    fn what_cannot_be_seen_any_more_is_unknown() {
        let base = stored(sealed(None, &token(7)));
        let next = written(&base, &token(7), 1);
        let other = stored(sealed(Some(&base), &token(8)));
        let later = stored(written(&other, &token(8), 1));
        assert_eq!(settle_write(&base, &next, &later, true), Settled::Unknown);
        // Refused by the server: then it did not come first.
        assert_eq!(settle_write(&base, &next, &later, false), Settled::Beaten);
    }

    #[test]
    fn a_write_that_is_there_is_found_whoever_put_it() {
        let base = stored(sealed(None, &token(7)));
        let next = written(&base, &token(7), 1);
        // A copy of the same call, after another manifest.
        let between = stored(Manifest::after(Some(&base), base.manifest.record.clone()));
        let copy = stored(written(&between, &token(7), 1));
        let found = settle_write(&base, &next, &copy, true);
        assert_eq!(found, Settled::Found(copy.manifest.record));
    }

    #[test]
    fn a_first_seal_is_settled_like_any_other_put() {
        let next = sealed(None, &token(7));
        let decide = |current: Option<&Record>| Record::seal(current, &token(7));
        let settled = |found: Option<&Stored>| settle(None, &next, found, true, &decide);
        assert_eq!(settled(None), Settled::Untouched);
        assert_eq!(settled(Some(&stored(next.clone()))), Settled::Installed);
        let other = stored(sealed(None, &token(8)));
        assert_eq!(settled(Some(&other)), Settled::Beaten);
    }
}
