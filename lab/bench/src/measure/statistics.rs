//! Medians, quartiles and ratios of samples.

/// The value below which `part` (0 to 1) of the samples are, interpolated.
pub fn quantile(samples: &[f64], part: f64) -> f64 {
    assert!(!samples.is_empty(), "a quantile of nothing");
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// The middle one.
pub fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// The geometric mean, which is the mean for ratios.
pub fn geometric_mean(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "a mean of nothing");
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (sum / values.len() as f64).exp()
}

/// The comparison of two sides that were measured in the same rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Ratio of the medians.
    pub of_medians: f64,
    /// Lower and upper quartile of the ratios of each round.
    pub low: f64,
    pub high: f64,
}

/// `left` compared with `right`: samples of the same rounds in the same order.
pub fn ratio(left: &[f64], right: &[f64]) -> Ratio {
    let rounds: Vec<f64> = left.iter().zip(right).map(|(left, right)| left / right).collect();
    Ratio {
        of_medians: median(left) / median(right),
        low: quantile(&rounds, 0.25),
        high: quantile(&rounds, 0.75),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        let samples = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&samples), 2.5);
        assert_eq!((quantile(&samples, 0.0), quantile(&samples, 1.0)), (1.0, 4.0));
        assert_eq!(quantile(&[7.0], 0.25), 7.0);
        assert!((geometric_mean(&[0.5, 2.0]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn rounds_are_compared_one_by_one() {
        let found = ratio(&[1.0, 2.0, 30.0], &[2.0, 4.0, 60.0]);
        assert_eq!(found, Ratio { of_medians: 0.5, low: 0.5, high: 0.5 });
    }
}
