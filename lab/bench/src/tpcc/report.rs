//! The printed result of a turn: one JSON object.

use std::io;

use hdrhistogram::Histogram;
use rusqlite::Connection;
use serde::Serialize;

use super::client::Turn;
use super::input::Profile;

/// Latencies of the committed transactions of a profile, in microseconds.
#[derive(Debug, Serialize)]
pub struct Latencies {
    profile: Profile,
    count: u64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p95_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

impl Latencies {
    fn of(profile: Profile, ns: &Histogram<u64>) -> Latencies {
        let us = |ns: u64| ns as f64 / 1e3;
        let quantile = |quantile| us(ns.value_at_quantile(quantile));
        Latencies {
            profile,
            count: ns.len(),
            mean_us: ns.mean() / 1e3,
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p95_us: quantile(0.95),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: us(ns.max()),
        }
    }
}

/// The requests of this process to the kernel, as the kernel counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Number of calls that read.
    pub read_calls: u64,
    /// Number of calls that wrote.
    pub write_calls: u64,
    /// Bytes that were read with them.
    pub read_bytes: u64,
    /// Bytes that were written with them.
    pub written_bytes: u64,
}

impl Calls {
    /// Counts since the process began.
    pub fn now() -> io::Result<Calls> {
        let text = std::fs::read_to_string("/proc/self/io")?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok())
                .ok_or_else(|| io::Error::other(format!("/proc/self/io has no {name}")))
        };
        Ok(Calls {
            read_calls: field("syscr")?,
            write_calls: field("syscw")?,
            read_bytes: field("rchar")?,
            written_bytes: field("wchar")?,
        })
    }

    /// Counts since `before`.
    pub fn since(self, before: Calls) -> Calls {
        Calls {
            read_calls: self.read_calls - before.read_calls,
            write_calls: self.write_calls - before.write_calls,
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

/// The settings of the run.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    /// Warehouses of the database.
    pub warehouses: u32,
    /// Its cardinalities.
    pub scale: &'static str,
    /// SQLite's journal mode.
    pub journal_mode: String,
    /// When SQLite syncs.
    pub synchronous: String,
    /// Seed of its input.
    pub seed: u64,
}

/// SQLite's pages, and the counters of its extension.
#[derive(Debug, Serialize)]
pub struct Pages {
    page_bytes: u64,
    page_count: u64,
    /// The result of `onejournal_stat()` since the start, if the extension is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    extension: Option<serde_json::Value>,
}

impl Pages {
    /// The present values of a database.
    pub fn of(database: &Connection) -> rusqlite::Result<Pages> {
        let number = |name| database.pragma_query_value(None, name, |row| row.get(0));
        // Without the extension there is no such function.
        let stat =
            database.query_row("SELECT onejournal_stat()", (), |row| row.get::<_, String>(0));
        let extension = stat.ok().and_then(|text| serde_json::from_str(&text).ok());
        Ok(Pages { page_bytes: number("page_size")?, page_count: number("page_count")?, extension })
    }
}

/// A turn.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    setting: Setting,
    seconds: f64,
    /// New orders committed a minute.
    #[serde(rename = "tpmC")]
    tpm_c: f64,
    /// All profiles, and the orders that failed as intended.
    transactions: u64,
    rollbacks: u64,
    busy_errors: u64,
    skipped_deliveries: u64,
    latencies: Vec<Latencies>,
    /// For the whole process; nearly all of it is for SQLite's files.
    calls: Calls,
    #[serde(flatten)]
    pages: Pages,
}

impl Report {
    /// The result of this turn, which made `calls`, on a database with these `pages`.
    pub fn new(setting: &Setting, turn: &Turn, calls: Calls, pages: Pages) -> Report {
        let [new_orders, ..] = &turn.latencies_ns;
        let seconds = turn.time.as_secs_f64();
        let by_profile = Profile::ALL.into_iter().zip(&turn.latencies_ns);
        Report {
            setting: setting.clone(),
            seconds,
            tpm_c: new_orders.len() as f64 * 60.0 / seconds,
            transactions: turn.transaction_count(),
            rollbacks: turn.rollback_count,
            busy_errors: turn.busy_count,
            skipped_deliveries: turn.skipped_count,
            latencies: by_profile.map(|(profile, ns)| Latencies::of(profile, ns)).collect(),
            calls,
            pages,
        }
    }
}
