//! `onejournal stat --watch`: what a mounted volume does, a line for each interval.
//!
//! Nothing of the mount is kept open in between, so that it can be unmounted meanwhile.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::counters::Counters;
use crate::error::{CliError, Result};
use crate::inventory::{Asker, Subject};
use crate::signals::EndSignals;

/// Lines of text from one heading to the next.
const HEADING_EVERY: usize = 20;

/// Prints a line every `seconds` until SIGINT, SIGTERM or a broken pipe on standard output.
pub fn run(path: &Path, seconds: f64, as_json: bool) -> Result<u8> {
    let mut ended = EndSignals::catch()?;
    let interval = Duration::from_secs_f64(seconds);
    let mut asker = Asker::start([path], Subject::Volume).map_err(|e| CliError::at(path, e))?;
    let mut before = Sample::take(path, &mut asker)?;
    let mut due = before.at;
    for line_index in 0.. {
        due += interval;
        if ended.wait_until(due)? {
            return Ok(0);
        }
        let now = Sample::take(path, &mut asker)?;
        let rates = Rates::between(&before, &now);
        let with_heading = line_index % HEADING_EVERY == 0;
        let text = if as_json { rates.json() } else { rates.text(with_heading) };
        let mut out = std::io::stdout().lock();
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(0),
            result => result.map_err(|error| CliError::new(error.to_string()))?,
        }
        before = now;
    }
    Ok(0)
}

/// The counters at a time.
struct Sample {
    at: Instant,
    counters: Counters,
}

impl Sample {
    fn take(path: &Path, asker: &mut Asker) -> Result<Sample> {
        let answer = asker.ask_now(path)?;
        match answer.error {
            None => Ok(Sample { at: Instant::now(), counters: Counters(answer.counters) }),
            Some(error) => Err(CliError::new(error)),
        }
    }

    /// Commits by the upper bound of their latency.
    fn latencies(&self) -> BTreeMap<u64, u64> {
        self.counters.buckets("commit_latency_ns").into_iter().collect()
    }
}

/// Columns of rates: a counter, its heading, and how many decimals are shown. Bytes are in MB.
const COLUMNS: [(&str, &str, usize); 6] = [
    ("commits", "commits/s", 1),
    ("fsyncs", "fsyncs/s", 1),
    ("app_bytes", "app MB/s", 3),
    ("journal_bytes", "journal MB/s", 3),
    ("home_bytes", "home MB/s", 3),
    ("in_place_bytes", "in-place MB/s", 3),
];

/// What an interval was like.
struct Rates {
    seconds: f64,
    /// In the order of the columns.
    per_s: [f64; COLUMNS.len()],
    /// The 99th percentile of the interval's commit latencies, to 6 %; nothing without a commit.
    commit_p99_ns: Option<u64>,
    stalls: u64,
}

impl Rates {
    /// A counter that went back (the volume was mounted again) counts as nothing.
    fn between(before: &Sample, now: &Sample) -> Rates {
        let seconds = (now.at - before.at).as_secs_f64().max(1e-9);
        let grown =
            |name: &str| now.counters.number(name).saturating_sub(before.counters.number(name));
        let mut latencies = now.latencies();
        for (bound, count) in before.latencies() {
            latencies.entry(bound).and_modify(|now| *now = now.saturating_sub(count));
        }
        Rates {
            seconds: (seconds * 1e3).round() / 1e3,
            per_s: COLUMNS.map(|(name, ..)| (grown(name) as f64 / seconds * 10.0).round() / 10.0),
            commit_p99_ns: p99(&latencies),
            stalls: grown("stalls"),
        }
    }

    fn json(&self) -> String {
        let mut json = json!({ "seconds": self.seconds });
        for ((name, ..), rate) in COLUMNS.into_iter().zip(self.per_s) {
            json[format!("{name}_per_s")] = json!(rate);
        }
        json["commit_p99_ns"] = json!(self.commit_p99_ns);
        json["stalls"] = json!(self.stalls);
        json.to_string()
    }

