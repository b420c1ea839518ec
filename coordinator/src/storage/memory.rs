//! A storage in memory, so that the same consensus code runs in a simulation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{
    Batch, Files, MemoryFiles, Operation, RecordIter, Records, Storage, StorageError, Table,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a storage holds. Cheap to clone: the maps are copied only when a clone is alive during a
/// write, which is how a view stays as it was.
#[derive(Clone, Debug, Default)]
struct Tables {
    log: Arc<BTreeMap<u64, Vec<u8>>>,
    meta: Arc<Map>,
    state: Arc<Map>,
    history: Arc<Map>,
}

impl Tables {
    fn table(&self, table: Table) -> &Map {
        match table {
            Table::Meta => &self.meta,
            Table::State => &self.state,
            Table::History => &self.history,
        }
    }

    fn table_mut(&mut self, table: Table) -> &mut Map {
        match table {
            Table::Meta => Arc::make_mut(&mut self.meta),
            Table::State => Arc::make_mut(&mut self.state),
            Table::History => Arc::make_mut(&mut self.history),
        }
    }

    fn execute(&mut self, operation: Operation) {
        match operation {
            Operation::Put { table, key, value } => {
                self.table_mut(table).insert(key, value);
            }
            Operation::Delete { table, key } => {
                self.table_mut(table).remove(&key);
            }
            Operation::DeleteRange { table, from, to } => {
                self.table_mut(table)
                    .retain(|key, _| *key < from || *key >= to);
            }
            Operation::PutLog { index, record } => {
                Arc::make_mut(&mut self.log).insert(index, record);
            }
            Operation::TruncateLog { from } => {
                Arc::make_mut(&mut self.log).split_off(&from);
            }
            Operation::PurgeLog { below } => {
                let kept = Arc::make_mut(&mut self.log).split_off(&below);
                self.log = Arc::new(kept);
            }
        }
    }
}

impl Records for Tables {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.table(table).get(key).cloned())
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8]) -> RecordIter<'_> {
        let range = self.table(table).range::<[u8], _>((
            std::ops::Bound::Included(from),
            std::ops::Bound::Excluded(to),
        ));
        Box::new(range.map(|(key, value)| Ok((key.clone(), value.clone()))))
    }
}

/// Records in memory. A clone is another handle to the same records, so that a node can be dropped
/// and started again on what it left.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    tables: Arc<Mutex<Tables>>,
    files: MemoryFiles,
}

impl MemoryStorage {
    /// Returns an empty storage.
    pub fn new() -> Self {
        Self::default()
    }

    fn tables(&self) -> Tables {
        self.tables
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Records for MemoryStorage {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.tables().get(table, key)
    }

    fn scan(&self, table: Table, from: &[u8], to: &[u8]) -> RecordIter<'_> {
        let records: Vec<_> = self.tables().scan(table, from, to).collect();
        Box::new(records.into_iter())
    }
}

impl Storage for MemoryStorage {
    fn log(
        &self,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> Result<Vec<(u64, Vec<u8>)>, StorageError> {
        let tables = self.tables();
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        for (index, record) in tables.log.range(from..to.max(from)) {
            bytes += record.len();
            if !found.is_empty() && bytes > bytes_max {
                break;
            }
            found.push((*index, record.clone()));
        }
        Ok(found)
    }

    fn last_log_index(&self) -> Result<Option<u64>, StorageError> {
        Ok(self.tables().log.keys().next_back().copied())
    }

    fn write(&self, batch: Batch) -> Result<(), StorageError> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        for operation in batch.into_operations() {
            tables.execute(operation);
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn view(&self) -> Box<dyn Records + '_> {
        Box::new(self.tables())
    }

    fn files(&self) -> &dyn Files {
        &self.files
    }
}
