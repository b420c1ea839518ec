//! The store.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::future::{Either, select};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::admission::Fence;
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::{CheckpointError, StoreError};
use crate::record::Record;
use crate::resource::Resource;
use crate::store::CheckpointStore;
use crate::token::FencingToken;

use super::backend::{Backend, BackendError, repeated, within};
use super::bucket::Bucket;
use super::cache::Cache;
use super::layout::{LAYOUT, Layout};
use super::manifest::Content;
use super::manifests::{Call, Change, Manifests};
use super::options::ObjectStoreOptions;
use super::probe::Probe;
use super::values::{ReadError, Upload, UploadError, Value, Values};

/// How many resources are sealed at once.
const SEALS_PARALLEL: usize = 64;

/// A request for a manifest may take this part of its call's deadline, so that one that is not
/// answered leaves time to find out what came of it.
const REQUEST_FRACTION: u32 = 4;

/// How often the data of a checkpoint is looked for when it is replaced between the read of the
/// manifest and its own.
const READS: usize = 16;

const REPLACED_EACH_TIME: &str = "the checkpoint was replaced each time it was about to be read";

/// A store of checkpoints in a bucket. Cloning it clones a pointer.
///
/// ```no_run
/// use tenure_fence::object_store::builders::aws::AmazonS3Builder;
/// use tenure_fence::object_store::{Bucket, ObjectStore, ObjectStoreOptions};
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = AmazonS3Builder::from_env().with_bucket_name("checkpoints");
/// let store = ObjectStore::open(Bucket::s3(builder)?, ObjectStoreOptions::default()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ObjectStore {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) manifests: Manifests,
    pub(super) values: Values,
    endpoints: Vec<Arc<dyn Backend>>,
    race_time: Duration,
    deadline: Duration,
    max_value_bytes: usize,
    inline_bytes_max: usize,
}

impl ObjectStore {
    /// Opens a store: finds out whether the bucket can fence, and creates the layout below the prefix
    /// if there is none. The bucket itself must exist.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unsupported`] when the bucket does not keep conditions, the layout is newer
    /// than this version knows, or the options make no sense; `Unavailable`.
    pub async fn open(
        bucket: Bucket,
        options: ObjectStoreOptions,
    ) -> Result<Self, CheckpointError> {
        let layout = Layout::new(&options.prefix)
            .ok_or_else(|| unsupported(format!("{:?} is no prefix of names", options.prefix)))?;
        if options.part_bytes == 0 {
            return Err(unsupported("parts of no bytes".to_owned()));
        }
        let backend = bucket.backend;
        let others = options.other_endpoints.into_iter();
        let endpoints =
            std::iter::once(Arc::clone(&backend)).chain(others.map(|other| other.backend));
        let manifests = Manifests {
            backend: Arc::clone(&backend),
            layout: layout.clone(),
            cache: Cache::default(),
            request_deadline: options.deadline / REQUEST_FRACTION,
        };
        let values = Values {
            backend,
            layout,
            part_bytes: options.part_bytes,
            part_deadline: options.part_deadline,
            replaced: Arc::new(Mutex::default()),
        };
        let store = Self {
            inner: Arc::new(Inner {
                manifests,
                values,
                endpoints: endpoints.collect(),
                race_time: options.race_time,
                deadline: options.deadline,
                max_value_bytes: options.max_value_bytes,
                inline_bytes_max: options.inline_bytes_max,
            }),
        };
        store.probe().await?;
        store.inner.require_layout().await?;
        Ok(store)
    }
}

impl Inner {
    /// Finds the layout that is known, or creates it.
    async fn require_layout(&self) -> Result<(), CheckpointError> {
        let Manifests {
            backend,
            layout,
            request_deadline,
            ..
        } = &self.manifests;
        let name = layout.version();
        let text = Bytes::from(Layout::version_text());
        let created = within(*request_deadline, backend.put_if(&name, text, None)).await;
        if created.is_ok() {
            return Ok(());
        }
        // Whatever went wrong, most likely it was there: then that says.
        let read = repeated(*request_deadline, || backend.get(&name)).await;
        let found = read.map_err(BackendError::into_unavailable)?;
        let found = found.ok_or_else(|| CheckpointError::Unavailable {
            source: "the layout cannot be created".into(),
        })?;
        match Layout::parse_version(&found.bytes) {
            Some(LAYOUT) => Ok(()),
            Some(other) => Err(unsupported(format!(
                "{name} says layout {other}, this version knows layout {LAYOUT} only"
            ))),
            None => Err(unsupported(format!("{name} is something else's"))),
        }
    }

    /// How long a request may take that is not for a part of a value.
    pub(super) fn request_deadline(&self) -> Duration {
        self.manifests.request_deadline
    }

    /// Makes a call for at most the deadline.
    pub(super) async fn bounded<T>(
        &self,
        call: &Call,
        work: impl Future<Output = Result<T, CheckpointError>> + Send,
    ) -> Result<T, CheckpointError> {
        match tokio::time::timeout(self.deadline, work).await {
            Ok(answer) => answer,
            Err(_elapsed) => {
                let late = format!("the call was not over within {:?}", self.deadline);
                Err(call.failed(late.into()))
            }
        }
    }

