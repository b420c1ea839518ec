//! What the database holds. Everything here may wait for the disk.
//!
//! ```text
//!   layout              version of this layout: four bytes, big-endian
//!   fence/<resource>    the fence; replaced by seals
//!   last/<resource>     the latest write or deletion, with the fence it was admitted by
//! ```

use std::collections::HashMap;
use std::path::Path;
use std::sync::MutexGuard;

use ::rocksdb::{
    DB, DBCompressionType, DBRecoveryMode, Direction, ErrorKind, IteratorMode, Options, WriteBatch,
    WriteOptions,
};
use bytes::Bytes;

use crate::admission::{Fence, Refusal, SealAdmission, admit_seal};
use crate::checkpoint::{Checkpoint, Deletion, Write};
use crate::error::CheckpointError;
use crate::layout::{self, LayoutError};
use crate::parts;
use crate::record::Record;
use crate::resource::Resource;
use crate::token::FencingToken;

use super::RocksStoreOptions;
use super::stripes::{Stripe, Stripes};

/// The layout described above.
const LAYOUT: u32 = 1;

const LAYOUT_KEY: &[u8] = b"layout";
const FENCE: &str = "fence/";
const LAST: &str = "last/";

pub(super) struct Contents {
    database: DB,
    stripes: Stripes,
}

impl Contents {
    pub(super) fn open(
        folder: &Path,
        options: &RocksStoreOptions,
    ) -> Result<Self, CheckpointError> {
        let database =
            DB::open(&database_options(options), folder).map_err(CheckpointError::unavailable)?;
        let contents = Self {
            database,
            stripes: Stripes::new(),
        };
        contents.check_layout()?;
        Ok(contents)
    }

    fn check_layout(&self) -> Result<(), CheckpointError> {
        if let Some(found) = self.get(LAYOUT_KEY)? {
            return layout::check(&found, LAYOUT).map_err(layout::refuse);
        }
        let mut entries = self.database.iterator(IteratorMode::Start);
        if let Some(first) = entries.next() {
            first.map_err(CheckpointError::unavailable)?;
            return Err(layout::refuse(LayoutError::Foreign));
        }
        let mut batch = WriteBatch::default();
        batch.put(LAYOUT_KEY, layout::encode(LAYOUT));
        self.commit(batch)
    }

    /// Reads what must be there, and writes it back as it is: a database that only takes reads, for
    /// instance because its disk is full, is found here.
    pub(super) fn probe(&self) -> Result<(), CheckpointError> {
        self.check_layout()?;
        let mut batch = WriteBatch::default();
        batch.put(LAYOUT_KEY, layout::encode(LAYOUT));
        self.database
            .write_opt(batch, &synced())
            .map_err(CheckpointError::unavailable)
    }

    pub(super) fn seal(&self, token: &FencingToken) -> Result<Option<Checkpoint>, CheckpointError> {
        let place = self.stripes.place(&token.resource);
        let mut stripe = self.stripes.lock(place);
        let fence = self.known_fence(&stripe, &token.resource)?;
        if admitted(fence, token)? == SealAdmission::Raise {
            stripe.forget(&token.resource);
            let mut batch = WriteBatch::default();
            batch.put(fence_key(&token.resource), raised(token));
            self.commit(batch)?;
        }
        self.read_sealed(&mut stripe, token)
    }

    /// Seals resources with one write. Each answer is as if it had been sealed alone.
    pub(super) fn seal_batch(
        &self,
        tokens: &[FencingToken],
    ) -> Vec<Result<Option<Checkpoint>, CheckpointError>> {
        let places: Vec<usize> = tokens
            .iter()
            .map(|token| self.stripes.place(&token.resource))
            .collect();
        let mut held = Held::take(&self.stripes, &places);

        let mut batch = WriteBatch::default();
        // What this batch raises, for a resource that is named twice.
        let mut rising: HashMap<&Resource, Fence> = HashMap::new();
        let mut refused = Vec::with_capacity(tokens.len());
        for (token, place) in tokens.iter().zip(&places) {
            let resource = &token.resource;
            let fence = match rising.get(resource) {
                Some(fence) => Ok(Some(*fence)),
                None => self.known_fence(held.stripe(*place), resource),
            };
            let admission = fence.and_then(|fence| admitted(fence, token));
            if matches!(admission, Ok(SealAdmission::Raise)) {
                batch.put(fence_key(resource), raised(token));
                rising.insert(resource, Fence::from(token));
            }
            refused.push(admission.err());
        }

        let committed = if batch.is_empty() {
            Ok(())
        } else {
            self.commit(batch)
        };
        let failure = committed.err().map(|error| error.to_string());
        let mut answers = Vec::with_capacity(tokens.len());
        for ((token, place), refused) in tokens.iter().zip(&places).zip(refused) {
            let stripe = held.stripe(*place);
            stripe.forget(&token.resource);
            answers.push(match (refused, &failure) {
                (Some(refused), _) => Err(refused),
                (None, Some(failure)) => Err(CheckpointError::unknown(failure.clone())),
                (None, None) => self.read_sealed(stripe, token),
            });
        }
        answers
    }

