//! Agrees with the other nodes on the order of commands, applies them, and keeps what they make of
//! the state.
//!
//! This folder is the only one that names openraft, and no type of it leaves. It does not know what
//! a command means: that is [`tenure_ownership`].
//!
//! ```text
//!   propose ─▶ openraft ─▶ log_store ─────────────▶ Storage   append, one sync for many
//!                 │  ▲
//!                 │  └── network ◀── peers ──▶ peer_service
//!                 ▼ committed
//!            state_machine ─▶ ownership::apply ──▶ Storage    touched records, gathered
//!                 │
//!                 └─▶ Observer, then the proposer
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `start`, `handle` | a node's start; what holds it together until its stop |
//! | `options` | settings, checked against each other |
//! | `identity` | who a node is and where it is reached |
//! | `propose`, `reads`, `rounds` | commands in; reads that see every earlier command; the quorum's proof |
//! | `membership`, `status`, `leadership` | who is in the cluster, how it does, who leads |
//! | `peers`, `sync_times` | what other nodes answer, how long syncs take |
//! | `standing` | whether this node still belongs to its cluster |
//! | `leading` | this node as the leader of one term |
//! | `past` | the history: read, and pruned in the background |
//! | `envelope` | when, by whom and why an entry was proposed, for people |
//! | `observer` | who is told what was applied |
//! | `log_store`, `log_tail`, `group_commit`, `log_size` | openraft's log over [`Storage`](crate::storage::Storage) |
//! | `state_machine`, `snapshot` | the state over `Storage`, snapshot files |
//! | `backup`, `restore` | a snapshot for somebody who keeps it; a new cluster of one |
//! | `connector`, `links`, `network`, `unanswered`, `peer_service` | the peer protocol |
//! | `codec`, `wire`, `meta` | our own encoding of openraft's types, on disk and on the wire |
//! | `types`, `runtime` | what openraft is instantiated with |
//!
//! # Invariants
//!
//! * What a proposer was told is applied is on the disks of a quorum (P5).
//! * Every node applies the same commands in the same order (P9).
//! * When a proposer is answered, or an observer told, the effect is readable here.
//! * A node that cannot sync its log acknowledges nothing any more, and says so ([`Health`]).

mod acknowledged;
mod backup;
mod codec;
mod connector;
mod envelope;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod group_commit;
mod handle;
mod identity;
mod leadership;
mod leading;
mod links;
mod log_size;
mod log_store;
mod log_tail;
mod membership;
mod meta;
mod network;
mod observer;
mod options;
mod past;
mod peer_service;
mod peers;
mod propose;
mod reads;
mod restore;
mod rounds;
mod runtime;
mod snapshot;
mod standing;
mod start;
mod state_machine;
mod status;
mod sync_times;
#[cfg(test)]
mod tests;
mod types;
mod unanswered;
mod wire;

pub use self::backup::Backup;
pub use self::connector::{Connector, InvalidAddress, Lane, TcpConnector, peer_endpoint};
pub use self::envelope::{Envelope, Origin};
pub use self::error::{AssignError, MembershipError, ProposeError, ReadError, StartError};
pub use self::handle::Consensus;
pub use self::identity::{Identity, Member, NodeAddresses, NodeId};
pub use self::leadership::{Health, Leadership};
pub use self::leading::Leading;
pub use self::observer::Observer;
pub use self::options::{ConsensusLimits, ConsensusOptions, OptionsError, RaftTimings};
pub use self::peer_service::{PeerHandler, PeerService};
pub use self::peers::PeerAnswer;
pub use self::propose::{Applied, Proposal};
pub use self::restore::{RestoreError, RestoreOptions, RestoredCluster, restore};
pub(crate) use self::runtime::blocking;
pub use self::status::{ClusterStatus, NodeStatus, Role};
pub use self::sync_times::LogSyncs;

/// What a command did, or why it was refused.
pub type Outcome = Result<tenure_ownership::apply::Effect, tenure_ownership::Rejection>;
