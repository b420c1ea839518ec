//! Counts the words of every file in a folder, each exactly once, with as many workers as you start.
//!
//! ```sh
//! tenure dev                                  # in one terminal: a coordinator on 127.0.0.1:7400
//! tenure group create words --shards 16       # in another one
//! cargo run --example word_count -- worker-1 FOLDER
//! cargo run --example word_count -- worker-2 FOLDER    # in a third one
//! ```
//!
//! Kill a worker with `kill -9`, or stop it with `kill -STOP` and wake it a minute later: the counts stay
//! right. A checkpoint holds the position in the input *and* the count up to there, so what was counted
//! after the last accepted checkpoint is counted again by the next owner, from that position; and a
//! worker that has lost its shard cannot write over what the next owner has written.

use std::env;
use std::error::Error;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use tenure::connection::{Connection, ConnectionOptions, Repeat};
use tenure::{HeldShard, ShardHandler, Worker, WorkerError};
use tenure_proto::keys::shard_of_key;
use tenure_proto::v1::GetGroupRequest;
use tenure_proto::v1::admin_service_client::AdminServiceClient;

const COORDINATOR: &str = "127.0.0.1:7400";
const GROUP: &str = "words";

/// How far the counting of one shard has come: what a checkpoint holds.
#[derive(Clone, Copy, Default)]
struct Counted {
    files: usize,
    words: usize,
}

impl Counted {
    fn encode(self) -> String {
        format!("{} {}", self.files, self.words)
    }

    fn decode(checkpoint: &[u8]) -> Result<Self, WorkerError> {
        let text = std::str::from_utf8(checkpoint)?;
        let (files, words) = text
            .split_once(' ')
            .ok_or_else(|| WorkerError::new("no space"))?;
        Ok(Self {
            files: files.parse()?,
            words: words.parse()?,
        })
    }
}

struct WordCount {
    folder: PathBuf,
    shard_count: NonZeroU32,
}

impl ShardHandler for WordCount {
    async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
        // Seal first, read second: what this returns is the last write of every earlier owner, and none
        // of them can write any more.
        let mut counted = match shard.claim().await? {
            Some(checkpoint) => Counted::decode(&checkpoint.data)?,
            None => Counted::default(),
        };
        let files = self.files_of(shard.id().index)?;
        for file in files.iter().skip(counted.files) {
            // `None` when the shard is to be given back. All that is counted is written by then.
            let Some(text) = shard.until_revoked(tokio::fs::read(file)).await? else {
                return Ok(());
            };
            counted.words += text?
                .split(u8::is_ascii_whitespace)
                .filter(|w| !w.is_empty())
                .count();
            counted.files += 1;
            // Write third. The token of this tenure is attached; if another has begun, this fails, and
            // so does every later call: `?` ends the handler, and the next owner goes on.
            shard.write(counted.encode()).await?;
        }
        println!(
            "{}: {} words in {} files",
            shard.id(),
            counted.words,
            counted.files
        );
        // Returning would give the shard back, and it would be granted again.
        shard.revoked().await;
        Ok(())
    }
}

impl WordCount {
    /// Returns the files of a shard, in an order that is the same for every owner.
    fn files_of(&self, index: u32) -> Result<Vec<PathBuf>, WorkerError> {
        let mut files = Vec::new();
        collect(&self.folder, &mut files)?;
        files.retain(|file| {
            let key = file.as_os_str().as_encoded_bytes();
            shard_of_key(key, self.shard_count) == index
        });
        files.sort();
        Ok(files)
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [name, folder] = arguments.as_slice() else {
        return Err("usage: word_count NAME FOLDER".into());
    };
    let worker = Worker::builder()
        .coordinators([COORDINATOR])
        .group(GROUP)
        .name(name)
        .handler(WordCount {
            folder: folder.into(),
            shard_count: shard_count().await?,
        })
        .build()?;
    println!("{name} counts until Ctrl-C");
    // Hands every shard over in good order, so that others need not wait for a lease to end.
    Ok(worker.run(tenure::terminated()?).await?)
}

/// Asks the coordinators how many shards the group has.
async fn shard_count() -> Result<NonZeroU32, Box<dyn Error>> {
    let connection = Connection::new(ConnectionOptions::new([COORDINATOR]))?;
    let answer = connection
        .leader(Repeat::Always, |service| async {
            let request = GetGroupRequest { name: GROUP.into() };
            AdminServiceClient::new(service).get_group(request).await
        })
        .await?;
    let count = answer.group.map_or(0, |group| group.shard_count);
    NonZeroU32::new(count).ok_or_else(|| "a group without shards".into())
}