    pub(super) fn write(&self, token: &FencingToken, write: Write) -> Result<(), CheckpointError> {
        self.replace(token, |current| Record::write(current, token, write))
    }

    pub(super) fn delete(
        &self,
        token: &FencingToken,
        deletion: Deletion,
    ) -> Result<(), CheckpointError> {
        let deletion = (deletion.sequence, deletion.write_id);
        self.replace(token, |current| Record::delete(current, token, deletion))
    }

    /// Replaces the latest write or deletion by what `decide` makes of the record.
    fn replace(
        &self,
        token: &FencingToken,
        decide: impl FnOnce(Option<&Record>) -> Result<Option<Record>, Refusal>,
    ) -> Result<(), CheckpointError> {
        let resource = &token.resource;
        let mut stripe = self.stripes.lock(self.stripes.place(resource));
        let loaded;
        let current = match stripe.record(resource) {
            Some(record) => Some(record),
            None => {
                loaded = self.load(resource)?;
                loaded.as_ref()
            }
        };
        let decided =
            decide(current).map_err(|refusal| CheckpointError::refused(token, refusal))?;
        let Some(next) = decided else {
            return Ok(());
        };
        let mut batch = WriteBatch::default();
        batch.put(last_key(resource), next.encode());
        // A write that failed may be in the log all the same, and come back when it is read again.
        let committed = self.commit(batch);
        match committed {
            Ok(()) => stripe.remember(resource, parts::without_data(&next)),
            Err(_) => stripe.forget(resource),
        }
        committed
    }

    pub(super) fn read(&self, resource: &Resource) -> Result<Option<Checkpoint>, CheckpointError> {
        let Some(last) = self.get(&last_key(resource))? else {
            return Ok(None);
        };
        let last =
            Record::decode(last).map_err(|error| CheckpointError::corrupt(resource, error))?;
        Ok(last.checkpoint)
    }

    pub(super) fn fence(&self, resource: &Resource) -> Result<Option<Fence>, CheckpointError> {
        self.get(&fence_key(resource))?
            .map(parts::decode_fence)
            .transpose()
            .map_err(|error| CheckpointError::corrupt(resource, error))
    }

    pub(super) fn list(
        &self,
        after: Option<&Resource>,
        limit: usize,
    ) -> Result<Vec<(Resource, Fence)>, CheckpointError> {
        let start = match after {
            // The least key that is greater.
            Some(after) => [fence_key(after).as_slice(), b"\0"].concat(),
            None => FENCE.into(),
        };
        let entries = self
            .database
            .iterator(IteratorMode::From(&start, Direction::Forward));
        let mut found = Vec::new();
        for entry in entries.take(limit) {
            let (key, value) = entry.map_err(CheckpointError::unavailable)?;
            let Some(name) = key.strip_prefix(FENCE.as_bytes()) else {
                break;
            };
            let resource = layout::resource(name).map_err(CheckpointError::unavailable)?;
            let fence = parts::decode_fence(value.into_vec().into())
                .map_err(|error| CheckpointError::corrupt(&resource, error))?;
            found.push((resource, fence));
        }
        Ok(found)
    }

    fn known_fence(
        &self,
        stripe: &Stripe,
        resource: &Resource,
    ) -> Result<Option<Fence>, CheckpointError> {
        match stripe.record(resource) {
            Some(record) => Ok(Some(record.fence)),
            None => self.fence(resource),
        }
    }

    /// Reads what a fence guards that is up. Still under the lock: later, a newer owner's write might
    /// be taken for an earlier one's.
    fn read_sealed(
        &self,
        stripe: &mut Stripe,
        token: &FencingToken,
    ) -> Result<Option<Checkpoint>, CheckpointError> {
        let resource = &token.resource;
        let Some(record) = self.load(resource)? else {
            return Ok(None);
        };
        stripe.remember(resource, parts::without_data(&record));
        Ok(record.checkpoint)
    }

