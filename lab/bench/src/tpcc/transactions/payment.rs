//! Payment (clause 2.5).

use rusqlite::Connection;

use super::Outcome;
use super::customer::{self, District};
use crate::tpcc::input::Customer;

const DATA_LEN_MAX: usize = 500;

/// `payer`'s customer pays to the district `receiver`.
pub fn run(
    database: &Connection,
    receiver: District,
    payer: District,
    customer: &Customer,
    amount_cents: u32,
    now: i64,
) -> rusqlite::Result<Outcome> {
    let names = receive(database, receiver, amount_cents)?;
    let number = customer::find(database, payer, customer)?;
    database
        .prepare_cached(
            "UPDATE customer SET c_balance = c_balance - ?1, c_ytd_payment = c_ytd_payment + ?1,
                 c_payment_cnt = c_payment_cnt + 1
             WHERE c_w_id = ?2 AND c_d_id = ?3 AND c_id = ?4",
        )?
        .execute((amount_cents, payer.warehouse, payer.district, number))?;
    let shown = show(database, payer, number)?;
    if shown.credit == "BC" {
        let note = format!(
            "{number} {} {} {} {} {}.{:02} {}",
            payer.district,
            payer.warehouse,
            receiver.district,
            receiver.warehouse,
            amount_cents / 100,
            amount_cents % 100,
            shown.data
        );
        let kept: String = note.chars().take(DATA_LEN_MAX).collect();
        database
            .prepare_cached(
                "UPDATE customer SET c_data = ? WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            )?
            .execute((kept, payer.warehouse, payer.district, number))?;
    }
    database.prepare_cached("INSERT INTO history VALUES(?, ?, ?, ?, ?, ?, ?, ?)")?.execute((
        number,
        payer.district,
        payer.warehouse,
        receiver.district,
        receiver.warehouse,
        now,
        amount_cents,
        names,
    ))?;
    Ok(Outcome::COMMITTED)
}

/// Adds the payment to the year's total of warehouse and district. Returns their names for the
/// history.
fn receive(
    database: &Connection,
    receiver: District,
    amount_cents: u32,
) -> rusqlite::Result<String> {
    let District { warehouse, district } = receiver;
    database
        .prepare_cached("UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?")?
        .execute((amount_cents, warehouse))?;
    let warehouse_name: String = database
        .prepare_cached(
            "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse \
             WHERE w_id = ?",
        )?
        .query_row([warehouse], |row| row.get(0))?;
    database
        .prepare_cached("UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?")?
        .execute((amount_cents, warehouse, district))?;
    let district_name: String = database
        .prepare_cached(
            "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district
             WHERE d_w_id = ? AND d_id = ?",
        )?
        .query_row((warehouse, district), |row| row.get(0))?;
    Ok(format!("{warehouse_name}    {district_name}"))
}

/// The part of a customer's data that the terminal shows and that is needed here.
struct Shown {
    credit: String,
    data: String,
}

fn show(database: &Connection, place: District, number: u32) -> rusqlite::Result<Shown> {
    database
        .prepare_cached(
            "SELECT c_credit, c_data, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, \
             c_state, c_zip,
                 c_phone, c_since, c_credit_lim, c_discount, c_balance
             FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
        )?
        .query_row((place.warehouse, place.district, number), |row| {
            Ok(Shown { credit: row.get(0)?, data: row.get(1)? })
        })
}
