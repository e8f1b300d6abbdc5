//! The mount's counters in the text format of Prometheus, version 0.0.4.
//!
//! Names end in their unit; times are seconds. The bounds of histograms are those of which the
//! counts are exact: powers of two of nanoseconds, and one less than powers of two of syncs.

use std::fmt::{Display, Write};

use crate::stat::{Forms, JournalMedium, Spread, Stat};

/// Bounds of latencies, as powers of two of nanoseconds: 1 µs to 69 s.
const LATENCY_LOG2: std::ops::RangeInclusive<u32> = 10..=36;
/// Bounds of group sizes: 1, 3, 7, up to 1023.
const GROUP_LOG2: std::ops::RangeInclusive<u32> = 1..=10;

/// A page of metrics. All names begin with `onejournal_`, which callers leave out.
#[derive(Debug, Default)]
pub struct MetricsText(String);

impl MetricsText {
    /// What was put in.
    pub fn into_string(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP onejournal_{name} {help}"));
        self.line(format_args!("# TYPE onejournal_{name} {kind}"));
    }

    fn line(&mut self, line: impl Display) {
        writeln!(self.0, "{line}").expect("a string takes everything");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(format_args!("onejournal_{name} {value}"));
    }

    /// A number that only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.single(name, "counter", help, value);
    }

    /// A number that also becomes smaller.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.single(name, "gauge", help, value);
    }

    /// A 1 whose labels tell what is measured.
    pub fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) {
        self.head(name, "gauge", help);
        let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value)));
        let labels: Vec<String> = labels.collect();
        self.line(format_args!("onejournal_{name}{{{}}} 1", labels.join(",")));
    }

    fn by_form(&mut self, name: &str, help: &str, forms: Forms) {
        self.head(name, "counter", help);
        for (form, count) in [
            ("block", forms.block),
            ("sparse", forms.sparse),
            ("extent", forms.extent),
            ("delta", forms.delta),
            ("xor_lzo", forms.xor_lzo),
            ("copy", forms.copy),
        ] {
            self.line(format_args!("onejournal_{name}{{form=\"{form}\"}} {count}"));
        }
    }

    /// `per_unit`: how many of the spread's make one in the unit of the name.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        spread: &Spread,
        bounds: impl Iterator<Item = (u64, String)>,
        per_unit: f64,
    ) {
        self.head(name, "histogram", help);
        for (bound, label) in bounds {
            let below = spread.buckets.iter().take_while(|(upper, _)| *upper <= bound);
            let count: u64 = below.map(|(_, count)| count).sum();
            self.line(format_args!("onejournal_{name}_bucket{{le=\"{label}\"}} {count}"));
        }
        self.line(format_args!("onejournal_{name}_bucket{{le=\"+Inf\"}} {}", spread.count));
        self.line(format_args!("onejournal_{name}_sum {}", spread.sum as f64 / per_unit));
        self.line(format_args!("onejournal_{name}_count {}", spread.count));
    }
}

/// Everything that [`Stat`] has, but for its texts and what can be computed.
pub(crate) fn render(stat: &Stat<'_>) -> String {
    let mut text = MetricsText(String::with_capacity(8 << 10));
    put_identity(&mut text, stat);
    put_requests(&mut text, stat);
    put_commits(&mut text, stat);
    put_bytes(&mut text, stat);
    put_device(&mut text, stat);
    put_space(&mut text, stat);
    if let Some(medium) = &stat.journal_medium {
        put_journal_medium(&mut text, medium);
    }
    text.0
}

fn put_identity(text: &mut MetricsText, stat: &Stat<'_>) {
    let labels = [
        ("version", stat.version),
        ("target", stat.target),
        ("durability", stat.durability),
        ("data_mode", stat.data_mode),
        ("transport", stat.transport),
        ("order", stat.order),
    ];
    text.info("info", "What is mounted and how.", &labels);
    let read_only = u8::from(stat.read_only);
    text.gauge("read_only", "1 after a failed write, or if asked for.", read_only);
    let has_error = u8::from(stat.last_error.is_some());
    text.gauge("has_error", "1 after a grave error: see last_error of stat.", has_error);
    let help = "Aligned writes of up to so many bytes are atomic; 0: none.";
    text.gauge("atomic_write_bytes", help, stat.atomic_write_bytes);
    let help = "The largest atomic writes that files were declared to need.";
    text.gauge("atomic_declared_bytes", help, stat.atomic_declared_bytes);
    let help = "When the volume was ready, in seconds since 1970.";
    text.gauge("mount_time_seconds", help, stat.mount_time_s);
}

fn put_space(text: &mut MetricsText, stat: &Stat<'_>) {
    text.gauge("journal_size_bytes", "Size of the journal.", stat.journal_size_bytes);
    text.gauge("memory_bytes", "Memory that the daemon has now.", stat.memory_bytes);
    if let Some(bytes) = stat.memory_bytes_max {
        text.gauge("memory_max_bytes", "Memory that the daemon takes at most.", bytes);
    }
    text.gauge("space_bytes", "Space for files.", stat.space_bytes);
    text.gauge("free_bytes", "Free space.", stat.free_bytes);
    let help = "Free space that is not reserved for root.";
    text.gauge("available_bytes", help, stat.available_bytes);
    text.gauge("inodes", "Inodes.", stat.inodes);
    text.gauge("free_inodes", "Free inodes.", stat.free_inodes);
}

fn put_requests(text: &mut MetricsText, stat: &Stat<'_>) {
    text.counter("requests_total", "Requests of the kernel.", stat.requests);
    text.counter("fsyncs_total", "Calls of fsync and fdatasync.", stat.fsyncs);
    text.counter("app_writes_total", "Writes of applications.", stat.app_writes);
    text.counter("app_bytes_total", "Bytes that programs wrote.", stat.app_bytes);
    text.counter("atomic_commits_total", "Atomic writes committed.", stat.atomic_commits);
    text.counter("atomic_aborts_total", "Atomic writes given up.", stat.atomic_aborts);
}

