//! The conformance kit: what every store adapter must pass.
//!
//! An adapter supplies a [`Harness`]: the store, and the *source of tokens*. The kit never makes an
//! epoch up: it asks the source for the next tenure of a resource, so that a store which knows of
//! grants (the replicated one) is checked with real ones. A store that knows no coordinator takes
//! its tokens from [`LocalGrants`].
//!
//! Each case is a function named after what is right. A store that breaks the contract makes the kit
//! panic with the case, the rule, where the rule comes from, what was seen, and the seed.
//!
//! The kit holds a store to what the contract promises and to no more. In particular a store may
//! refuse an old owner from the moment of the next *grant*, before anyone has sealed: an old owner's
//! write that comes after it may fail, but if it is acknowledged, the next seal returns it.
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use tenure_fence::kit::{self, Harness, Holder, LocalGrants, Options};
//! use tenure_fence::{CheckpointStore, FencingToken, MemoryStore, Resource};
//!
//! struct InMemory {
//!     store: Arc<MemoryStore>,
//!     grants: LocalGrants,
//! }
//!
//! #[async_trait]
//! impl Harness for InMemory {
//!     fn store(&self) -> Arc<dyn CheckpointStore> {
//!         self.store.clone()
//!     }
//!
//!     async fn fresh_resource(&mut self) -> Resource {
//!         self.grants.fresh_resource()
//!     }
//!
//!     async fn next_tenure(&mut self, resource: &Resource, holder: Holder) -> FencingToken {
//!         self.grants.next_tenure(resource, holder)
//!     }
//!
//!     async fn conflicting(&mut self, token: &FencingToken) -> Option<FencingToken> {
//!         Some(self.grants.conflicting(token))
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let mut harness = InMemory { store: Arc::default(), grants: LocalGrants::new() };
//! let report = kit::run(&mut harness, Options::default()).await;
//! assert_eq!(report.race.rounds, 1_000);
//! # }
//! ```

mod concurrency;
mod deletion;
mod disturbed;
mod durability;
mod fencing;
mod grants;
mod harness;
mod history;
mod linearity;
mod random;
mod rule;
mod sealing;
mod sequences;
mod stage;
mod values;

pub use concurrency::RaceCount;
pub use disturbed::{Disturbances, DisturbedStore};
pub use grants::LocalGrants;
pub use harness::{Harness, Holder};

use stage::Stage;

/// How many resources one run asks a harness for, at most.
pub const RESOURCES_MAX: usize = 256;

/// How a run of the kit is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the random choices come from. `None` takes the environment's `TENURE_KIT_SEED`, and
    /// without that a new one for each run. The seed is printed either way.
    ///
    /// The same seed makes the same choices; the store and the scheduler add their own, so only a
    /// store in memory on a runtime of one thread repeats a run exactly.
    pub seed: Option<u64>,
    /// How often old and new owner race for a resource. Scenario 3 wants 1,000, the default.
    pub race_rounds: u32,
    /// The largest value written, in bytes. A store that takes more is not checked above it.
    pub value_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: None,
            race_rounds: 1_000,
            value_bytes_max: 4 * 1024 * 1024,
        }
    }
}

/// What a run that passed has done.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed of the random choices.
    pub seed: u64,
    /// The names of the cases, in order.
    pub cases: Vec<&'static str>,
    /// The cases that were left out, because the source cannot make the tokens they need.
    pub left_out: Vec<&'static str>,
    /// How the race of scenario 3 went.
    pub race: RaceCount,
}

/// Runs every case against the harness's store.
///
/// Must be called within a tokio runtime. Run it on one thread as well as on several: the first
/// repeats a seed best, the second finds what only true parallelism shows.
///
/// # Panics
///
/// When the store breaks the contract, with the rule that was broken; when the harness does not keep
/// its own promises; when the store cannot be reached, for then nothing can be said about it.
pub async fn run(harness: &mut dyn Harness, options: Options) -> Report {
    let seed = random::seed(options.seed);
    println!("tenure-fence kit: seed {seed}");

    let mut stage = Stage::new(harness, seed, options.value_bytes_max);
    sealing::the_store_passes_its_own_probe(&mut stage).await;
    fencing::cases(&mut stage).await;
    sequences::cases(&mut stage).await;
    sealing::cases(&mut stage).await;
    deletion::cases(&mut stage).await;
    values::cases(&mut stage).await;
    durability::cases(&mut stage).await;
    let race = concurrency::cases(&mut stage, options.race_rounds).await;
    linearity::cases(&mut stage).await;

    let (cases, left_out) = stage.into_cases();
    Report {
        seed,
        cases,
        left_out,
        race,
    }
}
