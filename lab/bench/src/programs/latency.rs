//! Latencies of requests: the few numbers that a table or a plot needs.

use serde::{Deserialize, Serialize};

/// A distribution of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    pub count: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

impl Latency {
    /// From each request's time; `None` without requests.
    pub fn of(mut samples_ns: Vec<u64>) -> Option<Latency> {
        samples_ns.sort_unstable();
        let max_ns = *samples_ns.last()?;
        let count = samples_ns.len();
        let total: u128 = samples_ns.iter().map(|ns| u128::from(*ns)).sum();
        // The smallest sample that at least so many thousandths do not exceed.
        let at = |thousandths: usize| samples_ns[(count * thousandths).div_ceil(1000).max(1) - 1];
        Some(Latency {
            count: count as u64,
            mean_ns: (total / count as u128) as u64,
            p50_ns: at(500),
            p95_ns: at(950),
            p99_ns: at(990),
            p999_ns: at(999),
            max_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks() {
        let latency = Latency::of((1..=1000).rev().collect()).unwrap();
        assert_eq!((latency.count, latency.mean_ns, latency.max_ns), (1000, 500, 1000));
        assert_eq!((latency.p50_ns, latency.p95_ns, latency.p99_ns), (500, 950, 990));
        assert_eq!(latency.p999_ns, 999);
        let one = Latency::of(vec![7]).unwrap();
        assert_eq!((one.p50_ns, one.p999_ns, one.max_ns), (7, 7, 7));
        assert_eq!(Latency::of(Vec::new()), None);
    }
}
