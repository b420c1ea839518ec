//! Deletes data that nothing refers to any more.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::admission::Fence;
use crate::epoch::Epoch;
use crate::error::CheckpointError;
use crate::owner::Owner;
use crate::resource::Resource;
use crate::superseded::CheckSuperseded;
use crate::token::FencingToken;

use super::backend::{BackendError, repeated};
use super::layout::UploadName;
use super::manifests::Call;
use super::store::{Inner, ObjectStore, upload_of};

/// What a collection has done, in objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Deleted.
    pub deleted: u64,
    /// Kept because a manifest refers to them.
    pub referred: u64,
    /// Kept because their epoch is not below the fence: a write may be about to refer to them.
    pub current: u64,
    /// Kept because the check did not confirm that their tenure is over.
    pub unconfirmed: u64,
    /// Kept because their names are not those of data, or belong to a resource without a manifest:
    /// somebody else's.
    pub foreign: u64,
}

impl AddAssign for Collected {
    fn add_assign(&mut self, other: Self) {
        self.deleted += other.deleted;
        self.referred += other.referred;
        self.current += other.current;
        self.unconfirmed += other.unconfirmed;
        self.foreign += other.foreign;
    }
}

/// How many names are looked at in one go.
const PAGE: usize = 1_000;

/// How many objects are deleted at once.
const PARALLEL: usize = 16;

impl ObjectStore {
    /// Deletes the data of all resources that nothing refers to any more. Never a manifest.
    ///
    /// An object is deleted only if its epoch is below the resource's fence, the manifest does not
    /// refer to it, and `check` confirms that its tenure is over. The first two are enough as long as
    /// the manifest read is the latest; the check is there for the day on which it is not.
    ///
    /// What a tenure that goes on has replaced is deleted by its own writes. Takes as long as it
    /// takes to list everything; each request has a deadline.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unavailable`] when the bucket or the check fails,
    /// [`CheckpointError::Corrupt`] for a manifest that cannot be read. What was deleted stays so.
    pub async fn collect_garbage(
        &self,
        check: &dyn CheckSuperseded,
    ) -> Result<Collected, CheckpointError> {
        let mut collected = Collected::default();
        for resource in self
            .inner
            .with_data()
            .await
            .map_err(BackendError::into_unavailable)?
        {
            collected += self.collect_garbage_of(&resource, check).await?;
        }
        Ok(collected)
    }

    /// Deletes the data of one resource that nothing refers to any more: see
    /// [`collect_garbage`](Self::collect_garbage).
    ///
    /// # Errors
    ///
    /// As `collect_garbage`.
    pub async fn collect_garbage_of(
        &self,
        resource: &Resource,
        check: &dyn CheckSuperseded,
    ) -> Result<Collected, CheckpointError> {
        self.inner.collect(resource, check).await
    }
}

impl Inner {
    /// Finds the resources that have a folder of data.
    async fn with_data(&self) -> Result<Vec<Resource>, BackendError> {
        let data = self.manifests.layout.data();
        let mut resources = Vec::new();
        for lease in self.folders(&format!("{data}/lease")).await? {
            resources.extend(format!("lease/{lease}").parse::<Resource>());
        }
        for group in self.folders(&format!("{data}/shard")).await? {
            for index in self.folders(&format!("{data}/shard/{group}")).await? {
                resources.extend(format!("shard/{group}/{index}").parse::<Resource>());
            }
        }
        Ok(resources)
    }

    async fn folders(&self, folder: &str) -> Result<Vec<String>, BackendError> {
        let backend = &self.manifests.backend;
        repeated(self.request_deadline(), || backend.folders(folder)).await
    }