    async fn seal(
        &self,
        call: &Call,
        token: &FencingToken,
    ) -> Result<Option<Checkpoint>, CheckpointError> {
        let resource = &token.resource;
        let mut record = self.raise(call, token).await?;
        for _ in 0..READS {
            match self.checkpoint(resource, &record).await {
                Ok(checkpoint) => return Ok(checkpoint),
                Err(ReadError::Missing) => {}
                Err(error) => return Err(error.during(call, resource)),
            }
            // What is missing was replaced meanwhile, by this owner or by a newer one, or is lost.
            // Sealing again tells which.
            let again = self.raise(call, token).await?;
            if again.checkpoint == record.checkpoint {
                return Err(ReadError::Missing.during(call, resource));
            }
            record = again;
        }
        Err(call.failed(REPLACED_EACH_TIME.into()))
    }

    /// Raises the fence; returns the record with it.
    pub(super) async fn raise(
        &self,
        call: &Call,
        token: &FencingToken,
    ) -> Result<Record, CheckpointError> {
        let decide = |current: Option<&Record>| Record::seal(current, token);
        Ok(self.manifests.change(call, token, decide).await?.record)
    }

    async fn write(
        &self,
        call: &Call,
        token: &FencingToken,
        write: Write,
    ) -> Result<(), CheckpointError> {
        if write.data.len() <= self.inline_bytes_max {
            let content = Content::Inline(write.data.clone());
            self.put_content(call, token, &write, &content).await?;
            return Ok(());
        }
        let data = stream::iter([Ok(write.data.clone())]);
        self.write_parts(call, token, &write, data).await
    }

    /// Uploads a value and lets the manifest refer to it. The data of `write` is not looked at.
    ///
    /// The upload takes as long as the value takes to come; what is done to the manifest is bounded.
    pub(super) async fn write_parts(
        &self,
        call: &Call,
        token: &FencingToken,
        write: &Write,
        data: impl futures::Stream<Item = Result<Bytes, StoreError>> + Send,
    ) -> Result<(), CheckpointError> {
        // Asked first, so that an owner that was replaced uploads nothing. The answer that counts is
        // that of the conditional put.
        let decide = |current: Option<&Record>| Record::write(current, token, write.clone());
        let asked = self.manifests.ask(call, token, decide);
        if !self.bounded(call, asked).await? {
            return Ok(());
        }
        let work = pin!(self.upload_and_put(call, token, write, data));
        // Beside it, for as long as it takes: garbage does not keep a checkpoint waiting.
        match select(work, pin!(self.values.delete_replaced())).await {
            Either::Left((done, _)) => done,
            Either::Right(((), work)) => work.await,
        }
    }

    async fn upload_and_put(
        &self,
        call: &Call,
        token: &FencingToken,
        write: &Write,
        data: impl futures::Stream<Item = Result<Bytes, StoreError>> + Send,
    ) -> Result<(), CheckpointError> {
        let upload = self
            .values
            .upload(token, write.sequence, write.write_id, data);
        let upload = upload.await.map_err(|error| match error {
            UploadError::Backend(error) => call.failed(error.into_source()),
            UploadError::Source(source) => call.failed(source),
        })?;
        let content = Content::Parts(upload.parts);
        let put = self.put_content(call, token, write, &content);
        let put = self.bounded(call, put).await;
        let is_used = match &put {
            Ok(change) => {
                let used = upload_of(&token.resource, &change.record);
                used.is_some_and(|used| used.name == upload.name)
            }
            // It may still be put there.
            Err(error) => error.may_have_happened(),
        };
        if !is_used {
            self.values.is_replaced(upload);
        }
        put.map(drop)
    }

    /// Puts a manifest with this content.
    async fn put_content(
        &self,
        call: &Call,
        token: &FencingToken,
        write: &Write,
        content: &Content,
    ) -> Result<Change, CheckpointError> {
        let write = Write {
            data: content.encode(),
            ..write.clone()
        };
        let decide = |current: Option<&Record>| Record::write(current, token, write.clone());
        let change = self.manifests.change(call, token, decide).await?;
        self.forget_replaced(token, &change);
        Ok(change)
    }

    /// Remembers the objects that a write or deletion has replaced.
    fn forget_replaced(&self, token: &FencingToken, change: &Change) {
        let replaced = change.replaced.as_ref();
        let upload = replaced.and_then(|record| upload_of(&token.resource, record));
        if let Some(upload) = upload {
            self.values.is_replaced(upload);
        }
    }

    async fn delete(
        &self,
        call: &Call,
        token: &FencingToken,
        deletion: &Deletion,
    ) -> Result<(), CheckpointError> {
        let deletion = (deletion.sequence, deletion.write_id);
        let decide = |current: Option<&Record>| Record::delete(current, token, deletion);
        let change = self.manifests.change(call, token, decide).await?;
        self.forget_replaced(token, &change);
        Ok(())
    }