fn put_commits(text: &mut MetricsText, stat: &Stat<'_>) {
    text.counter("commits_total", "Transactions made durable.", stat.commits);
    text.counter("handles_total", "Operations in them.", stat.handles);
    text.counter("syncs_total", "Syncs asked of the journal.", stat.syncs);
    let help = "Syncs that found everything durable.";
    text.counter("syncs_without_io_total", help, stat.syncs_without_io);
    let seconds = |n| (1u64 << n, ((1u64 << n) as f64 / 1e9).to_string());
    text.histogram(
        "commit_latency_seconds",
        "From the closing of a transaction until it was durable.",
        &stat.commit_latency_ns,
        LATENCY_LOG2.map(seconds),
        1e9,
    );
    text.histogram(
        "syncs_per_commit",
        "Syncs that a commit served.",
        &stat.syncs_per_commit,
        GROUP_LOG2.map(|n| ((1 << n) - 1, ((1u64 << n) - 1).to_string())),
        1.0,
    );
    text.counter("stalls_total", "Commits that waited for a checkpoint.", stat.stalls);
    let seconds = stat.stall_ns as f64 / 1e9;
    text.counter("stall_seconds_total", "Time that commits waited for a checkpoint.", seconds);
}

fn put_bytes(text: &mut MetricsText, stat: &Stat<'_>) {
    let help = "Changes logged by record form, before packing and padding.";
    text.by_form("journal_bytes_total", help, stat.journal_bytes_by_form);
    let help = "Bytes written to the journal, padding included.";
    text.counter("journal_written_bytes_total", help, stat.journal_bytes);
    text.by_form(
        "logged_blocks_total",
        "Blocks logged by record form.",
        stat.logged_blocks_by_form,
    );
    text.counter("revokes_total", "Revokes logged.", stat.revokes);
    text.counter("home_bytes_total", "Bytes brought home by checkpoints.", stat.home_bytes);
    text.counter("in_place_bytes_total", "Data written in place.", stat.in_place_bytes);
    text.counter("checkpoints_total", "Regions brought home.", stat.checkpoints);
    let help = "Logged blocks that needed no write home.";
    text.counter("cancelled_blocks_total", help, stat.cancelled_blocks);
}

fn put_device(text: &mut MetricsText, stat: &Stat<'_>) {
    text.counter("device_reads_total", "Reads of the device.", stat.device_reads);
    text.counter("device_read_bytes_total", "Bytes read from the device.", stat.device_bytes_read);
    text.counter("device_writes_total", "Writes to the device.", stat.device_writes);
    text.counter(
        "device_written_bytes_total",
        "Bytes written to the device.",
        stat.device_bytes_written,
    );
    let help = "Writes that were durable when they returned.";
    text.counter("device_durable_writes_total", help, stat.device_durable_writes);
    text.counter("device_flushes_total", "Flushes, with durable writes.", stat.device_flushes);
    let help = "Bytes written before the volume was ready: recovery, zeros of a new journal.";
    text.gauge("opening_bytes", help, stat.opening_bytes);
    let help = "Flushes of device and journal medium before the volume was ready.";
    text.gauge("opening_flushes", help, stat.opening_flushes);
}

fn put_journal_medium(text: &mut MetricsText, medium: &JournalMedium) {
    let (JournalMedium::Block { reads, bytes_read, .. }
    | JournalMedium::Nvram { reads, bytes_read, .. }) = medium;
    text.counter("journal_medium_reads_total", "Reads of the journal's own medium.", reads);
    text.counter("journal_medium_read_bytes_total", "Bytes read from it.", bytes_read);
    match medium {
        JournalMedium::Block { writes, bytes_written, durable_writes, flushes, .. } => {
            text.counter("journal_medium_writes_total", "Writes to it.", writes);
            text.counter(
                "journal_medium_written_bytes_total",
                "Bytes written to it.",
                bytes_written,
            );
            let help = "Writes that were durable when they returned.";
            text.counter("journal_medium_durable_writes_total", help, durable_writes);
            let help = "Flushes of it, with durable writes.";
            text.counter("journal_medium_flushes_total", help, flushes);
        }
        JournalMedium::Nvram { stores, bytes_stored, lines, fences, .. } => {
            text.counter("journal_medium_stores_total", "Stores to it.", stores);
            text.counter("journal_medium_stored_bytes_total", "Bytes stored in it.", bytes_stored);
            text.counter("journal_medium_lines_total", "Cache lines written back.", lines);
            text.counter("journal_medium_fences_total", "Fences.", fences);
        }
    }
}

/// A label's value between its quotes.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let spread = Spread::from(journal::Distribution {
            count: 6,
            sum: 12_000,
            buckets: vec![(1023, 1), (1087, 2), (2047, 1), (1 << 40, 2)],
            ..Default::default()
        });
        let mut text = MetricsText::default();
        let bounds = [(1024, "a".into()), (2048, "b".into())];
        text.histogram("x_seconds", "Help.", &spread, bounds.into_iter(), 1e9);
        assert_eq!(
            text.0,
            "# HELP onejournal_x_seconds Help.\n\
             # TYPE onejournal_x_seconds histogram\n\
             onejournal_x_seconds_bucket{le=\"a\"} 1\n\
             onejournal_x_seconds_bucket{le=\"b\"} 4\n\
             onejournal_x_seconds_bucket{le=\"+Inf\"} 6\n\
             onejournal_x_seconds_sum 0.000012\n\
             onejournal_x_seconds_count 6\n"
        );
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
