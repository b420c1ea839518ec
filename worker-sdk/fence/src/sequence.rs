//! The order and the identity of the writes of one tenure.

use std::fmt;
use std::num::NonZeroU64;

/// The place of a write among the writes of one epoch.
///
/// From 1 to `i64::MAX`, both inclusive, for the reasons an [`Epoch`](crate::Epoch) is. It rises
/// from write to write, gaps are allowed, and a new epoch starts afresh at [`Sequence::FIRST`]. A
/// sequence belongs to one content for ever: see [`admit_sequence`](crate::admit_sequence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(NonZeroU64);

impl Sequence {
    /// The sequence of the first write of an epoch: 1.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The largest sequence: `i64::MAX`. After it an owner needs a new epoch to write again.
    pub const MAX: Self = match Self::new(i64::MAX.unsigned_abs()) {
        Some(sequence) => sequence,
        None => panic!("i64::MAX is a sequence"),
    };

    /// Creates a sequence; `None` when `number` is zero or above `i64::MAX`.
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

    /// Returns the sequence after this one; `None` after [`Sequence::MAX`].
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        // Cannot overflow: the largest is i64::MAX.
        Self::new(self.0.get() + 1)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl TryFrom<u64> for Sequence {
    type Error = SequenceOutOfRange;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        Self::new(number).ok_or(SequenceOutOfRange { number })
    }
}

impl From<Sequence> for u64 {
    fn from(sequence: Sequence) -> Self {
        sequence.get()
    }
}

/// A number that is no sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a sequence is a number from 1 to {}, not {number}", Sequence::MAX)]
pub struct SequenceOutOfRange {
    /// The number that was given.
    pub number: u64,
}

/// The identity of one write: what tells its retry from another write. Written as 32 hexadecimal
/// digits.
///
/// Chosen at random by the writer, once for each content, and kept for every retry of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(u128);

impl WriteId {
    /// Creates a write id. Every number is one.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl fmt::Display for WriteId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_run_from_one_to_the_largest_bigint() {
        assert_eq!(Sequence::new(1), Some(Sequence::FIRST));
        assert_eq!(Sequence::FIRST.next(), Sequence::new(2));
        assert_eq!(
            Sequence::new(9_223_372_036_854_775_807),
            Some(Sequence::MAX)
        );
        assert_eq!(Sequence::MAX.next(), None);
        assert_eq!(Sequence::new(0), None);
        assert_eq!(
            Sequence::try_from(1 << 63).unwrap_err().to_string(),
            "a sequence is a number from 1 to 9223372036854775807, not 9223372036854775808"
        );
    }

    #[test]
    fn a_write_id_is_written_with_all_its_digits() {
        assert_eq!(WriteId::new(0xab).to_string(), format!("{:0>32}", "ab"));
    }
}
