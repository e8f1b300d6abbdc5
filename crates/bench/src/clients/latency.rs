//! How long calls took: a histogram, and the figures of it that are printed.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// What takes longer counts as this.
const LONGEST: Duration = Duration::from_secs(3600);

/// Durations, kept to three digits.
pub struct Latencies(Histogram<u64>);

/// Microseconds.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub count: u64,
    pub mean_us: f64,
    pub min_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        let found = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3);
        Latencies(found.expect("bounds and digits that are allowed"))
    }
}

impl Latencies {
    /// Counts one call.
    pub fn record(&mut self, took: Duration) {
        self.record_ns(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts one call.
    pub fn record_ns(&mut self, took_ns: u64) {
        self.0.saturating_record(took_ns.max(1));
    }

    /// The figures.
    pub fn summary(&self) -> Summary {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        let or_zero = |value: f64| if self.0.is_empty() { 0.0 } else { value };
        Summary {
            count: self.0.len(),
            mean_us: or_zero(self.0.mean() / 1e3),
            min_us: or_zero(self.0.min() as f64 / 1e3),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max() as f64 / 1e3,
        }
    }
}

impl Extend<u64> for Latencies {
    /// Nanoseconds.
    fn extend<I: IntoIterator<Item = u64>>(&mut self, all: I) {
        all.into_iter().for_each(|took_ns| self.record_ns(took_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_what_was_recorded() {
        let mut latencies = Latencies::default();
        assert_eq!((latencies.summary().count, latencies.summary().mean_us), (0, 0.0));
        latencies.extend((1..=1000).map(|micros| micros * 1000));
        let summary = latencies.summary();
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.002;
        assert_eq!(summary.count, 1000);
        for (value, expected) in [
            (summary.min_us, 1.0),
            (summary.mean_us, 500.5),
            (summary.p50_us, 500.0),
            (summary.p90_us, 900.0),
            (summary.p99_us, 990.0),
            (summary.p999_us, 999.0),
            (summary.max_us, 1000.0),
        ] {
            assert!(near(value, expected), "{summary:?}");
        }
        latencies.record(Duration::from_secs(3600));
        assert!(near(latencies.summary().max_us, 3.6e9), "{:?}", latencies.summary());
    }
}
