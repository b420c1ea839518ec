//! The worker SDK of Tenure: hold shards, write fenced checkpoints, route keys to owners.
//!
//! A stream processor implements [`ShardHandler`] and runs a [`Worker`]. The coordinators decide which
//! worker holds which shard; the handler is given a [`HeldShard`] for each tenure, and writes through
//! it. A worker that was paused, cut off or replaced may go on believing, but its writes no longer
//! land: the store refuses them, and the handle is dead.
//!
//! ```text
//!   your program                        this crate                        elsewhere
//!   ┌──────────────┐  run(HeldShard)  ┌───────────────────────┐  stream  ┌──────────────┐
//!   │ ShardHandler │◀─────────────────│ Worker: session,      │◀────────▶│ coordinators │
//!   │              │  claim, write    │ belief, tenures       │          │              │
//!   │              │─────────────────▶│ HeldShard: token,     │  fenced  ├──────────────┤
//!   └──────────────┘                  │ sequence, checks      │─────────▶│ stores       │
//!   ┌──────────────┐  route(key)      ├───────────────────────┤  watch   └──────────────┘
//!   │ your clients │─────────────────▶│ Router                │◀──────── any coordinator
//!   └──────────────┘                  └───────────────────────┘
//! ```
//!
//! # Where to look
//!
//! * [`Worker`], [`WorkerBuilder`], [`ShardHandler`], [`HeldShard`]: to process shards.
//! * [`ReplicatedStore`]: checkpoints kept by the coordinators, the default; any other
//!   [`CheckpointStore`] can be attached beside or instead of it.
//! * [`Router`]: to find the owner of a key; [`Dispatcher`]: to send it requests, which wait while its shard is handed
//!   over.
//! * [`TokenChecker`]: to ask whether a token is current, where that cannot be checked by a store.
//! * [`connection`]: calls to the coordinators that follow the leader.
//!
//! # Invariants
//!
//! 1. Only this crate makes a [`HeldShard`], one for each tenure; nothing is written without one.
//! 2. A handle that is lost, or refused by a store as fenced, fails every call at once, for ever.
//! 3. [`HeldShard::is_current`] is false before anybody else can have been granted the shard, as long
//!    as clock rates differ by less than 5 %.
//! 4. A sequence is used for one content only, also after an unknown outcome.

mod backoff;
mod builder;
mod clock;
pub mod connection;
mod convert;
mod error;
mod handler;
mod held_shard;
mod load;
mod replicated;
mod router;
mod session;
mod signal;
mod status;
mod stores;
mod token_checker;
mod worker;

pub use builder::WorkerBuilder;
pub use clock::{BootClock, Clock, ManualClock, Moment};
pub use error::{BuildError, LostReason, RunError, ShardError, WorkerError};
pub use handler::ShardHandler;
pub use held_shard::{HandleState, HeldShard};
pub use replicated::ReplicatedStore;
pub use router::{
    AttemptError, DispatchError, Dispatcher, Hint, HoldOptions, NotOwner, ParseNotOwnerError,
    Route, Router, RouterError,
};
pub use signal::terminated;
pub use status::{Counters, LinkState, Observer, RefusedWrite, ShardStatus, WorkerStatus};
pub use tenure_fence::{
    CheckSuperseded, Checkpoint, CheckpointError, CheckpointStore, Deletion, Epoch, FencingToken,
    GroupName, MemoryStore, Owner, Resource, Sequence, ShardRef, Write, WriteId,
};
pub use token_checker::TokenChecker;
pub use worker::{Worker, WorkerHandle};
