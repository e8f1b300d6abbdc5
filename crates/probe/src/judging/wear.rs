//! What was written to disks, and when their rated endurance is reached.
//!
//! The growth of a counter is summed interval by interval. So a counter that goes back, because it
//! overflowed or was reset, costs one interval and not the whole forecast.

use std::time::Duration;

use serde::Serialize;

const DAY_S: f64 = 86_400.0;
const YEAR_DAYS: f64 = 365.25;
const TERABYTE: f64 = 1e12;
/// Longer than any forecast means something.
const YEARS_MAX: f64 = 1e6;

/// The bytes that each disk has received, as the kernel counts them.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Time since the machine started.
    pub at: Duration,
    /// In the order of the disks.
    pub written_bytes: Vec<u64>,
}

/// What happened since the first sample.
#[derive(Debug)]
pub struct History {
    began_at: Duration,
    last: Sample,
    total_bytes: Vec<u64>,
}

/// What was written to one disk from one sample to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// How long it was.
    pub elapsed: Duration,
    /// What was written in it.
    pub written_bytes: u64,
    /// The counter is smaller than before: only what it has counted since then is known.
    pub went_back: bool,
    /// Since the first sample.
    pub total_elapsed: Duration,
    /// Since the first sample.
    pub total_bytes: u64,
}

impl History {
    /// Begins with the first sample.
    pub fn since(first: Sample) -> History {
        let total_bytes = vec![0; first.written_bytes.len()];
        History { began_at: first.at, last: first, total_bytes }
    }

    /// When the last sample was taken.
    pub fn last_at(&self) -> Duration {
        self.last.at
    }

    /// One more sample. Returns the interval that it ends, for each disk.
    pub fn add(&mut self, now: Sample) -> Vec<Interval> {
        let elapsed = now.at.saturating_sub(self.last.at);
        let total_elapsed = now.at.saturating_sub(self.began_at);
        let counters = self.last.written_bytes.iter().zip(&now.written_bytes);
        let of_disk = |((before, now), total_bytes): ((&u64, &u64), &mut u64)| {
            let went_back = now < before;
            let written_bytes = if went_back { *now } else { now - before };
            *total_bytes = total_bytes.saturating_add(written_bytes);
            let total_bytes = *total_bytes;
            Interval { elapsed, written_bytes, went_back, total_elapsed, total_bytes }
        };
        let intervals = counters.zip(&mut self.total_bytes).map(of_disk).collect();
        self.last = now;
        intervals
    }
}

/// How fast one disk is written to, in an interval and since the start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wear {
    /// Its name.
    pub disk: String,
    /// The length of the interval.
    pub seconds: f64,
    /// In the interval.
    pub written_bytes: u64,
    /// In the interval.
    pub now_bytes_per_day: u64,
    /// Since the start.
    pub average_bytes_per_day: u64,
    /// At the average, until the rated endurance of a new disk is reached. Nothing without a
    /// rating, and if nothing is written.
    pub rated_years: Option<f64>,
}

impl Wear {
    /// The rates of an interval. `tbw`: the rated endurance, in terabytes.
    pub fn of(name: &str, interval: &Interval, tbw: Option<f64>) -> Wear {
        let now_rate = per_day(interval.written_bytes, interval.elapsed);
        let average_rate = per_day(interval.total_bytes, interval.total_elapsed);
        Wear {
            disk: name.to_owned(),
            seconds: (interval.elapsed.as_secs_f64() * 1e3).round() / 1e3,
            written_bytes: interval.written_bytes,
            // Neither is negative, and a rate beyond u64 is not possible.
            now_bytes_per_day: now_rate as u64,
            average_bytes_per_day: average_rate as u64,
            rated_years: tbw.and_then(|tbw| years(average_rate, tbw)),
        }
    }
}

fn per_day(written_bytes: u64, elapsed: Duration) -> f64 {
    written_bytes as f64 / elapsed.as_secs_f64().max(1e-9) * DAY_S
}

/// Years until `tbw` terabytes are written.
fn years(bytes_per_day: f64, tbw: f64) -> Option<f64> {
    let years = tbw * TERABYTE / bytes_per_day / YEAR_DAYS;
    (years < YEARS_MAX).then(|| (years * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last interval of samples at these seconds, of disks that have received these bytes.
    fn last<const N: usize>(of: [(u64, [u64; 2]); N]) -> Vec<Interval> {
        let mut samples = of.into_iter().map(|(at_s, written_bytes)| Sample {
            at: Duration::from_secs(at_s),
            written_bytes: written_bytes.to_vec(),
        });
        let mut history = History::since(samples.next().unwrap());
        samples.map(|sample| history.add(sample)).last().unwrap()
    }

    #[test]
    fn rates_are_of_the_interval_and_of_all() {
        let intervals = last([(0, [1_000, 5]), (10, [2_000, 5]), (20, [5_000, 5])]);
        let found = Wear::of("sda", &intervals[0], None);
        assert_eq!((found.seconds, found.written_bytes), (10.0, 3_000));
        assert_eq!(found.now_bytes_per_day, 3_000 * 8_640);
        assert_eq!(found.average_bytes_per_day, 4_000 * 4_320);
        assert_eq!(found.rated_years, None);
        let idle = Wear::of("sda", &intervals[1], Some(600.0));
        assert_eq!((idle.now_bytes_per_day, idle.average_bytes_per_day), (0, 0));
        assert_eq!(idle.rated_years, None);
    }

    #[test]
    fn a_counter_that_goes_back_costs_one_interval_only() {
        let back = last([(0, [900, 0]), (10, [1_000, 0]), (20, [30, 0])]);
        assert_eq!((back[0].written_bytes, back[0].went_back), (30, true));
        assert_eq!((back[0].total_bytes, back[1].went_back), (130, false));
        // 100, 30 and 70 in 30 s, although the counter is less than at the start.
        let after = last([(0, [900, 0]), (10, [1_000, 0]), (20, [30, 0]), (30, [100, 0])]);
        assert_eq!((after[0].written_bytes, after[0].went_back), (70, false));
        assert_eq!((after[0].total_bytes, after[0].total_elapsed.as_secs()), (200, 30));
        assert_eq!(Wear::of("sda", &after[0], None).average_bytes_per_day, 200 * 2_880);
    }

    #[test]
    fn years_are_those_of_the_rating() {
        // 100 GB a day, 365.25 days: 36.525 TB a year.
        assert_eq!(years(100e9, 365.25), Some(10.0));
        assert_eq!(years(0.0, 600.0), None);
        assert_eq!(years(1.0, 600.0), None, "a million years are no forecast");
    }
}
