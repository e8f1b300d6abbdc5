//! Axes: their ends, and their marks.

/// An axis, linear or logarithmic.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    is_log: bool,
    low: f64,
    high: f64,
    pub ticks: Vec<f64>,
}

impl Axis {
    /// From 0, linear, a little beyond `values`.
    pub fn linear(values: impl Iterator<Item = f64>) -> Axis {
        let high = values.fold(0.0, f64::max);
        let high = if high > 0.0 { high * 1.05 } else { 1.0 };
        let step = nice_step(high / 5.0);
        let count = (high / step).floor() as usize;
        let ticks = (0..=count).map(|index| index as f64 * step).collect();
        Axis { is_log: false, low: 0.0, high, ticks }
    }

    /// Logarithmic, around the values above 0.
    pub fn log(values: impl Iterator<Item = f64>) -> Axis {
        let positive = values.filter(|value| *value > 0.0);
        let (low, high) = positive
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if high > 0.0 { (low / 2.0, high * 1.3) } else { (0.1, 10.0) };
        let decades = (high / low).log10();
        let steps: &[f64] = match decades {
            ..2.0 => &[1.0, 2.0, 5.0],
            ..4.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        Axis {
            is_log: true,
            low,
            high,
            ticks: all.filter(|tick| (low..=high).contains(tick)).collect(),
        }
    }

    /// Marks at these values only.
    pub fn with_ticks(mut self, ticks: Vec<f64>) -> Axis {
        self.ticks = ticks;
        self
    }

    /// The place of a value on the axis, 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        let on = |value: f64| if self.is_log { value.max(self.low).log10() } else { value };
        (on(value) - on(self.low)) / (on(self.high) - on(self.low))
    }

    /// The value at which bars begin.
    pub fn bottom(&self) -> f64 {
        self.low
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    *steps.iter().find(|step| **step >= least * 0.999).unwrap_or(&steps[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!(Axis::linear([3.9, 1.0].into_iter()).ticks, [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(Axis::log([1.0, 16.0].into_iter()).ticks, [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        let axis = Axis::log([1.0, 1e6].into_iter());
        assert_eq!(axis.ticks.len(), 7);
        assert!((0.5..0.55).contains(&axis.place(1e3)));
        assert_eq!(axis.place(0.0), 0.0);
        assert_eq!(Axis::linear([].into_iter()).ticks.first(), Some(&0.0));
    }
}
