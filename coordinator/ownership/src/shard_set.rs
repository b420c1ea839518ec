//! A set of shards of one group: a bit for each shard that the group has.

use crate::ids::ShardIndex;

const WORD_BITS: u32 = u64::BITS;

/// Which shards of a group are in some state.
///
/// Equal sets are equal in memory: there are as many words as the group needs, and no bit stands for
/// a shard that the group does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardSet {
    words: Vec<u64>,
    /// Shards in the set.
    len: u32,
}

impl ShardSet {
    /// A set for a group of `shard_count` shards, with none of them in it.
    pub(crate) fn none(shard_count: u32) -> Self {
        let words = usize::try_from(shard_count.div_ceil(WORD_BITS)).unwrap_or(usize::MAX);
        Self {
            words: vec![0; words],
            len: 0,
        }
    }

    /// A set for a group of `shard_count` shards, with all of them in it.
    pub(crate) fn all(shard_count: u32) -> Self {
        let mut set = Self::none(shard_count);
        set.words.fill(u64::MAX);
        let rest = shard_count % WORD_BITS;
        if let (1.., Some(last)) = (rest, set.words.last_mut()) {
            *last = (1 << rest) - 1;
        }
        set.len = shard_count;
        set
    }

    /// How many shards are in the set.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Puts a shard of the group into the set or takes it out.
    pub(crate) fn set(&mut self, index: ShardIndex, belongs: bool) {
        let word = usize::try_from(index.0 / WORD_BITS).unwrap_or(usize::MAX);
        let Some(word) = self.words.get_mut(word) else {
            return;
        };
        let bit = 1 << (index.0 % WORD_BITS);
        match (*word & bit != 0, belongs) {
            (false, true) => self.len += 1,
            (true, false) => self.len -= 1,
            (false, false) | (true, true) => return,
        }
        *word ^= bit;
    }

    /// The shards in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ShardIndex> + '_ {
        let firsts = (0_u32..).step_by(WORD_BITS as usize);
        firsts.zip(&self.words).flat_map(|(first, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(ShardIndex(first + bit))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_set_has_every_shard_of_the_group_and_no_other() {
        for shard_count in [1, 63, 64, 65, 128, 1_000] {
            let mut set = ShardSet::all(shard_count);
            let all: Vec<_> = (0..shard_count).map(ShardIndex).collect();
            assert_eq!(set.iter().collect::<Vec<_>>(), all);
            assert_eq!(set.len(), shard_count);
            for index in all {
                set.set(index, false);
            }
            assert_eq!(set, ShardSet::none(shard_count));
        }
    }

    proptest! {
        #[test]
        fn it_is_the_set_that_it_stands_for(
            changes in prop::collection::vec((0_u32..300, any::<bool>()), 0..200)
        ) {
            let mut expected = BTreeSet::new();
            let mut set = ShardSet::none(300);
            for (index, belongs) in changes {
                let index = ShardIndex(index);
                if belongs {
                    expected.insert(index);
                } else {
                    expected.remove(&index);
                }
                set.set(index, belongs);
                prop_assert_eq!(set.len() as usize, expected.len());
            }
            prop_assert!(set.iter().eq(expected));
        }
    }
}
