//! How long each of many operations took.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

/// Shortest and longest latency that are distinguished, in nanoseconds: 16 ns and 10 minutes.
const LATENCY_NS: (u64, u64) = (16, 600_000_000_000);
/// With fewer observations, the 99th percentile is the longest of them.
pub const COUNT_FOR_P99: u64 = 100;
/// Significant decimal digits of a value.
const DIGITS: u8 = 2;

/// Latencies that were observed, exact to 1 %.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
    max_ns: u64,
}

/// What latencies were like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Observations.
    pub count: u64,
    /// Half of them took at most this long.
    pub p50_ns: u64,
    /// 99 % of them took at most this long. With fewer than [`COUNT_FOR_P99`]
    /// observations this is the longest.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// There are too few observations for a 99th percentile.
    pub p99_is_max: bool,
}

impl Default for Latencies {
    fn default() -> Self {
        let (low, high) = LATENCY_NS;
        let histogram = Histogram::new_with_bounds(low, high, DIGITS);
        Latencies { histogram: histogram.expect("the bounds are valid"), max_ns: 0 }
    }
}

impl Latencies {
    /// One more observation.
    pub fn add(&mut self, latency: Duration) {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Runs `operation` and adds how long it took. A failed operation is not added.
    pub(crate) fn time<E>(
        &mut self,
        operation: impl FnOnce() -> Result<(), E>,
    ) -> Result<Duration, E> {
        let start = Instant::now();
        operation()?;
        let latency = start.elapsed();
        self.add(latency);
        Ok(latency)
    }

    /// The number of observations.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Adds all observations of `other`.
    pub(crate) fn merge(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("the bounds are the same");
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The percentiles; `None` without an observation.
    pub fn percentiles(&self) -> Option<Latency> {
        let count = self.histogram.len();
        let quantile = |q| self.histogram.value_at_quantile(q).min(self.max_ns);
        (count > 0).then(|| Latency {
            count,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            max_ns: self.max_ns,
            p99_is_max: count < COUNT_FOR_P99,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        micros.into_iter().for_each(|micros| latencies.add(Duration::from_micros(micros)));
        latencies
    }

    #[test]
    fn percentiles_are_those_of_the_observations() {
        assert_eq!(Latencies::default().percentiles(), None);
        let found = of(1..=1000).percentiles().expect("observed");
        assert_eq!((found.count, found.max_ns), (1000, 1_000_000));
        for (found, wanted) in [(found.p50_ns, 500_000), (found.p99_ns, 990_000)] {
            assert!(u64::abs_diff(found, wanted) <= wanted / 100, "{found} for {wanted}");
        }
    }

    #[test]
    fn the_99th_of_few_observations_is_the_longest() {
        let found = of((1..=99).rev()).percentiles().expect("observed");
        assert_eq!(found.p99_ns, found.max_ns);
        let one = of([7]).percentiles().expect("observed");
        assert_eq!((one.p50_ns, one.p99_ns, one.max_ns), (7_000, 7_000, 7_000));
        let enough = of(1..=COUNT_FOR_P99).percentiles().expect("observed");
        assert!(enough.p99_ns < enough.max_ns, "{enough:?}");
    }

    #[test]
    fn merged_latencies_are_those_of_both() {
        let mut both = of(1..=500);
        both.merge(&of(501..=1000));
        assert_eq!(both.percentiles(), of(1..=1000).percentiles());
    }

    #[test]
    fn a_latency_outside_of_the_bounds_is_counted() {
        let mut latencies = of([]);
        latencies.add(Duration::ZERO);
        latencies.add(Duration::from_secs(1 << 40));
        let found = latencies.percentiles().expect("observed");
        assert_eq!((found.count, found.max_ns), (2, u64::MAX));
    }

    #[test]
    fn a_failed_operation_is_not_timed() {
        let mut latencies = of([]);
        latencies.time(|| Err("no")).expect_err("it fails");
        latencies.time(|| Ok::<(), ()>(())).expect("it succeeds");
        assert_eq!(latencies.percentiles().expect("observed").count, 1);
    }
}
