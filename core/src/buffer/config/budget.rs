//! Limits that are scaled to a budget, exactly and in 64 bits.
#![forbid(unsafe_code)]

use super::{BufferConfigError, BufferPoolConfig, expect};
use core::num::NonZeroUsize;

impl BufferPoolConfig {
    /// The same with all limits scaled by one factor, up or down: the greatest for which the tracked bytes stay within
    /// `budget`.
    ///
    /// A limit becomes `max(1, floor(limit * factor))`, so no class is lost, and limits that step together may leave
    /// some of the budget unused. What counts is [`max_tracked_bytes`](Self::max_tracked_bytes): neither bookkeeping nor
    /// padding. The budget is not remembered; asked again, it scales the scaled limits, which may differ.
    ///
    /// Takes up to `32 * classes^2` steps.
    ///
    /// # Panics
    /// If one buffer of every class is more than the budget, or a limit above `u32::MAX` would still be within it.
    #[must_use]
    #[track_caller]
    pub fn with_budget_bytes(self, budget: NonZeroUsize) -> Self {
        expect(self.try_with_budget_bytes(budget))
    }

    /// The same without panics.
    ///
    /// # Errors
    /// [`BudgetTooSmall`](BufferConfigError::BudgetTooSmall), [`BudgetTooLarge`](BufferConfigError::BudgetTooLarge)
    pub const fn try_with_budget_bytes(mut self, budget: NonZeroUsize) -> Result<Self, BufferConfigError> {
        let budget = budget.get() as u64;
        let enabled = self.enabled();
        // One buffer of each class: the sizes are the bits themselves.
        if budget < enabled {
            return Err(BufferConfigError::BudgetTooSmall { budget, least: enabled });
        }
        // Limits change only at factors that make one of them whole, so the best of those is the best of all.
        let mut best = Factor { dividend: 0, divisor: 1 };
        let mut rest = enabled;
        while rest != 0 {
            let factor = self.best_for(self.limits[rest.trailing_zeros() as usize], budget);
            if factor.is_above(best) {
                best = factor;
            }
            rest &= rest - 1;
        }
        // Where a limit changes next: no limit may pass `u32::MAX` only because the budget has room for it.
        let mut next = Factor { dividend: 1 << 32, divisor: 1 };
        let mut rest = enabled;
        while rest != 0 {
            let limit = self.limits[rest.trailing_zeros() as usize] as u64;
            let factor = Factor { dividend: limit * best.dividend / best.divisor + 1, divisor: limit };
            if next.is_above(factor) {
                next = factor;
            }
            rest &= rest - 1;
        }
        if let Fit::LimitTooLarge { class } = self.fit(next, budget) {
            return Err(BufferConfigError::BudgetTooLarge { budget, size: 1 << class });
        }
        let mut rest = enabled;
        while rest != 0 {
            let class = rest.trailing_zeros() as usize;
            self.limits[class] = best.of(self.limits[class]) as u32;
            rest &= rest - 1;
        }
        Ok(self)
    }

    /// The greatest factor that makes this limit whole and with which all limits fit. With factor 0 they do.
    const fn best_for(&self, limit: u32, budget: u64) -> Factor {
        let divisor = limit as u64;
        let (mut fits, mut above) = (0, 1 << 32);
        while above - fits > 1 {
            let dividend = fits + (above - fits) / 2;
            match self.fit(Factor { dividend, divisor }, budget) {
                Fit::Yes => fits = dividend,
                Fit::LimitTooLarge { .. } | Fit::OverBudget => above = dividend,
            }
        }
        Factor { dividend: fits, divisor }
    }

    /// Whether the limits fit once they are scaled.
    const fn fit(&self, factor: Factor, budget: u64) -> Fit {
        let mut fit = Fit::Yes;
        let mut left = budget;
        let mut rest = self.enabled();
        while rest != 0 {
            let class = rest.trailing_zeros();
            let limit = factor.of(self.limits[class as usize]);
            if limit > left >> class {
                return Fit::OverBudget;
            }
            left -= limit << class;
            if limit > u32::MAX as u64 && matches!(fit, Fit::Yes) {
                fit = Fit::LimitTooLarge { class };
            }
            rest &= rest - 1;
        }
        fit
    }
}

/// A fraction that limits are scaled by. `dividend` is at most `2^32` and `divisor` below, so no product here passes 64
/// bits.
#[derive(Clone, Copy)]
struct Factor {
    dividend: u64,
    divisor: u64,
}

impl Factor {
    const fn is_above(self, other: Self) -> bool {
        self.dividend * other.divisor > other.dividend * self.divisor
    }

    /// The limit once it is scaled.
    const fn of(self, limit: u32) -> u64 {
        let scaled = limit as u64 * self.dividend / self.divisor;
        if scaled == 0 { 1 } else { scaled }
    }
}

/// Whether scaled limits are within a budget and are numbers of 32 bits.
enum Fit {
    Yes,
    /// Within the budget, but the limit of this class, the smallest such, is too large.
    LimitTooLarge {
        class: u32,
    },
    OverBudget,
}
