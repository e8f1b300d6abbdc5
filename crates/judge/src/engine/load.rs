//! What transactions write, and what is counted of them.
//!
//! A part of a transaction makes a server write many pages in place. Each session has a table that
//! is larger than its share of the server's memory. A transaction changes rows in random places of
//! it, and each changed row has a new random key in an index. So between two checkpoints the server
//! writes many old pages of the table and of the index.
//!
//! `version` counts the changes of a row, and gives the content of all its other columns.
//!
//! Stores of keys and values get records instead.

use std::io;
use std::process::Command;

use super::{Client, Engine, Place, Server, Session};
use crate::command::run;

/// Rows of the table.
pub const ROW_COUNT: u64 = 2000;
/// Rows that a transaction changes.
pub const CHANGED_COUNT: u64 = 10;
/// How often a row repeats its random text of 32 bytes.
pub const REPEAT_COUNT: u64 = 25;

/// The rows that transaction `number` of session `actor` changes, as a list for SQL. They are
/// different.
pub fn changed_rows(actor: usize, number: u64) -> String {
    let mut rng = fastrand::Rng::with_seed(number.wrapping_mul(31).wrapping_add(actor as u64));
    let rows = rng.choose_multiple(1..=ROW_COUNT, usize::try_from(CHANGED_COUNT).expect("few"));
    rows.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// What a session's tables hold, as a server prints it: numbers with `|` between.
pub struct Counts<'c> {
    pub actor: usize,
    /// The transactions and changes that are counted in a row of its own; the rows of the table,
    /// the sum of their changes, the largest key, and the number of rows that lack their text.
    pub counts: &'c str,
    /// Counts of the table of this module: its rows, the sum of their versions, and the number of
    /// rows whose columns do not agree.
    pub wide: Option<&'c str>,
}

impl Counts<'_> {
    /// The number of transactions. An error is a part of a transaction.
    pub fn transaction_count(&self) -> Result<u64, String> {
        let Counts { actor, counts, wide } = self;
        let numbers: Vec<u64> = counts.split('|').filter_map(|word| word.parse().ok()).collect();
        let count = match numbers[..] {
            [count, ref others @ .., 0]
                if others.len() == 4 && others.iter().all(|other| *other == count) =>
            {
                count
            }
            _ => return Err(format!("actor {actor}: a part of a transaction: {counts}")),
        };
        let wanted = format!("{ROW_COUNT}|{}|0", count * CHANGED_COUNT);
        match wide {
            Some(wide) if *wide != wanted => Err(format!(
                "actor {actor}: a part of a transaction: {counts}; of the large table {wide}, not \
                 {wanted}"
            )),
            _ => Ok(count),
        }
    }
}

/// The record that transaction `number` adds to a store of keys and values: a word.
pub fn record(number: u64) -> String {
    let mut rng = fastrand::Rng::with_seed(number);
    let count = [2, 40, 600][rng.usize(..3)];
    let words = (0..count).map(|_| format!("{:016x}", rng.u64(..)));
    format!("{number}:{}", words.collect::<String>())
}

/// The number of transactions of a session, by its records in order and by the total that it
/// counts. An error is a part of a transaction.
pub fn count_records(actor: usize, records: &[&str], total: &str) -> Result<u64, String> {
    let is_right = |(number, found): (u64, &&str)| **found == record(number);
    let count = records.len() as u64;
    let total = if total.is_empty() { "0" } else { total };
    match (1..).zip(records).all(is_right) && total == count.to_string() {
        true => Ok(count),
        false => Err(format!(
            "actor {actor}: a part of a transaction: {count} records, the total is {total}"
        )),
    }
}

/// The number of transactions of a session, by a program that prints the total and then the
/// records, each on a line.
pub fn count_printed(actor: usize, program: &mut Command) -> Result<u64, String> {
    let text = run(program)?;
    let mut lines = text.lines();
    let total = lines.next().unwrap_or_default();
    count_records(actor, &lines.collect::<Vec<_>>(), total)
}

/// A session in a program of its own. The program reads lines with the number of a record and the
/// record, and prints `done NUMBER` when the transaction is committed.
pub struct Program(Client);

impl Program {
    pub fn start(program: Command) -> io::Result<Box<dyn Session>> {
        Ok(Box::new(Program(Client::start(program)?)))
    }
}

impl Session for Program {
    fn commit(&mut self, number: u64) -> io::Result<()> {
        let line = format!("{number} {}\n", record(number));
        self.0.ask(&line, &format!("done {number}"))
    }
}

/// The numbers of transactions of all sessions, as the engine's server has them after its recovery.
/// `count` counts the transactions of one session.
pub fn count_through_server(
    engine: &dyn Engine,
    place: &Place,
    session_count: usize,
    count: impl Fn(usize) -> io::Result<u64>,
) -> Result<Vec<u64>, String> {
    let server = engine.start(place)?;
    let counts: io::Result<Vec<u64>> = (0..session_count).map(count).collect();
    let counts = counts.map_err(|e| format!("{}: {e}", engine.name()))?;
    server.map_or(Ok(()), Server::stop)?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_missing_or_wrong_are_noticed() {
        let records: Vec<String> = (1..=3).map(record).collect();
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        assert_eq!(count_records(0, &records, "3"), Ok(3));
        assert_eq!(count_records(0, &[], ""), Ok(0));
        for (records, total) in
            [(&records[..], "2"), (&records[1..], "2"), (&records[..2], "3"), (&["1:00"], "1")]
        {
            assert!(count_records(0, records, total).is_err(), "{records:?} {total}");
        }
    }

    #[test]
    fn half_of_a_transaction_is_noticed() {
        let count = |counts, wide| Counts { actor: 0, counts, wide }.transaction_count();
        assert_eq!(count("3|3|3|3|3|0", None), Ok(3));
        assert_eq!(count("3|3|3|3|3|0", Some("2000|30|0")), Ok(3));
        for (counts, wide) in [
            ("3|3|2|3|3|0", None),
            ("3|3|3|3|3|1", None),
            ("3|3|3|3|0", None),
            ("", None),
            ("3|3|3|3|3|0", Some("2000|29|0")),
            ("3|3|3|3|3|0", Some("2000|30|1")),
            ("3|3|3|3|3|0", Some("1999|30|0")),
        ] {
            assert!(count(counts, wide).unwrap_err().contains("a part of"), "{counts} {wide:?}");
        }
    }

    #[test]
    fn a_transaction_changes_so_many_different_rows() {
        for number in 1..50 {
            let list = changed_rows(2, number);
            let mut rows: Vec<u64> = list.split(',').map(|row| row.parse().unwrap()).collect();
            assert!(rows.iter().all(|row| (1..=ROW_COUNT).contains(row)), "{list}");
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len() as u64, CHANGED_COUNT, "{list}");
            assert_eq!(list, changed_rows(2, number));
        }
    }
}
