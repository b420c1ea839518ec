//! Tells everybody who asked what was applied on this node, in order, none missing, none twice (P8).
//!
//! ```text
//!   consensus ── applied ──▶ Hub ──▶ history: the latest batches, bounded
//!                             │            ▲ read at their own pace
//!                             └── wakes ──▶ Subscription × n     (rpc, control)
//! ```
//!
//! Subscribers pull: the hub keeps one history for all of them and hands out shared batches, so a
//! slow subscriber costs nothing and holds up nobody. One that is slower than the history is long
//! is told so and starts again from the state; it is never silently skipped.
//!
//! # State, then events
//!
//! Read the state first and note its revision, then subscribe after [`Cursor::end_of`] that revision.
//! The state is changed before its events are published, so they may still be on their way when one
//! subscribes; those that the state contains already are left out by the cursor. Nothing is missed,
//! because what the state does not contain is published after it was read.
//!
//! # Invariants
//!
//! * Batches come in ascending order of their revisions, each whole.
//! * A subscription yields every batch after its cursor, or ends with [`Lagged`].
//! * Publishing waits for no subscriber.

mod batch;
mod hub;
mod journal;

pub use self::batch::Batch;
pub use self::batch::Cursor;
pub use self::batch::EncodedPart;
pub use self::hub::Hub;
pub use self::hub::Lagged;
pub use self::hub::Subscription;
pub use self::hub::TooOld;
