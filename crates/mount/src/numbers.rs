//! Numbers that users see, as tables.
//!
//! A row has the name of a number, how Prometheus has it, and what it means. JSON, the page for
//! Prometheus (its text format, version 0.0.4), the groups of `onejournal stat` and the tables of
//! docs/reference/metrics.md are made of the rows.

use std::fmt::Write;
use std::ops::RangeInclusive;

use journal::{Distribution, FORM_COUNT, form_name};
use serde_json::{Value as Json, json};

/// Bounds of latencies, as powers of two of nanoseconds: 1 µs to 69 s. The counts are exact.
const LATENCY_LOG2: RangeInclusive<u32> = 10..=36;
/// Bounds of group sizes: 1, 3, 7, up to 1023.
const GROUP_LOG2: RangeInclusive<u32> = 1..=10;

/// Numbers that belong together: a title, and the numbers in their order.
pub type Group<G> = (&'static str, &'static [Number<G>]);

/// A number, or a text that stands beside numbers. `G` is a function that reads it.
pub struct Number<G> {
    /// Its name in JSON; `outer.inner` in an object. A time in nanoseconds ends in `_ns`, and is in
    /// seconds for Prometheus.
    pub name: &'static str,
    /// How Prometheus has it.
    pub metric: Metric,
    /// A sentence, which is also the help of Prometheus.
    pub help: &'static str,
    /// More sentences for the documents.
    pub more: &'static str,
    /// Reads it.
    pub get: G,
    /// Its name for Prometheus, if that does not follow from the other one.
    special_name: &'static str,
}

/// How Prometheus has a number.
#[derive(Clone, Copy)]
pub enum Metric {
    /// Not at all.
    Nowhere,
    /// As a label of the metric that tells what is measured.
    Label,
    /// It only grows.
    Counter,
    /// It also becomes smaller.
    Gauge,
    /// A distribution.
    Histogram,
}

impl<G: Copy> Number<G> {
    /// A number with its name, metric, help and reader.
    pub const fn new(name: &'static str, metric: Metric, help: &'static str, get: G) -> Self {
        Number { name, metric, help, more: "", get, special_name: "" }
    }

    /// The same with more sentences for the documents.
    pub const fn more(self, more: &'static str) -> Self {
        Number { more, ..self }
    }

    /// The same with a name of its own for Prometheus.
    pub const fn named(self, special_name: &'static str) -> Self {
        Number { special_name, ..self }
    }

    /// Its name for Prometheus, which begins with `onejournal_` there.
    pub fn metric_name(&self) -> String {
        match (self.special_name, self.metric) {
            ("", Metric::Counter) => self.name.replace('.', "_") + "_total",
            ("", _) => self.name.into(),
            (name, _) => name.into(),
        }
    }
}

/// What a number is now.
pub enum Value {
    /// A count, or bytes, or a time.
    Count(u64),
    /// The same, unless there is none here.
    Maybe(Option<u64>),
    /// A ratio, unless there is none yet.
    Ratio(Option<f64>),
    /// For Prometheus 1 or 0.
    Flag(bool),
    /// For Prometheus 1 if there is one, or a label.
    Text(Option<String>),
    /// A count for each record form.
    Forms([u64; FORM_COUNT]),
    /// Observations.
    Spread(Distribution),
}

impl Value {
    /// A text that is there.
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(Some(text.into()))
    }

    fn json(self) -> Json {
        match self {
            Value::Count(count) => json!(count),
            Value::Maybe(count) => json!(count),
            Value::Ratio(ratio) => json!(ratio),
            Value::Flag(is_set) => json!(is_set),
            Value::Text(text) => json!(text),
            Value::Forms(counts) => forms().zip(counts).collect(),
            Value::Spread(found) => json!({
                "count": found.count,
                "sum": found.sum,
                "mean": (found.sum as f64 / found.count.max(1) as f64 * 10.0).round() / 10.0,
                "p50": found.p50,
                "p90": found.p90,
                "p99": found.p99,
                "p999": found.p999,
                "max": found.max,
                "buckets": found.buckets,
            }),
        }
    }

    /// The numbers of the metric, each after what follows the metric's name. `name` is the name in
    /// JSON.
    fn samples(&self, name: &str) -> Vec<(String, String)> {
        let is_ns = name.ends_with("_ns");
        let one = |number: String| vec![(String::new(), number)];
        match self {
            Value::Count(ns) | Value::Maybe(Some(ns)) if is_ns => {
                one((*ns as f64 / 1e9).to_string())
            }
            Value::Count(count) | Value::Maybe(Some(count)) => one(count.to_string()),
            Value::Flag(is_set) => one(u8::from(*is_set).to_string()),
            Value::Text(text) => one(u8::from(text.is_some()).to_string()),
            Value::Forms(counts) => {
                let label = |form| format!("{{form=\"{form}\"}}");
                forms().map(label).zip(counts.iter().map(u64::to_string)).collect()
            }
            Value::Spread(found) if is_ns => {
                let seconds = |n: u32| (1u64 << n, ((1u64 << n) as f64 / 1e9).to_string());
                histogram(found, LATENCY_LOG2.map(seconds), 1e9)
            }
            Value::Spread(found) => {
                let below = |n: u32| ((1u64 << n) - 1, ((1u64 << n) - 1).to_string());
                histogram(found, GROUP_LOG2.map(below), 1.0)
            }
            Value::Maybe(None) | Value::Ratio(_) => Vec::new(),
        }
    }
}

