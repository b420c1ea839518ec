//! Counting the words of one shard's files, from checkpoint to checkpoint.

use std::fs;
use std::sync::Arc;

use tenure::{HeldShard, ShardHandler, WorkerError};
use tokio::sync::watch;

use super::input::{Input, InputFile};
use super::pace::released_bytes;
use crate::failure::Failure;
use crate::words::{Counts, WordRule, is_separator};
use crate::worker::{Report, Reports};

/// Where the counting of a shard stands: what a checkpoint holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The file that is being read, by its place among those of the shard.
    file: u64,
    /// The byte of it that comes next: the first one, or one after a separator.
    offset: u64,
    /// The bytes before this position, over all files.
    bytes: u64,
    /// The words before this position.
    counts: Counts,
}

impl Position {
    /// Returns how many bytes are counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the words that are counted.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the bytes of a checkpoint: position and counts, so that neither can be newer than the
    /// other.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(3 * size_of::<u64>() + Counts::ENCODED_BYTES);
        for number in [self.file, self.offset, self.bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.counts.encode(&mut bytes);
        bytes
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    ///
    /// When it has another length.
    pub fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        let (numbers, counts) = bytes
            .split_at_checked(3 * size_of::<u64>())
            .ok_or_else(|| Failure::new(format!("a checkpoint of {} bytes", bytes.len())))?;
        let (numbers, _) = numbers.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next().unwrap_or_default();
        let (file, offset, bytes) = (next(), next(), next());
        Ok(Self {
            file,
            offset,
            bytes,
            counts: Counts::decode(counts)?,
        })
    }

    /// Counts on until at least `target` bytes are counted, or all; never beyond the next separator.
    fn advance(
        mut self,
        files: &[InputFile],
        target: u64,
        rule: WordRule,
    ) -> Result<Self, Failure> {
        while self.bytes < target {
            let Some(file) = usize::try_from(self.file).ok().and_then(|at| files.get(at)) else {
                break;
            };
            let text = fs::read(&file.path)
                .map_err(|error| Failure::from(error).during(file.path.display()))?;
            if text.len() as u64 != file.bytes {
                let text = "changed while its words were counted";
                return Err(Failure::new(text).during(file.path.display()));
            }
            let begin = usize::try_from(self.offset)?;
            let rest = text.get(begin..).unwrap_or_default();
            let wanted = usize::try_from(target - self.bytes).unwrap_or(usize::MAX);
            let part = through_separator(rest, wanted);
            self.counts.add_text(part, rule);
            self.bytes += part.len() as u64;
            self.offset += part.len() as u64;
            if part.len() == rest.len() {
                self.file += 1;
                self.offset = 0;
            }
        }
        Ok(self)
    }
}

/// Returns the first `wanted` bytes and what follows up to and including the next separator.
fn through_separator(text: &[u8], wanted: usize) -> &[u8] {
    let rest = text.get(wanted..).unwrap_or_default();
    let more = rest
        .iter()
        .position(|&byte| is_separator(byte))
        .map_or(rest.len(), |at| at + 1);
    &text[..text.len() - rest.len() + more]
}

/// Counts the words of every shard it is given, as far as the input is released.
#[derive(Debug)]
pub struct Counting {
    /// The files of all shards.
    pub input: Arc<Input>,
    /// What a word is.
    pub rule: WordRule,
    /// How much is released, in hundredths of a per cent.
    pub released: watch::Receiver<u32>,
    /// Where it reports.
    pub reports: Reports,
}

impl Counting {
    /// Waits until more than `done` of `total` bytes are released, and returns how many are.
    async fn released_beyond(&self, total: u64, done: u64) -> u64 {
        let mut released = self.released.clone();
        loop {
            let bytes = released_bytes(total, *released.borrow_and_update());
            if bytes > done {
                return bytes;
            }
            if released.changed().await.is_err() {
                // Nothing more will come; the worker is about to stop.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl ShardHandler for Counting {
    async fn run(&self, shard: HeldShard) -> Result<(), WorkerError> {
        let (index, epoch) = (shard.id().index, shard.epoch().get());
        let files: Arc<[InputFile]> = self.input.of_shard(index).into();
        let total = files.iter().map(|file| file.bytes).sum();
        // Raises the fence to our epoch, then reads what it guards.
        let mut position = match shard.claim().await? {
            Some(checkpoint) => Position::decode(&checkpoint.data).map_err(worker_error)?,
            None => Position::default(),
        };
        self.reports.send(&Report::Claimed {
            shard: index,
            epoch,
            bytes: position.bytes,
        });
        // Ends when the shard is revoked. All that is counted is written by then.
        while let Some(target) = shard
            .until_revoked(self.released_beyond(total, position.bytes))
            .await?
        {
            let (files, rule) = (Arc::clone(&files), self.rule);
            let counting = move || position.advance(&files, target, rule);
            position = tokio::task::spawn_blocking(counting)
                .await?
                .map_err(worker_error)?;
            shard.write(position.encode()).await?;
            self.reports.send(&Report::Written {
                shard: index,
                epoch,
                bytes: position.bytes,
            });
        }
        Ok(())
    }
}

fn worker_error(failure: Failure) -> WorkerError {
    WorkerError::new(failure.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::words::PlainCount;

    fn file(folder: &Path, name: &str, text: &str) -> InputFile {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        InputFile {
            path,
            bytes: text.len() as u64,
            shard: 0,
        }
    }

    #[test]
    fn however_the_input_is_cut_each_word_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let texts = [
            "one two  three",
            " four\nfive",
            "six",
            "   ",
            "seven eight nine",
        ];
        let files: Vec<InputFile> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| file(folder.path(), &at.to_string(), text))
            .collect();
        let mut plain = PlainCount::new(WordRule::Printable);
        texts
            .iter()
            .for_each(|text| plain.add_file(text.as_bytes()));
        let plain = plain.into_counts();
        assert_eq!(plain.total(), 9);

        let total: u64 = files.iter().map(|file| file.bytes).sum();
        for step in 1..=total {
            let mut position = Position::default();
            while position.bytes() < total {
                let target = position.bytes() + step;
                position = position
                    .advance(&files, target, WordRule::Printable)
                    .unwrap();
                // As a new owner finds it.
                position = Position::decode(&position.encode()).unwrap();
            }
            assert_eq!(position.bytes(), total);
            assert_eq!(position.counts().differences(&plain), [], "steps of {step}");
        }
    }

    #[test]
    fn a_file_that_changed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let files = [file(folder.path(), "a", "some text")];
        fs::write(&files[0].path, "other").unwrap();
        let failure = Position::default()
            .advance(&files, 9, WordRule::Any)
            .unwrap_err();
        assert!(
            failure
                .to_string()
                .ends_with("changed while its words were counted")
        );
    }
}
