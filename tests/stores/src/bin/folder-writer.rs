//! A process that writes to a store in a local folder until it is killed or fenced.
//!
//! `folder-writer <folder> <token>` seals with the token, prints `sealed`, and then writes sequence after
//! sequence. It prints each sequence once the store has acknowledged it, and `fenced` when it is over.

use std::process::ExitCode;

use cluster_tests::failure::Failure;
use tenure_fence::object_store::{Bucket, ObjectStore, ObjectStoreOptions};
use tenure_fence::{CheckpointError, CheckpointStore, FencingToken, Sequence, Write, WriteId};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(token)) = (arguments.next(), arguments.next()) else {
        return Err(Failure::new("folder-writer <folder> <token>"));
    };
    let token: FencingToken = token.parse()?;
    let bucket = Bucket::folder(folder);
    let store = ObjectStore::open(bucket, ObjectStoreOptions::default()).await?;
    store.seal(&token).await?;
    println!("sealed");
    let mut sequence = Sequence::FIRST;
    loop {
        let write = Write {
            sequence,
            write_id: WriteId::new(u128::from(sequence.get())),
            data: format!("{token} wrote {sequence}").into(),
        };
        match store.write(&token, write).await {
            Ok(()) => println!("{sequence}"),
            Err(CheckpointError::Fenced { .. }) => {
                println!("fenced");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let Some(next) = sequence.next() else {
            return Ok(());
        };
        sequence = next;
    }
}
