//! What is asked for.

use std::time::Duration;

use clap::Parser;

use crate::counting::Count;
use crate::stores::Store;
use crate::subject::Subject;

/// How long a block lasts when nothing was said.
const BLOCK: Duration = Duration::from_millis(250);

/// Rounds of a run that only shows that everything works.
const QUICK_ROUNDS: usize = 2;
const QUICK_BLOCK: Duration = Duration::from_millis(20);

/// Compares fenced with unfenced writes, side by side.
#[derive(Debug, Parser)]
#[command(name = "fence")]
pub(crate) struct Arguments {
    /// A short run, which shows that everything works. Its figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// How many pairs of blocks are counted for each line.
    #[arg(long, default_value_t = 40)]
    pairs: usize,
    /// How long a block takes, in milliseconds; 250 for a store, 1000 for a cluster.
    #[arg(long)]
    block_ms: Option<u64>,
    /// How many write at the same time: a line for each number. The clusters always have 64.
    #[arg(long, value_delimiter = ',', default_value = "1,64")]
    pub(crate) writers: Vec<usize>,
    /// Only these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Subject>,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
    /// Writes to memory and does nothing else, to be counted.
    #[arg(long, hide = true)]
    pub(crate) count: Option<Count>,
}

impl Arguments {
    pub(crate) fn wants(&self, subject: Subject) -> bool {
        self.only.is_empty() || self.only.contains(&subject)
    }

    pub(crate) fn stores(&self) -> Vec<Store> {
        Store::ALL
            .into_iter()
            .filter(|store| self.wants(store.subject()))
            .collect()
    }

    pub(crate) fn rounds(&self) -> usize {
        if self.quick { QUICK_ROUNDS } else { self.pairs }
    }

    pub(crate) fn block(&self) -> Duration {
        self.block_or(BLOCK)
    }

    /// Returns how long a block is to take; `usual` unless something else was said.
    pub(crate) fn block_or(&self, usual: Duration) -> Duration {
        match self.block_ms {
            Some(block_ms) => Duration::from_millis(block_ms),
            None if self.quick => QUICK_BLOCK,
            None => usual,
        }
    }
}
