//! The Tenure coordinator: decides which one worker may write to each shard.
//!
//! ```text
//!  worker SDK   operator CLI   dashboard/router           leader only
//!      |  ^          |  ^            ^              +--------------------+
//!      v  | events   v  |            | watch        | control/           |  wakes on events and timers
//!    +-----------------------------------+          |   leases, planner  |--- ownership::plan   (pure)
//!    | rpc/   http/                      |          +---------+----------+
//!    +-----------------------------------+                    |
//!             | Command                                       | Command
//!             v                                               v
//!    +----------------------------------------------------------------+
//!    | consensus/     propose -> replicate -> commit                   |
//!    |                ownership::apply (pure)  ->  Vec<Event>          |
//!    +----------------------------------------------------------------+
//!             | touched records, gathered          | events, after commit
//!             v                                    v
//!         +----------+                        +---------+
//!         | storage/ |                        | watch/  |---> rpc, http, control, metrics
//!         +----------+                        +---------+
//! ```
//!
//! Arrows never point back: `rpc` and `control` never change state, they propose.

pub mod clock;
pub mod config;
pub mod consensus;
pub mod control;
pub mod history;
pub mod http;
pub mod incoming;
pub mod metrics;
pub mod network;
pub mod node;
pub mod readiness;
pub mod rpc;
pub mod storage;
pub mod telemetry;
pub mod wall_clock;
pub mod watch;
