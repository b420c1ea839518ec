//! Fair shares by weight, in whole numbers.

use crate::policy::Policy;

/// How many shards a worker should have, of its fair share `shards × weight / total weight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// The share rounded down. A worker below it is filled.
    pub(super) floor: u32,
    /// The share rounded up. Those of all workers together hold every shard, so there is always room.
    pub(super) ceil: u32,
    /// Where placement stops, and above which a worker loses shards:
    /// `max(floor(load_factor × share), ceil(share))`. The second term lets small groups fit.
    pub(super) cap: u32,
}

impl Share {
    /// The share of a worker of `weight` when all workers together weigh `weights`.
    pub(super) fn new(shards: u32, weight: u64, weights: u64, load_factor_permille: u32) -> Self {
        assert!(
            weights >= weight && weight > 0,
            "weight {weight} of {weights}"
        );
        // At most 10^6 shards × 10^4 weight of 2 × 10^4 workers × 10^4 permille = 2 × 10^18: no overflow.
        let exact = u64::from(shards) * weight;
        let stretched = exact * u64::from(load_factor_permille) / (1_000 * weights);
        let ceil = exact.div_ceil(weights);
        Self {
            floor: whole(exact / weights),
            ceil: whole(ceil),
            cap: whole(stretched.max(ceil)),
        }
    }
}

/// A load factor of 10 can stretch a cap past `u32`; no worker can have that many shards.
fn whole(shards: u64) -> u32 {
    u32::try_from(shards).unwrap_or(u32::MAX)
}

/// How full a worker is: shards per weight. Compares exactly for all weights and loads in bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Level(u64);

impl Level {
    pub(super) fn new(load: u32, weight: u32) -> Self {
        Self::of_weight(load, weight.into())
    }

    /// The same for a zone, of the weight of its workers together. Fractions that are very close may
    /// compare as equal.
    pub(super) fn of_weight(load: u32, weight: u64) -> Self {
        // Two fractions with denominators up to 10^4 differ by at least 10^-8, so 32 binary places
        // keep them apart.
        Self((u64::from(load) << 32) / weight.max(1))
    }
}

/// How a group's shards divide among workers of some weights, none of which is to have more than so many.
///
/// A worker whose fair share is more than it may have gets what it may have, and the rest is divided among
/// the others. When all have what they may have, shards are left over.
pub(super) struct Division {
    /// Shards, and the weights of those who have their fair share of them.
    shards: u32,
    weights: u64,
    /// Workers of this weight and above have as many as a worker may have.
    full_from: u64,
    worker_shards_max: u32,
    load_factor_permille: u32,
}

impl Division {
    pub(super) fn new(shards: u32, mut weights: Vec<u32>, policy: &Policy) -> Self {
        let most = u64::from(policy.worker_shards_max.unwrap_or(u32::MAX));
        let mut division = Self {
            shards,
            weights: weights.iter().map(|weight| u64::from(*weight)).sum(),
            full_from: u64::MAX,
            worker_shards_max: policy.worker_shards_max.unwrap_or(u32::MAX),
            load_factor_permille: policy.load_factor_permille,
        };
        if policy.worker_shards_max.is_none() {
            return division;
        }
        weights.sort_unstable();
        while let Some(weight) = weights.pop().map(u64::from) {
            if u64::from(division.shards) * weight <= most * division.weights {
                break;
            }
            division.full_from = weight;
            division.shards = division.shards.saturating_sub(division.worker_shards_max);
            division.weights -= weight;
        }
        division
    }

    fn is_full(&self, weight: u32) -> bool {
        u64::from(weight) >= self.full_from
    }

    /// The share of a worker.
    pub(super) fn of_worker(&self, weight: u32) -> Share {
        if self.is_full(weight) {
            let most = self.worker_shards_max;
            return Share {
                floor: most,
                ceil: most,
                cap: most,
            };
        }
        let mut share = Share::new(
            self.shards,
            weight.into(),
            self.weights,
            self.load_factor_permille,
        );
        share.cap = share.cap.min(self.worker_shards_max);
        share
    }

