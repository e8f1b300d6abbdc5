//! Delivery (clause 2.7), of all ten districts as one transaction of the database.

use rusqlite::{Connection, OptionalExtension};

use super::Outcome;
use crate::tpcc::scale::DISTRICT_COUNT;

/// Delivers the oldest waiting order of each district.
pub fn run(
    database: &Connection,
    warehouse: u32,
    carrier: u32,
    now: i64,
) -> rusqlite::Result<Outcome> {
    let mut skipped_count = 0;
    for district in 1..=DISTRICT_COUNT {
        let is_delivered = deliver(database, warehouse, district, carrier, now)?;
        skipped_count += u32::from(!is_delivered);
    }
    Ok(Outcome { is_committed: true, skipped_count })
}

/// False when no order is waiting.
fn deliver(
    database: &Connection,
    warehouse: u32,
    district: u32,
    carrier: u32,
    now: i64,
) -> rusqlite::Result<bool> {
    let oldest: Option<u32> = database
        .prepare_cached(
            "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id \
             LIMIT 1",
        )?
        .query_row((warehouse, district), |row| row.get(0))
        .optional()?;
    let Some(order) = oldest else { return Ok(false) };
    let key = (warehouse, district, order);
    database
        .prepare_cached("DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?")?
        .execute(key)?;
    let customer: u32 = database
        .prepare_cached("SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?")?
        .query_row(key, |row| row.get(0))?;
    database
        .prepare_cached(
            "UPDATE orders SET o_carrier_id = ?4 WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_id = ?3",
        )?
        .execute((warehouse, district, order, carrier))?;
    database
        .prepare_cached(
            "UPDATE order_line SET ol_delivery_d = ?4 WHERE ol_w_id = ?1 AND ol_d_id = ?2 \
             AND ol_o_id = ?3",
        )?
        .execute((warehouse, district, order, now))?;
    let sum_cents: i64 = database
        .prepare_cached(
            "SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? \
             AND ol_o_id = ?",
        )?
        .query_row(key, |row| row.get(0))?;
    database
        .prepare_cached(
            "UPDATE customer SET c_balance = c_balance + ?4, c_delivery_cnt = c_delivery_cnt + 1
             WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
        )?
        .execute((warehouse, district, customer, sum_cents))?;
    Ok(true)
}
