//! Order-Status (clause 2.6).

use rusqlite::Connection;

use super::Outcome;
use super::customer::{self, District};
use crate::tpcc::input::Customer;

/// Reads a customer, the newest of its orders and that order's lines.
pub fn run(
    database: &Connection,
    place: District,
    customer: &Customer,
) -> rusqlite::Result<Outcome> {
    let District { warehouse, district } = place;
    let number = customer::find(database, place, customer)?;
    let _balance: i64 = database
        .prepare_cached(
            "SELECT c_balance, c_first, c_middle, c_last FROM customer
             WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
        )?
        .query_row((warehouse, district, number), |row| row.get(0))?;
    let order: u32 = database
        .prepare_cached(
            "SELECT o_id, o_entry_d, o_carrier_id FROM orders
             WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1",
        )?
        .query_row((warehouse, district, number), |row| row.get(0))?;
    let mut lines = database.prepare_cached(
        "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
         WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
    )?;
    let mut rows = lines.query((warehouse, district, order))?;
    while rows.next()?.is_some() {}
    Ok(Outcome::COMMITTED)
}
