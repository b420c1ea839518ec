//! Comparing what the workers counted with two counts that know nothing of them.

use std::fs;

use super::count::Position;
use super::input::Input;
use super::{GROUP, SHARDS, wc};
use crate::client::Client;
use crate::failure::Failure;
use crate::words::{Counts, PlainCount, WordRule};

/// Differing buckets that are named in a failure.
const DIFFERENCES_MAX: usize = 5;

/// Reads the checkpoints of all shards and adds up what they count.
///
/// # Errors
///
/// When one is missing, or does not cover all files of its shard.
pub(super) async fn counted(client: &Client, input: &Input) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    for (shard, bytes) in (0..SHARDS).zip(input.bytes_by_shard()) {
        let checkpoint = client.checkpoint(GROUP, shard).await?;
        // A shard without files is never written.
        let position = match checkpoint {
            Some(checkpoint) => Position::decode(&checkpoint.data)?,
            None => Position::default(),
        };
        if position.bytes() != bytes {
            let text = format!("shard {shard} covers {} of {bytes} bytes", position.bytes());
            return Err(Failure::new(text));
        }
        counts.add(position.counts());
    }
    Ok(counts)
}

/// Counts all files in one process and one thread.
///
/// # Errors
///
/// When a file cannot be read.
pub(super) fn plain(input: &Input, rule: WordRule) -> Result<Counts, Failure> {
    let mut plain = PlainCount::new(rule);
    for file in input.files() {
        let text = fs::read(&file.path)
            .map_err(|error| Failure::from(error).during(file.path.display()))?;
        plain.add_file(&text);
    }
    Ok(plain.into_counts())
}

/// Checks that the workers, the plain count and `wc` agree, and returns the number of words.
///
/// # Errors
///
/// Says what differs.
pub(super) fn require_equal(
    counted: &Counts,
    plain: &Counts,
    input: &Input,
) -> Result<u64, Failure> {
    let differences = counted.differences(plain);
    if !differences.is_empty() {
        let some: Vec<String> = differences
            .iter()
            .take(DIFFERENCES_MAX)
            .map(|(bucket, ours, theirs)| format!("bucket {bucket}: {ours}, not {theirs}"))
            .collect();
        return Err(Failure::new(format!(
            "the workers counted {} words, a plain count {}; {} buckets differ: {}",
            counted.total(),
            plain.total(),
            differences.len(),
            some.join("; ")
        )));
    }
    let theirs = wc::total(input)?;
    if plain.total() != theirs {
        let ours = plain.total();
        return Err(Failure::new(format!(
            "the plain count is {ours} words, `wc -w` says {theirs}"
        )));
    }
    Ok(theirs)
}