    fn load(&self, resource: &Resource) -> Result<Option<Record>, CheckpointError> {
        let fence = self.fence(resource)?;
        let last = self.get(&last_key(resource))?;
        parts::join(fence, last).map_err(|error| CheckpointError::corrupt(resource, error))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, CheckpointError> {
        let value = self
            .database
            .get(key)
            .map_err(CheckpointError::unavailable)?;
        Ok(value.map(Bytes::from))
    }

    /// Writes and syncs. RocksDB lets writers that wait at the same time share one sync.
    fn commit(&self, batch: WriteBatch) -> Result<(), CheckpointError> {
        self.database
            .write_opt(batch, &synced())
            .map_err(|error| match error.kind() {
                // Said before anything is written: no room in the memory, or shutting down.
                ErrorKind::Busy | ErrorKind::ShutdownInProgress | ErrorKind::Incomplete => {
                    CheckpointError::unavailable(error)
                }
                _ => CheckpointError::unknown(error),
            })
    }
}

/// Several locks, held together.
struct Held<'a> {
    places: Vec<usize>,
    guards: Vec<MutexGuard<'a, Stripe>>,
}

impl<'a> Held<'a> {
    /// Takes the locks in rising order, as everybody does, so that no two wait for each other.
    fn take(stripes: &'a Stripes, places: &[usize]) -> Self {
        let mut places = places.to_vec();
        places.sort_unstable();
        places.dedup();
        let guards = places.iter().map(|&place| stripes.lock(place)).collect();
        Self { places, guards }
    }

    fn stripe(&mut self, place: usize) -> &mut Stripe {
        let index = self.places.partition_point(|&held| held < place);
        &mut self.guards[index]
    }
}

fn raised(token: &FencingToken) -> Bytes {
    parts::encode_fence(Fence::from(token))
}

fn admitted(fence: Option<Fence>, token: &FencingToken) -> Result<SealAdmission, CheckpointError> {
    admit_seal(fence.as_ref(), token).map_err(|refusal| CheckpointError::refused(token, refusal))
}

fn fence_key(resource: &Resource) -> Vec<u8> {
    format!("{FENCE}{resource}").into_bytes()
}

fn last_key(resource: &Resource) -> Vec<u8> {
    format!("{LAST}{resource}").into_bytes()
}

fn synced() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

fn database_options(options: &RocksStoreOptions) -> Options {
    let mut database = Options::default();
    database.create_if_missing(true);
    // An unfinished record at the end is what a crash leaves. Damage before it means that synced
    // fences are gone.
    database.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    database.set_compression_type(DBCompressionType::Lz4);
    database.set_write_buffer_size(options.write_buffer_bytes.max(64 << 10));
    database.set_max_open_files(512);
    database.set_keep_log_file_num(2);
    database.set_max_log_file_size(8 << 20);
    database
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> RocksStoreOptions {
        RocksStoreOptions::default()
    }

    fn token(epoch: u64) -> FencingToken {
        format!("shard/orders/7@{epoch}:00000000000000000000000000c0ffee/{epoch}")
            .parse()
            .unwrap()
    }

    fn refused(folder: &Path) -> String {
        match Contents::open(folder, &options()) {
            Err(CheckpointError::Unsupported { source }) => source.to_string(),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("the database was opened"),
        }
    }

    #[test]
    fn a_newer_layout_and_a_foreign_database_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let contents = Contents::open(folder.path(), &options()).unwrap();
        let newer = layout::encode(LAYOUT + 1);
        contents.database.put(LAYOUT_KEY, newer).unwrap();
        drop(contents);
        assert!(refused(folder.path()).contains("layout 2"));

        let foreign = tempfile::tempdir().unwrap();
        let mut create = Options::default();
        create.create_if_missing(true);
        let database = DB::open(&create, foreign.path()).unwrap();
        database.put(b"a key", b"a value").unwrap();
        drop(database);
        assert!(refused(foreign.path()).contains("something else"));
    }

    #[test]
    fn damaged_data_is_reported_after_the_fence_is_up() {
        let folder = tempfile::tempdir().unwrap();
        let contents = Contents::open(folder.path(), &options()).unwrap();
        let (old, new) = (token(7), token(8));
        contents.seal(&old).unwrap();
        let key = last_key(&old.resource);
        contents.database.put(&key, b"nonsense").unwrap();
        let sealed = contents.seal(&new);
        assert!(matches!(sealed, Err(CheckpointError::Corrupt { .. })));
        let fence = contents.fence(&old.resource).unwrap();
        assert_eq!(fence, Some(Fence::from(&new)));
    }
}
