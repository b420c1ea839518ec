//! Fair shares by weight, in whole numbers.

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
    pub(super) fn new(shards: u32, weight: u32, weights: u64, load_factor_permille: u32) -> Self {
        assert!(
            weights >= u64::from(weight) && weight > 0,
            "weight {weight} of {weights}"
        );
        // At most 10^6 shards × 10^4 weight × 10^4 permille = 10^14: far from overflow.
        let exact = u64::from(shards) * u64::from(weight);
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
        // Two fractions with denominators up to 10^4 differ by at least 10^-8, so 32 binary places
        // keep them apart.
        Self((u64::from(load) << 32) / u64::from(weight.max(1)))
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
}
