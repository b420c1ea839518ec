//! The number of one tenure of one resource.

use std::fmt;
use std::num::NonZeroU64;

/// The number of one tenure of one resource. Every grant takes the next one.
///
/// From 1 to `i64::MAX`, both inclusive: the largest must fit a SQL `BIGINT`, and zero is left out
/// so that an unset number is never mistaken for a tenure. Epochs of different resources have
/// nothing to do with each other.
///
/// ```
/// use tenure_fence::Epoch;
///
/// let first = Epoch::FIRST;
/// assert!(first < first.next().unwrap());
/// assert_eq!(Epoch::new(0), None);
/// assert_eq!(Epoch::MAX.next(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(NonZeroU64);

impl Epoch {
    /// The epoch of the first grant of a resource: 1.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The largest epoch: `i64::MAX`. A resource at this epoch can never be granted again.
    pub const MAX: Self = match Self::new(i64::MAX.unsigned_abs()) {
        Some(epoch) => epoch,
        None => panic!("i64::MAX is an epoch"),
    };

    /// Creates an epoch; `None` when `number` is zero or above `i64::MAX`.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number > i64::MAX.unsigned_abs() {
            return None;
        }
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number, from 1 to `i64::MAX`.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns the epoch after this one; `None` after [`Epoch::MAX`], for an epoch never wraps.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        // Cannot overflow: the largest is i64::MAX.
        Self::new(self.0.get() + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl TryFrom<u64> for Epoch {
    type Error = EpochOutOfRange;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        Self::new(number).ok_or(EpochOutOfRange { number })
    }
}

impl From<Epoch> for u64 {
    fn from(epoch: Epoch) -> Self {
        epoch.get()
    }
}

/// A number that is no epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an epoch is a number from 1 to {}, not {number}", Epoch::MAX)]
pub struct EpochOutOfRange {
    /// The number that was given.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_run_from_one_to_the_largest_bigint() {
        assert_eq!(Epoch::new(1), Some(Epoch::FIRST));
        assert_eq!(Epoch::new(9_223_372_036_854_775_807), Some(Epoch::MAX));
        assert_eq!(Epoch::new(0), None);
        assert_eq!(Epoch::new(9_223_372_036_854_775_808), None);
        assert_eq!(Epoch::new(u64::MAX), None);
    }

    #[test]
    fn the_last_epoch_has_no_successor() {
        assert_eq!(Epoch::FIRST.next(), Epoch::new(2));
        assert_eq!(
            Epoch::new(Epoch::MAX.get() - 1).unwrap().next(),
            Some(Epoch::MAX)
        );
        assert_eq!(Epoch::MAX.next(), None);
    }

    #[test]
    fn a_number_out_of_range_says_what_the_range_is() {
        let error = Epoch::try_from(0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "an epoch is a number from 1 to 9223372036854775807, not 0"
        );
    }

    #[test]
    fn an_optional_epoch_takes_no_more_room_than_a_number() {
        assert_eq!(size_of::<Option<Epoch>>(), 8);
    }
}
