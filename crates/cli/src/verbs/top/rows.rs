//! Makes the parts of the screen as tables of text.

use crate::inventory::{FileCounters, SeenLog, SeenMount, StreamCounters};
use crate::units::{bytes, count, nanoseconds, ratio};
use crate::verbs::stat::{Amplification, Flushes, written_since_ready};

use super::view::View;

/// The length of the bar for the largest count in the histogram.
const BAR_LEN: u64 = 30;
const NONE: &str = "-";

/// A part.
pub struct Table {
    pub title: String,
    pub heading: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    /// The row that is highlighted.
    pub marked: Option<usize>,
    /// Text that is shown if there are no rows.
    pub empty: &'static str,
}

pub fn volumes(view: &View) -> Table {
    let rows: Vec<_> = view.volumes().iter().map(|volume| volume_row(view, volume)).collect();
    Table {
        title: "Volumes".into(),
        heading: vec![
            "MOUNTED ON",
            "STATE",
            "COMMITS/s",
            "FSYNCS/s",
            "PROGRAMS/s",
            "DEVICE/s",
            "FLUSHES/FSYNC",
            "AMPLIFICATION",
            "P99",
            "STALLS",
            "FREE",
            "DURABILITY",
        ],
        marked: (!rows.is_empty()).then(|| view.chosen_index()),
        rows,
        empty: "no volume is mounted",
    }
}

fn volume_row(view: &View, volume: &SeenMount) -> Vec<String> {
    let counters = &volume.counters;
    let mut row = vec![volume.dir.display().to_string(), volume.state.name().into()];
    if counters.0.is_empty() {
        row.resize(12, NONE.into());
        return row;
    }
    let seconds = seconds(view, volume);
    let before = view.before(volume).map(|before| &before.counters);
    let rate = |number: &dyn Fn(&crate::counters::Counters) -> u64| {
        let grown = number(counters).saturating_sub(before.map_or(0, number));
        grown as f64 / seconds
    };
    let of = |name: &'static str| rate(&|counters| counters.number(name));
    let or_none = |value: Option<f64>| value.map_or(NONE.into(), ratio);
    row.extend([
        format!("{:.1}", of("commits")),
        format!("{:.1}", of("fsyncs")),
        bytes(of("app_bytes") as u64),
        bytes(rate(&written_since_ready) as u64),
        or_none(Flushes::of(counters).ratio()),
        or_none(Amplification::of(counters).ratio()),
        match counters.number("commit_latency_ns.count") {
            0 => NONE.into(),
            _ => nanoseconds(counters.number("commit_latency_ns.p99")),
        },
        count(counters.number("stalls")),
        bytes(counters.number("available_bytes")),
        counters.text("durability").unwrap_or(NONE).into(),
    ]);
    row
}

/// The time that rates refer to: since the previous sample, or since the mount.
fn seconds(view: &View, volume: &SeenMount) -> f64 {
    let Some(sample) = &view.sample else { return 1.0 };
    match (&view.before, view.before(volume)) {
        (Some(before), Some(_)) => (sample.at - before.at).as_secs_f64().max(0.001),
        _ => {
            let mounted_s = volume.counters.number("mount_time_s");
            sample.now_s.saturating_sub(mounted_s).max(1) as f64
        }
    }
}

pub fn files(view: &View) -> Table {
    let dir = view.chosen_volume().map(|volume| volume.dir.display().to_string());
    Table {
        title: format!("Files of {} by {}", dir.as_deref().unwrap_or(NONE), view.order.name()),
        heading: vec!["FILE", "JOURNAL", "AMPLIFICATION", "PROGRAMS", "FSYNCS", "IN PLACE", "HOME"],
        rows: view.files().into_iter().map(file_row).collect(),
        marked: None,
        empty: "nothing was written since the mount",
    }
}

fn file_row(file: &FileCounters) -> Vec<String> {
    vec![
        file.name.clone().unwrap_or_else(|| format!("inode {}", file.ino)),
        bytes(file.journal_bytes),
        file.write_amplification.map_or(NONE.into(), ratio),
        bytes(file.app_bytes),
        count(file.fsyncs),
        bytes(file.in_place_bytes),
        bytes(file.home_bytes),
    ]
}

