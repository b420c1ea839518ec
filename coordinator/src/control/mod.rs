//! What only the leader does: keeps sessions, ends them, plans, and hands shards over.
//!
//! ```text
//!   worker streams ──▶ inbox ─┐                          ┌──▶ messages to workers
//!   committed events (watch) ─┼──▶ Core: decides, pure ──┼──▶ proposals ──▶ decisions ─┐
//!   rounds, decisions, plans ─┤                          ├──▶ rounds    ──▶ ends ──────┤
//!   the clock ────────────────┘                          └──▶ plans     ──▶ moves ─────┤
//!            ▲─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! One task owns all of it, one `Core` a leadership: what was measured or decided in one
//! leadership never reaches into the next. Nothing here changes the state: it proposes.
//!
//! Not here: the rules of ownership (crate `tenure-ownership`) and the wire (`rpc`).
//!
//! # Invariants
//!
//! * A heartbeat is acknowledged only after a round with a quorum that began after its arrival.
//! * Nothing that ends a tenure is proposed before its owner's belief is over, and until its outcome
//!   is known the session is neither acknowledged nor resumed.
//! * Nothing compares this machine's clock with another's.

mod asks;
mod churn;
mod core;
mod crashes;
mod handoffs;
mod homes;
mod leader;
mod leases;
mod loads;
pub mod message;
mod pauses;
mod planning;
mod registrations;
mod rounds;
mod streams;
mod timers;

pub use asks::PlanAsk;
pub use asks::PlanError;
pub use leader::Control;
pub use leader::Downs;
pub use leader::Stopped;
pub use leader::Told;
