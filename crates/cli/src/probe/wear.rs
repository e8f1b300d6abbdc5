//! `onejournal probe --watch`: how much is written to the disks below a directory or device, and
//! when their rated endurance is reached. It writes nothing and opens no device.
//!
//! What is counted are the bytes that the machine sends. Inside, flash writes more, because it
//! moves data and erases whole blocks.

use std::path::Path;
use std::time::{Duration, Instant};

use device::probe::{DiskStats, WholeDisk, disk_stats, disks_below};
use serde::Serialize;

use super::place::Kind;
use super::text::wrapped;
use crate::signals::EndSignals;
use crate::units::bytes;
use crate::{CliError, Result, say};

const DAY_S: f64 = 86_400.0;
const YEAR_DAYS: f64 = 365.25;
const TERABYTE: f64 = 1e12;
/// Lines of text from one heading to the next.
const HEADING_EVERY: u64 = 20;
/// Longer than any forecast means something.
const YEARS_MAX: f64 = 1e6;

/// What to watch, and how.
pub struct Watch<'a> {
    pub path: &'a Path,
    pub interval: Duration,
    /// Ends after so many intervals.
    pub count: Option<u64>,
    /// The rated endurance of each disk, in terabytes.
    pub tbw: Option<f64>,
    pub as_json: bool,
}

impl Watch<'_> {
    /// Prints a line for each disk after each interval, until SIGINT or SIGTERM, or until no
    /// interval is left.
    pub fn run(&self) -> Result<u8> {
        Kind::of(self.path)?;
        let disks = disks_of(self.path)?;
        let mut signals = EndSignals::catch()?;
        let first = Sample::take(self.path, &disks)?;
        if !self.as_json {
            say!("{}", self.introduction(&disks).trim_end());
        }
        let (mut before, mut due) = (first.clone(), first.at);
        for index in 0..self.count.unwrap_or(u64::MAX) {
            due += self.interval;
            if signals.wait_until(due)? {
                break;
            }
            let now = Sample::take(self.path, &disks)?;
            self.print(&disks, [&first, &before, &now], index)?;
            before = now;
        }
        Ok(0)
    }

    fn print(&self, disks: &[WholeDisk], samples: [&Sample; 3], index: u64) -> Result<()> {
        if !self.as_json && index.is_multiple_of(HEADING_EVERY) {
            say!("{}", heading(self.tbw));
        }
        for (disk_index, disk) in disks.iter().enumerate() {
            let wear = Wear::between(&disk.name, disk_index, samples, self.tbw);
            let text = if self.as_json { wear.json() } else { wear.text(self.tbw.is_some()) };
            say!("{text}");
        }
        Ok(())
    }

    /// What is watched, and what the numbers mean.
    fn introduction(&self, disks: &[WholeDisk]) -> String {
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        wrapped(
            "",
            &format!(
                "{} is on {}. From now on, the bytes that this machine sends to it are counted. The flash inside writes \
                 more than that, and what was written before is not known.",
                self.path.display(),
                names.join(", ")
            ),
        )
    }
}

/// The disks that `/proc/diskstats` counts for.
fn disks_of(path: &Path) -> Result<Vec<WholeDisk>> {
    let found = disks_below(path).map_err(|error| CliError::at(path, error))?;
    match found.disks {
        disks if disks.is_empty() => Err(CliError::at(
            path,
            "is on no disk that this machine knows (in memory, on a network, or in a container); name the block device",
        )),
        disks => Ok(disks),
    }
}

/// The bytes that each disk has received, in the order of the disks.
#[derive(Debug, Clone)]
struct Sample {
    at: Instant,
    written_bytes: Vec<u64>,
}

impl Sample {
    fn take(path: &Path, disks: &[WholeDisk]) -> Result<Sample> {
        let stats =
            disk_stats().map_err(|error| CliError::new(format!("/proc/diskstats: {error}")))?;
        let of_disk = |disk: &WholeDisk| {
            let is_it = |stats: &&DiskStats| stats.device == disk.device;
            let gone = || {
                let why = format!("its disk {} is not in /proc/diskstats: it is gone", disk.name);
                CliError::at(path, why)
            };
            stats.iter().find(is_it).map(|stats| stats.written_bytes).ok_or_else(gone)
        };
        let written_bytes = disks.iter().map(of_disk).collect::<Result<_>>()?;
        Ok(Sample { at: Instant::now(), written_bytes })
    }
}

/// What was written to one disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Wear {
    disk: String,
    /// The length of the interval.
    seconds: f64,
    /// In the interval.
    written_bytes: u64,
    /// In the interval.
    now_bytes_per_day: u64,
    /// Since the start.
    average_bytes_per_day: u64,
    /// At the average, until the rated endurance of a new disk is reached. Nothing without a
    /// rating, and if nothing is written.
    rated_years: Option<f64>,
}

