//! The twelve consistency conditions of clause 3.3.2, each as the number of rows that violate it.
//!
//! Two conditions are changed so that they hold after deliveries, too. For a district without
//! waiting orders there is no newest one to compare (2). Orders that were delivered since the load
//! count together with those delivered before (11).

use rusqlite::Connection;
use serde::Serialize;

use super::scale::Scale;

/// A condition, and the number of rows that violate it.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// Its number in the standard.
    pub condition: usize,
    /// What must hold.
    pub text: &'static str,
    /// Number of warehouses, districts, customers, orders or lines that violate it.
    pub violation_count: u64,
}

/// Text and query of each condition. `?1` is the number of orders of a district that were delivered
/// when it was loaded.
const CONDITIONS: [(&str, &str); 12] = [
    (
        "W_YTD is the sum of the districts' D_YTD",
        "SELECT count(*) FROM warehouse
         WHERE w_ytd IS NOT (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)",
    ),
    (
        "D_NEXT_O_ID follows the newest order and the newest waiting order",
        "SELECT count(*) FROM district
         WHERE d_next_o_id - 1 IS NOT (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id \
             AND o_d_id = d_id)
            OR d_next_o_id - 1 <> (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id \
                AND no_d_id = d_id)",
    ),
    (
        "waiting orders of a district are without a gap",
        "SELECT count(*) FROM (
             SELECT max(no_o_id) - min(no_o_id) + 1 <> count(*) AS has_gap FROM new_order \
                 GROUP BY no_w_id, no_d_id)
         WHERE has_gap",
    ),
    (
        "a district has as many lines as its orders say",
        "SELECT count(*) FROM district
         WHERE (SELECT coalesce(sum(o_ol_cnt), 0) FROM orders WHERE o_w_id = d_w_id \
             AND o_d_id = d_id)
            <> (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)",
    ),
    (
        "an order waits if and only if it has no carrier",
        "SELECT (SELECT count(*) FROM orders
                 LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
                 WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL))
              + (SELECT count(*) FROM new_order
                 LEFT JOIN orders ON o_w_id = no_w_id AND o_d_id = no_d_id AND o_id = no_o_id
                 WHERE o_id IS NULL)",
    ),
    (
        "an order has as many lines as it says",
        "SELECT count(*) FROM orders
         WHERE o_ol_cnt <> (SELECT count(*) FROM order_line
                            WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id)",
    ),
    (
        "a line has no delivery date if and only if its order has no carrier",
        "SELECT count(*) FROM order_line
         LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
         WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    ),
    (
        "W_YTD is the sum of what the history says was paid to the warehouse",
        "SELECT count(*) FROM warehouse
         LEFT JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id) \
             ON h_w_id = w_id
         WHERE w_ytd IS NOT paid",
    ),
    (
        "D_YTD is the sum of what the history says was paid to the district",
        "SELECT count(*) FROM district
         LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history \
             GROUP BY h_w_id, h_d_id)
             ON h_w_id = d_w_id AND h_d_id = d_id
         WHERE d_ytd IS NOT paid",
    ),
    (
        "C_BALANCE is what was delivered to the customer less what the history says it paid",
        "SELECT count(*) FROM customer
         LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered
                    FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id \
                        AND ol_o_id = o_id
                    WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id)
             ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
         LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid
                    FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id)
             ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
         WHERE c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)",
    ),
    (
        "a district's orders but the waiting ones are those delivered when it was loaded and to \
         its customers since",
        "SELECT count(*) FROM district
         WHERE (SELECT count(*) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)
             - (SELECT count(*) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id)
            <> ?1 + (SELECT sum(c_delivery_cnt) FROM customer WHERE c_w_id = d_w_id \
                AND c_d_id = d_id)",
    ),
    (
        "C_BALANCE and C_YTD_PAYMENT together are what was delivered to the customer",
        "SELECT count(*) FROM customer
         LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered
                    FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id \
                        AND ol_o_id = o_id
                    WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id)
             ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
         WHERE c_balance + c_ytd_payment <> coalesce(delivered, 0)",
    ),
];

/// Checks all conditions, in one view of the database.
pub fn check(database: &mut Connection, scale: Scale) -> rusqlite::Result<Vec<Checked>> {
    let delivered = scale.customer_count() - scale.undelivered_count();
    let view = database.transaction()?;
    let mut checked = Vec::new();
    for (condition, (text, query)) in (1..).zip(CONDITIONS) {
        let mut statement = view.prepare(query)?;
        let has_parameter = statement.parameter_count() == 1;
        let parameters: &[&dyn rusqlite::ToSql] = if has_parameter { &[&delivered] } else { &[] };
        let violation_count = statement.query_row(parameters, |row| row.get(0))?;
        checked.push(Checked { condition, text, violation_count });
    }
    Ok(checked)
}

/// What `PRAGMA integrity_check` finds wrong with the file.
pub fn integrity(database: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = database.prepare("PRAGMA integrity_check")?;
    let rows: Vec<String> = statement.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(rows.into_iter().filter(|row| row != "ok").collect())
}