    async fn read(
        &self,
        call: &Call,
        resource: &Resource,
    ) -> Result<Option<Checkpoint>, CheckpointError> {
        let mut missing = None;
        for _ in 0..READS {
            let stored = self.manifests.fetch(resource).await;
            let stored = stored.map_err(|error| error.during(call, resource))?;
            let Some(stored) = stored else {
                return Ok(None);
            };
            let record = stored.manifest.record;
            match self.checkpoint(resource, &record).await {
                Ok(checkpoint) => return Ok(checkpoint),
                // Replaced between the two requests, unless the manifest still says the same.
                Err(ReadError::Missing) if missing != Some(record.checkpoint.clone()) => {
                    missing = Some(record.checkpoint);
                }
                Err(error) => return Err(error.during(call, resource)),
            }
        }
        Err(call.failed(REPLACED_EACH_TIME.into()))
    }

    /// Puts the value in the place of what the record says about it.
    async fn checkpoint(
        &self,
        resource: &Resource,
        record: &Record,
    ) -> Result<Option<Checkpoint>, ReadError> {
        let Some(recorded) = &record.checkpoint else {
            return Ok(None);
        };
        let data = match Value::of(resource, recorded)? {
            Value::Inline(data) => data,
            Value::Uploaded(upload) => {
                let length_bytes = usize::try_from(upload.parts.length_bytes).unwrap_or(usize::MAX);
                if length_bytes > self.max_value_bytes {
                    return Err(ReadError::TooLarge {
                        length_bytes,
                        max_bytes: self.max_value_bytes,
                    });
                }
                let mut pieces = self.values.read(upload);
                let mut data = BytesMut::with_capacity(length_bytes);
                while let Some(piece) = pieces.try_next().await? {
                    data.extend_from_slice(&piece);
                }
                data.freeze()
            }
        };
        Ok(Some(Checkpoint {
            data,
            ..recorded.clone()
        }))
    }

    async fn fence(
        &self,
        call: &Call,
        resource: &Resource,
    ) -> Result<Option<Fence>, CheckpointError> {
        let stored = self.manifests.fetch(resource).await;
        let stored = stored.map_err(|error| error.during(call, resource))?;
        Ok(stored.map(|stored| stored.manifest.record.fence))
    }
}

/// The upload that a record refers to.
pub(super) fn upload_of(resource: &Resource, record: &Record) -> Option<Upload> {
    match Value::of(resource, record.checkpoint.as_ref()?) {
        Ok(Value::Uploaded(upload)) => Some(upload),
        Ok(Value::Inline(_)) | Err(_) => None,
    }
}

fn unsupported(lack: String) -> CheckpointError {
    CheckpointError::Unsupported {
        source: lack.into(),
    }
}

#[async_trait]
impl CheckpointStore for ObjectStore {
    /// When the value is larger than [`max_value_bytes`](CheckpointStore::max_value_bytes) the answer
    /// is [`CheckpointError::TooLarge`], and the fence is up: see
    /// [`seal_large`](ObjectStore::seal_large).
    async fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        let call = Call::default();
        self.inner
            .bounded(&call, self.inner.seal(&call, token))
            .await
    }

    async fn seal_many(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        let seals = tokens.iter().map(|token| self.seal(token));
        // Collected first: a stream that borrows from an iterator of borrows is not general enough
        // for an async trait.
        let seals: Vec<_> = seals.collect();
        stream::iter(seals).buffered(SEALS_PARALLEL).collect().await
    }

    async fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        let (length_bytes, max_bytes) = (write.data.len(), self.inner.max_value_bytes);
        if length_bytes > max_bytes {
            return Err(CheckpointError::TooLarge {
                length_bytes,
                max_bytes,
            });
        }
        let call = Call::default();
        self.inner
            .bounded(&call, self.inner.write(&call, token, write))
            .await
    }

    async fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        let call = Call::default();
        self.inner
            .bounded(&call, self.inner.read(&call, resource))
            .await
    }

    async fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        let call = Call::default();
        self.inner
            .bounded(&call, self.inner.fence(&call, resource))
            .await
    }

    /// The manifest stays, with the fence and the latest sequence; it is the data that goes.
    async fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        let call = Call::default();
        let is_done = AtomicBool::new(false);
        let work = async {
            self.inner.delete(&call, token, &deletion).await?;
            is_done.store(true, Ordering::Relaxed);
            // The data is unreachable already; now it also goes, in the time that is left.
            self.inner.values.delete_replaced().await;
            Ok(())
        };
        match self.inner.bounded(&call, work).await {
            Err(_late) if is_done.into_inner() => Ok(()),
            answer => answer,
        }
    }

    async fn probe(&self) -> Result<(), CheckpointError> {
        let probe = Probe {
            endpoints: &self.inner.endpoints,
            layout: &self.inner.manifests.layout,
            request_deadline: self.inner.manifests.request_deadline,
            race_time: self.inner.race_time,
        };
        probe.run().await
    }

    fn max_value_bytes(&self) -> usize {
        self.inner.max_value_bytes
    }
}
