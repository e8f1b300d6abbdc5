//! The client: performs transactions one after the other, for a number or a time, and counts them.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rusqlite::{Connection, ErrorCode};

use super::clock::seconds_now;
use super::input::{Profile, Terminals};
use super::transactions;

/// When a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// After this number of transactions.
    Transactions(u64),
    /// After this time.
    Time(Duration),
}

/// The result of a turn.
pub struct Turn {
    /// How long it took.
    pub time: Duration,
    /// Latencies of committed transactions in nanoseconds, by profile in the order of
    /// [`Profile::ALL`].
    pub latencies_ns: [Histogram<u64>; 5],
    /// New orders that failed as intended.
    pub rollback_count: u64,
    /// Transactions that were given up because the database stayed locked.
    pub busy_count: u64,
    /// Districts in which a Delivery found no order.
    pub skipped_count: u64,
}

/// Longer transactions count as if they took this time.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
const DIGITS: u8 = 3;

impl Turn {
    fn new() -> Turn {
        let empty =
            || Histogram::new_with_max(LATENCY_NS_MAX, DIGITS).expect("bounds that are allowed");
        Turn {
            time: Duration::ZERO,
            latencies_ns: std::array::from_fn(|_| empty()),
            rollback_count: 0,
            busy_count: 0,
            skipped_count: 0,
        }
    }

    /// Transactions that were committed, or rolled back as intended.
    pub fn transaction_count(&self) -> u64 {
        self.latencies_ns.iter().map(Histogram::len).sum::<u64>() + self.rollback_count
    }
}

/// Performs transactions until `limit`.
pub fn turn(
    database: &mut Connection,
    terminals: &mut Terminals,
    limit: Limit,
) -> rusqlite::Result<Turn> {
    let mut turn = Turn::new();
    let start = Instant::now();
    loop {
        let is_over = match limit {
            Limit::Transactions(count) => turn.transaction_count() + turn.busy_count >= count,
            Limit::Time(time) => start.elapsed() >= time,
        };
        if is_over {
            turn.time = start.elapsed();
            return Ok(turn);
        }
        one(database, terminals, &mut turn)?;
    }
}

fn one(
    database: &mut Connection,
    terminals: &mut Terminals,
    turn: &mut Turn,
) -> rusqlite::Result<()> {
    let (profile, input) = terminals.next();
    let start = Instant::now();
    match transactions::run(database, &input, seconds_now()) {
        Ok(outcome) if outcome.is_committed => {
            let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            turn.latencies_ns[place(profile)].saturating_record(ns);
            turn.skipped_count += u64::from(outcome.skipped_count);
        }
        Ok(_) => turn.rollback_count += 1,
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
            turn.busy_count += 1;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn place(profile: Profile) -> usize {
    Profile::ALL.iter().position(|one| *one == profile).expect("one of all")
}