    async fn collect(
        &self,
        resource: &Resource,
        check: &dyn CheckSuperseded,
    ) -> Result<Collected, CheckpointError> {
        let folder = self.manifests.layout.data_of(resource);
        let backend = &self.manifests.backend;
        let mut collected = Collected::default();
        let mut confirmed = BTreeMap::new();
        let mut after: Option<String> = None;
        loop {
            let list = || backend.list(&folder, after.as_deref(), PAGE);
            let names = repeated(self.request_deadline(), list)
                .await
                .map_err(BackendError::into_unavailable)?;
            let Some(last) = names.last().cloned() else {
                return Ok(collected);
            };
            // After the names: an object that was there before the fence rose above its epoch can
            // never be referred to by a later manifest than the one read now.
            let manifest = self.manifests.read(resource).await;
            let call = Call::default();
            let manifest = manifest.map_err(|error| error.during(&call, resource))?;
            let judge = Judge {
                fence: manifest.as_ref().map(|stored| stored.manifest.record.fence),
                referred: manifest
                    .and_then(|stored| upload_of(resource, &stored.manifest.record))
                    .map(|upload| upload.name),
            };
            let mut garbage = Vec::new();
            for name in names {
                match judge.judge(&name) {
                    Verdict::Foreign => collected.foreign += 1,
                    Verdict::Referred => collected.referred += 1,
                    Verdict::Current => collected.current += 1,
                    Verdict::Garbage(upload) => {
                        let token = upload.token(resource);
                        if self.is_confirmed(&token, check, &mut confirmed).await? {
                            garbage.push(name);
                        } else {
                            collected.unconfirmed += 1;
                        }
                    }
                }
            }
            collected.deleted += self.delete_all(&folder, garbage).await?;
            after = Some(last);
        }
    }

    /// Asks the check, once for each tenure.
    async fn is_confirmed(
        &self,
        token: &FencingToken,
        check: &dyn CheckSuperseded,
        confirmed: &mut BTreeMap<(Epoch, Owner), bool>,
    ) -> Result<bool, CheckpointError> {
        let tenure = (token.epoch, token.owner);
        if let Some(known) = confirmed.get(&tenure) {
            return Ok(*known);
        }
        let answer = check.is_superseded(token).await;
        let answer = answer.map_err(|source| CheckpointError::Unavailable { source })?;
        confirmed.insert(tenure, answer);
        Ok(answer)
    }

    async fn delete_all(&self, folder: &str, names: Vec<String>) -> Result<u64, CheckpointError> {
        let backend = &self.manifests.backend;
        let deletions = names.into_iter().map(|name| async move {
            let object = format!("{folder}/{name}");
            let deleted = repeated(self.request_deadline(), || backend.delete(&object)).await;
            deleted.map_err(BackendError::into_unavailable)
        });
        let deletions: Vec<_> = deletions.collect();
        let deletions = stream::iter(deletions).buffer_unordered(PARALLEL);
        deletions
            .try_fold(0, |deleted, ()| async move { Ok(deleted + 1) })
            .await
    }
}

/// What a manifest says about the objects of its resource.
struct Judge {
    fence: Option<Fence>,
    referred: Option<UploadName>,
}

/// What is to become of an object.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Foreign,
    Referred,
    Current,
    Garbage(UploadName),
}

impl Judge {
    fn judge(&self, name: &str) -> Verdict {
        let (Some(fence), Some(upload)) = (self.fence, UploadName::of_part(name)) else {
            return Verdict::Foreign;
        };
        if self.referred == Some(upload) {
            return Verdict::Referred;
        }
        if upload.epoch >= fence.epoch {
            return Verdict::Current;
        }
        Verdict::Garbage(upload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::{Sequence, WriteId};

    fn upload(epoch: u64) -> UploadName {
        UploadName {
            epoch: Epoch::new(epoch).unwrap(),
            sequence: Sequence::FIRST,
            owner: Owner {
                cluster: 1,
                session: 2,
            },
            write_id: WriteId::new(3),
            upload: 4,
        }
    }

    #[test]
    fn only_what_an_earlier_epoch_left_unreferred_is_garbage() {
        let fence = Fence {
            epoch: Epoch::new(8).unwrap(),
            owner: Owner {
                cluster: 1,
                session: 2,
            },
        };
        let judge = Judge {
            fence: Some(fence),
            referred: Some(upload(6)),
        };
        let of = |epoch| judge.judge(&format!("{}.00000000", upload(epoch)));
        assert_eq!(of(6), Verdict::Referred);
        assert_eq!(of(7), Verdict::Garbage(upload(7)));
        // The owner of the fence's epoch may be about to refer to it; and what is above the fence
        // is of an owner that has not even sealed.
        assert_eq!(of(8), Verdict::Current);
        assert_eq!(of(9), Verdict::Current);
        assert_eq!(judge.judge("notes.txt"), Verdict::Foreign);
        let unsealed = Judge {
            fence: None,
            referred: None,
        };
        let name = format!("{}.00000000", upload(7));
        assert_eq!(unsealed.judge(&name), Verdict::Foreign);
    }
}