/// Commits of the chosen volume by latency, in powers of two: since the previous sample, or, if
/// there were none, since the mount.
pub fn histogram(view: &View) -> Table {
    let buckets = |volume: &SeenMount| volume.counters.buckets("commit_latency_ns");
    let all = view.chosen_volume().map_or(Vec::new(), buckets);
    let before = view.chosen_volume().and_then(|volume| view.before(volume)).map(buckets);
    let counted = before.map(|before| octaves(&all, &before)).filter(|counts| !counts.is_empty());
    let (counts, since) = match counted {
        Some(counts) => (counts, "the last sample"),
        None => (octaves(&all, &[]), "the mount"),
    };
    let largest = counts.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let row = |(bound_ns, number): &(u64, u64)| {
        let len = number.saturating_mul(BAR_LEN).div_ceil(largest).min(BAR_LEN);
        vec![
            format!("< {}", nanoseconds(*bound_ns)),
            count(*number),
            "█".repeat(len as usize) + &" ".repeat((BAR_LEN - len) as usize),
        ]
    };
    Table {
        title: format!("Commit latency since {since}"),
        heading: vec!["LATENCY", "COMMITS", ""],
        rows: counts.iter().map(row).collect(),
        marked: None,
        empty: "nothing was committed",
    }
}

/// Upper bounds, as powers of two, and the counts of `all` minus those of `before`, from the first
/// that is not 0 to the last.
fn octaves(all: &[(u64, u64)], before: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut counts = [0u64; 64];
    let octave = |bound: u64| usize::try_from(bound.max(1).ilog2()).expect("63 at most");
    for (bound, count) in all {
        let counted = &mut counts[octave(*bound)];
        *counted = counted.saturating_add(*count);
    }
    for (bound, count) in before {
        let counted = &mut counts[octave(*bound)];
        *counted = counted.saturating_sub(*count);
    }
    let Some(first) = counts.iter().position(|count| *count > 0) else { return Vec::new() };
    let last = counts.iter().rposition(|count| *count > 0).unwrap_or(first);
    let bound = |index: usize| 1u64.checked_shl(index as u32 + 1).unwrap_or(u64::MAX);
    (first..=last).map(|index| (bound(index), counts[index])).collect()
}

pub fn streams(view: &View) -> Table {
    let seen = view.sample.iter().map(|sample| &sample.logs);
    let mut rows: Vec<_> = seen.clone().flat_map(|seen| &seen.logs).flat_map(log_rows).collect();
    let more = seen.map(|seen| seen.left_out_count).filter(|count| *count > 0);
    rows.extend(more.map(|count| row_of_rest(&format!("... and {count} more logs"), "left out")));
    Table {
        title: "Log streams".into(),
        heading: vec![
            "STREAM",
            "APPENDED",
            "NOT SYNCED",
            "NOT IN FILES",
            "FILES",
            "RECORDS",
            "STATE",
        ],
        rows,
        marked: None,
        empty: "no log is in use",
    }
}

fn log_rows(log: &SeenLog) -> Vec<Vec<String>> {
    let dir = log.dir.display();
    if log.streams.is_empty() {
        let state = if log.refusal.is_some() { "not trusted" } else { "no stream" };
        return vec![row_of_rest(&dir.to_string(), state)];
    }
    let row = |stream: &StreamCounters| stream_row(&format!("{dir}/{}", stream.name), stream);
    let mut rows: Vec<_> = log.streams.iter().map(row).collect();
    if log.stream_rest() > 0 {
        let rest = format!("{dir}: ... and {} more streams", log.stream_rest());
        rows.push(row_of_rest(&rest, "left out"));
    }
    rows
}

/// A row without numbers.
fn row_of_rest(name: &str, state: &str) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    row.resize(6, NONE.into());
    row.push(state.into());
    row
}

fn stream_row(name: &str, stream: &StreamCounters) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    match &stream.stat {
        Some(stat) => row.extend([
            bytes(stat.payload_bytes),
            bytes(stat.appended.saturating_sub(stat.durable)),
            bytes(stat.appended.saturating_sub(stat.drained)),
            bytes(stat.file_bytes),
            count(stat.record_count),
            if stat.is_aborted { "aborted".into() } else { "ok".into() },
        ]),
        // Without a daemon only the files can be seen from outside.
        None => {
            row.resize(4, NONE.into());
            row.extend([bytes(stream.file_bytes), NONE.into(), "no daemon".into()]);
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_an_interval_are_put_together_by_powers_of_two() {
        let before = [(1_023, 5), (70_000, 1)];
        let all = [(1_023, 5), (66_000, 2), (70_000, 2), (1_100_000, 1)];
        let expected = [(131_072, 3), (262_144, 0), (524_288, 0), (1_048_576, 0), (2_097_152, 1)];
        assert_eq!(octaves(&all, &before), expected);
        assert_eq!(octaves(&all, &all), []);
        assert_eq!(octaves(&[(u64::MAX, 1)], &[]), [(u64::MAX, 1)]);
        assert_eq!(octaves(&[(0, 1)], &[]), [(2, 1)]);
        // A mount may say anything.
        assert_eq!(octaves(&[(1, u64::MAX), (1, 1)], &[]), [(2, u64::MAX)]);
    }
}
