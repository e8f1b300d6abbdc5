//! The measured values, by case, system and metric: one sample for each round, and beside the times
//! the counts of the requests to the devices.

use std::collections::BTreeMap;

use super::statistics::{self, Ratio, quantile};
use crate::error::{Error, Result};
use crate::results::{Better, Row, Section};
use crate::systems::{Asked, Counts};

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Such as `time`.
    pub name: &'static str,
    /// Such as `ms`.
    pub unit: &'static str,
    pub better: Better,
}

impl Metric {
    /// Less is better.
    pub const fn lower(name: &'static str, unit: &'static str) -> Metric {
        Metric { name, unit, better: Better::Lower }
    }

    /// More is better.
    pub const fn higher(name: &'static str, unit: &'static str) -> Metric {
        Metric { name, unit, better: Better::Higher }
    }
}

/// The case that a sample belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// A group of cases that are drawn together, such as `WAL, 1 operation, ssd311`.
    pub panel: String,
    /// One of them, such as `insert`; for a sweep the value of `x` as text.
    pub case: String,
    /// The place on the axis of a sweep.
    pub x: Option<f64>,
}

impl Key {
    /// One case of several.
    pub fn case(panel: impl Into<String>, case: impl Into<String>) -> Key {
        Key { panel: panel.into(), case: case.into(), x: None }
    }

    /// A point of a sweep.
    pub fn at(panel: impl Into<String>, x: f64) -> Key {
        Key { panel: panel.into(), case: x.to_string(), x: Some(x) }
    }
}

struct Series {
    key: Key,
    system: String,
    metric: Metric,
    samples: Vec<f64>,
    counts: BTreeMap<String, f64>,
    operations: f64,
}

/// All samples of an experiment, in the order in which their series began.
#[derive(Default)]
pub struct Samples {
    series: Vec<Series>,
}

impl Samples {
    /// Adds a round's sample.
    pub fn add(&mut self, key: &Key, system: &str, metric: Metric, value: f64) {
        self.series(key, system, metric).samples.push(value);
    }

    /// Adds the device requests of a number of operations. They are shown for each operation.
    pub fn count(
        &mut self,
        key: &Key,
        system: &str,
        metric: Metric,
        operations: usize,
        counts: &Counts,
    ) {
        let total = counts.total();
        let all = [
            ("flushes", total.flushes as f64),
            ("writes", total.writes as f64),
            ("written KiB", total.write_bytes as f64 / 1024.0),
        ];
        self.count_named(key, system, metric, operations, &all);
        if total.reads > 0 {
            self.count_named(key, system, metric, 0, &[(READS, total.reads as f64)]);
        }
    }

    /// Adds counts by name, for a number of operations.
    pub fn count_named(
        &mut self,
        key: &Key,
        system: &str,
        metric: Metric,
        operations: usize,
        counts: &[(&str, f64)],
    ) {
        let series = self.series(key, system, metric);
        series.operations += operations as f64;
        for (name, count) in counts {
            *series.counts.entry((*name).to_owned()).or_default() += count;
        }
    }

    /// Adds what the devices, and the FUSE server if it tells, were asked for during so many
    /// operations.
    pub fn count_asked(
        &mut self,
        key: &Key,
        system: &str,
        metric: Metric,
        operations: usize,
        asked: &Asked,
    ) {
        self.count(key, system, metric, operations, &asked.counts);
        if let Some(requests) = asked.fuse_requests {
            self.count_named(key, system, metric, 0, &[("FUSE requests", requests)]);
        }
    }

    /// The samples of a series.
    pub fn of(&self, key: &Key, system: &str, metric: Metric) -> Option<&[f64]> {
        let found = self.series.iter().find(|series| series.is(key, system, metric))?;
        Some(&found.samples)
    }

    /// The ratio of one system to another in a case.
    pub fn ratio(&self, key: &Key, metric: Metric, left: &str, right: &str) -> Result<Ratio> {
        let of = |system: &str| {
            let missing = || Error::other(format!("{}, {}: no {system}", key.panel, key.case));
            self.of(key, system, metric).filter(|samples| !samples.is_empty()).ok_or_else(missing)
        };
        Ok(statistics::ratio(of(left)?, of(right)?))
    }

