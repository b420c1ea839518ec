//! The storage of a real node: one RocksDB, so one write-ahead log orders everything.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBRecoveryMode, Direction, IteratorMode, Options, ReadOptions, Snapshot, WriteBatch,
    WriteOptions,
};

use super::files::sync_folder;
use super::{
    Batch, Files, Folder, Operation, Record, RecordIter, Records, Storage, StorageError, Table,
};

/// The layout of a data folder that this release writes. It rises when an older release could no
/// longer read what a newer one wrote.
///
/// | format | came with |
/// |---|---|
/// | 1 | the first release |
/// | 2 | a table for the history, without which a database that has it cannot be opened |
const FORMAT: u32 = 2;

/// Says which release may open the folder. It is a file of its own, so that it can be read without
/// opening (and thereby changing) the database.
const FORMAT_FILE: &str = "FORMAT";
const FORMAT_PREFIX: &str = "tenure-data ";

const LOG: &str = "log";
const META: &str = "meta";
const STATE: &str = "state";
const HISTORY: &str = "history";

/// What all tables together keep in memory of what they read from disk. By default each would have
/// as much for itself. Only checkpoints, snapshots and nodes that are far behind are read at all.
const READ_CACHE_BYTES: usize = 32 << 20;

/// How much memory and how many threads the database may use.
#[derive(Clone, Copy, Debug)]
pub struct RocksOptions {
    /// Size at which each of the log's and the state's write buffers is flushed to disk, in bytes.
    pub write_buffer_bytes: usize,
    /// Threads that flush and compact, at least 1.
    pub background_jobs: u16,
}

impl Default for RocksOptions {
    /// 16 MiB: two of them for the log and two for the state are the most that is in memory, a tenth
    /// of what a million shards take there. Larger ones hold what is on disk anyway.
    fn default() -> Self {
        Self {
            write_buffer_bytes: 16 << 20,
            background_jobs: 2,
        }
    }
}

/// Records in a RocksDB database, snapshots in a folder beside it.
///
/// ```text
///   <folder>/FORMAT        which release may open it
///   <folder>/db/           the database; its LOCK keeps a second process out
///   <folder>/snapshots/    snapshot files
/// ```
pub struct RocksStorage {
    db: DB,
    snapshots: Folder,
}

impl std::fmt::Debug for RocksStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RocksStorage")
            .field("path", &self.db.path())
            .finish_non_exhaustive()
    }
}

impl RocksStorage {
    /// Opens a data folder, creating it if it does not exist or is empty.
    ///
    /// # Errors
    ///
    /// [`StorageError::NewerFormat`], [`StorageError::Foreign`] and [`StorageError::Locked`] leave
    /// the folder as it was.
    pub fn open(folder: impl AsRef<Path>, options: RocksOptions) -> Result<Self, StorageError> {
        let folder = folder.as_ref();
        if check_format(folder)? {
            // Before the database has what an older release cannot open.
            write_format(folder)?;
        }
        let database = folder.join("db");
        fs::create_dir_all(&database).map_err(|source| StorageError::Io {
            operation: "create the data folder",
            source,
        })?;
        let db = open_database(folder, &database, options)?;
        let snapshots = Folder::open(folder.join("snapshots"))?;
        if !folder.join(FORMAT_FILE).exists() {
            write_format(folder)?;
        }
        Ok(Self { db, snapshots })
    }

    fn family(&self, name: &'static str) -> Result<&ColumnFamily, StorageError> {
        self.db
            .cf_handle(name)
            .ok_or_else(|| StorageError::Corrupt {
                what: format!("column family {name} is gone"),
            })
    }

    fn table(&self, table: Table) -> Result<&ColumnFamily, StorageError> {
        match table {
            Table::Meta => self.family(META),
            Table::State => self.family(STATE),
            Table::History => self.family(HISTORY),
        }
    }
}

