//! The summary at the beginning of `onejournal stat`.
//!
//! A ratio of small numbers means nothing: one row in a new volume costs a hundred times its bytes,
//! because a write takes at least a sector. Below [`RATIO_BYTES`] and [`RATIO_FSYNCS`] the numbers
//! are printed without their ratio.

use crate::counters::Counters;
use crate::inventory::MountState;
use crate::units::{bytes, count, nanoseconds, ratio, span, times};

/// Write amplification is printed from this many bytes of application writes on.
const RATIO_BYTES: u64 = 1 << 20;
/// Flushes per fsync are printed from this many fsyncs on.
const RATIO_FSYNCS: u64 = 100;

/// Bytes that reached the device, beside the bytes that applications wrote.
#[derive(Debug, Clone, Copy)]
pub struct Amplification {
    pub device_bytes: u64,
    pub app_bytes: u64,
}

impl Amplification {
    pub fn of(counters: &Counters) -> Amplification {
        let app_bytes = counters.number("app_bytes");
        Amplification { device_bytes: written_since_ready(counters), app_bytes }
    }

    /// `None` if too little was written.
    pub fn ratio(self) -> Option<f64> {
        let is_enough = self.app_bytes >= RATIO_BYTES;
        is_enough.then(|| self.device_bytes as f64 / self.app_bytes as f64)
    }

    fn describe(self) -> String {
        let of = format!(
            "{} to the device so far, {} written by programs",
            bytes(self.device_bytes),
            bytes(self.app_bytes)
        );
        match self.ratio() {
            Some(value) => format!("{} ({of})", ratio(value)),
            None => format!("- ({of}: too little for a ratio)"),
        }
    }
}

/// Bytes written to the device since the volume was ready.
pub fn written_since_ready(counters: &Counters) -> u64 {
    let opening_bytes = counters.number("opening_bytes");
    counters.number("device_bytes_written").saturating_sub(opening_bytes)
}

/// Flushes of the device and of the journal's medium, beside the number of fsyncs.
#[derive(Debug, Clone, Copy)]
pub struct Flushes {
    pub flush_count: u64,
    pub fsync_count: u64,
    /// Whether the journal is on NVRAM, which has fences instead of flushes.
    has_fences: bool,
}

impl Flushes {
    pub fn of(counters: &Counters) -> Flushes {
        let fence_count = counters.number("journal_medium.fences");
        let all = ["device_flushes", "journal_medium.flushes", "journal_medium.fences"];
        let counts = all.into_iter().map(|name| counters.number(name));
        let flush_count = counts.fold(0, u64::saturating_add);
        Flushes {
            flush_count: flush_count.saturating_sub(counters.number("opening_flushes")),
            fsync_count: counters.number("fsyncs"),
            has_fences: fence_count > 0,
        }
    }

    /// `None` if there were too few fsyncs.
    pub fn ratio(self) -> Option<f64> {
        let is_enough = self.fsync_count >= RATIO_FSYNCS;
        is_enough.then(|| self.flush_count as f64 / self.fsync_count as f64)
    }

    fn describe(self) -> String {
        let flushes = match self.has_fences {
            true => format!("{} flushes and fences", count(self.flush_count)),
            false => times(self.flush_count, "flush", "flushes"),
        };
        let of = format!("{flushes}, {}", times(self.fsync_count, "fsync", "fsyncs"));
        match self.ratio() {
            Some(value) => format!("{} ({of})", ratio(value)),
            None => format!("- ({of}: too few for a ratio)"),
        }
    }
}

/// Labels and values. `now_s`: the time in seconds since 1970.
pub fn lines(counters: &Counters, state: MountState, now_s: u64) -> Vec<(String, String)> {
    let mounted_s = now_s.saturating_sub(counters.number("mount_time_s"));
    let mut lines = vec![
        ("mounted", format!("{} ago, {}", span(mounted_s), describe_state(state))),
        ("durability", durability(counters)),
        ("atomic writes", atomic_writes(counters)),
        ("flushes per fsync", Flushes::of(counters).describe()),
        ("write amplification", Amplification::of(counters).describe()),
        (
            "written since the mount",
            format!("{} to the device", bytes(written_since_ready(counters))),
        ),
    ];
    if let Some(text) = journal_medium(counters) {
        lines.push(("", text));
    }
    let opening_bytes = counters.number("opening_bytes");
    if opening_bytes > 0 {
        let what = "zeros of a new journal, recovery, marks; in no number above";
        lines.push(("written while mounting", format!("{} ({what})", bytes(opening_bytes))));
    }
    lines.extend(memory(counters).map(|text| ("memory", text)));
    lines.push(("stalls", stalls(counters)));
    lines.push(("last error", counters.text("last_error").unwrap_or("none").into()));
    lines.into_iter().map(|(label, value)| (label.to_owned(), value)).collect()
}

/// What the daemon has of memory.
fn memory(counters: &Counters) -> Option<String> {
    let most = counters.number("memory_bytes_max");
    let has = bytes(counters.number("memory_bytes"));
    (most > 0).then(|| format!("{has} in use, {} at most", bytes(most)))
}

fn describe_state(state: MountState) -> &'static str {
    match state {
        MountState::Failed => "read-only after an error",
        other => other.name(),
    }
}

