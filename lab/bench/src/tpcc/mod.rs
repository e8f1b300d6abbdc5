//! TPC-C (revision 5.11) on SQLite: `tpcc load`, `tpcc run`, `tpcc check`.
//!
//! Schema, cardinalities, input and transactions are the standard's. The mix is a shuffled deck of
//! 45 New-Order, 43 Payment, and 4 each of Order-Status, Delivery and Stock-Level. There are three
//! differences from the standard. There are no keying and think times: it is a throughput test with
//! one connection that is as fast as possible. Delivery runs at once and is not queued. And so the
//! result may not be called tpmC of TPC. Rolled back orders (1 %) do not count in `tpmC`.

mod check;
mod client;
mod clock;
mod input;
mod load;
mod loaded;
mod random;
mod report;
mod scale;
mod schema;
mod transactions;

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use rusqlite::Connection;

use client::Limit;
use input::Terminals;
use loaded::Loaded;
use random::Random;
use report::{Calls, Pages, Report, Setting};
use scale::Scale;

use crate::clients::{SqliteAccess, SqliteOptions};

/// TPC-C's database and transactions on SQLite
#[derive(Args)]
pub struct TpccArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a database and fill it
    Load(LoadArgs),
    /// Do transactions; prints a JSON object
    Run(RunArgs),
    /// Check the standard's consistency conditions; fails if one does not hold
    Check(CheckArgs),
}

#[derive(Args)]
struct LoadArgs {
    /// The database, which must not be there
    path: PathBuf,
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    warehouses: u32,
    #[arg(long, value_enum, default_value_t = Scale::Full)]
    scale: Scale,
    /// SQLite's page size; 1024 was usual before SQLite 3.12
    #[arg(long, default_value_t = 4096)]
    page_size: u32,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct RunArgs {
    /// The database
    path: PathBuf,
    #[command(flatten)]
    options: SqliteOptions,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    length: Length,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Length {
    /// Transactions of all kinds
    #[arg(long)]
    transactions: Option<u64>,
    #[arg(long)]
    seconds: Option<f64>,
    /// Say `ready`, then read numbers of transactions, a line each; do as many and print an object
    /// for each
    #[arg(long)]
    turns: bool,
}

#[derive(Args)]
struct CheckArgs {
    /// The database
    path: PathBuf,
    #[command(flatten)]
    access: SqliteAccess,
    /// Check the database's pages, too
    #[arg(long)]
    integrity: bool,
}

/// Runs a subcommand.
pub fn run(args: &TpccArgs) -> Result<(), Box<dyn Error>> {
    match &args.command {
        Command::Load(args) => {
            let size = load::Size {
                warehouse_count: args.warehouses,
                scale: args.scale,
                page_bytes: args.page_size,
            };
            load::load(&args.path, size, args.seed)
        }
        Command::Run(args) => transact(args),
        Command::Check(args) => check(args),
    }
}

/// A client at work.
struct Client {
    database: Connection,
    terminals: Terminals,
    setting: Setting,
}

impl Client {
    fn start(args: &RunArgs) -> Result<Client, Box<dyn Error>> {
        loaded::must_be_there(&args.path)?;
        let database = args.options.open(&args.path)?;
        database.set_prepared_statement_cache_capacity(transactions::STATEMENT_COUNT_MAX);
        let loaded = Loaded::of(&database)?;
        let random = Random::for_run(args.seed, loaded.scale, loaded.c_last);
        Ok(Client {
            database,
            terminals: Terminals::new(random, loaded.scale, loaded.warehouse_count),
            setting: Setting {
                warehouses: loaded.warehouse_count,
                scale: loaded.scale.name(),
                journal_mode: args.options.journal_mode.to_uppercase(),
                synchronous: args.options.synchronous.to_uppercase(),
                seed: args.seed,
            },
        })
    }

    fn turn(&mut self, limit: Limit) -> Result<(), Box<dyn Error>> {
        let before = Calls::now()?;
        let turn = client::turn(&mut self.database, &mut self.terminals, limit)?;
        let calls = Calls::now()?.since(before);
        let pages = Pages::of(&self.database)?;
        let report = Report::new(&self.setting, &turn, calls, pages);
        let mut output = io::stdout();
        writeln!(output, "{}", serde_json::to_string(&report)?)?;
        Ok(output.flush()?)
    }
}

fn transact(args: &RunArgs) -> Result<(), Box<dyn Error>> {
    let mut client = Client::start(args)?;
    if let Some(count) = args.length.transactions {
        return client.turn(Limit::Transactions(count));
    }
    if let Some(seconds) = args.length.seconds {
        return client.turn(Limit::Time(Duration::try_from_secs_f64(seconds)?));
    }
    println!("ready");
    for line in io::stdin().lock().lines() {
        client.turn(Limit::Transactions(line?.trim().parse()?))?;
    }
    Ok(())
}

fn check(args: &CheckArgs) -> Result<(), Box<dyn Error>> {
    loaded::must_be_there(&args.path)?;
    let mut database = args.access.open(&args.path)?;
    let loaded = Loaded::of(&database)?;
    let checked = check::check(&mut database, loaded.scale)?;
    let damage = if args.integrity { check::integrity(&database)? } else { Vec::new() };
    println!("{}", serde_json::json!({ "conditions": checked, "damage": damage }));
    let violated: Vec<String> = checked
        .iter()
        .filter(|one| one.violation_count > 0)
        .map(|one| format!("condition {}: {}", one.condition, one.text))
        .chain(damage)
        .collect();
    if violated.is_empty() { Ok(()) } else { Err(violated.join("; ").into()) }
}
