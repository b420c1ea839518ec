//! How figures are spread.

use std::fmt;

/// Five numbers that stand for many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// A quarter is below it.
    pub lower_quartile: f64,
    /// Half is below it.
    pub median: f64,
    /// Three quarters are below it.
    pub upper_quartile: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of some figures; `None` if there are none.
    #[must_use]
    pub fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self {
            min,
            lower_quartile: quartile(&sorted, 1),
            median: quartile(&sorted, 2),
            upper_quartile: quartile(&sorted, 3),
            max,
        })
    }
}

/// As a ratio: the median, the quartiles, and the range.
impl fmt::Display for Spread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:.3} [{:.3}–{:.3}] ({:.2}–{:.2})",
            self.median, self.lower_quartile, self.upper_quartile, self.min, self.max
        )
    }
}

/// Returns the figure below which `quarters` quarters lie, between two figures if it has to be.
fn quartile(sorted: &[f64], quarters: usize) -> f64 {
    let position = quarters * (sorted.len() - 1);
    let (whole, rest) = (position / 4, position % 4);
    let below = sorted[whole];
    let above = sorted.get(whole + 1).copied().unwrap_or(below);
    below + (above - below) * rest as f64 / 4.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_figures_if_they_have_to() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.min, spread.max), (1.0, 4.0));
        assert_eq!(spread.median, 2.5);
        assert_eq!((spread.lower_quartile, spread.upper_quartile), (1.75, 3.25));
        let alone = Spread::of(&[7.0]).unwrap();
        assert_eq!(
            (alone.lower_quartile, alone.median, alone.max),
            (7.0, 7.0, 7.0)
        );
        assert_eq!(Spread::of(&[]), None);
    }
}