fn durability(counters: &Counters) -> String {
    let class = counters.text("durability").unwrap_or_default();
    let meaning = match class {
        "power" => "an fsync survives a power cut",
        "reboot" => "an fsync survives a reboot, no power cut",
        "process" => "an fsync survives the end of the process, no reboot and no power cut",
        _ => "unknown",
    };
    format!("{class} ({meaning})")
}

/// Which writes of a program are never torn.
fn atomic_writes(counters: &Counters) -> String {
    let kib = |name: &str| format!("{} KiB", counters.number(name) / 1024);
    let needed = match counters.number("atomic_declared_bytes") {
        0 => String::new(),
        _ => format!("; files were declared to need {}", kib("atomic_declared_bytes")),
    };
    let text = |name: &str| counters.text(name).unwrap_or_default();
    match counters.number("atomic_write_bytes") {
        0 if counters.is_set("read_only") => format!("none (read-only){needed}"),
        0 if text("order") == "sync" => format!("none (order=sync){needed}"),
        0 => format!("none by default (data={}){needed}", text("data_mode")),
        _ => format!("aligned writes of up to {}{needed}", kib("atomic_write_bytes")),
    }
}

fn journal_medium(counters: &Counters) -> Option<String> {
    let name = match counters.text("journal_medium.kind")? {
        "nvram" => "journal_medium.bytes_stored",
        _ => "journal_medium.bytes_written",
    };
    let target = counters.text("journal_target").map(|target| format!(", {target}"));
    Some(format!(
        "{} to the journal's own medium{}, with its zeros",
        bytes(counters.number(name)),
        target.unwrap_or_default()
    ))
}

fn stalls(counters: &Counters) -> String {
    match counters.number("stalls") {
        0 => "none".into(),
        stalls => format!(
            "{} waited {} in all for a checkpoint: a larger journal, more memory or a faster \
             device would help",
            times(stalls, "commit", "commits"),
            nanoseconds(counters.number("stall_ns"))
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(text: &str) -> Counters {
        Counters(serde_json::from_str(text).unwrap())
    }

    fn line(counters: &Counters, label: &str) -> String {
        let mut lines = lines(counters, MountState::ReadWrite, 9_000).into_iter();
        lines.find(|(found, _)| found == label).map_or(String::new(), |(_, value)| value)
    }

    #[test]
    fn regression_one_small_write_has_no_amplification() {
        let fresh = counters(
            r#"{"durability":"power","atomic_write_bytes":524288,"mount_time_s":1000,"app_bytes":241,"fsyncs":1,"device_flushes":8,
                "opening_flushes":6,"device_bytes_written":16818176,"opening_bytes":16777216}"#,
        );
        assert_eq!(line(&fresh, "mounted"), "2 h 13 min ago, read-write");
        assert_eq!(line(&fresh, "atomic writes"), "aligned writes of up to 512 KiB");
        let amplification = line(&fresh, "write amplification");
        assert_eq!(
            amplification,
            "- (41.0 kB to the device so far, 241 B written by programs: too little for a ratio)"
        );
        let flushes = line(&fresh, "flushes per fsync");
        assert_eq!(flushes, "- (2 flushes, 1 fsync: too few for a ratio)");
        assert!(line(&fresh, "written while mounting").starts_with("16.8 MB ("));
        assert_eq!(line(&fresh, "written since the mount"), "41.0 kB to the device");
        assert_eq!(
            (line(&fresh, "stalls"), line(&fresh, "last error")),
            ("none".into(), "none".into())
        );
    }

    #[test]
    fn a_mount_without_atomic_writes_says_why() {
        for (text, expected) in [
            (r#"{"order":"sync","data_mode":"auto"}"#, "none (order=sync)"),
            (r#"{"order":"history","data_mode":"ordered"}"#, "none by default (data=ordered)"),
            (r#"{"order":"history","data_mode":"auto","read_only":true}"#, "none (read-only)"),
            (
                r#"{"order":"sync","atomic_declared_bytes":16384}"#,
                "none (order=sync); files were declared to need 16 KiB",
            ),
        ] {
            assert_eq!(line(&counters(text), "atomic writes"), expected);
        }
    }

    #[test]
    fn ratios_say_what_they_are_made_of() {
        let used = counters(
            r#"{"durability":"process","read_only":true,"last_error":"a write failed",
                "app_bytes":2000000,"fsyncs":2000,"device_flushes":60,"opening_flushes":70,"device_bytes_written":4000000,
                "stalls":2,"stall_ns":5000000,"journal_target":"/j",
                "journal_medium":{"kind":"nvram","fences":2030,"bytes_stored":3000}}"#,
        );
        assert_eq!(
            line(&used, "write amplification"),
            "2.00 (4.0 MB to the device so far, 2.0 MB written by programs)"
        );
        let flushes = line(&used, "flushes per fsync");
        assert_eq!(flushes, "1.01 (2,020 flushes and fences, 2,000 fsyncs)");
        assert!(line(&used, "durability").contains("no power cut"));
        assert_eq!(describe_state(MountState::Failed), "read-only after an error");
        assert_eq!(line(&used, ""), "3.0 kB to the journal's own medium, /j, with its zeros");
        assert!(line(&used, "stalls").starts_with("2 commits waited 5.0 ms"));
        assert_eq!(line(&used, "last error"), "a write failed");
        assert_eq!(line(&used, "written while mounting"), "");
    }
}
