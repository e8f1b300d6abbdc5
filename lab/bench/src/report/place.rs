//! A measured value by its place in the results.

use crate::results::{Better, Row, SectionFile};

/// The place of a value of each system.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub id: &'static str,
    pub panel: &'static str,
    pub case: &'static str,
    pub metric: &'static str,
    /// A count of requests in place of the metric.
    pub count: Option<&'static str>,
    pub unit: &'static str,
}

impl Place {
    /// The time of a transaction in milliseconds.
    pub const fn time(id: &'static str, panel: &'static str, case: &'static str) -> Place {
        Place { id, panel, case, metric: "transaction time", count: None, unit: "ms" }
    }

    /// The bytes that a transaction of SQLite writes.
    pub const fn bytes(panel: &'static str, case: &'static str) -> Place {
        let metric = "bytes written for a transaction";
        Place { id: "sqlite-bytes", panel, case, metric, count: None, unit: "KiB" }
    }

    /// The transactions a second of SQLite's writers that do not pause.
    pub const fn writers(panel: &'static str, case: &'static str) -> Place {
        let place = Place::time("sqlite-extension", panel, case);
        place.metric("transactions of all writers", "commits/s")
    }

    /// With another metric.
    pub const fn metric(self, metric: &'static str, unit: &'static str) -> Place {
        Place { metric, unit, ..self }
    }

    /// With a count in place of the metric.
    pub const fn count(self, count: &'static str, unit: &'static str) -> Place {
        Place { count: Some(count), unit, ..self }
    }

    /// The value of a system; `None` if it is not among the results.
    pub fn value(&self, files: &[SectionFile], system: &str) -> Option<f64> {
        let row = self.row(files, system)?;
        match self.count {
            Some(name) => row.counts.get(name).copied(),
            None => Some(row.median),
        }
    }

    /// How many times better one system is than another.
    pub fn gain(&self, files: &[SectionFile], peer: &str, ours: &str) -> Option<f64> {
        let is_lower_good = self.is_lower_good(files, ours)?;
        let (peer, ours) = (self.value(files, peer)?, self.value(files, ours)?);
        Some(if is_lower_good { peer / ours } else { ours / peer })
    }

    /// Whether less is better.
    pub fn is_lower_good(&self, files: &[SectionFile], system: &str) -> Option<bool> {
        let row = self.row(files, system)?;
        Some(self.count.is_some() || row.better == Better::Lower)
    }

    fn row<'a>(&self, files: &'a [SectionFile], system: &str) -> Option<&'a Row> {
        let section = &files.iter().find(|file| file.section.id == self.id)?.section;
        section.rows.iter().find(|row| {
            (row.panel.as_str(), row.case.as_str()) == (self.panel, self.case)
                && (row.metric.as_str(), row.system.as_str()) == (self.metric, system)
        })
    }
}