/// Names of the record forms, in the order of their numbers.
fn forms() -> impl Iterator<Item = String> {
    (1..).map_while(form_name).map(|name| name.replace('-', "_"))
}

/// `per_unit`: how many of the distribution's make one in the unit of the metric.
fn histogram(
    found: &Distribution,
    bounds: impl Iterator<Item = (u64, String)>,
    per_unit: f64,
) -> Vec<(String, String)> {
    let bucket =
        |label: &str, count: u64| (format!("_bucket{{le=\"{label}\"}}"), count.to_string());
    let buckets = bounds.map(|(bound, label)| {
        let below = found.buckets.iter().take_while(|(upper, _)| *upper <= bound);
        bucket(&label, below.map(|(_, count)| count).sum())
    });
    let sum = (found.sum as f64 / per_unit).to_string();
    let all = [("_sum".into(), sum), ("_count".into(), found.count.to_string())];
    buckets.chain([bucket("+Inf", found.count)]).chain(all).collect()
}

/// The numbers as a JSON object. An object in it has only what is there, and is null if nothing is.
pub(crate) fn object(numbers: impl Iterator<Item = (&'static str, Value)>) -> Json {
    let mut object = json!({});
    for (name, value) in numbers {
        let value = value.json();
        match name.split_once('.') {
            None => object[name] = value,
            Some((outer, inner)) => {
                let place = &mut object[outer];
                if !value.is_null() {
                    place[inner] = value;
                }
            }
        }
    }
    object
}

/// The page for Prometheus. `info` is name and help of the metric with the labels.
pub fn page<'a, G: Copy + 'static>(
    info: (&str, &str),
    numbers: impl Iterator<Item = (&'a Number<G>, Value)>,
) -> String {
    let (mut labels, mut text) = (Vec::new(), String::new());
    for (number, value) in numbers {
        let kind = match (number.metric, &value) {
            (Metric::Counter, _) => "counter",
            (Metric::Gauge, _) => "gauge",
            (Metric::Histogram, _) => "histogram",
            (Metric::Label, Value::Text(Some(text))) => {
                labels.push(format!("{}=\"{}\"", number.name, escape(text)));
                continue;
            }
            (Metric::Label | Metric::Nowhere, _) => continue,
        };
        put(&mut text, &number.metric_name(), kind, number.help, &value.samples(number.name));
    }
    let labels = format!("{{{}}}", labels.join(","));
    let mut all = String::new();
    put(&mut all, info.0, "gauge", info.1, &[(labels, "1".into())]);
    all + &text
}

fn put(text: &mut String, name: &str, kind: &str, help: &str, samples: &[(String, String)]) {
    if samples.is_empty() {
        return;
    }
    let mut line = |line: String| writeln!(text, "{line}").expect("a string takes everything");
    line(format!("# HELP onejournal_{name} {help}"));
    line(format!("# TYPE onejournal_{name} {kind}"));
    for (behind, number) in samples {
        line(format!("onejournal_{name}{behind} {number}"));
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
        let found = Distribution {
            count: 6,
            sum: 12_000,
            buckets: vec![(1023, 1), (1087, 2), (2047, 1), (1 << 40, 2)],
            ..Default::default()
        };
        let bounds = [(1024, "a".into()), (2048, "b".into())];
        let mut text = String::new();
        let samples = histogram(&found, bounds.into_iter(), 1e9);
        put(&mut text, "x_seconds", "histogram", "Help.", &samples);
        assert_eq!(
            text,
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