fn open_database(
    folder: &Path,
    database: &Path,
    options: RocksOptions,
) -> Result<DB, StorageError> {
    let cache = Cache::new_lru_cache(READ_CACHE_BYTES);
    let family = |name, write_buffer_bytes| {
        ColumnFamilyDescriptor::new(name, family_options(write_buffer_bytes, &cache))
    };
    let families = [
        family(LOG, options.write_buffer_bytes),
        // A handful of small records, rewritten all the time.
        family(META, options.write_buffer_bytes / 8),
        family(STATE, options.write_buffer_bytes),
        // Written once and seldom read: small buffers do.
        family(HISTORY, options.write_buffer_bytes / 2),
    ];
    let mut database_options = Options::default();
    database_options.create_if_missing(true);
    database_options.create_missing_column_families(true);
    database_options.set_max_background_jobs(i32::from(options.background_jobs.max(1)));
    database_options.set_max_open_files(512);
    database_options.set_keep_log_file_num(2);
    database_options.set_max_log_file_size(8 << 20);
    // The rarely flushed `meta` would otherwise pin the write-ahead log for ever.
    database_options.set_max_total_wal_size(8 * options.write_buffer_bytes as u64);
    // An unfinished record at the end is what a crash leaves. Damage before it means that synced
    // votes or entries are gone: refusing to start is safe, dropping them silently (RocksDB's
    // default) is not.
    database_options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    // The same for a log that is missing or cut short although later ones exist.
    database_options.set_track_and_verify_wals_in_manifest(true);
    DB::open_cf_descriptors(&database_options, database, families).map_err(|error| {
        // RocksDB reports a held lock as a plain I/O error; the text is all that tells it apart.
        let text = error.to_string();
        if text.contains("LOCK") || text.contains("lock hold") {
            return StorageError::Locked {
                folder: folder.to_path_buf(),
            };
        }
        if error.kind() == rocksdb::ErrorKind::Corruption {
            return StorageError::Corrupt { what: text };
        }
        StorageError::io("open the database", error)
    })
}

fn family_options(write_buffer_bytes: usize, cache: &Cache) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    let mut options = Options::default();
    options.set_write_buffer_size(write_buffer_bytes.max(64 << 10));
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_block_based_table_factory(&blocks);
    options
}

/// Reads the format without touching anything. A folder that does not exist or is empty is fine. Returns
/// whether it holds data of an earlier format.
fn check_format(folder: &Path) -> Result<bool, StorageError> {
    let foreign = |reason: &str| StorageError::Foreign {
        folder: folder.to_path_buf(),
        reason: reason.to_owned(),
    };
    let text = match fs::read_to_string(folder.join(FORMAT_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return check_unused(folder).map(|()| false);
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(foreign("it is a file"));
        }
        Err(source) => {
            return Err(StorageError::Io {
                operation: "read the format file",
                source,
            });
        }
    };
    let found = text
        .strip_prefix(FORMAT_PREFIX)
        .and_then(|rest| rest.trim_end().parse::<u32>().ok())
        .ok_or_else(|| foreign("its FORMAT file is not one of Tenure's"))?;
    if found > FORMAT {
        return Err(StorageError::NewerFormat {
            folder: folder.to_path_buf(),
            found,
            supported: FORMAT,
        });
    }
    // It is written last. Without a database under it a node would begin anew that had data.
    if !folder.join("db").join("CURRENT").exists() {
        return Err(StorageError::Corrupt {
            what: format!(
                "{} has a FORMAT file and no database: restore the whole folder, or empty it and let the node \
                 join as a new one",
                folder.display()
            ),
        });
    }
    Ok(found < FORMAT)
}

/// Accepts a folder without a format file only if nothing else lives there, except what an opening
/// that was cut short left.
fn check_unused(folder: &Path) -> Result<(), StorageError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(StorageError::Io {
                operation: "list the data folder",
                source,
            });
        }
    };
    for entry in entries {
        let name = entry
            .map_err(|source| StorageError::Io {
                operation: "list the data folder",
                source,
            })?
            .file_name();
        if !["db", "snapshots", "FORMAT.new"]
            .iter()
            .any(|ours| name == *ours)
        {
            return Err(StorageError::Foreign {
                folder: folder.to_path_buf(),
                reason: format!("it contains {}", PathBuf::from(name).display()),
            });
        }
    }
    Ok(())
}

fn write_format(folder: &Path) -> Result<(), StorageError> {
    let write = || -> io::Result<()> {
        let unfinished = folder.join("FORMAT.new");
        let mut file = fs::File::create(&unfinished)?;
        writeln!(file, "{FORMAT_PREFIX}{FORMAT}")?;
        file.sync_all()?;
        fs::rename(&unfinished, folder.join(FORMAT_FILE))
    };
    write().map_err(|source| StorageError::Io {
        operation: "write the format file",
        source,
    })?;
    sync_folder(folder)?;
    // The folder itself may be new as well.
    folder.parent().map_or(Ok(()), |parent| {
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        sync_folder(parent)
    })
}

fn range(from: &[u8], to: &[u8]) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    options
}

/// What RocksDB's iterators yield.
type Item = Result<(Box<[u8]>, Box<[u8]>), rocksdb::Error>;

