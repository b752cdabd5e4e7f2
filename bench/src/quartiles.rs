//! What several turns come to.

/// Median and quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// A quarter of the turns are below it.
    pub lower: f64,
    /// Half of the turns are below it.
    pub median: f64,
    /// A quarter of the turns are above it.
    pub upper: f64,
    /// How many turns there were.
    pub turns: usize,
}

impl Quartiles {
    /// Of some turns.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(turns: impl IntoIterator<Item = f64>) -> Self {
        let mut turns: Vec<_> = turns.into_iter().collect();
        turns.sort_by(f64::total_cmp);
        let at = |quarters: usize| turns[(turns.len() - 1) * quarters / 4];
        Self { lower: at(1), median: at(2), upper: at(3), turns: turns.len() }
    }

    /// Of ratios of two subjects' turns: what disturbed both in the same turn falls out.
    pub fn of_ratios(of: &[f64], to: &[f64]) -> Self {
        Self::of(of.iter().zip(to).map(|(of, to)| of / to))
    }

    /// What is the same in every turn, so that one is enough.
    pub fn exactly(value: f64) -> Self {
        Self { lower: value, median: value, upper: value, turns: 1 }
    }

    /// Half the distance between the quartiles.
    pub fn spread(&self) -> f64 {
        (self.upper - self.lower) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_turns_lie_between_the_quartiles() {
        let quartiles = Quartiles::of([9.0, 1.0, 8.0, 2.0, 5.0, 3.0, 7.0, 4.0, 6.0]);
        assert_eq!(quartiles, Quartiles { lower: 3.0, median: 5.0, upper: 7.0, turns: 9 });
        assert_eq!(quartiles.spread(), 2.0);
        assert_eq!(Quartiles::of([4.0]), Quartiles::exactly(4.0));
    }

    #[test]
    fn what_disturbs_both_subjects_is_not_in_their_ratio() {
        let quartiles = Quartiles::of_ratios(&[10.0, 1000.0, 10.0], &[20.0, 2000.0, 20.0]);
        assert_eq!((quartiles.median, quartiles.spread()), (0.5, 0.0));
    }
}
