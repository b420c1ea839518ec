//! Stories on real processes. See [`cluster_tests`] for what they are told with.
//!
//! They run one after the other, whatever the test runner does: several measure, and each has the
//! machine for itself.

mod backups;
mod bare_owner;
mod broken_handoffs;
mod cut_off;
mod drained;
mod growth;
mod kills;
mod leader_lost;
mod old_copy;
mod one_name;
mod planned;
mod replicated_store;
mod restarts;
mod scale;
mod slow_revoke;
mod stalls;
mod story;
mod superseded;
mod takeover;