    /// The share of a zone with workers of these weights, and the weight to compare its load by.
    pub(super) fn of_zone(&self, weights: impl Iterator<Item = u32>) -> (Share, u64) {
        let (mut full, mut rest, mut weight) = (0_u32, 0_u64, 0_u64);
        for of_worker in weights {
            weight += u64::from(of_worker);
            if self.is_full(of_worker) {
                full = full.saturating_add(self.worker_shards_max);
            } else {
                rest += u64::from(of_worker);
            }
        }
        let mut share = Share::default();
        if rest > 0 {
            share = Share::new(self.shards, rest, self.weights, self.load_factor_permille);
        }
        let stretched = u64::from(full) * u64::from(self.load_factor_permille) / 1_000;
        share.floor = share.floor.saturating_add(full);
        share.ceil = share.ceil.saturating_add(full);
        share.cap = share.cap.saturating_add(whole(stretched));
        (share, weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_groups_fit_although_the_factor_rounds_down() {
        // 3 shards on 2 workers: 1.1 × 1.5 rounds down to 1, and 1 + 1 would leave a shard out.
        assert_eq!(
            Share::new(3, 1, 2, 1_100),
            Share {
                floor: 1,
                ceil: 2,
                cap: 2
            }
        );
    }

    #[test]
    fn the_factor_stretches_large_shares() {
        assert_eq!(
            Share::new(1_000, 1, 10, 1_100),
            Share {
                floor: 100,
                ceil: 100,
                cap: 110
            }
        );
    }

    #[test]
    fn shares_follow_weights() {
        assert_eq!(
            Share::new(40, 3, 4, 1_000),
            Share {
                floor: 30,
                ceil: 30,
                cap: 30
            }
        );
        assert_eq!(
            Share::new(40, 1, 4, 1_000),
            Share {
                floor: 10,
                ceil: 10,
                cap: 10
            }
        );
    }

    #[test]
    fn levels_tell_the_closest_fractions_apart() {
        assert!(Level::new(9_998, 9_999) < Level::new(9_999, 10_000));
        assert_eq!(Level::new(2, 4), Level::new(1, 2));
    }

    fn division(shards: u32, weights: &[u32], worker_shards_max: u32) -> Vec<u32> {
        let policy = Policy {
            worker_shards_max: Some(worker_shards_max),
            load_factor_permille: 1_000,
            ..Policy::default()
        };
        let division = Division::new(shards, weights.to_vec(), &policy);
        let caps = weights.iter().map(|weight| division.of_worker(*weight).cap);
        caps.collect()
    }

    #[test]
    fn what_a_worker_may_not_have_is_divided_among_the_others() {
        assert_eq!(division(40, &[3, 1, 1], 20), [20, 10, 10]);
        assert_eq!(division(40, &[3, 1, 1], 24), [24, 8, 8]);
        // The second is full only because of what the first may not have.
        assert_eq!(division(40, &[8, 3, 1], 15), [15, 15, 10]);
    }

    #[test]
    fn what_nobody_may_have_is_left_over() {
        assert_eq!(division(40, &[3, 1, 1], 10), [10, 10, 10]);
    }

    #[test]
    fn zones_share_as_their_workers_do() {
        let division = Division::new(10, vec![1, 1, 1, 1, 1], &Policy::default());
        let (share, weight) = division.of_zone([1, 1].into_iter());
        assert_eq!((share.floor, share.ceil, share.cap, weight), (4, 4, 4, 2));
        let policy = Policy {
            worker_shards_max: Some(3),
            ..Policy::default()
        };
        let division = Division::new(10, vec![9, 1, 1, 1], &policy);
        let (share, _) = division.of_zone([9, 1].into_iter());
        assert_eq!((share.floor, share.ceil), (5, 6));
    }
}
