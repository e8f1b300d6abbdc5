//! Makes a database and fills it as clause 4.3.3 says, in one transaction, without a journal.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, Statement, params_from_iter};

use super::clock::seconds_now;
use super::random::{Random, last_name};
use super::scale::{DISTRICT_COUNT, Scale};
use super::schema;

/// How much is loaded.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Warehouses.
    pub warehouse_count: u32,
    /// Cardinalities.
    pub scale: Scale,
    /// Size of SQLite's pages.
    pub page_bytes: u32,
}

/// Makes the database `path`, which must not exist. It is durable when this returns.
pub fn load(path: &Path, size: Size, seed: u64) -> Result<(), Box<dyn Error>> {
    let Size { warehouse_count, scale, page_bytes } = size;
    if path.exists() {
        return Err(format!("{} is there already", path.display()).into());
    }
    let mut database = Connection::open(path)?;
    database.pragma_update(None, "page_size", page_bytes)?;
    let used: u32 = database.pragma_query_value(None, "page_size", |row| row.get(0))?;
    if used != page_bytes {
        return Err(format!("SQLite has no pages of {page_bytes} bytes").into());
    }
    database.execute_batch(
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE;
         PRAGMA cache_size=-262144;",
    )?;
    let filling = database.transaction()?;
    filling.execute_batch(schema::TABLES)?;
    let mut random = Random::for_load(seed, scale);
    filling.execute(
        "INSERT INTO loaded VALUES(?1, ?2, ?3)",
        (warehouse_count, scale.name(), random.c_last()),
    )?;
    Loader { database: &filling, random: &mut random, scale, now: seconds_now() }
        .all(warehouse_count)?;
    filling.execute_batch(schema::INDEXES)?;
    filling.commit()?;
    drop(database);
    Ok(File::open(path)?.sync_all()?)
}

struct Loader<'a> {
    database: &'a Connection,
    random: &'a mut Random,
    scale: Scale,
    now: i64,
}

/// A row that is being built.
struct Row(Vec<Value>);

impl Row {
    fn new() -> Row {
        Row(Vec::with_capacity(24))
    }

    fn number(mut self, value: impl Into<i64>) -> Row {
        self.0.push(Value::Integer(value.into()));
        self
    }

    fn text(mut self, value: impl Into<String>) -> Row {
        self.0.push(Value::Text(value.into()));
        self
    }

    fn null(mut self) -> Row {
        self.0.push(Value::Null);
        self
    }

    /// Two streets, city, state and ZIP code (clause 4.3.2.7).
    fn address(self, random: &mut Random) -> Row {
        let row = self.text(random.text(10, 20)).text(random.text(10, 20));
        let zip = random.digits(4) + "11111";
        row.text(random.text(10, 20)).text(random.letters(2)).text(zip)
    }

    fn insert(self, statement: &mut Statement) -> rusqlite::Result<()> {
        statement.execute(params_from_iter(self.0)).map(drop)
    }
}

