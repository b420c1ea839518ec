//! What every storage promises.

use tempfile::TempDir;

use super::*;

const STATE: Table = Table::State;

fn each(check: impl Fn(&dyn Storage)) {
    check(&MemoryStorage::new());
    #[cfg(feature = "rocksdb")]
    {
        let folder = TempDir::new().unwrap();
        let options = RocksOptions {
            write_buffer_bytes: 1 << 20,
            background_jobs: 1,
        };
        check(&RocksStorage::open(folder.path().join("data"), options).unwrap());
    }
}

fn write(storage: &dyn Storage, fill: impl FnOnce(&mut Batch)) {
    let mut batch = Batch::new();
    fill(&mut batch);
    storage.write(batch).unwrap();
}

fn keys(records: &dyn Records, from: &[u8], to: &[u8]) -> Vec<Vec<u8>> {
    records
        .scan(STATE, from, to)
        .map(|record| record.unwrap().0)
        .collect()
}

fn indices(storage: &dyn Storage, from: u64, to: u64, bytes_max: usize) -> Vec<u64> {
    storage
        .log(from, to, bytes_max)
        .unwrap()
        .into_iter()
        .map(|(index, _)| index)
        .collect()
}

#[test]
fn records_are_found_by_key_and_in_order() {
    each(|storage| {
        write(storage, |batch| {
            for key in ["b", "d", "a", "c"] {
                batch.put(STATE, key, key.to_uppercase());
            }
            batch.put(Table::Meta, "a", "other");
        });
        assert_eq!(storage.get(STATE, b"a").unwrap(), Some(b"A".to_vec()));
        assert_eq!(storage.get(STATE, b"e").unwrap(), None);
        assert_eq!(
            storage.get(Table::Meta, b"a").unwrap(),
            Some(b"other".to_vec())
        );
        assert_eq!(keys(storage, b"b", b"d"), [b"b", b"c"]);

        write(storage, |batch| {
            batch.delete_range(STATE, "b", "d");
            batch.put(STATE, "c", "again");
            batch.delete(STATE, "missing");
        });
        assert_eq!(keys(storage, b"", b"z"), [b"a", b"c", b"d"]);
        storage.sync().unwrap();
    });
}

#[test]
fn view_stays_as_it_was() {
    each(|storage| {
        write(storage, |batch| batch.put(STATE, "a", "old"));
        let view = storage.view();
        write(storage, |batch| {
            batch.put(STATE, "a", "new");
            batch.put(STATE, "b", "new");
        });
        assert_eq!(view.get(STATE, b"a").unwrap(), Some(b"old".to_vec()));
        assert_eq!(keys(view.as_ref(), b"", b"z"), [b"a"]);
        assert_eq!(keys(storage, b"", b"z"), [b"a", b"b"]);
    });
}

#[test]
fn log_is_read_in_order_and_by_size() {
    each(|storage| {
        assert_eq!(storage.last_log_index().unwrap(), None);
        assert!(indices(storage, 0, 10, usize::MAX).is_empty());
        write(storage, |batch| {
            (0..300).for_each(|index| batch.put_log(index, vec![0; 100]))
        });
        assert_eq!(storage.last_log_index().unwrap(), Some(299));
        assert_eq!(
            indices(storage, 254, 259, usize::MAX),
            [254, 255, 256, 257, 258]
        );
        assert_eq!(indices(storage, 10, 300, 250), [10, 11]);
        // At least one, however small the limit.
        assert_eq!(indices(storage, 10, 300, 1), [10]);
        assert!(indices(storage, 10, 10, usize::MAX).is_empty());
    });
}

#[test]
fn log_is_cut_at_both_ends() {
    each(|storage| {
        write(storage, |batch| {
            (0..10).for_each(|index| batch.put_log(index, vec![1]))
        });
        write(storage, |batch| batch.truncate_log(7));
        write(storage, |batch| batch.purge_log(3));
        assert_eq!(indices(storage, 0, 100, usize::MAX), [3, 4, 5, 6]);
        write(storage, |batch| {
            (7..9).for_each(|index| batch.put_log(index, vec![2]))
        });
        assert_eq!(storage.log(7, 8, usize::MAX).unwrap(), [(7, vec![2])]);
        assert_eq!(storage.last_log_index().unwrap(), Some(8));
        write(storage, |batch| batch.purge_log(9));
        assert_eq!(storage.last_log_index().unwrap(), None);
    });
}

#[test]
fn files_are_renamed_replaced_and_readable_after_removal() {
    each(|storage| {
        let files = storage.files();
        files.create("a").unwrap().write_all(b"one").unwrap();
        files.create("b").unwrap().write_all(b"two").unwrap();
        files.rename("a", "b").unwrap();
        assert_eq!(files.list().unwrap(), ["b"]);
        let mut open = files.open("b").unwrap();
        files.remove("b").unwrap();
        files.remove("b").unwrap();
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one");
        assert!(files.open("b").is_err());
    });
}
