//! The wait before a request is made again.

use std::time::Duration;

use rand::Rng as _;

/// A growing, jittered wait: from 10 ms, doubled each time, up to 1 s.
///
/// Jittered, so that those who failed together do not all come back at once.
#[derive(Debug)]
pub(super) struct Pause {
    next_ms: u64,
}

const FIRST_MS: u64 = 10;
const LONGEST_MS: u64 = 1_000;

impl Pause {
    pub(super) fn new() -> Self {
        Self { next_ms: FIRST_MS }
    }

    pub(super) async fn wait(&mut self) {
        let jittered_ms = rand::rng().random_range(self.next_ms / 2..=self.next_ms);
        self.next_ms = (self.next_ms * 2).min(LONGEST_MS);
        tokio::time::sleep(Duration::from_millis(jittered_ms)).await;
    }
}