fn owned(item: Item) -> Result<Record, StorageError> {
    let (key, value) = item.map_err(|error| StorageError::io("read a record", error))?;
    Ok((key.into_vec(), value.into_vec()))
}

fn index_of(key: &[u8]) -> Result<u64, StorageError> {
    let bytes = key.try_into().map_err(|_| StorageError::Corrupt {
        what: format!("log key of {} bytes", key.len()),
    })?;
    Ok(u64::from_be_bytes(bytes))
}

impl Records for RocksStorage {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.db
            .get_cf(self.table(table)?, key)
            .map_err(|error| StorageError::io("read a record", error))
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8]) -> RecordIter<'_> {
        match self.table(table) {
            Ok(family) => Box::new(
                self.db
                    .iterator_cf_opt(family, range(from, to), IteratorMode::Start)
                    .map(owned),
            ),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn scan_back(&self, table: Table, from: &[u8], to: &[u8]) -> RecordIter<'_> {
        match self.table(table) {
            Ok(family) => Box::new(
                self.db
                    .iterator_cf_opt(family, range(from, to), IteratorMode::End)
                    .map(owned),
            ),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }
}

/// The records of one moment.
struct View<'a> {
    storage: &'a RocksStorage,
    snapshot: Snapshot<'a>,
}

impl Records for View<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.snapshot
            .get_cf(self.storage.table(table)?, key)
            .map_err(|error| StorageError::io("read a record", error))
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8]) -> RecordIter<'_> {
        match self.storage.table(table) {
            Ok(family) => {
                let mut options = range(from, to);
                // The whole state is read once: it must not push out what reads need.
                options.fill_cache(false);
                let records = self
                    .snapshot
                    .iterator_cf_opt(family, options, IteratorMode::Start)
                    .map(owned);
                Box::new(records)
            }
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }
}

impl Storage for RocksStorage {
    fn log(
        &self,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, StorageError> {
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        if from >= to {
            return Ok(found);
        }
        let mut bytes = 0;
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to.to_be_bytes());
        let start = from.to_be_bytes();
        let mode = IteratorMode::From(&start, Direction::Forward);
        for item in self.db.iterator_cf_opt(self.family(LOG)?, options, mode) {
            let (key, record) = owned(item)?;
            let index = index_of(&key)?;
            if let Some((previous, _)) = found.last()
                && *previous + 1 != index
            {
                return Err(StorageError::Corrupt {
                    what: format!("log has no entry between {previous} and {index}"),
                });
            }
            bytes += record.len();
            if !found.is_empty() && bytes > bytes_max {
                break;
            }
            found.push((index, record));
        }
        Ok(found)
    }

    fn last_log_index(&self) -> Result<Option<u64>, StorageError> {
        match self
            .db
            .iterator_cf(self.family(LOG)?, IteratorMode::End)
            .next()
        {
            None => Ok(None),
            Some(item) => owned(item).and_then(|(key, _)| index_of(&key)).map(Some),
        }
    }

    fn write(&self, batch: Batch) -> Result<(), StorageError> {
        let log = self.family(LOG)?;
        let mut writes = WriteBatch::default();
        for operation in batch.into_operations() {
            match operation {
                Operation::Put { table, key, value } => {
                    writes.put_cf(self.table(table)?, key, value);
                }
                Operation::Delete { table, key } => writes.delete_cf(self.table(table)?, key),
                Operation::DeleteRange { table, from, to } => {
                    writes.delete_range_cf(self.table(table)?, from, to);
                }
                Operation::PutLog { index, record } => {
                    writes.put_cf(log, index.to_be_bytes(), record);
                }
                // An index of u64::MAX is out of reach, so the exclusive end loses nothing.
                Operation::TruncateLog { from } => {
                    writes.delete_range_cf(log, from.to_be_bytes(), u64::MAX.to_be_bytes());
                }
                Operation::PurgeLog { below } => {
                    writes.delete_range_cf(log, 0_u64.to_be_bytes(), below.to_be_bytes());
                }
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(false);
        self.db
            .write_opt(writes, &options)
            .map_err(|error| StorageError::io("write a batch", error))
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.db
            .flush_wal(true)
            .map_err(|error| StorageError::io("sync its log", error))
    }

    fn view(&self) -> Box<dyn Records + '_> {
        Box::new(View {
            storage: self,
            snapshot: self.db.snapshot(),
        })
    }

    fn files(&self) -> &dyn Files {
        &self.snapshots
    }
}
