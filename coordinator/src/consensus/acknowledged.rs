//! What followers have acknowledged to this node while it leads.
//!
//! Raft relies on acknowledged entries being there. A follower that runs on an old copy of its data lacks
//! some, and openraft ends the *leader* that hears of it. So such an answer is kept from it: the
//! follower counts as unreachable, and the operator is told.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::types::{LogId, Vote};

/// A follower lacks an entry that it has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has lost entry {missing}, and had acknowledged all below {below}")]
pub(super) struct Lost {
    /// The entry that it lacks.
    missing: u64,
    /// The end of what it had acknowledged.
    below: u64,
}

/// For each follower: to which leadership, and up to which index.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    followers: Mutex<HashMap<u64, (Vote, u64)>>,
}

impl Acknowledged {
    /// Notes that a follower has everything up to an entry.
    pub(super) fn note(&self, follower: u64, leader: Vote, matching: Option<&LogId>) {
        let below = matching.map_or(0, |matching| matching.index() + 1);
        let mut followers = self.lock();
        let known = followers.entry(follower).or_insert((leader, below));
        // Under another leadership entries may have been replaced that were not committed.
        if known.0 != leader {
            *known = (leader, below);
        }
        known.1 = known.1.max(below);
    }

    /// Checks that an entry which a follower lacks is none that it has acknowledged.
    ///
    /// # Errors
    ///
    /// When it is.
    pub(super) fn require_kept(
        &self,
        follower: u64,
        leader: Vote,
        missing: &LogId,
    ) -> Result<(), Lost> {
        let missing = missing.index();
        match self.lock().get(&follower) {
            Some(&(known, below)) if known == leader && missing < below => {
                Err(Lost { missing, below })
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, (Vote, u64)>> {
        // Each entry is whole whatever happened to the thread that held the lock.
        self.followers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u64) -> LogId {
        LogId::new_term_index(1, index)
    }

    #[test]
    fn a_follower_may_lack_what_it_never_had_and_nothing_else() {
        let acknowledged = Acknowledged::default();
        let (first, second) = (Vote::new_committed(1, 1), Vote::new_committed(2, 1));
        assert_eq!(acknowledged.require_kept(3, first, &id(9)), Ok(()));
        acknowledged.note(3, first, Some(&id(20)));
        // An answer that was overtaken takes nothing back.
        acknowledged.note(3, first, Some(&id(10)));
        assert_eq!(acknowledged.require_kept(3, first, &id(21)), Ok(()));
        assert!(acknowledged.require_kept(3, first, &id(20)).is_err());
        assert_eq!(acknowledged.require_kept(2, first, &id(20)), Ok(()));
        // What was not committed may be another leader's to replace.
        assert_eq!(acknowledged.require_kept(3, second, &id(20)), Ok(()));
        acknowledged.note(3, second, Some(&id(5)));
        assert_eq!(acknowledged.require_kept(3, second, &id(6)), Ok(()));
    }
}
