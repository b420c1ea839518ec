//! Which resources have a fence.

use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::admission::Fence;
use crate::error::CheckpointError;
use crate::resource::Resource;

use super::backend::{BackendError, repeated};
use super::manifests::Call;
use super::store::{Inner, ObjectStore};

/// How many manifests are read at once.
const PARALLEL: usize = 16;

impl ObjectStore {
    /// Returns the resources that have a fence, with it: those after `after` in the order of their
    /// text, at most `limit`. Unfenced, and not of one moment.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Corrupt`] for a manifest that cannot be read, or an object among the
    /// manifests that is none; `Unavailable`.
    pub async fn list(
        &self,
        after: Option<&Resource>,
        limit: usize,
    ) -> Result<Vec<(Resource, Fence)>, CheckpointError> {
        let call = Call::default();
        self.inner
            .bounded(&call, self.inner.list(&call, after, limit))
            .await
    }
}

impl Inner {
    async fn list(
        &self,
        call: &Call,
        after: Option<&Resource>,
        limit: usize,
    ) -> Result<Vec<(Resource, Fence)>, CheckpointError> {
        let manifests = self.manifests.layout.manifests();
        let listed = self.resources(&manifests, after, limit);
        let resources = listed
            .await
            .map_err(|error| call.failed(error.into_source()))?;
        let fences = resources.into_iter().map(|resource| async {
            let stored = self.manifests.read(&resource).await;
            let stored = stored.map_err(|error| error.during(call, &resource))?;
            // A manifest is never deleted; if somebody has done so nevertheless, it is not there.
            Ok(stored.map(|stored| (resource, stored.manifest.record.fence)))
        });
        let fences: Vec<_> = fences.collect();
        let found: Vec<Option<(Resource, Fence)>> = stream::iter(fences)
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Finds the resources that have an object in a folder of manifests.
    ///
    /// Folder by folder: within one folder every server lists in the order of the bytes, over several
    /// not every one does. The order of a resource's text is that of its folder's text with the slash.
    async fn resources(
        &self,
        manifests: &str,
        after: Option<&Resource>,
        limit: usize,
    ) -> Result<Vec<Resource>, BackendError> {
        let after = after.map(Resource::to_string);
        let mut folders = self.shard_folders(manifests).await?;
        folders.insert(0, "lease/".to_owned());
        let mut resources = Vec::new();
        for folder in folders {
            let within = match &after {
                Some(after) => match after.strip_prefix(&folder) {
                    Some(name) => Some(name),
                    None if folder < *after => continue,
                    None => None,
                },
                None => None,
            };
            let path = format!("{manifests}/{}", folder.trim_end_matches('/'));
            let rest = limit - resources.len();
            let backend = &self.manifests.backend;
            let listed = repeated(self.request_deadline(), || {
                backend.list(&path, within, rest)
            })
            .await?;
            // What is no resource was put there by something else.
            let listed = listed.iter().map(|name| format!("{folder}{name}"));
            resources.extend(listed.filter_map(|text| text.parse::<Resource>().ok()));
            if resources.len() >= limit {
                break;
            }
        }
        Ok(resources)
    }

    /// The folders of the shards, one for each group, in the order of the resources' text.
    async fn shard_folders(&self, manifests: &str) -> Result<Vec<String>, BackendError> {
        let shards = format!("{manifests}/shard");
        let backend = &self.manifests.backend;
        let groups = repeated(self.request_deadline(), || backend.folders(&shards)).await?;
        let mut folders: Vec<String> = groups
            .into_iter()
            .map(|group| format!("shard/{group}/"))
            .collect();
        folders.sort_unstable();
        Ok(folders)
    }
}