    /// The count of a series by name, for each operation.
    pub fn count_of(&self, key: &Key, system: &str, metric: Metric, name: &str) -> Option<f64> {
        let found = self.series.iter().find(|series| series.is(key, system, metric))?;
        Some(found.counts.get(name)? / found.operations.max(1.0))
    }

    /// What an operation costs each of these systems in requests, flushes and bytes, in words.
    /// Empty if nothing was counted.
    pub fn costs(&self, key: &Key, metric: Metric, systems: &[&str]) -> String {
        let of = |system: &&str| {
            let count = |name: &str| self.count_of(key, system, metric, name);
            let costs = COSTS
                .iter()
                .filter_map(|(name, unit)| Some(format!("{} {unit}", as_short(count(name)?))));
            let costs: Vec<String> = costs.collect();
            (!costs.is_empty()).then(|| format!("{system}: {}", costs.join(", ")))
        };
        let all: Vec<String> = systems.iter().filter_map(of).collect();
        if all.is_empty() { String::new() } else { format!("Each: {}.", all.join("; ")) }
    }

    /// Moves everything to the section: panels and cases in their order, systems in the order of
    /// their setup, and not in the shuffled order of the turns.
    pub fn write_to(mut self, section: &mut Section) {
        let first = |is: &dyn Fn(&Series) -> bool| self.series.iter().position(is);
        let place = |series: &Series| {
            let panel = first(&|other| other.key.panel == series.key.panel);
            let case = first(&|other| other.key == series.key);
            let system = section.systems.iter().position(|name| *name == series.system);
            (panel, case, system.unwrap_or(usize::MAX))
        };
        let mut places: Vec<_> = self.series.iter().map(place).zip(0..).collect();
        places.sort_unstable();
        let mut ranks = vec![0; places.len()];
        for (rank, (_, index)) in places.into_iter().enumerate() {
            ranks[index] = rank;
        }
        let mut ranks = ranks.into_iter();
        self.series.sort_by_cached_key(|_| ranks.next().expect("a rank for each series"));
        section.rows.extend(self.series.into_iter().filter_map(Series::into_row));
    }

    fn series(&mut self, key: &Key, system: &str, metric: Metric) -> &mut Series {
        let found = self.series.iter().position(|series| series.is(key, system, metric));
        let index = found.unwrap_or_else(|| {
            self.series.push(Series {
                key: key.clone(),
                system: system.to_owned(),
                metric,
                samples: Vec::new(),
                counts: BTreeMap::new(),
                operations: 0.0,
            });
            self.series.len() - 1
        });
        &mut self.series[index]
    }
}

/// The counts that stand beside a verdict: their name in a series, and in words.
const COSTS: [(&str, &str); 5] = [
    ("FUSE requests", "requests"),
    ("flushes", "flushes"),
    ("writes", "device writes"),
    ("written KiB", "KiB"),
    (READS, "device reads"),
];
/// Only of a system that read.
const READS: &str = "reads";

/// The count with two decimals, from 10 on with one, from 100 on with none.
fn as_short(count: f64) -> String {
    match count {
        100.0.. => format!("{count:.0}"),
        10.0..100.0 => format!("{count:.1}"),
        _ => format!("{count:.2}"),
    }
}

impl Series {
    fn is(&self, key: &Key, system: &str, metric: Metric) -> bool {
        self.key == *key && self.system == system && self.metric == metric
    }

    /// `None` without a sample, because its round did not end.
    fn into_row(self) -> Option<Row> {
        if self.samples.is_empty() {
            return None;
        }
        let operations = self.operations.max(1.0);
        let each = |(name, count)| (name, count / operations);
        Some(Row {
            panel: self.key.panel,
            case: self.key.case,
            x: self.key.x,
            system: self.system,
            metric: self.metric.name.to_owned(),
            unit: self.metric.unit.to_owned(),
            better: self.metric.better,
            median: statistics::median(&self.samples),
            low: quantile(&self.samples, 0.25),
            high: quantile(&self.samples, 0.75),
            samples: self.samples,
            counts: self.counts.into_iter().map(each).collect(),
        })
    }
}
