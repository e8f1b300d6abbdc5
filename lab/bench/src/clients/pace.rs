//! When the records of a stream are due, or the commits of a cluster's clients.

use std::time::{Duration, Instant};

/// The due times of one stream.
pub struct Pace {
    first: Instant,
    interval: Duration,
}

impl Pace {
    /// The due times of stream `number` of `count`. The phases are spread evenly over one interval.
    pub fn new(start: Instant, interval: Duration, number: u32, count: u32) -> Pace {
        let phase = interval.mul_f64(f64::from(number) / f64::from(count));
        Pace { first: start + phase, interval }
    }

    /// When record `index` is due; `None` if there is no interval.
    pub fn due(&self, index: u64) -> Option<Instant> {
        let is_paced = !self.interval.is_zero();
        is_paced.then(|| self.first + self.interval.mul_f64(index as f64))
    }

    /// How many records are due before `end`.
    pub fn due_before(&self, end: Instant) -> Option<u64> {
        let span = end.saturating_duration_since(self.first).as_nanos();
        let interval = self.interval.as_nanos();
        (interval > 0).then(|| u64::try_from(span.div_ceil(interval)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_due_evenly_and_streams_take_turns() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let pace = Pace::new(start, second, 1, 4);
        assert_eq!(pace.due(0), Some(start + Duration::from_millis(250)));
        assert_eq!(pace.due(3), Some(start + Duration::from_millis(3250)));
        assert_eq!(pace.due_before(start + second), Some(1));
        assert_eq!(pace.due_before(start + Duration::from_millis(1250)), Some(1));
        assert_eq!(pace.due_before(start + Duration::from_millis(1251)), Some(2));
        let unpaced = Pace::new(start, Duration::ZERO, 1, 4);
        assert_eq!((unpaced.due(5), unpaced.due_before(start + second)), (None, None));
    }
}
