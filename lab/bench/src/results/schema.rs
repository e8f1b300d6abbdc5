//! The schema. A file holds one experiment ([`Section`]), with the machine and the build of its
//! run, so that files of several runs can be in one directory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Build, Machine};

/// The version of this schema.
pub const SCHEMA: u32 = 1;

/// One file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SectionFile {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it was run, UTC, as `2026-01-31 13:00`.
    pub date: String,
    pub machine: Machine,
    pub build: Build,
    pub section: Section,
}

/// One experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// The name of its subcommand.
    pub id: String,
    pub title: String,
    /// The paper that it is about; empty for an experiment of this project.
    pub paper: String,
    /// Figure or table of the paper.
    pub figure: String,
    /// What is done, and what the result shows, in Markdown.
    pub about: String,
    /// The paper's result.
    pub paper_claim: String,
    /// What OneJournal must reach.
    pub goal: String,
    /// The sizes of this run beside the paper's; empty for an experiment of this project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<Size>,
    /// `quick` or `full`, rounds, seed, devices and so on.
    pub settings: BTreeMap<String, String>,
    /// Systems in the order in which they are shown.
    pub systems: Vec<String>,
    pub rows: Vec<Row>,
    /// The figures that are drawn from the rows.
    pub plots: Vec<Plot>,
    pub verdicts: Vec<Verdict>,
    /// Rounds that were watched.
    pub rounds: usize,
    /// Rounds in which the machine did other work.
    pub disturbances: Vec<Disturbance>,
    pub left_out: Vec<LeftOut>,
    /// Sentences for the reader, in Markdown.
    pub notes: Vec<String>,
    /// How long it took.
    pub seconds: f64,
    /// Why it ended early, if it did.
    pub error: Option<String>,
}

/// A size of an experiment that repeats a paper's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// What is counted.
    pub what: String,
    /// `None`: the paper does not say, or has no such size.
    pub paper: Option<u64>,
    /// That of a full run.
    pub full: u64,
    /// That of this run.
    pub here: u64,
}

/// One system in one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Cases that are drawn together.
    pub panel: String,
    pub case: String,
    /// The place on the axis of a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    pub system: String,
    pub metric: String,
    pub unit: String,
    pub better: Better,
    pub median: f64,
    /// Lower and upper quartile.
    pub low: f64,
    pub high: f64,
    /// One value for each round. All systems of a case have values of the same rounds.
    pub samples: Vec<f64>,
    /// The device requests of each operation.
    pub counts: BTreeMap<String, f64>,
}

/// Which values are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
}

/// A figure with all rows of a metric in some panels, one diagram for each panel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    pub title: String,
    pub kind: PlotKind,
    pub metric: String,
    /// Panels in their order; all of the section if empty.
    pub panels: Vec<String>,
    /// The name of a count, to draw it in place of the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// Label of the x axis of a sweep.
    pub x_label: String,
    pub log_x: bool,
    pub log_y: bool,
}

impl Plot {
    /// Groups of bars.
    pub fn bars(title: impl Into<String>, metric: &str, panels: Vec<String>) -> Plot {
        Plot {
            title: title.into(),
            kind: PlotKind::Bars,
            metric: metric.to_owned(),
            panels,
            count: None,
            x_label: String::new(),
            log_x: false,
            log_y: false,
        }
    }

    /// Lines of a sweep.
    pub fn lines(
        title: impl Into<String>,
        metric: &str,
        x_label: &str,
        panels: Vec<String>,
    ) -> Plot {
        let x_label = x_label.to_owned();
        Plot { kind: PlotKind::Lines, x_label, ..Plot::bars(title, metric, panels) }
    }

    /// Draws a count in place of the metric.
    pub fn of_count(self, name: &str) -> Plot {
        Plot { count: Some(name.to_owned()), ..self }
    }

    /// With a logarithmic y axis.
    pub fn log_y(self) -> Plot {
        Plot { log_y: true, ..self }
    }

    /// With a logarithmic x axis.
    pub fn log_x(self) -> Plot {
        Plot { log_x: true, ..self }
    }
}

/// How it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    /// Groups of bars, a group a case.
    Bars,
    /// Lines over `x`.
    Lines,
}

/// A claim, compared with the measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The claim or goal.
    pub claim: String,
    /// The paper's number, as text.
    pub paper: String,
    /// Our number, as text with its unit.
    pub measured: String,
    pub outcome: Outcome,
    /// The meaning, in a sentence.
    pub sentence: String,
}

impl Verdict {
    /// Reached when `measured` is at least `wanted`.
    pub fn at_least(claim: impl Into<String>, paper: &str, measured: f64, wanted: f64) -> Verdict {
        Verdict::new(claim, paper, measured, measured >= wanted)
    }

    /// Reached when `measured` is at most `wanted`.
    pub fn at_most(claim: impl Into<String>, paper: &str, measured: f64, wanted: f64) -> Verdict {
        Verdict::new(claim, paper, measured, measured <= wanted)
    }

    /// A claim without a goal.
    pub fn shown(claim: impl Into<String>, paper: &str, measured: f64) -> Verdict {
        Verdict { outcome: Outcome::Shown, ..Verdict::new(claim, paper, measured, true) }
    }