    fn text(&self, with_heading: bool) -> String {
        let p99 = self.commit_p99_ns.map_or("-".into(), |ns| format!("{:.1}", ns as f64 / 1e3));
        let (mut heading, mut line) = (String::new(), String::new());
        for ((name, title, decimals), rate) in COLUMNS.into_iter().zip(self.per_s) {
            let rate = if name.ends_with("bytes") { rate / 1e6 } else { rate };
            let width = title.len().max(9);
            heading.push_str(&format!("{title:>width$} "));
            line.push_str(&format!("{rate:width$.decimals$} "));
        }
        line.push_str(&format!("{p99:>9} {:6}", self.stalls));
        if with_heading { format!("{heading}   p99 us stalls\n{line}") } else { line }
    }
}

/// Upper bound of the bucket of the 99th percentile.
fn p99(buckets: &BTreeMap<u64, u64>) -> Option<u64> {
    let count: u128 = buckets.values().map(|count| u128::from(*count)).sum();
    let wanted = (count * 99).div_ceil(100);
    let mut seen = 0;
    let mut bounds = buckets.iter().filter(|(_, count)| **count > 0);
    bounds
        .find(|(_, count)| {
            seen += u128::from(**count);
            seen >= wanted
        })
        .map(|(bound, _)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant, text: &str) -> Sample {
        Sample { at, counters: Counters(serde_json::from_str(text).unwrap()) }
    }

    #[test]
    fn rates_are_of_the_interval() {
        let start = Instant::now();
        let before = sample(
            start,
            r#"{"commits":10,"app_bytes":1000,"stalls":1,
                "commit_latency_ns":{"buckets":[[1023,9],[4095,1]]}}"#,
        );
        let now = sample(
            start + Duration::from_secs(2),
            r#"{"commits":30,"app_bytes":5000,"stalls":4,
                "commit_latency_ns":{"buckets":[[1023,9],[2047,19],[4095,2]]}}"#,
        );
        let rates = Rates::between(&before, &now);
        assert_eq!((rates.per_s[0], rates.per_s[2]), (10.0, 2000.0));
        assert_eq!((rates.commit_p99_ns, rates.stalls), (Some(4095), 3));
        let back = Rates::between(&now, &sample(start + Duration::from_secs(3), "{}"));
        assert_eq!((back.per_s[0], back.commit_p99_ns, back.stalls), (0.0, None, 0));
        assert_eq!(rates.text(true).lines().count(), 2);
        let widths: Vec<usize> = rates.text(true).lines().map(str::len).collect();
        assert_eq!(widths[0], widths[1], "the heading stands above its columns");
        assert_eq!(
            rates.text(true),
            "commits/s  fsyncs/s  app MB/s journal MB/s home MB/s in-place MB/s    p99 us stalls\n\
             \x20    10.0       0.0     0.002        0.000     0.000         0.000       4.1      3"
        );
        assert_eq!(
            rates.json(),
            r#"{"seconds":2.0,"commits_per_s":10.0,"fsyncs_per_s":0.0,"app_bytes_per_s":2000.0,"#
                .to_owned()
                + r#""journal_bytes_per_s":0.0,"home_bytes_per_s":0.0,"#
                + r#""in_place_bytes_per_s":0.0,"commit_p99_ns":4095,"stalls":3}"#
        );
    }

    #[test]
    fn the_99th_of_a_hundred() {
        assert_eq!(p99(&BTreeMap::new()), None);
        assert_eq!(p99(&BTreeMap::from([(1, 99), (2, 1)])), Some(1));
        assert_eq!(p99(&BTreeMap::from([(1, 98), (2, 2), (3, 0)])), Some(2));
        assert_eq!(p99(&BTreeMap::from([(1, u64::MAX), (2, u64::MAX)])), Some(2));
    }
}
