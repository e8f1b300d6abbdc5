//! The five transactions (clauses 2.4 to 2.8), each one transaction of SQLite with prepared
//! statements.

mod customer;
mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;

use rusqlite::{Connection, TransactionBehavior};

use super::input::Input;

/// The result of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// False for an order with an item that does not exist.
    pub is_committed: bool,
    /// Districts of a Delivery in which no order was waiting.
    pub skipped_count: u32,
}

impl Outcome {
    const COMMITTED: Outcome = Outcome { is_committed: true, skipped_count: 0 };
}

/// Statements that a connection keeps prepared: more than all transactions have.
pub const STATEMENT_COUNT_MAX: usize = 64;

/// Performs one transaction at the date `now`. A transaction that writes begins as a writer, so
/// that two clients wait for each other, and do not fail after both have read.
pub fn run(database: &mut Connection, input: &Input, now: i64) -> rusqlite::Result<Outcome> {
    let behavior = match input {
        Input::OrderStatus { .. } | Input::StockLevel { .. } => TransactionBehavior::Deferred,
        _ => TransactionBehavior::Immediate,
    };
    let transaction = database.transaction_with_behavior(behavior)?;
    let outcome = match input {
        Input::NewOrder { warehouse, district, customer, lines } => {
            let order = new_order::Order {
                warehouse: *warehouse,
                district: *district,
                customer: *customer,
                lines,
            };
            new_order::run(&transaction, &order, now)?
        }
        Input::Payment {
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer,
            amount_cents,
        } => {
            let payer =
                customer::District { warehouse: *customer_warehouse, district: *customer_district };
            let receiver = customer::District { warehouse: *warehouse, district: *district };
            payment::run(&transaction, receiver, payer, customer, *amount_cents, now)?
        }
        Input::OrderStatus { warehouse, district, customer } => {
            let place = customer::District { warehouse: *warehouse, district: *district };
            order_status::run(&transaction, place, customer)?
        }
        Input::Delivery { warehouse, carrier } => {
            delivery::run(&transaction, *warehouse, *carrier, now)?
        }
        Input::StockLevel { warehouse, district, threshold } => {
            stock_level::run(&transaction, *warehouse, *district, *threshold)?
        }
    };
    if outcome.is_committed { transaction.commit() } else { transaction.rollback() }
        .map(|()| outcome)
}