    fn new(claim: impl Into<String>, paper: &str, measured: f64, is_reached: bool) -> Verdict {
        Verdict {
            claim: claim.into(),
            paper: if paper.is_empty() { "-" } else { paper }.to_owned(),
            measured: three_digits(measured),
            outcome: if is_reached { Outcome::Reached } else { Outcome::Missed },
            sentence: String::new(),
        }
    }

    /// Sets the sentence.
    pub fn saying(self, sentence: impl Into<String>) -> Verdict {
        Verdict { sentence: sentence.into(), ..self }
    }
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        0.1..10.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The outcome of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Reached,
    Missed,
    /// There was no goal, or the machine was too busy to judge.
    Shown,
}

/// Other work of the machine in a round, as parts of one CPU or of the round's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// From 0, in the order of the watched rounds.
    pub round: usize,
    pub seconds: f64,
    /// CPUs that other processes used.
    pub others_cpu: f64,
    /// Part of all CPU time that the hypervisor took.
    pub steal: f64,
    /// Part of the time in which a process waited for a CPU, or for I/O.
    pub cpu_stall: f64,
    pub io_stall: f64,
    /// MB/s that other processes wrote to the disk of the scratch folder.
    pub others_write_mb_s: f64,
}

/// A system that was not available, or a part that was not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    pub what: String,
    pub why: String,
}

impl Section {
    /// Adds a note that something is left out, once.
    pub fn leave_out(&mut self, what: &str, why: &str) {
        let left_out = LeftOut { what: what.to_owned(), why: why.to_owned() };
        if !self.left_out.contains(&left_out) {
            eprintln!("onejournal-bench: {what} is left out: {why}");
            self.left_out.push(left_out);
        }
    }

    /// Adds a setting.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.settings.insert(name.to_owned(), value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const PAGE: &str = include_str!("../../../../docs/format/results.md");

    fn example() -> SectionFile {
        let row = Row {
            panel: "p".into(),
            case: "c".into(),
            x: Some(1.0),
            system: "s".into(),
            metric: "m".into(),
            unit: "u".into(),
            better: Better::Lower,
            median: 1.0,
            low: 1.0,
            high: 1.0,
            samples: vec![1.0],
            counts: BTreeMap::new(),
        };
        let disturbance = Disturbance {
            round: 0,
            seconds: 1.0,
            others_cpu: 1.0,
            steal: 0.0,
            cpu_stall: 0.0,
            io_stall: 0.0,
            others_write_mb_s: 0.0,
        };
        let section = Section {
            sizes: vec![Size { what: "w".into(), paper: None, full: 2, here: 1 }],
            rows: vec![row],
            plots: vec![Plot::bars("t", "m", Vec::new()).of_count("n")],
            verdicts: vec![Verdict::shown("c", "", 1.0)],
            disturbances: vec![disturbance],
            left_out: vec![LeftOut { what: "w".into(), why: "y".into() }],
            ..Section::default()
        };
        let (machine, build) = (Machine::this(std::path::Path::new("/")), Build::this());
        SectionFile { schema: SCHEMA, date: "d".into(), machine, build, section }
    }

    fn names(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    into.push(name.clone());
                    names(value, into);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| names(value, into)),
            _ => {}
        }
    }

    #[test]
    fn the_page_knows_every_field() {
        let mut all = Vec::new();
        names(&serde_json::to_value(example()).unwrap(), &mut all);
        assert!(all.len() > 40, "{all:?}");
        for name in all {
            assert!(PAGE.contains(&format!("`{name}`")), "{name} is not described");
        }
    }

    #[test]
    fn written_results_are_read_unless_their_schema_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = example();
        file.section.id = "example".into();
        crate::results::write(dir.path(), &file).unwrap();
        let read = crate::results::read_all(dir.path(), ["none", "example"]).unwrap();
        assert_eq!(read, [file.clone()]);
        file.schema += 1;
        crate::results::write(dir.path(), &file).unwrap();
        let refused = crate::results::read_all(dir.path(), ["example"]).unwrap_err();
        assert!(refused.to_string().contains("schema 2, not 1"), "{refused}");
    }

    #[test]
    fn packed_results_are_read_until_new_ones_replace_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = example();
        file.section.id = "example".into();
        let path = dir.path().join("example.json.gz");
        let text = serde_json::to_string(&file).unwrap();
        let packer = flate2::GzBuilder::new();
        let mut packer = packer.write(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut packer, text.as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        std::fs::write(&path, &packed).unwrap();
        let read = || crate::results::read(dir.path(), "example");
        assert_eq!(read().unwrap(), Some(file.clone()));
        std::fs::write(&path, &packed[..packed.len() - 1]).unwrap();
        assert!(read().unwrap_err().to_string().contains("example.json.gz"));
        file.date = "later".into();
        crate::results::write(dir.path(), &file).unwrap();
        assert_eq!(read().unwrap(), Some(file));
        assert!(!path.exists());
    }

    #[test]
    fn verdicts_compare_with_what_is_wanted() {
        let outcomes = [
            Verdict::at_least("c", "", 2.0, 2.0),
            Verdict::at_least("c", "", 1.9, 2.0),
            Verdict::at_most("c", "", 1.0, 1.0),
            Verdict::at_most("c", "", 1.1, 1.0),
            // Nothing measured reaches nothing.
            Verdict::at_most("c", "", f64::NAN, 1.0),
        ];
        use Outcome::{Missed, Reached};
        let wanted = [Reached, Missed, Reached, Missed, Missed];
        assert_eq!(outcomes.map(|verdict| verdict.outcome), wanted);
    }
}
