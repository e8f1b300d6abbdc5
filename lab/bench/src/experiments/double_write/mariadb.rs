//! MariaDB: a server for each system and way to write, all on copies of the same tables.

use super::Way;
use super::turns::{Found, Turns};
use crate::error::Result;
use crate::experiments::Scale;
use crate::lab::{Device, Lab};
use crate::measure::Samples;
use crate::programs::mariadb::{Session, Template};
use crate::results::Section;

/// The panel of its cases.
pub fn panel(device: &Device) -> String {
    format!("{device}: MariaDB")
}

/// The tables.
pub fn template(lab: &Lab, scale: &Scale) -> Result<Template> {
    eprintln!("onejournal-bench: making MariaDB's tables");
    Template::make(lab.scratch(), scale.pick(100_000, 800_000))
}

/// All rounds on the systems of a device.
pub fn measure(
    turns: &Turns<'_>,
    template: &Template,
    panel: &str,
    section: &mut Section,
    samples: &mut Samples,
) -> Result<()> {
    let mut sessions = Vec::new();
    for way in &turns.ways {
        eprintln!("onejournal-bench: MariaDB on {}", way.name);
        sessions.push((&way.name, start(template, way)?));
    }
    let work = |way: &Way<'_>, clients| {
        let found = sessions.iter().find(|(name, _)| **name == way.name);
        turn(&found.expect("one for each way").1, clients, turns.seconds)
    };
    turns.take(panel, section, samples, |_| Ok(()), work)?;
    for way in &turns.ways {
        way.running.speed_up()?;
    }
    for (_, session) in sessions {
        session.finish()?;
    }
    Ok(())
}

/// Clients and seconds that fill the redo log, so that InnoDB writes pages from the first turn on.
const WARM_UP: (u32, u64) = (16, 2);

/// A copy of the tables and a server, made without latency.
fn start(template: &Template, way: &Way<'_>) -> Result<Session> {
    way.running.speed_up()?;
    let name = if way.is_double { "mariadb-double" } else { "mariadb-single" };
    let environment = way.running.client.variables();
    let session = Session::start(template, &way.running.dir, name, way.is_double, &environment)?;
    session.round(WARM_UP.0, WARM_UP.1)?;
    way.running.sync()?;
    way.running.slow_down()?;
    Ok(session)
}

fn turn(session: &Session, clients: u32, seconds: u64) -> Result<Found> {
    let found = session.round(clients, seconds)?;
    Ok(Found {
        transactions: found.transactions,
        transactions_per_second: found.transactions_per_second,
        p99_ns: found.latency.p99_ns,
        log_bytes: found.log_bytes,
        slowest_window: found.slowest_window,
    })
}
