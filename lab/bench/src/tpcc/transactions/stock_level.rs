//! Stock-Level (clause 2.8).

use rusqlite::Connection;

use super::Outcome;

/// Counts the items of the district's last twenty orders of which fewer than `threshold` are left.
pub fn run(
    database: &Connection,
    warehouse: u32,
    district: u32,
    threshold: u32,
) -> rusqlite::Result<Outcome> {
    let next: u32 = database
        .prepare_cached("SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?")?
        .query_row((warehouse, district), |row| row.get(0))?;
    let _short: u32 = database
        .prepare_cached(
            "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ?1 \
             AND s_i_id = ol_i_id
             WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id >= ?3 - 20 AND ol_o_id < ?3 \
                 AND s_quantity < ?4",
        )?
        .query_row((warehouse, district, next, threshold), |row| row.get(0))?;
    Ok(Outcome::COMMITTED)
}
