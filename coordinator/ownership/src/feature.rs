//! Behaviour that is switched on for all nodes at one log index.
//!
//! Apply must do the same on every node, also while nodes run different versions. New behaviour in
//! apply therefore waits behind a feature until an operator enables it, when every node knows it.

use minicbor::{Decode, Encode};

/// A switchable behaviour. A node that does not know a number refuses the entry and stops: it is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Feature {
    /// The behaviour of the first version; always on. Exists so that the switch itself is tested.
    #[n(0)]
    Baseline,
}
