//! Values larger than memory should hold, and what is left of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use cluster_tests::failure::Failure;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use store_tests::azurite::Azurite;
use store_tests::fake_gcs::FakeGcs;
use store_tests::moto::Moto;
use store_tests::seaweedfs::Seaweedfs;
use tenure_fence::object_store::{Collected, LargeCheckpoint, ObjectStore, ObjectStoreOptions};
use tenure_fence::{
    CheckSuperseded, Checkpoint, CheckpointError, CheckpointStore, Deletion, FencingToken,
    Sequence, StoreError, WriteId,
};

use super::places::{Bucketed, Tenures, TestFolder, open, options};
use crate::case::write;

/// Length of a large value: several parts, and one that is not full.
const LARGE_BYTES: usize = 20 * 1024 * 1024 + 12_345;

/// Length of the pieces in which it comes: none that divides a part.
const PIECE_BYTES: usize = 333_333;

/// Makes the pieces of a large value: the same for the same seed.
fn pieces(seed: u64) -> impl Stream<Item = Result<Bytes, StoreError>> + Send {
    let start = (StdRng::seed_from_u64(seed), LARGE_BYTES);
    stream::unfold(start, |(mut random, left)| async move {
        if left == 0 {
            return None;
        }
        let mut piece = BytesMut::zeroed(left.min(PIECE_BYTES));
        random.fill_bytes(&mut piece);
        let left = left - piece.len();
        Some((Ok(piece.freeze()), (random, left)))
    })
}

async fn whole(value: impl Stream<Item = Result<Bytes, StoreError>>) -> Result<Bytes, StoreError> {
    let whole = value.try_fold(BytesMut::new(), |mut whole, piece| async move {
        whole.extend_from_slice(&piece);
        Ok(whole)
    });
    Ok(whole.await?.freeze())
}

async fn read_whole(found: Option<LargeCheckpoint>) -> Result<Bytes, Failure> {
    let found = found.ok_or_else(|| Failure::new("there is no checkpoint"))?;
    let length = found.length_bytes;
    let whole = whole(found.data.map_err(StoreError::from)).await;
    let whole = whole.map_err(|error| Failure::new(error.to_string()))?;
    assert_eq!(whole.len() as u64, length);
    Ok(whole)
}

fn sequence(number: u64) -> Sequence {
    Sequence::new(number).unwrap()
}

fn large_options() -> ObjectStoreOptions {
    ObjectStoreOptions {
        part_bytes: 1024 * 1024,
        ..options()
    }
}

