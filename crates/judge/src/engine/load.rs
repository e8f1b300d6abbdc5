//! The part of a transaction that makes a server write many pages in place.
//!
//! Each session has a table that is larger than its share of the server's memory. A transaction
//! changes rows in random places of it, and each changed row has a new random key in an index. So
//! between two checkpoints the server writes many old pages of the table and of the index.
//!
//! `version` counts the changes of a row, and gives the content of all its other columns.

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

#[cfg(test)]
mod tests {
    use super::*;

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
