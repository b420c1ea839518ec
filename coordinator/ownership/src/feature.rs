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

impl Feature {
    /// Every behaviour that this version knows.
    pub const ALL: [Self; 1] = [Self::Baseline];

    /// Its name, as operators write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
        }
    }

    /// What it does, in one line for operators.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Baseline => "the behaviour of the first version; always on",
        }
    }

    /// Finds a behaviour by its name; `None` if this version does not know it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_behaviour_has_a_name_of_its_own() {
        for feature in Feature::ALL {
            assert_eq!(Feature::named(feature.name()), Some(feature));
        }
        assert_eq!(Feature::named("unheard-of"), None);
    }
}
