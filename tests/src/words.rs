//! Words, as `wc -w` counts them in the C locale, and exact counts of them in hash buckets.

use tenure_proto::keys::hash_of_key;

use crate::failure::Failure;

/// Number of buckets. With eight bytes each they make a checkpoint of about 32 KiB.
pub const BUCKETS: usize = 4_096;

/// Which bytes make a word. What separates words is the same everywhere: space, and tab to carriage
/// return.
///
/// Versions of `wc` differ in bytes that are neither printable nor separators, such as those of UTF-8
/// letters: whether `—` alone is a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordRule {
    /// What stands between separators is a word if it has a printable ASCII byte (coreutils up to 9.4,
    /// Debian 12).
    Printable,
    /// Whatever stands between separators is a word (coreutils from 9.5).
    Any,
}

impl WordRule {
    /// Returns whether a byte makes what stands between separators a word.
    #[must_use]
    pub fn makes_word(self, byte: u8) -> bool {
        match self {
            Self::Printable => byte.is_ascii_graphic(),
            Self::Any => !is_separator(byte),
        }
    }

    /// Returns the name by which a worker process is told the rule.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Printable => "printable",
            Self::Any => "any",
        }
    }

    /// Reads the name of a rule.
    ///
    /// # Errors
    ///
    /// When there is no such rule.
    pub fn from_name(name: &str) -> Result<Self, Failure> {
        [Self::Printable, Self::Any]
            .into_iter()
            .find(|rule| rule.name() == name)
            .ok_or_else(|| Failure::new(format!("{name:?} is no rule for words")))
    }
}

/// Returns whether a byte separates words.
#[must_use]
pub fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns the bucket of a word.
#[must_use]
pub fn bucket_of(word: &[u8]) -> usize {
    // The remainder is below the number of buckets.
    usize::try_from(hash_of_key(word) % BUCKETS as u64).unwrap_or(0)
}

/// How many words fell into each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    buckets: Box<[u64]>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS].into_boxed_slice(),
        }
    }
}

impl Counts {
    /// Bytes of the counts as they are encoded.
    pub const ENCODED_BYTES: usize = BUCKETS * size_of::<u64>();

    /// Adds one word.
    pub fn add_word(&mut self, word: &[u8]) {
        self.buckets[bucket_of(word)] += 1;
    }

    /// Adds the words of a text that begins and ends between words.
    pub fn add_text(&mut self, text: &[u8], rule: WordRule) {
        for run in text.split(|&byte| is_separator(byte)) {
            if run.iter().any(|&byte| rule.makes_word(byte)) {
                self.add_word(run);
            }
        }
    }

    /// Adds all of other counts.
    pub fn add(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
    }

    /// Returns the number of words.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the buckets in which two counts differ, with both numbers.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<(usize, u64, u64)> {
        let both = self.buckets.iter().zip(&other.buckets).enumerate();
        both.filter(|(_, (ours, theirs))| ours != theirs)
            .map(|(bucket, (&ours, &theirs))| (bucket, ours, theirs))
            .collect()
    }

    /// Appends the counts: each bucket as eight bytes, the lowest first.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        for bucket in &self.buckets {
            bytes.extend_from_slice(&bucket.to_le_bytes());
        }
    }

    /// Reads counts as they were encoded.
    ///
    /// # Errors
    ///
    /// When the length is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        if bytes.len() != Self::ENCODED_BYTES {
            let text = format!(
                "counts of {} bytes, not {}",
                bytes.len(),
                Self::ENCODED_BYTES
            );
            return Err(Failure::new(text));
        }
        let (numbers, _) = bytes.as_chunks::<8>();
        Ok(Self {
            buckets: numbers
                .iter()
                .map(|number| u64::from_le_bytes(*number))
                .collect(),
        })
    }
}

/// Counts the words of texts byte by byte, as `wc` does: nothing of how workers count is used but the
/// bucket of a word.
#[derive(Debug)]
pub struct PlainCount {
    rule: WordRule,
    counts: Counts,
    run: Vec<u8>,
    in_word: bool,
}

impl PlainCount {
    /// Creates a count of nothing.
    #[must_use]
    pub fn new(rule: WordRule) -> Self {
        Self {
            rule,
            counts: Counts::default(),
            run: Vec::new(),
            in_word: false,
        }
    }

    /// Adds a whole file.
    pub fn add_file(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if is_separator(byte) {
                self.end_run();
            } else {
                self.run.push(byte);
                self.in_word |= self.rule.makes_word(byte);
            }
        }
        self.end_run();
    }

    /// Returns the counts.
    #[must_use]
    pub fn into_counts(self) -> Counts {
        self.counts
    }

    fn end_run(&mut self) {
        if self.in_word {
            self.counts.add_word(&self.run);
        }
        self.run.clear();
        self.in_word = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_they_are_written_as() {
        let mut counts = Counts::default();
        counts.add_text(b" the quick\tbrown\nfox the", WordRule::Printable);
        assert_eq!(counts.total(), 5);
        let mut bytes = Vec::new();
        counts.encode(&mut bytes);
        assert_eq!(bytes.len(), 32 * 1024);
        assert_eq!(Counts::decode(&bytes).unwrap(), counts);
        assert!(Counts::decode(&bytes[1..]).is_err());
    }

    #[test]
    fn both_ways_to_count_agree_on_every_pair_of_bytes() {
        for rule in [WordRule::Printable, WordRule::Any] {
            let mut text = Vec::new();
            for left in 0..=u8::MAX {
                for right in 0..=u8::MAX {
                    text.extend([left, right, b' ', left, b'a', right, right]);
                }
            }
            let mut plain = PlainCount::new(rule);
            plain.add_file(&text);
            let mut counts = Counts::default();
            counts.add_text(&text, rule);
            assert_eq!(counts.differences(&plain.into_counts()), []);
        }
    }

    #[test]
    fn counts_that_differ_say_where() {
        let (mut left, mut right) = (Counts::default(), Counts::default());
        left.add_word(b"a");
        right.add_word(b"a");
        assert_eq!(left.differences(&right), []);
        right.add_word(b"b");
        assert_eq!(left.differences(&right), [(bucket_of(b"b"), 0, 1)]);
    }
}
