//! The shards of a group: a table that is cheap to share and to take a copy of.
//!
//! ```text
//!   clone ──▶ [ page 0 | page 1 | page 2 | .. ]        a pointer for each page
//!                  │        │        │
//!   table ──▶ [ page 0 | page 1 | page 2'| .. ]        what changes since is copied, a page at a time
//! ```
//!
//! So a plan is made from a clone while commands go on to be applied, and the shards of a new group
//! take no memory until they differ from each other.

use std::sync::Arc;

use crate::ids::ShardIndex;
use crate::shard::Shard;

/// Shards of a page.
///
/// Copying one costs microseconds with all that its shards point to. A million shards have 15,625
/// pages, whose pointers are copied in a fraction of a millisecond.
const PAGE_SHARDS: usize = 64;

/// The shards of a group by index. Never changes its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    /// All of [`PAGE_SHARDS`] shards but the last.
    pages: Vec<Arc<[Shard]>>,
    shard_count: u32,
}

impl Shards {
    /// As many shards as a group has, all as they are without a record.
    pub(crate) fn new(shard_count: u32) -> Self {
        let shard_count_wide = usize::try_from(shard_count).unwrap_or(usize::MAX);
        let page = |shards: usize| -> Arc<[Shard]> { vec![Shard::default(); shards].into() };
        let mut pages = vec![page(PAGE_SHARDS); shard_count_wide / PAGE_SHARDS];
        let rest = shard_count_wide % PAGE_SHARDS;
        pages.extend((rest > 0).then(|| page(rest)));
        Self { pages, shard_count }
    }

    /// A shard; `None` beyond the group's shard count.
    pub fn get(&self, index: ShardIndex) -> Option<&Shard> {
        let (page, place) = position(index)?;
        self.pages.get(page)?.get(place)
    }

    /// A shard to be changed. Copies its page if a clone of the table shares it.
    pub(crate) fn get_mut(&mut self, index: ShardIndex) -> Option<&mut Shard> {
        let (page, place) = position(index)?;
        Arc::make_mut(self.pages.get_mut(page)?).get_mut(place)
    }

    /// How many shards there are.
    pub fn len(&self) -> u32 {
        self.shard_count
    }

    /// Whether there are none, which is so in no group.
    pub fn is_empty(&self) -> bool {
        self.shard_count == 0
    }

    /// All shards in order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = &Shard> {
        self.pages.iter().flat_map(|page| page.iter())
    }

    /// How many pages are the same in memory as those of another table.
    #[cfg(test)]
    fn pages_shared_with(&self, other: &Self) -> usize {
        let pairs = self.pages.iter().zip(&other.pages);
        pairs.filter(|(one, two)| Arc::ptr_eq(one, two)).count()
    }
}

/// The page of a shard and its place in it.
fn position(index: ShardIndex) -> Option<(usize, usize)> {
    let index = usize::try_from(index.0).ok()?;
    Some((index / PAGE_SHARDS, index % PAGE_SHARDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(shard_count: u32) -> impl Iterator<Item = ShardIndex> {
        (0..shard_count).map(ShardIndex)
    }

    #[test]
    fn a_table_has_exactly_the_shards_of_its_group() {
        for shard_count in [1, 63, 64, 65, 128, 1_000] {
            let shards = Shards::new(shard_count);
            assert_eq!(shards.iter().count(), shard_count as usize);
            assert!(indices(shard_count).all(|index| shards.get(index).is_some()));
            assert_eq!(shards.get(ShardIndex(shard_count)), None);
            assert_eq!(shards.get(ShardIndex(u32::MAX)), None);
        }
    }

    #[test]
    fn a_shard_changes_in_its_place_and_nowhere_else() {
        let mut shards = Shards::new(200);
        shards.get_mut(ShardIndex(70)).unwrap().floor = 9;
        let raised: Vec<u64> = shards.iter().map(|shard| shard.floor).collect();
        for (index, floor) in (0_u32..).zip(raised) {
            assert_eq!(floor, if index == 70 { 9 } else { 0 }, "shard {index}");
        }
        assert_eq!(shards.get_mut(ShardIndex(200)), None);
    }

    #[test]
    fn a_change_beside_a_clone_copies_one_page_and_leaves_the_clone_as_it_was() {
        let mut shards = Shards::new(64 * 100);
        // Its pages differ, as those of a group at work do.
        for index in indices(shards.len()) {
            shards.get_mut(index).unwrap().floor = 1;
        }
        let clone = shards.clone();
        assert_eq!(shards.pages_shared_with(&clone), 100);
        for index in 128..192 {
            shards.get_mut(ShardIndex(index)).unwrap().floor = 2;
        }
        assert_eq!(shards.pages_shared_with(&clone), 99);
        assert!(clone.iter().all(|shard| shard.floor == 1));
        let raised = shards.iter().filter(|shard| shard.floor == 2);
        assert_eq!(raised.count(), 64);
    }

    #[test]
    fn a_change_without_a_clone_copies_nothing() {
        let mut shards = Shards::new(64);
        shards.get_mut(ShardIndex(0)).unwrap().floor = 1;
        let before: *const Shard = shards.get(ShardIndex(0)).unwrap();
        shards.get_mut(ShardIndex(1)).unwrap().floor = 1;
        let after: *const Shard = shards.get(ShardIndex(0)).unwrap();
        assert_eq!(before, after);
    }
}
