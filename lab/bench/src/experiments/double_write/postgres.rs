//! PostgreSQL: one cluster a system, whose `full_page_writes` is switched between turns.

use super::Way;
use super::turns::{Found, Turns};
use crate::error::Result;
use crate::experiments::Scale;
use crate::lab::Device;
use crate::measure::Samples;
use crate::programs::pgbench::{Script, Session, Setup};
use crate::programs::postgres::ClusterSettings;
use crate::results::Section;
use crate::systems::Running;

/// A checkpoint begins after 8 MiB of log: 16 MB, over 1.9, in whole segments of 4 MiB.
const SERVER: [&str; 3] = ["max_wal_size=16MB", "min_wal_size=16MB", "checkpoint_timeout=30s"];
const INITDB: [&str; 1] = ["--wal-segsize=4"];
/// Room in a page for the new version of a row, as tables that are updated often have it.
const FILL_PERCENT: u32 = 90;
/// The version since which PostgreSQL's buffers are aligned, so that the kernel does not split
/// pages.
const ALIGNED_VERSION: i64 = 16;

/// The panel of its cases.
pub fn panel(device: &Device) -> String {
    format!("{device}: PostgreSQL")
}

/// All rounds on the systems of a device.
pub fn measure(
    scale: &Scale,
    turns: &Turns<'_>,
    panel: &str,
    section: &mut Section,
    samples: &mut Samples,
) -> Result<()> {
    let branches = scale.pick(2, 10);
    section.set("scale of pgbench", branches);
    let mut sessions: Vec<(&Running, Session)> = Vec::new();
    for way in &turns.ways {
        if sessions.iter().all(|(running, _)| running.name != way.running.name) {
            eprintln!("onejournal-bench: PostgreSQL on {}", way.running.name);
            sessions.push((way.running, start(way.running, branches)?));
        }
    }
    if let Some((_, session)) = sessions.first() {
        note_version(section, session.major_version()?);
    }
    let session = |way: &Way<'_>| {
        let found = sessions.iter().find(|(running, _)| running.name == way.running.name);
        &found.expect("one for each system").1
    };
    let prepare = |way: &Way<'_>| session(way).write_full_pages(way.is_double);
    let work = |way: &Way<'_>, clients| turn(session(way), clients, turns.seconds);
    turns.take(panel, section, samples, prepare, work)?;
    for (running, _) in &sessions {
        running.speed_up()?;
    }
    for (running, session) in sessions {
        session.finish()?;
        running.slow_down()?;
    }
    Ok(())
}

fn start(running: &Running, branches: u32) -> Result<Session> {
    running.speed_up()?;
    let environment = running.client.variables();
    let cluster = ClusterSettings { initdb: &INITDB, server: &SERVER, environment: &environment };
    let script = Script::SimpleUpdate;
    let setup = Setup {
        scale: branches,
        fill_percent: FILL_PERCENT,
        script,
        cluster,
        ..Default::default()
    };
    let session = Session::start(&running.dir, &setup)?;
    session.checkpoint()?;
    running.sync()?;
    running.slow_down()?;
    Ok(session)
}

/// The checkpoint at the end lets each turn pay for the pages that it changed.
fn turn(session: &Session, clients: u32, seconds: u64) -> Result<Found> {
    let found = session.round(clients, seconds)?;
    session.checkpoint()?;
    Ok(Found {
        transactions: found.transactions,
        transactions_per_second: found.transactions_per_second,
        p99_ns: found.latency.p99_ns,
        log_bytes: found.wal_bytes,
        slowest_window: found.slowest_window,
    })
}

fn note_version(section: &mut Section, version: i64) {
    section.set("PostgreSQL", version);
    let note = format!(
        "PostgreSQL {version} writes pages from memory that is not aligned, so the kernel may \
         split them: its cases without full pages show the cost only. Version {ALIGNED_VERSION} \
         and later do not."
    );
    if version < ALIGNED_VERSION && !section.notes.contains(&note) {
        section.notes.push(note);
    }
}