impl<'a> Loader<'a> {
    fn insert(&self, table: &str, column_count: usize) -> rusqlite::Result<Statement<'a>> {
        let marks = vec!["?"; column_count].join(",");
        self.database.prepare(&format!("INSERT INTO {table} VALUES({marks})"))
    }

    fn all(&mut self, warehouse_count: u32) -> rusqlite::Result<()> {
        self.items()?;
        for warehouse in 1..=warehouse_count {
            self.warehouse(warehouse)?;
            self.stock(warehouse)?;
            for district in 1..=DISTRICT_COUNT {
                self.district(warehouse, district)?;
                self.customers(warehouse, district)?;
                self.orders(warehouse, district)?;
            }
        }
        Ok(())
    }

    fn items(&mut self) -> rusqlite::Result<()> {
        let mut insert = self.insert("item", 5)?;
        for id in 1..=self.scale.item_count() {
            let random = &mut *self.random;
            Row::new()
                .number(id)
                .number(random.uniform(1, 10_000))
                .text(random.text(14, 24))
                .number(random.uniform(100, 10_000))
                .text(random.brand_data())
                .insert(&mut insert)?;
        }
        Ok(())
    }

    fn warehouse(&mut self, id: u32) -> rusqlite::Result<()> {
        let mut insert = self.insert("warehouse", 9)?;
        let random = &mut *self.random;
        Row::new()
            .number(id)
            .text(random.text(6, 10))
            .address(random)
            .number(random.uniform(0, 2_000))
            .number(PAYMENT_CENTS * self.scale.customer_count() * DISTRICT_COUNT)
            .insert(&mut insert)
    }

    fn stock(&mut self, warehouse: u32) -> rusqlite::Result<()> {
        let mut insert = self.insert("stock", 17)?;
        for item in 1..=self.scale.item_count() {
            let random = &mut *self.random;
            let mut row = Row::new().number(item).number(warehouse).number(random.uniform(10, 100));
            for _ in 0..DISTRICT_COUNT {
                row = row.text(random.text(24, 24));
            }
            row.number(0).number(0).number(0).text(random.brand_data()).insert(&mut insert)?;
        }
        Ok(())
    }

    fn district(&mut self, warehouse: u32, id: u32) -> rusqlite::Result<()> {
        let mut insert = self.insert("district", 11)?;
        let random = &mut *self.random;
        Row::new()
            .number(id)
            .number(warehouse)
            .text(random.text(6, 10))
            .address(random)
            .number(random.uniform(0, 2_000))
            .number(PAYMENT_CENTS * self.scale.customer_count())
            .number(self.scale.customer_count() + 1)
            .insert(&mut insert)
    }

    /// Customers, each with one payment.
    fn customers(&mut self, warehouse: u32, district: u32) -> rusqlite::Result<()> {
        let mut customers = self.insert("customer", 21)?;
        let mut payments = self.insert("history", 8)?;
        for id in 1..=self.scale.customer_count() {
            let random = &mut *self.random;
            let is_first_of_name = id <= self.scale.last_name_count();
            let name = if is_first_of_name { last_name(id - 1) } else { random.last_name() };
            let balance = -i64::from(PAYMENT_CENTS);
            Row::new()
                .number(id)
                .number(district)
                .number(warehouse)
                .text(random.text(8, 16))
                .text("OE")
                .text(name)
                .address(random)
                .text(random.digits(16))
                .number(self.now)
                .text(if random.percent(10) { "BC" } else { "GC" })
                .number(5_000_000)
                .number(random.uniform(0, 5_000))
                .number(balance)
                .number(PAYMENT_CENTS)
                .number(1)
                .number(0)
                .text(random.text(300, 500))
                .insert(&mut customers)?;
            Row::new()
                .number(id)
                .number(district)
                .number(warehouse)
                .number(district)
                .number(warehouse)
                .number(self.now)
                .number(PAYMENT_CENTS)
                .text(random.text(12, 24))
                .insert(&mut payments)?;
        }
        Ok(())
    }

    /// An order of each customer, with its lines. The newest orders are not delivered.
    fn orders(&mut self, warehouse: u32, district: u32) -> rusqlite::Result<()> {
        let mut orders = self.insert("orders", 8)?;
        let mut waiting = self.insert("new_order", 3)?;
        let count = self.scale.customer_count();
        let customers = self.random.permutation(count);
        for (id, customer) in (1..).zip(customers) {
            let is_delivered = id <= count - self.scale.undelivered_count();
            let line_count = self.random.uniform(5, 15);
            let row = Row::new().number(id).number(district).number(warehouse).number(customer);
            let row = row.number(self.now);
            let row =
                if is_delivered { row.number(self.random.uniform(1, 10)) } else { row.null() };
            row.number(line_count).number(1).insert(&mut orders)?;
            if !is_delivered {
                Row::new().number(id).number(district).number(warehouse).insert(&mut waiting)?;
            }
            self.order_lines(warehouse, district, id, line_count, is_delivered)?;
        }
        Ok(())
    }

    fn order_lines(
        &mut self,
        warehouse: u32,
        district: u32,
        order: u32,
        count: u32,
        is_delivered: bool,
    ) -> rusqlite::Result<()> {
        let mut insert =
            self.database.prepare_cached("INSERT INTO order_line VALUES(?,?,?,?,?,?,?,?,?,?)")?;
        for number in 1..=count {
            let random = &mut *self.random;
            let row = Row::new().number(order).number(district).number(warehouse).number(number);
            let row = row.number(random.uniform(1, self.scale.item_count())).number(warehouse);
            let row = if is_delivered { row.number(self.now) } else { row.null() };
            let amount = if is_delivered { 0 } else { random.uniform(1, 999_999) };
            row.number(5).number(amount).text(random.text(24, 24)).insert(&mut insert)?;
        }
        Ok(())
    }
}

/// The amount that each customer has paid: 10.00.
const PAYMENT_CENTS: u32 = 1_000;
