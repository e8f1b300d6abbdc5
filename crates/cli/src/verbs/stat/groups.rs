//! The counters of a volume in groups, with units. A counter of 0 is left out, and so is a group
//! with only such counters.

use crate::counters::Counters;
use crate::units::{bytes, count, nanoseconds};

/// The titles of the groups, each with names and values. The summary has the first group.
pub fn groups(counters: &Counters) -> Vec<(&'static str, Vec<(String, String)>)> {
    let groups = mount::VOLUME[1..].iter().map(|(title, numbers)| {
        let lines = numbers.iter().flat_map(|number| lines(counters, number.name));
        (*title, lines.collect::<Vec<_>>())
    });
    groups.filter(|(_, lines)| !lines.is_empty()).collect()
}

/// The lines of a counter: none, one, or one for each of its numbers.
fn lines(counters: &Counters, name: &str) -> Vec<(String, String)> {
    let Some(value) = counters.value(name) else { return Vec::new() };
    let Some(object) = value.as_object() else {
        let number = value.as_u64().filter(|number| *number > 0);
        return number.map(|number| (name.into(), with_unit(name, number))).into_iter().collect();
    };
    if object.contains_key("buckets") {
        return spread(counters, name).map(|text| (name.into(), text)).into_iter().collect();
    }
    let inner = object.iter().filter_map(|(inner, value)| {
        let full = format!("{name}.{inner}");
        let number = value.as_u64().filter(|number| *number > 0)?;
        let text = with_unit(&full, number);
        Some((full, text))
    });
    inner.collect()
}

/// Formats a number with the unit that its name ends with.
fn with_unit(name: &str, number: u64) -> String {
    match name {
        name if name.ends_with("_ns") => nanoseconds(number),
        name if name.contains("bytes") => bytes(number),
        _ => count(number),
    }
}

fn spread(counters: &Counters, name: &str) -> Option<String> {
    let of = |part: &str| counters.number(&format!("{name}.{part}"));
    let shown = |part: &str| with_unit(name, of(part));
    let parts = [("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p99.9", "p999"), ("max", "max")];
    let texts = parts.map(|(label, part)| format!("{label} {}", shown(part)));
    (of("count") > 0).then(|| texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_zeros_are_left_out() {
        let text = r#"{"requests":0,"app_bytes":1500,"fsyncs":1200,"stall_ns":0,
            "journal_bytes_by_form":{"block":4096,"delta":0},
            "syncs_per_commit":{"count":0,"p50":0,"buckets":[]},
            "commit_latency_ns":{"count":2,"p50":84000,"p90":90000,"p99":90000,"p999":90000,
                "max":1200000,"buckets":[[84000,1],[1200000,1]]},
            "journal_medium":{"kind":"block","flushes":7,"bytes_written":2000000}}"#;
        let groups = groups(&Counters(serde_json::from_str(text).unwrap()));
        let titles: Vec<_> = groups.iter().map(|(title, _)| *title).collect();
        assert_eq!(titles, ["Requests", "Latency", "Journal", "Journal's own medium"]);
        let lines: Vec<String> = groups
            .into_iter()
            .flat_map(|(_, lines)| lines)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let expected = [
            "fsyncs=1,200",
            "app_bytes=1.5 kB",
            "commit_latency_ns=p50 84.0 µs, p90 90.0 µs, p99 90.0 µs, p99.9 90.0 µs, max 1.2 ms",
            "journal_bytes_by_form.block=4.1 kB",
            "journal_medium.bytes_written=2.0 MB",
            "journal_medium.flushes=7",
        ];
        assert_eq!(lines, expected);
    }
}
