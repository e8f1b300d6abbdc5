//! New-Order (clause 2.4).

use rusqlite::{Connection, OptionalExtension};

use super::Outcome;
use crate::tpcc::input::Line;
use crate::tpcc::random::ORIGINAL;

/// The items of an order, and the customer.
pub struct Order<'a> {
    pub warehouse: u32,
    pub district: u32,
    pub customer: u32,
    pub lines: &'a [Line],
}

/// An order that has a number.
struct Numbered<'a> {
    order: &'a Order<'a>,
    number: u32,
}

/// Enters the order, or nothing if one of its items does not exist.
pub fn run(database: &Connection, order: &Order, now: i64) -> rusqlite::Result<Outcome> {
    let (warehouse, district) = (order.warehouse, order.district);
    let warehouse_tax: i64 = database
        .prepare_cached("SELECT w_tax FROM warehouse WHERE w_id = ?")?
        .query_row([warehouse], |row| row.get(0))?;
    let (district_tax, number): (i64, u32) = database
        .prepare_cached("SELECT d_tax, d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?")?
        .query_row((warehouse, district), |row| Ok((row.get(0)?, row.get(1)?)))?;
    database
        .prepare_cached("UPDATE district SET d_next_o_id = ? WHERE d_w_id = ? AND d_id = ?")?
        .execute((number + 1, warehouse, district))?;
    let (discount, _last, _credit): (i64, String, String) = database
        .prepare_cached(
            "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = ? AND c_d_id = ? \
             AND c_id = ?",
        )?
        .query_row((warehouse, district, order.customer), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    let order = Numbered { order, number };
    order.insert(database, now)?;
    let mut sum_cents = 0;
    for (line_number, line) in (1..).zip(order.order.lines) {
        match order.line(database, line_number, line)? {
            Some(amount_cents) => sum_cents += amount_cents,
            None => return Ok(Outcome { is_committed: false, skipped_count: 0 }),
        }
    }
    // What the terminal shows.
    let with_tax = sum_cents * (10_000 + warehouse_tax + district_tax) / 10_000;
    std::hint::black_box(with_tax * (10_000 - discount) / 10_000);
    Ok(Outcome::COMMITTED)
}

impl Numbered<'_> {
    fn insert(&self, database: &Connection, now: i64) -> rusqlite::Result<()> {
        let Numbered { order, number } = self;
        let is_local = order.lines.iter().all(|line| line.supply_warehouse == order.warehouse);
        let values = (
            number,
            order.district,
            order.warehouse,
            order.customer,
            now,
            order.lines.len(),
            u32::from(is_local),
        );
        database
            .prepare_cached(
                "INSERT INTO orders(o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
                 VALUES(?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(values)?;
        database
            .prepare_cached("INSERT INTO new_order(no_o_id, no_d_id, no_w_id) VALUES(?, ?, ?)")?
            .execute((number, order.district, order.warehouse))?;
        Ok(())
    }

    /// The line's price; `None` if its item does not exist.
    fn line(
        &self,
        database: &Connection,
        line_number: u32,
        line: &Line,
    ) -> rusqlite::Result<Option<i64>> {
        let item: Option<(i64, String, String)> = database
            .prepare_cached("SELECT i_price, i_name, i_data FROM item WHERE i_id = ?")?
            .query_row([line.item], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((price_cents, _name, item_data)) = item else { return Ok(None) };
        let (district_info, stock_data) = self.take_stock(database, line)?;
        // What the terminal shows: B for a brand.
        std::hint::black_box(item_data.contains(ORIGINAL) && stock_data.contains(ORIGINAL));
        let amount_cents = i64::from(line.quantity) * price_cents;
        database
            .prepare_cached(
                "INSERT INTO order_line(ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, \
                 ol_supply_w_id, ol_quantity,
                     ol_amount, ol_dist_info)
                 VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute((
                self.number,
                self.order.district,
                self.order.warehouse,
                line_number,
                line.item,
                line.supply_warehouse,
                line.quantity,
                amount_cents,
                district_info,
            ))?;
        Ok(Some(amount_cents))
    }

    /// Takes the line's quantity from the stock. Returns the stock's text for the district, and its
    /// data.
    fn take_stock(&self, database: &Connection, line: &Line) -> rusqlite::Result<(String, String)> {
        let select = format!(
            "SELECT s_quantity, s_dist_{:02}, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ?",
            self.order.district
        );
        let (stock, info, data): (i64, String, String) = database
            .prepare_cached(&select)?
            .query_row((line.supply_warehouse, line.item), |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        let is_remote = line.supply_warehouse != self.order.warehouse;
        database
            .prepare_cached(
                "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1,
                     s_remote_cnt = s_remote_cnt + ?
                 WHERE s_w_id = ? AND s_i_id = ?",
            )?
            .execute((
                left_in_stock(stock, i64::from(line.quantity)),
                line.quantity,
                u32::from(is_remote),
                line.supply_warehouse,
                line.item,
            ))?;
        Ok((info, data))
    }
}

/// At least ten must stay in stock; otherwise 91 are added.
fn left_in_stock(stock: i64, quantity: i64) -> i64 {
    if stock >= quantity + 10 { stock - quantity } else { stock - quantity + 91 }
}

#[cfg(test)]
mod tests {
    use super::left_in_stock;

    #[test]
    fn stock_is_filled_up_below_ten() {
        assert_eq!(left_in_stock(15, 5), 10);
        assert_eq!(left_in_stock(14, 5), 100);
    }
}
