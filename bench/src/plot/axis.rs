//! From figures to pixels.

/// An axis: the figures at its ends, and where those lie.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    figures: [f64; 2],
    pixels: [f64; 2],
    /// Whether equal factors, not equal differences, are equally long.
    logarithmic: bool,
}

impl Axis {
    /// Equal differences are equally long.
    pub fn linear(figures: [f64; 2], pixels: [f64; 2]) -> Self {
        Self { figures, pixels, logarithmic: false }
    }

    /// Equal factors are equally long.
    pub fn logarithmic(figures: [f64; 2], pixels: [f64; 2]) -> Self {
        Self { figures, pixels, logarithmic: true }
    }

    /// Where a figure lies.
    pub fn at(&self, figure: f64) -> f64 {
        let [low, high, figure] = [self.figures[0], self.figures[1], figure]
            .map(|figure| if self.logarithmic { figure.ln() } else { figure });
        let [start, end] = self.pixels;
        start + (figure - low) / (high - low) * (end - start)
    }

    /// Round figures along it: at most about ten if it is linear, otherwise those that begin with 1, 2 or 5, or
    /// with 1 alone if it is long.
    pub fn ticks(&self) -> Vec<f64> {
        let [low, high] = self.figures;
        if !self.logarithmic {
            let step = round_step((high - low) / 10.0);
            return (0..).map(|n| low + f64::from(n) * step).take_while(|&tick| tick <= high * (1.0 + 1e-9)).collect();
        }
        let steps: &[f64] = if high / low > 1e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let ticks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
        ticks.filter(|tick| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(tick)).collect()
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not below `step`.
pub fn round_step(step: f64) -> f64 {
    let decade = 10f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * decade);
    steps.into_iter().find(|&round| round >= step * (1.0 - 1e-9)).unwrap_or(10.0 * decade)
}

/// The greatest of 1, 2 and 5 times a power of ten that is not above `step`.
pub fn round_step_down(step: f64) -> f64 {
    let decade = 10f64.powf(step.log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|digit| digit * decade);
    steps.into_iter().find(|&round| round <= step * (1.0 + 1e-9)).unwrap_or(decade)
}

/// A whole number in groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut words = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && (digits.len() - index).is_multiple_of(3) {
            words.push(',');
        }
        words.push(digit);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_lie_between_the_ends() {
        let linear = Axis::linear([0.0, 50.0], [100.0, 200.0]);
        assert_eq!([0.0, 25.0, 50.0].map(|figure| linear.at(figure)), [100.0, 150.0, 200.0]);
        let logarithmic = Axis::logarithmic([10.0, 1000.0], [300.0, 100.0]);
        assert_eq!([10.0, 100.0, 1000.0].map(|figure| logarithmic.at(figure).round()), [300.0, 200.0, 100.0]);
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(Axis::linear([0.0, 60.0], [0.0, 1.0]).ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert_eq!(Axis::linear([0.0, 780.0], [0.0, 1.0]).ticks().last(), Some(&700.0));
        let short = Axis::logarithmic([20.0, 1000.0], [0.0, 1.0]).ticks();
        assert_eq!(short, [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(Axis::logarithmic([1.0, 1e5], [0.0, 1.0]).ticks().len(), 6);
        assert_eq!([0.7, 1.0, 1.1, 6.0].map(round_step), [1.0, 1.0, 2.0, 10.0]);
        assert_eq!([0.7, 1.0, 4.9, 60.0].map(round_step_down), [0.5, 1.0, 2.0, 50.0]);
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!([7, 999, 1000, 1_234_567].map(grouped), ["7", "999", "1,000", "1,234,567"]);
    }
}
