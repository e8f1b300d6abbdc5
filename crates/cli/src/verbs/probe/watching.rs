//! `onejournal probe --watch`: how much is written to the disks below a directory or device, and
//! when their rated endurance is reached. It writes nothing and opens no device.
//!
//! The counters hold the bytes that the machine sends. Inside, flash writes more, because it moves
//! data and erases whole blocks.

use std::path::Path;
use std::time::{Duration, Instant};

use probe::{DiskStats, History, Interval, Sample, Wear, WholeDisk, disk_stats, disks_below};
use rustix::time::{ClockId, clock_gettime};

use super::place::Kind;
use super::text::wrapped;
use crate::output::say_json;
use crate::output::{complain, plain_path};
use crate::signals::EndSignals;
use crate::units::bytes;
use crate::{CliError, Result, say};

/// Lines of text from one heading to the next.
const HEADING_EVERY: u64 = 20;
/// A last interval that a signal ends is shown if it is as long as this.
const LAST_INTERVAL_MIN: Duration = Duration::from_secs(1);

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
        let mut history = History::since(self.sample(&disks)?);
        if !self.as_json {
            say!("{}", self.introduction(&disks).trim_end());
        }
        let mut due = Instant::now() + self.interval;
        for index in 0..self.count.unwrap_or(u64::MAX) {
            let is_ended = signals.wait_until(due)?;
            if is_ended && now().saturating_sub(history.last_at()) < LAST_INTERVAL_MIN {
                break;
            }
            let intervals = history.add(self.sample(&disks)?);
            self.print(&disks, &intervals, index)?;
            if is_ended {
                break;
            }
            due = next_due(due, self.interval, Instant::now());
        }
        Ok(0)
    }

    fn print(&self, disks: &[WholeDisk], intervals: &[Interval], index: u64) -> Result<()> {
        if !self.as_json && index.is_multiple_of(HEADING_EVERY) {
            say!("{}", heading(self.tbw));
        }
        for (disk, interval) in disks.iter().zip(intervals) {
            if interval.went_back {
                complain!(
                    "onejournal: {}: warning: its counter went back; what was written before that \
                     in this interval is not counted",
                    disk.name
                );
            }
            let wear = Wear::of(&disk.name, interval, self.tbw);
            if self.as_json {
                say_json!(serde_json::to_string(&wear).expect("numbers always render"));
            } else {
                say!("{}", line(&wear, self.tbw.is_some()));
            }
        }
        Ok(())
    }

    /// What is watched, and what the numbers mean.
    fn introduction(&self, disks: &[WholeDisk]) -> String {
        let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        wrapped(
            "",
            &format!(
                "{} is on {}. From now on, the bytes that this machine sends to it are counted. \
                 The flash inside writes more than that, and what was written before is not known.",
                plain_path(self.path),
                names.join(", ")
            ),
        )
    }

    /// The bytes that each disk has received, in the order of the disks.
    fn sample(&self, disks: &[WholeDisk]) -> Result<Sample> {
        let stats =
            disk_stats().map_err(|error| CliError::new(format!("/proc/diskstats: {error}")))?;
        let of_disk = |disk: &WholeDisk| {
            let found = written_bytes(disk, disk.is_still_there(), &stats);
            found.map_err(|why| CliError::at(self.path, why))
        };
        let written_bytes = disks.iter().map(of_disk).collect::<Result<_>>()?;
        Ok(Sample { at: now(), written_bytes })
    }
}

/// The titles of the columns.
fn heading(tbw: Option<f64>) -> String {
    let line = format!("{:16} {:>12} {:>12} {:>12}", "disk", "written", "a day, now", "on average");
    match tbw {
        Some(tbw) => format!("{line} {:>24}", format!("years until {tbw} TB")),
        None => line,
    }
}