/// A large value is written, found by the next owner, replaced and deleted.
async fn takes_large_values(place: &dyn Bucketed) -> Result<(), Failure> {
    let store = ObjectStore::open(place.bucket()?, large_options()).await?;
    let mut tenures = Tenures::new();
    let (first, large) = (tenures.next(), whole(pieces(1)).await);
    let large = large.map_err(|error| Failure::new(error.to_string()))?;
    store.seal(&first).await?;
    let id = WriteId::new(7);
    store
        .write_large(&first, sequence(1), id, pieces(1))
        .await?;
    // A retry uploads nothing: the value is not even asked for.
    let never = stream::iter([Err(StoreError::from("it was asked for"))]);
    store.write_large(&first, sequence(1), id, never).await?;
    let found = store.read_large(tenures.resource()).await?;
    assert_eq!(read_whole(found).await?, large);

    // Larger than may be held in memory: told so, but with the fence up.
    let second = tenures.next();
    let sealed = store.seal(&second).await;
    assert!(
        matches!(
            sealed,
            Err(CheckpointError::TooLarge {
                length_bytes: LARGE_BYTES,
                ..
            })
        ),
        "{sealed:?}"
    );
    let late = store
        .write_large(&first, sequence(2), WriteId::new(8), pieces(2))
        .await;
    assert!(matches!(late, Err(CheckpointError::Fenced { .. })));
    let found = store.seal_large(&second).await?;
    assert_eq!(found.as_ref().map(|found| found.write_id), Some(id));
    assert_eq!(read_whole(found).await?, large);

    let small = write(1, "small again");
    store.write(&second, small.clone()).await?;
    let found = store.seal_large(&second).await?;
    assert_eq!(read_whole(found).await?, small.data);
    let deletion = Deletion {
        sequence: sequence(2),
        write_id: WriteId::new(9),
    };
    store.delete(&second, deletion).await?;
    assert!(store.read_large(tenures.resource()).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn seaweedfs_takes_large_values() -> Result<(), Failure> {
    takes_large_values(&Seaweedfs::start().await?).await
}

#[tokio::test]
async fn moto_takes_large_values() -> Result<(), Failure> {
    takes_large_values(&Moto::start().await?).await
}

#[tokio::test]
async fn azurite_takes_large_values() -> Result<(), Failure> {
    takes_large_values(&Azurite::start().await?).await
}

#[tokio::test]
async fn fake_gcs_takes_large_values() -> Result<(), Failure> {
    takes_large_values(&FakeGcs::start().await?).await
}

#[tokio::test]
async fn a_local_folder_takes_large_values() -> Result<(), Failure> {
    takes_large_values(&TestFolder::new()?).await
}

/// Says of the tenures it is given that they are over, and keeps what it was asked.
struct Over {
    tokens: BTreeSet<String>,
    asked: Mutex<Vec<String>>,
}

impl Over {
    fn new<'a>(tokens: impl IntoIterator<Item = &'a FencingToken>) -> Self {
        Self {
            tokens: tokens.into_iter().map(FencingToken::to_string).collect(),
            asked: Mutex::default(),
        }
    }
}

#[async_trait]
impl CheckSuperseded for Over {
    async fn is_superseded(&self, token: &FencingToken) -> Result<bool, StoreError> {
        self.asked.lock().unwrap().push(token.to_string());
        Ok(self.tokens.contains(&token.to_string()))
    }
}

/// What an owner uploads while it is being replaced is garbage: it harms nothing, and the collector
/// deletes it once the coordinator confirms that the tenure is over. What a manifest refers to stays.
async fn a_losers_upload_is_garbage(place: &dyn Bucketed) -> Result<(), Failure> {
    let store = ObjectStore::open(place.bucket()?, large_options()).await?;
    let other = ObjectStore::open(place.bucket()?, large_options()).await?;
    let mut tenures = Tenures::new();
    let old = tenures.next();
    let new = tenures.next();
    store.seal(&old).await?;
    store
        .write_large(&old, sequence(1), WriteId::new(1), pieces(1))
        .await?;

    // In the middle of the next value the shard is handed over, and the new owner seals.
    let (middle, sealed) = (10, Mutex::new(None));
    let value = pieces(2).enumerate().then(|(number, piece)| {
        let (other, new, sealed) = (&other, &new, &sealed);
        async move {
            if number == middle {
                let found = other.seal_large(new).await.map_err(StoreError::from)?;
                *sealed.lock().unwrap() = found;
            }
            piece
        }
    });
    let late = Box::pin(store.write_large(&old, sequence(2), WriteId::new(2), value)).await;
    assert!(
        matches!(late, Err(CheckpointError::Fenced { .. })),
        "{late:?}"
    );
    let found = sealed.into_inner()?;
    let first = whole(pieces(1)).await;
    let first = first.map_err(|error| Failure::new(error.to_string()))?;
    assert_eq!(read_whole(found).await?, first);

    // Another handle collects: this one would delete by itself what it knows to be garbage.
    let parts = LARGE_BYTES.div_ceil(1024 * 1024) as u64;
    let kept = Collected {
        referred: parts,
        unconfirmed: parts,
        ..Collected::default()
    };
    let nobody = Over::new([]);
    assert_eq!(other.collect_garbage(&nobody).await?, kept);
    // Asked once for each tenure, however many its objects.
    assert_eq!(*nobody.asked.lock()?, [old.to_string()]);

    let deleted = Collected {
        referred: parts,
        deleted: parts,
        ..Collected::default()
    };
    assert_eq!(other.collect_garbage(&Over::new([&old])).await?, deleted);
    let found = other.read_large(tenures.resource()).await?;
    assert_eq!(read_whole(found).await?, first);
    assert_eq!(
        other.fence(tenures.resource()).await?.map(|f| f.epoch),
        Some(new.epoch)
    );
    Ok(())
}

#[tokio::test]
async fn seaweedfs_holds_a_losers_upload_for_garbage() -> Result<(), Failure> {
    a_losers_upload_is_garbage(&Seaweedfs::start().await?).await
}

#[tokio::test]
async fn azurite_holds_a_losers_upload_for_garbage() -> Result<(), Failure> {
    a_losers_upload_is_garbage(&Azurite::start().await?).await
}

#[tokio::test]
async fn fake_gcs_holds_a_losers_upload_for_garbage() -> Result<(), Failure> {
    a_losers_upload_is_garbage(&FakeGcs::start().await?).await
}

#[tokio::test]
async fn a_local_folder_holds_a_losers_upload_for_garbage() -> Result<(), Failure> {
    a_losers_upload_is_garbage(&TestFolder::new()?).await
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[tokio::test]
async fn a_tenure_deletes_what_it_replaces_and_the_fence_stays() -> Result<(), Failure> {
    let place = TestFolder::new()?;
    let store = open(&place).await?;
    let mut tenures = Tenures::new();
    let token = tenures.next();
    store.seal(&token).await?;
    let data = place.path().join("tenure/data");
    for number in 1..=5 {
        let value = vec![7; 250_000];
        store.write(&token, write(number, value)).await?;
    }
    // Not all of it: what was replaced is deleted beside the writes, and keeps none of them waiting.
    let parts = 3;
    assert!(files(&data).len() < 5 * parts, "{:?}", files(&data));
    let deletion = Deletion {
        sequence: sequence(6),
        write_id: WriteId::new(6),
    };
    store.delete(&token, deletion).await?;
    assert_eq!(files(&data), Vec::<PathBuf>::new());
    assert_eq!(store.read(tenures.resource()).await?, None);
    let used = store.write(&token, write(5, "below the deletion")).await;
    assert!(matches!(used, Err(CheckpointError::SequenceReused { .. })));
    Ok(())
}

#[tokio::test]
async fn the_collector_leaves_alone_what_is_not_its_own() -> Result<(), Failure> {
    let place = TestFolder::new()?;
    let store = open(&place).await?;
    let mut tenures = Tenures::new();
    let token = tenures.next();
    store.seal(&token).await?;
    let data = place
        .path()
        .join(format!("tenure/data/{}", tenures.resource()));
    std::fs::create_dir_all(&data)?;
    std::fs::write(data.join("notes.txt"), "mine")?;
    // Its manifest is not there, so nothing can be said about it.
    let orphan = place.path().join("tenure/data/shard/orphan/1");
    std::fs::create_dir_all(&orphan)?;
    std::fs::write(orphan.join("anything.00000000"), "whose?")?;
    let expected = Collected {
        foreign: 2,
        ..Collected::default()
    };
    assert_eq!(store.collect_garbage(&Over::new([&token])).await?, expected);
    assert_eq!(files(&place.path().join("tenure/data")).len(), 2);
    Ok(())
}

#[tokio::test]
async fn damage_is_reported_and_never_returned() -> Result<(), Failure> {
    let place = TestFolder::new()?;
    let store = open(&place).await?;
    let mut tenures = Tenures::new();
    let token = tenures.next();
    store.seal(&token).await?;
    let written = write(1, vec![7; 250_000]);
    store.write(&token, written.clone()).await?;
    let parts = files(&place.path().join("tenure/data"));
    let corrupt = async |what: &str| {
        let answers = [
            store.read(tenures.resource()).await.map(drop),
            store.seal(&token).await.map(drop),
        ];
        for answer in answers {
            assert!(
                matches!(answer, Err(CheckpointError::Corrupt { .. })),
                "{what}: {answer:?}"
            );
        }
    };
    let last = parts.last().ok_or_else(|| Failure::new("no parts"))?;
    let right = std::fs::read(last)?;
    let mut wrong = right.clone();
    wrong[1] ^= 1;
    std::fs::write(last, &wrong)?;
    corrupt("a byte of a part changed").await;
    std::fs::write(last, &right[1..])?;
    corrupt("a part cut off").await;
    std::fs::remove_file(last)?;
    corrupt("a part missing").await;
    std::fs::write(last, &right)?;
    let found = store.read(tenures.resource()).await?;
    assert_eq!(found, Some(Checkpoint::of(&token, written)));

    let manifest = place
        .path()
        .join(format!("tenure/manifest/{}", tenures.resource()));
    let mut wrong = std::fs::read(&manifest)?;
    wrong[40] ^= 1;
    std::fs::write(&manifest, wrong)?;
    corrupt("a byte of the manifest changed").await;
    Ok(())
}
