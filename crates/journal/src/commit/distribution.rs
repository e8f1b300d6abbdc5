//! Distributions: how long commits take, and how many syncs each of them serves.

use std::time::Duration;

use device::sync::Mutex;
use hdrhistogram::Histogram;

/// Shortest and longest latency that are distinguished, in nanoseconds: 1 µs and 60 s.
const LATENCY_NS: (u64, u64) = (1_000, 60_000_000_000);
/// Largest group that is distinguished.
const GROUP_LIMIT: u64 = 1 << 16;
/// Significant decimal digits of a value.
const DIGITS: u8 = 2;
/// The number of buckets of [`Distribution::buckets`] from one power of two to the next, as a power
/// of two.
const STEPS_LOG2: u32 = 4;

/// What was observed since the journal was opened.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution {
    /// Observations.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The value that half of them do not exceed; this and the others are exact to 1 %.
    pub p50: u64,
    /// 90 % do not exceed it.
    pub p90: u64,
    /// 99 % do not exceed it.
    pub p99: u64,
    /// 99.9 % do not exceed it.
    pub p999: u64,
    /// The largest.
    pub max: u64,
    /// Upper bound (inclusive) and number of observations of each bucket that is not empty,
    /// ascending. Every value up to 31 has a bucket; above that there are 16 buckets from one power
    /// of two to the next. So `2^n - 1` is always a bound.
    pub buckets: Vec<(u64, u64)>,
}

struct Series {
    histogram: Histogram<u64>,
    sum: u64,
    max: u64,
}

/// The distributions that each commit adds to. The lock is taken last, and held for a few
/// instructions.
pub(crate) struct Distributions {
    series: Mutex<[Series; 2]>,
}

impl Distributions {
    pub(crate) fn new() -> Distributions {
        let (low, high) = LATENCY_NS;
        Distributions { series: Mutex::new([Series::new(low, high), Series::new(1, GROUP_LIMIT)]) }
    }

    /// A commit took `latency` and served `sync_count` calls of `sync`.
    pub(crate) fn add_commit(&self, latency: Duration, sync_count: u64) {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let [latencies, groups] = &mut *self.series.lock();
        latencies.add(latency_ns);
        groups.add(sync_count);
    }

    /// Latencies of commits in nanoseconds, and syncs served by each.
    pub(crate) fn snapshot(&self) -> (Distribution, Distribution) {
        let [latencies, groups] = &*self.series.lock();
        (latencies.snapshot(), groups.snapshot())
    }
}

impl Series {
    fn new(low: u64, high: u64) -> Series {
        let histogram = Histogram::new_with_bounds(low, high, DIGITS);
        Series { histogram: histogram.expect("the bounds are valid"), sum: 0, max: 0 }
    }

    /// A value outside of the bounds is counted as the bound.
    fn add(&mut self, value: u64) {
        self.histogram.saturating_record(value);
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    fn snapshot(&self) -> Distribution {
        let quantile = |q| self.histogram.value_at_quantile(q).min(self.max);
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        for step in self.histogram.iter_recorded() {
            let bound = bucket_bound(step.value_iterated_to());
            match buckets.last_mut() {
                Some((last, count)) if *last == bound => {
                    *count += step.count_since_last_iteration()
                }
                _ => buckets.push((bound, step.count_since_last_iteration())),
            }
        }
        Distribution {
            count: self.histogram.len(),
            sum: self.sum,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: self.max,
            buckets,
        }
    }
}

/// Upper bound of the bucket that holds `value`.
fn bucket_bound(value: u64) -> u64 {
    let bits = u64::BITS - value.leading_zeros();
    value | ((1 << bits.saturating_sub(STEPS_LOG2 + 1)) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_sixteen_to_the_octave() {
        assert_eq!([0, 1, 31].map(bucket_bound), [0, 1, 31]);
        assert_eq!([32, 33, 34].map(bucket_bound), [33, 33, 35]);
        assert_eq!([1023, 1024, 1087, 1088].map(bucket_bound), [1023, 1087, 1087, 1151]);
        assert_eq!(bucket_bound(u64::MAX), u64::MAX);
    }

    #[test]
    fn added_commits_are_found() {
        let both = Distributions::new();
        for n in 1..=1000u64 {
            both.add_commit(Duration::from_micros(n), n % 3);
        }
        let (latency, groups) = both.snapshot();
        assert_eq!((latency.count, latency.sum, latency.max), (1000, 500_500_000, 1_000_000));
        for (found, wanted) in [(latency.p50, 500_000), (latency.p99, 990_000)] {
            assert!(u64::abs_diff(found, wanted) <= wanted / 100, "{found} for {wanted}");
        }
        assert_eq!(latency.buckets.iter().map(|(_, count)| count).sum::<u64>(), 1000);
        assert!(latency.buckets.is_sorted());
        // 1 to 65 µs are below 2^16 ns, to the microsecond.
        let below = latency.buckets.iter().filter(|(bound, _)| *bound < 1 << 16);
        assert_eq!(below.map(|(_, count)| count).sum::<u64>(), 65);
        assert_eq!(groups.buckets, [(0, 333), (1, 334), (2, 333)]);
    }

    #[test]
    fn extremes_are_counted_at_the_bounds() {
        let both = Distributions::new();
        both.add_commit(Duration::ZERO, 0);
        both.add_commit(Duration::from_secs(1 << 40), u64::MAX);
        let (latency, groups) = both.snapshot();
        assert_eq!((latency.count, groups.count), (2, 2));
        assert_eq!(latency.max, u64::MAX);
        // A bucket takes at most 40 characters as JSON; they must fit into an attribute.
        for value in 0..64 {
            both.add_commit(Duration::from_nanos(1 << value), 1 << value);
        }
        assert!(both.snapshot().0.buckets.len() < 500);
    }
}