/// The line of a disk.
fn line(wear: &Wear, is_rated: bool) -> String {
    let years = match wear.rated_years {
        Some(years) if years < 10.0 => format!("{years:.1}"),
        Some(years) => format!("{years:.0}"),
        None => "-".into(),
    };
    let line = format!(
        "{:16} {:>12} {:>12} {:>12}",
        wear.disk,
        bytes(wear.written_bytes),
        bytes(wear.now_bytes_per_day),
        bytes(wear.average_bytes_per_day)
    );
    if is_rated { format!("{line} {years:>24}") } else { line }
}

/// What the kernel has counted of a disk. An error if the disk is gone, or if its numbers belong to
/// another one by now.
fn written_bytes(
    disk: &WholeDisk,
    is_still_there: bool,
    stats: &[DiskStats],
) -> std::result::Result<u64, String> {
    let Some(found) = stats.iter().find(|stats| stats.device == disk.device) else {
        return Err(format!("its disk {} is not in /proc/diskstats: it is gone", disk.name));
    };
    match is_still_there && found.name == disk.name {
        true => Ok(found.written_bytes),
        false => Err(format!("its disk {} was replaced by another one", disk.name)),
    }
}

/// Time since the machine started, also while it was suspended.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::try_from(now).expect("it is not before the start")
}

/// When the next sample is due. After a late one, a whole interval passes.
fn next_due(due: Instant, interval: Duration, now: Instant) -> Instant {
    let next = due + interval;
    if next > now { next } else { now + interval }
}

/// The disks that `/proc/diskstats` counts for.
fn disks_of(path: &Path) -> Result<Vec<WholeDisk>> {
    let found = disks_below(path).map_err(|error| CliError::at(path, error))?;
    match found.disks {
        disks if disks.is_empty() => Err(CliError::at(
            path,
            "is on no disk that this machine knows (in memory, on a network, or in a container); \
             name the block device",
        )),
        disks => Ok(disks),
    }
}

#[cfg(test)]
mod tests {
    use probe::{WriteCache, parse_disk_stats};

    use super::*;

    #[test]
    fn a_disk_that_is_gone_or_was_replaced_is_an_error() {
        let disk = WholeDisk {
            device: (8, 0),
            name: "sda".into(),
            write_cache: WriteCache::Unknown,
            sequence_number: Some(7),
        };
        let found = |is_still_there, line: &str| {
            written_bytes(&disk, is_still_there, &parse_disk_stats(line))
        };
        let line = "8 0 sda 1 0 1 1 1 0 10 1 0 1 1";
        assert_eq!(found(true, line), Ok(5120));
        assert!(found(false, line).unwrap_err().contains("sda was replaced"));
        assert!(found(true, &line.replace("sda", "sdb")).unwrap_err().contains("was replaced"));
        assert!(found(true, "8 1 sda 1 0 1 1 1 0 10 1 0 1 1").unwrap_err().contains("is gone"));
    }

    #[test]
    fn after_a_late_sample_a_whole_interval_passes() {
        let (start, interval) = (Instant::now(), Duration::from_secs(10));
        let next_s = |now_s| {
            let next = next_due(start, interval, start + Duration::from_secs(now_s));
            (next - start).as_secs()
        };
        assert_eq!([next_s(0), next_s(9), next_s(10), next_s(25)], [10, 10, 20, 35]);
    }

    #[test]
    fn the_clock_goes_on() {
        let before = now();
        assert!(now() >= before && before > Duration::ZERO);
    }

    #[test]
    fn lines_stand_below_their_heading() {
        let wear = |rated_years, bytes| Wear {
            disk: "sda".into(),
            seconds: 10.0,
            written_bytes: bytes,
            now_bytes_per_day: bytes,
            average_bytes_per_day: bytes,
            rated_years,
        };
        for (tbw, years) in [(None, None), (Some(0.5), Some(0.1)), (Some(123_456.0), Some(1e5))] {
            for bytes in [0, u64::MAX] {
                let line = line(&wear(years, bytes), tbw.is_some());
                let widths = [heading(tbw), line].map(|line| line.chars().count());
                assert!(widths[0] == widths[1] && widths[0] <= 80, "{widths:?}");
            }
        }
        let idle = line(&wear(None, 0), true);
        assert!(idle.ends_with(" -"), "{idle}");
    }
}
