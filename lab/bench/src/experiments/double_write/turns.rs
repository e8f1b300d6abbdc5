//! The turns of a database on all systems, and what is recorded of each.

use fastrand::Rng;

use std::cell::RefCell;

use super::{Way, ways};
use crate::error::Result;
use crate::experiments::Scale;
use crate::lab::Lab;
use crate::measure::{self, Key, Metric, Samples, Watch};
use crate::results::Section;
use crate::systems::{Asked, Running};

pub const RATE: Metric = Metric::higher("transactions a second", "1/s");
pub const P99: Metric = Metric::lower("latency, p99", "ms");
pub const DIP: Metric = Metric::higher("slowest quarter second", "% of the median");
/// Counts of [`RATE`], for a transaction.
pub const LOG_KIB: &str = "log KiB";
pub const DEVICE_KIB: &str = "written KiB";

/// More would take longer than the ten minutes that the experiment may take.
const FULL_ROUNDS: usize = 3;

/// The turns on a device.
pub struct Turns<'a> {
    lab: &'a Lab,
    running: &'a [Running],
    pub ways: Vec<Way<'a>>,
    rounds: usize,
    /// Length of a turn.
    pub seconds: u64,
    pub clients: Vec<u32>,
    rng: RefCell<Rng>,
}

/// What a database measured in a turn.
pub struct Found {
    pub transactions: u64,
    pub transactions_per_second: f64,
    pub p99_ns: u64,
    pub log_bytes: i64,
    pub slowest_window: Option<f64>,
}

/// The key of a number of clients.
pub fn key(panel: &str, clients: u32) -> Key {
    let unit = if clients == 1 { "client" } else { "clients" };
    Key::case(panel, format!("{clients} {unit}"))
}

impl<'a> Turns<'a> {
    /// Turns on these systems.
    pub fn new(
        lab: &'a Lab,
        scale: &Scale,
        running: &'a [Running],
        section: &mut Section,
    ) -> Turns<'a> {
        let turns = Turns {
            lab,
            running,
            ways: ways(running),
            rounds: scale.wanted_rounds().unwrap_or(scale.pick(1, FULL_ROUNDS)),
            seconds: scale.pick(1, 2),
            clients: scale.pick(vec![16], vec![1, 16]),
            rng: RefCell::new(scale.rng()),
        };
        section.set("seconds of a turn", turns.seconds);
        section.set("rounds of each device", turns.rounds);
        turns
    }

    /// All rounds. `prepare` is not measured; `work` lets clients work on the database of a way.
    pub fn take(
        &self,
        panel: &str,
        section: &mut Section,
        samples: &mut Samples,
        prepare: impl Fn(&Way<'_>) -> Result<()>,
        work: impl Fn(&Way<'_>, u32) -> Result<Found>,
    ) -> Result<()> {
        let mut order: Vec<&Way<'_>> = self.ways.iter().collect();
        let mut watch = Watch::begin(self.lab, self.running)?;
        for round in 1..=self.rounds {
            for &clients in &self.clients {
                let key = key(panel, clients);
                eprintln!(
                    "onejournal-bench: round {round} of {}: {panel}, {}",
                    self.rounds, key.case
                );
                measure::in_turns(&mut self.rng.borrow_mut(), &mut order, |_, way| {
                    prepare(way)?;
                    way.running.sync()?;
                    let (found, asked) = way.running.during(|| work(way, clients))?;
                    record(samples, &key, &way.name, &found, &asked);
                    Ok(())
                })?;
            }
            watch.end_round(self.running, section)?;
        }
        Ok(())
    }
}

fn record(samples: &mut Samples, key: &Key, name: &str, found: &Found, asked: &Asked) {
    let transactions = usize::try_from(found.transactions).unwrap_or(usize::MAX);
    samples.add(key, name, RATE, found.transactions_per_second);
    samples.count_asked(key, name, RATE, transactions, asked);
    let log_kib = found.log_bytes as f64 / 1024.0;
    samples.count_named(key, name, RATE, 0, &[(LOG_KIB, log_kib)]);
    samples.add(key, name, P99, found.p99_ns as f64 / 1e6);
    if let Some(part) = found.slowest_window {
        samples.add(key, name, DIP, part * 100.0);
    }
}