impl Wear {
    /// Of the disk with this index, from the first sample, the one before, and the one now.
    fn between(
        name: &str,
        disk_index: usize,
        [first, before, now]: [&Sample; 3],
        tbw: Option<f64>,
    ) -> Wear {
        let of = |sample: &Sample| sample.written_bytes[disk_index];
        let rate = |since: &Sample| {
            // A counter that goes back counts as nothing.
            let grown = of(now).saturating_sub(of(since));
            (grown, grown as f64 / seconds(since, now) * DAY_S)
        };
        let ((written_bytes, now_rate), (_, average_rate)) = (rate(before), rate(first));
        Wear {
            disk: name.to_owned(),
            seconds: (seconds(before, now) * 1e3).round() / 1e3,
            written_bytes,
            // Neither is negative, and a rate beyond u64 is not possible.
            now_bytes_per_day: now_rate as u64,
            average_bytes_per_day: average_rate as u64,
            rated_years: tbw.and_then(|tbw| years(average_rate, tbw)),
        }
    }

    fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers always render")
    }

    fn text(&self, is_rated: bool) -> String {
        let years = match self.rated_years {
            Some(years) if years < 10.0 => format!("{years:.1}"),
            Some(years) => format!("{years:.0}"),
            None => "-".into(),
        };
        let line = format!(
            "{:16} {:>12} {:>12} {:>12}",
            self.disk,
            bytes(self.written_bytes),
            bytes(self.now_bytes_per_day),
            bytes(self.average_bytes_per_day)
        );
        if is_rated { format!("{line} {years:>24}") } else { line }
    }
}

fn seconds(since: &Sample, now: &Sample) -> f64 {
    (now.at - since.at).as_secs_f64().max(1e-9)
}

/// Years until `tbw` terabytes are written.
fn years(bytes_per_day: f64, tbw: f64) -> Option<f64> {
    let years = tbw * TERABYTE / bytes_per_day / YEAR_DAYS;
    (years < YEARS_MAX).then(|| (years * 10.0).round() / 10.0)
}

fn heading(tbw: Option<f64>) -> String {
    let line = format!("{:16} {:>12} {:>12} {:>12}", "disk", "written", "a day, now", "on average");
    match tbw {
        Some(tbw) => format!("{line} {:>24}", format!("years until {tbw} TB")),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples at these seconds, of disks that have received these bytes.
    fn samples(of: [(u64, [u64; 2]); 3]) -> [Sample; 3] {
        let start = Instant::now();
        of.map(|(at_s, written_bytes)| Sample {
            at: start + Duration::from_secs(at_s),
            written_bytes: written_bytes.to_vec(),
        })
    }

    fn wear(disk_index: usize, samples: &[Sample; 3], tbw: Option<f64>) -> Wear {
        let [first, before, now] = samples;
        Wear::between("sda", disk_index, [first, before, now], tbw)
    }

    #[test]
    fn rates_are_of_the_interval_and_of_all() {
        let samples = samples([(0, [1_000, 5]), (10, [2_000, 5]), (20, [5_000, 5])]);
        let found = wear(0, &samples, None);
        assert_eq!((found.seconds, found.written_bytes), (10.0, 3_000));
        assert_eq!(found.now_bytes_per_day, 3_000 * 8_640);
        assert_eq!(found.average_bytes_per_day, 4_000 * 4_320);
        assert_eq!(found.rated_years, None);
        let idle = wear(1, &samples, Some(600.0));
        assert_eq!((idle.now_bytes_per_day, idle.average_bytes_per_day), (0, 0));
        assert_eq!(idle.rated_years, None);
        assert!(idle.text(true).ends_with(" -"), "{}", idle.text(true));
    }

    #[test]
    fn a_counter_that_goes_back_counts_as_nothing() {
        let samples = samples([(0, [9, 0]), (10, [9, 0]), (20, [3, 0])]);
        assert_eq!(wear(0, &samples, None).written_bytes, 0);
    }

    #[test]
    fn years_are_those_of_the_rating() {
        // 100 GB a day, 365.25 days: 36.525 TB a year.
        assert_eq!(years(100e9, 365.25), Some(10.0));
        assert_eq!(years(0.0, 600.0), None);
        assert_eq!(years(1.0, 600.0), None, "a million years are no forecast");
    }

    #[test]
    fn lines_stand_below_their_heading() {
        let samples = samples([(0, [0, 0]), (10, [0, 0]), (20, [u64::MAX / 9_000, 0])]);
        for tbw in [None, Some(0.5), Some(123_456.0)] {
            let line = wear(0, &samples, tbw).text(tbw.is_some());
            let widths = [heading(tbw), line].map(|line| line.chars().count());
            assert!(widths[0] == widths[1] && widths[0] <= 80, "{widths:?}");
        }
    }
}
