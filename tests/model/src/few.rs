//! A short list that lives in its owner: states are copied by the million, and a list on the heap would
//! cost an allocation each.

use std::fmt;
use std::hash::Hash;
use std::hash::Hasher;

/// A list of at most `N` items, oldest first.
#[derive(Clone, Copy)]
pub struct Few<T, const N: usize> {
    items: [Option<T>; N],
    len: u8,
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// The empty list.
    pub const EMPTY: Self = Self {
        items: [None; N],
        len: 0,
    };

    /// How many items there are.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `more` items fit.
    pub fn has_room(&self, more: usize) -> bool {
        self.len() + more <= N
    }

    /// The item at a place.
    pub fn get(&self, at: usize) -> Option<T> {
        self.items.get(at).copied().flatten()
    }

    /// The oldest item.
    pub fn first(&self) -> Option<T> {
        self.get(0)
    }

    /// All items.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.items.iter().take(self.len()).copied().flatten()
    }

    /// All items, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        self.items.iter_mut().take(usize::from(self.len)).flatten()
    }

    /// The first item of which something is true.
    pub fn find(&self, is: impl Fn(&T) -> bool) -> Option<T> {
        self.iter().find(|item| is(item))
    }

    /// The place of the first item of which something is true.
    pub fn position(&self, is: impl Fn(&T) -> bool) -> Option<usize> {
        self.iter().position(|item| is(&item))
    }

    /// Adds an item at the end.
    ///
    /// # Panics
    ///
    /// If it does not fit: whoever adds has asked before, and an item that is dropped unseen would be a
    /// fault of the model, not of what it describes.
    pub fn push(&mut self, item: T) {
        let free = self.items.get_mut(usize::from(self.len));
        assert!(free.is_some(), "no room for a further item beside {N}");
        if let Some(free) = free {
            *free = Some(item);
        }
        self.len += 1;
    }

    /// Takes the item at a place out; the later ones move up.
    pub fn remove(&mut self, at: usize) -> Option<T> {
        let item = self.get(at)?;
        let len = self.len();
        self.items.copy_within(at + 1..len, at);
        self.len -= 1;
        if let Some(freed) = self.items.get_mut(usize::from(self.len)) {
            *freed = None;
        }
        Some(item)
    }

    /// Keeps only the items of which something is true.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        let mut kept = Self::EMPTY;
        for item in self.iter().filter(|item| keep(item)) {
            kept.push(item);
        }
        *self = kept;
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        *self = Self::EMPTY;
    }
}

impl<T: Copy + PartialEq, const N: usize> PartialEq for Few<T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<T: Copy + Eq, const N: usize> Eq for Few<T, N> {}

impl<T: Copy + Hash, const N: usize> Hash for Few<T, N> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u8(self.len);
        for item in self.iter() {
            item.hash(hasher);
        }
    }
}

impl<T: Copy + fmt::Debug, const N: usize> fmt::Debug for Few<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_leaves_no_trace() {
        let mut few: Few<u8, 3> = Few::EMPTY;
        few.push(1);
        few.push(2);
        few.push(3);
        assert!(!few.has_room(1));
        assert_eq!(few.remove(0), Some(1));
        few.retain(|item| *item != 2);
        let mut same = Few::EMPTY;
        same.push(3);
        assert_eq!(few, same);
        assert_eq!(few.first(), Some(3));
    }
}
