//! How a customer is found: by number, or the middle one of those with a last name (clause
//! 2.5.2.2).

use rusqlite::Connection;

use crate::tpcc::input::Customer;

/// A district.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct District {
    pub warehouse: u32,
    pub district: u32,
}

/// The number of the requested customer.
pub fn find(database: &Connection, place: District, customer: &Customer) -> rusqlite::Result<u32> {
    let name = match customer {
        Customer::Number(number) => return Ok(*number),
        Customer::LastName(name) => name,
    };
    let mut select = database.prepare_cached(
        "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first",
    )?;
    let rows = select.query_map((place.warehouse, place.district, name), |row| row.get(0))?;
    let numbers: Vec<u32> = rows.collect::<rusqlite::Result<_>>()?;
    let middle = numbers.len().div_ceil(2).checked_sub(1);
    middle.map(|middle| numbers[middle]).ok_or(rusqlite::Error::QueryReturnedNoRows)
}
