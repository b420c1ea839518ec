//! The line at the end.

use std::fmt;

use super::SHARDS;

/// What the demo did. Displayed as the line with which it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Words counted, each once.
    pub words: u64,
    /// Files they are in.
    pub files: usize,
    /// Grants of shards to workers.
    pub grants: u64,
    /// Writes of a worker that had lost its shard, refused by the store.
    pub stale_writes_refused: usize,
    /// How often another coordinator became the leader.
    pub leader_changes: u64,
    /// Longest time from the end of a killed worker to the next grant of one of its shards, in
    /// milliseconds.
    pub takeover_ms_max: u128,
    /// Time of the whole demo, in seconds.
    pub seconds: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "demo: OK words={} files={} shards={SHARDS} grants={} stale_writes_refused={} \
             leader_changes={} takeover_ms_max={} seconds={}",
            self.words,
            self.files,
            self.grants,
            self.stale_writes_refused,
            self.leader_changes,
            self.takeover_ms_max,
            self.seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_what_the_readme_says() {
        let summary = Summary {
            words: 1,
            files: 2,
            grants: 3,
            stale_writes_refused: 4,
            leader_changes: 5,
            takeover_ms_max: 6,
            seconds: 7,
        };
        assert_eq!(
            summary.to_string(),
            "demo: OK words=1 files=2 shards=64 grants=3 stale_writes_refused=4 leader_changes=5 \
             takeover_ms_max=6 seconds=7"
        );
    }
}
