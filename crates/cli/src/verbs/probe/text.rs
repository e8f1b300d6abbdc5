//! The report for people, in 80 columns.

use device::DirectIo;
use probe::{
    COUNT_FOR_P99, Commit, ParallelFigures, Program, Reason, SizeFigures, Suitability, Sum,
    TogetherFigures, kib,
};

use super::report::Report;
use super::words;
use crate::output::plain;
use crate::units::{bytes, count, nanoseconds, ratio, times};

const WIDTH: usize = 80;
/// A speed-up is exact to this share.
const SPEED_UP_ERROR: f64 = 0.1;

/// The report.
pub fn text(report: &Report) -> String {
    let commits = report.commits.as_ref().map(|all| commits(all));
    let parts = [
        Some(head(report)),
        Some(notes(report)).filter(|notes| !notes.is_empty()),
        Some(sizes(report)),
        Some(parallel(report)),
        Some(flushes(report)),
        commits,
        Some(suitable(report)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

fn head(report: &Report) -> String {
    let (facts, figures) = (&report.facts, &report.figures);
    let mut what = facts.file_system.clone().unwrap_or_else(|| "block device".into());
    if !facts.disks.is_empty() {
        what.push_str(&format!(" on {}", facts.disks.join(", ")));
    }
    let written = format!("{} written in {:.1} s", bytes(figures.written_bytes), figures.seconds);
    let direct = match facts.direct_io {
        DirectIo::Yes => "direct I/O",
        DirectIo::No => "buffered I/O",
        DirectIo::Unknown => "perhaps direct I/O",
    };
    let more = format!(
        "durability {}, write cache: {}, {direct}, sectors of {}",
        facts.durability,
        report.write_cache.replace('_', " "),
        kib(figures.sector_bytes)
    );
    let path = plain(&facts.path);
    format!(
        "{path}\n{}{}",
        wrapped("  ", &format!("{}; {written}", plain(&what))),
        wrapped("  ", &more)
    )
}

fn notes(report: &Report) -> String {
    let mut notes = String::new();
    let mut note = |text: &str| notes.push_str(&wrapped("", text));
    if report.flushes.because == Reason::InMemory {
        note("Nothing is durable here: a power cut loses all of it. The probe measured memory.");
    }
    match report.facts.direct_io {
        DirectIo::Yes => {}
        DirectIo::No => note(
            "There is no direct I/O here. The writes went to the page cache, and the flushes wrote \
             them: a write alone says nothing about the disk.",
        ),
        DirectIo::Unknown => note(
            "The file system does not say whether its writes bypass the page cache. If they do \
             not, a write alone says nothing about the disk.",
        ),
    }
    if report.facts.is_onejournal_volume {
        note(
            "This is a OneJournal volume. The probe measured the volume and not its disk, so the \
             cost of a commit on ext4 cannot be computed.",
        );
    }
    if is_speed_up_too_large(report) {
        note(
            "A speed-up is larger than its number of threads. The disk was slower while the single \
             thread wrote: measure again, while nothing else uses it, or with more --seconds.",
        );
    }
    // Only of what is judged: of large writes there are always few.
    let judged = Program::ALL.map(|program| report.of_program(program));
    let too_few =
        judged.into_iter().filter(|found| found.p99_is_max).map(|found| found.count).min();
    if let Some(fewest) = too_few {
        note(&format!(
            "Some figures are of {} only. With fewer than {COUNT_FOR_P99} the p99 is the longest. \
             --seconds and --size give more.",
            times(fewest, "observation", "observations")
        ));
    }
    notes
}

fn sizes(report: &Report) -> String {
    let title = |text: &str| format!("{text:>18}");
    let titles = ["write", "flush", "write and flush", "durable write"].map(title).concat();
    let columns = ["p50", "p99"].map(|name| format!("{name:>9}")).concat().repeat(4);
    let mut text = format!("{:7}{titles}\n{:7}{columns}\n", "", "size");
    for size in &report.figures.sizes {
        text.push_str(&size_line(size));
    }
    let clean = &report.figures.clean_flush;
    text.push_str(&format!(
        "A flush with nothing to flush: p50 {}, p99 {}, max {}.\n",
        nanoseconds(clean.p50_ns),
        nanoseconds(clean.p99_ns),
        nanoseconds(clean.max_ns)
    ));
    text
}

fn size_line(size: &SizeFigures) -> String {
    let all = [&size.write, &size.flush, &size.write_and_flush, &size.durable_write];
    let cell = |ns| format!("{:>9}", nanoseconds(ns));
    let cells = all.map(|latency| [latency.p50_ns, latency.p99_ns].map(cell).concat()).concat();
    format!("{:7}{cells}\n", kib(size.len_bytes))
}

fn parallel(report: &Report) -> String {
    let durable = |of: &ParallelFigures| of.durable_write;
    let flush = |of: &ParallelFigures| of.write_and_flush;
    let durable = together("durable writes/s", report, durable);
    [durable, together("writes and flushes/s", report, flush)].join("\n")
}

fn together(
    title: &str,
    report: &Report,
    of: impl Fn(&ParallelFigures) -> TogetherFigures,
) -> String {
    let columns = ["p50", "p99", "max"].map(|name| format!("{name:>8}")).concat();
    let mut text = format!("{:>7}{title:>24}{:>16}{columns}\n", "threads", "speed-up");
    for figures in &report.figures.parallel {
        let TogetherFigures { per_s, speed_up, latency } = of(figures);
        let times = [latency.p50_ns, latency.p99_ns, latency.max_ns];
        let times = times.map(|ns| format!("{:>8}", nanoseconds(ns))).concat();
        let (per_s, speed_up) = (rate(per_s), ratio(speed_up));
        text.push_str(&format!("{:>7}{per_s:>24}{speed_up:>16}{times}\n", figures.thread_count));
    }
    text
}

/// Whether several threads were faster than so many single ones. No disk does that.
fn is_speed_up_too_large(report: &Report) -> bool {
    let is_too_large = |of: &ParallelFigures| {
        let largest = of.durable_write.speed_up.max(of.write_and_flush.speed_up);
        largest > of.thread_count as f64 * (1.0 + SPEED_UP_ERROR)
    };
    report.figures.parallel.iter().any(is_too_large)
}

/// A number a second.
fn rate(per_s: f64) -> String {
    match per_s {
        per_s if per_s < 100.0 => format!("{per_s:.1}"),
        // It is finite and not negative.
        per_s => count(per_s.round() as u64),
    }
}

fn flushes(report: &Report) -> String {
    let size = report.figures.of_size(4 << 10);
    let facts = format!(
        "Flushes: {}. {} A write of 4 KiB takes {}, the flush after it {}. A measurement cannot \
         prove that flushes are honoured; only a power cut can.",
        report.flushes.verdict.replace('_', " "),
        report.flushes.explanation,
        nanoseconds(size.write.p50_ns),
        nanoseconds(size.flush.p50_ns)
    );
    wrapped("", &facts)
}

fn commits(commits: &[Commit]) -> String {
    let mut text = format!("{:18}{:11}{:>8}  {}\n", "a commit of", "on", "takes", "computed from");
    for commit in commits {
        text.push_str(&commit_line(words::commit(commit.commit), "ext4", &commit.ext4, ""));
        let times = format!("; {} times as fast", ratio(commit.ext4_over_onejournal));
        text.push_str(&commit_line("", "OneJournal", &commit.onejournal, &times));
    }
    text + &wrapped(
        "",
        "The time of the file system's own code is left out. OneJournal, in user space, has more \
         of it.",
    )
}

fn commit_line(title: &str, system: &str, sum: &Sum, times_as_fast: &str) -> String {
    let parts = format!(
        "{} + {}",
        times(sum.write_count, "write", "writes"),
        times(sum.flush_count, "flush", "flushes")
    );
    let takes = nanoseconds(sum.p50_ns);
    format!("{title:18}{system:11}{takes:>8}  {parts}{times_as_fast}\n")
}

fn suitable(report: &Report) -> String {
    let of_program = |program| suitability(report.of_program(program));
    Program::ALL.map(of_program).concat()
}

fn suitability(found: &Suitability) -> String {
    let figure = format!(
        "p99 of {} is {} in {}, at most {} wanted",
        found.measured,
        nanoseconds(found.p99_ns),
        times(found.count, "observation", "observations"),
        nanoseconds(found.limit_ns)
    );
    let name = words::program(found.program);
    let words: Vec<&str> = found.obstacles.iter().copied().map(words::obstacle).collect();
    match found.is_suitable {
        true => wrapped("", &format!("{name}: suitable ({figure}).")),
        false => wrapped("", &format!("{name}: not suitable: {} ({figure}).", words.join(", "))),
    }
}

/// Lines of at most 80 columns, each after `indent`.
pub fn wrapped(indent: &str, text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{indent}{word}")),
        }
    }
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use probe::example::{figures, flat};
    use probe::{Cache, Latency, Medium};

    use super::super::place::Facts;
    use super::super::report::tests::facts;
    use super::*;

    #[track_caller]
    fn check_width(text: &str) {
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
        }
    }

    #[test]
    fn every_report_fits_a_terminal() {
        let times =
            [(900, 40), (999_400, 999_400), (99_940_000, 999_000_000), (9, 120_000_000_000)];
        let caches =
            [Cache::Memory, Cache::None, Cache::NotReported, Cache::Volatile, Cache::Unknown];
        for ((write_ns, flush_ns), cache) in
            times.into_iter().flat_map(|times| caches.map(|cache| (times, cache)))
        {
            for is_odd in [false, true] {
                let facts = Facts {
                    direct_io: if is_odd { DirectIo::Unknown } else { DirectIo::Yes },
                    medium: if is_odd { Medium::BlockDevice } else { Medium::Ext },
                    is_onejournal_volume: is_odd,
                    durability: if is_odd { "unknown" } else { "power" },
                    disks: vec!["nvme0n1".into(); if is_odd { 12 } else { 1 }],
                    ..facts()
                };
                let report = Report::of(facts, cache, figures(write_ns, flush_ns), false);
                check_width(&text(&report));
            }
        }
    }

    #[test]
    fn a_report_says_what_it_found() {
        let mut figures = figures(20_000, 600_000);
        figures.append_sync.latency = Latency { count: 7, p99_is_max: true, ..flat(620_000) };
        let report = Report::of(facts(), Cache::Volatile, figures, false);
        let text = text(&report);
        for words in [
            "/srv/data\n",
            "ext4 on nvme0n1; 123 MB written in 10.0 s",
            "Flushes: honoured.",
            "4 KiB appended",
            "3 writes + 2 flushes",
            "etcd: suitable",
            "7 observations only",
            "is 620 µs in 7 observations",
            "only a power cut can",
        ] {
            assert!(text.replace('\n', " ").contains(&words.replace('\n', " ")), "{words}: {text}");
        }
    }

    #[test]
    fn a_speed_up_that_cannot_be_is_noted() {
        let noted = |speed_up| {
            let mut figures = figures(20_000, 600_000);
            figures.parallel[1].write_and_flush.speed_up = speed_up;
            text(&Report::of(facts(), Cache::Volatile, figures, false))
                .contains("A speed-up is larger")
        };
        assert_eq!([noted(2.1), noted(2.3)], [false, true]);
    }

    #[test]
    fn lines_are_broken_between_words() {
        let text = wrapped("  ", &"word ".repeat(20));
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lengths, [76, 26]);
        assert!(text.lines().all(|line| line.starts_with("  word")));
        assert_eq!(wrapped("", ""), "");
    }
}
