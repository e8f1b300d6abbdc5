//! What a commit costs: `commit_cost LIBRARY DIR [NVRAM]`, LIBRARY being the loadable extension. One row a
//! transaction in WAL mode; plain SQLite with synchronous=FULL and with OFF, and the extension with its log
//! beside the database and, if given, with lanes in NVRAM (a directory; a tmpfs stands for one). The variants
//! follow each other in short rounds; printed are medians of the rounds and ratios. Then eight processes write
//! 64 databases at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rusqlite::{Connection, OpenFlags};

type Failed = Box<dyn std::error::Error>;

const ROUNDS: usize = 9;
const ROUND_COMMITS: usize = 400;

fn open(path: &Path, more: &str, level: &str) -> Result<Connection, Failed> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("file:{}?{more}", path.display()), flags)?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous={level};
         CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)"
    ))?;
    Ok(connection)
}

fn load(library: &Path) -> Result<(), Failed> {
    let connection = Connection::open_in_memory()?;
    // SAFETY: the library is this crate's.
    unsafe {
        let _guard = rusqlite::LoadExtensionGuard::new(&connection)?;
        connection.load_extension(library, Some("sqlite3_onejournal_init"))?;
    }
    Ok(())
}

/// Time of a round, in ns a commit.
fn round(connection: &Connection) -> Result<u64, Failed> {
    let mut insert = connection.prepare_cached("INSERT INTO t(v) VALUES (?1)")?;
    let begin = Instant::now();
    for number in 0..ROUND_COMMITS {
        insert.execute([format!("a row of about a hundred bytes, number {number:060}")])?;
    }
    Ok(u64::try_from(begin.elapsed().as_nanos())? / ROUND_COMMITS as u64)
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

fn one_writer(directory: &Path, nvram: Option<&Path>) -> Result<(), Failed> {
    let mut variants = vec![
        ("plain, FULL", String::new(), "FULL"),
        ("plain, OFF", String::new(), "OFF"),
        ("log on disk, FULL", "vfs=onejournal".to_owned(), "FULL"),
    ];
    if let Some(nvram) = nvram {
        let (nvram, log) = (nvram.display(), directory.join("nvram-log"));
        let more = format!("vfs=onejournal&log={}&nvram={nvram}&durability=process", log.display());
        variants.push(("lanes in NVRAM, FULL", more, "FULL"));
    }
    let mut connections = Vec::new();
    for (number, (_, more, level)) in variants.iter().enumerate() {
        connections.push(open(&directory.join(format!("one-{number}.db")), more, level)?);
    }
    let mut times = vec![Vec::new(); variants.len()];
    for _ in 0..ROUNDS {
        for (connection, times) in connections.iter().zip(&mut times) {
            times.push(round(connection)?);
        }
    }
    let medians: Vec<u64> = times.into_iter().map(median).collect();
    println!(
        "{:<24} {:>12} {:>14} {:>12}",
        "one writer", "ns a commit", "x faster FULL", "x OFF's time"
    );
    for ((name, ..), time) in variants.iter().zip(&medians) {
        let (full, off) = (medians[0] as f64 / *time as f64, *time as f64 / medians[1] as f64);
        println!("{name:<24} {time:>12} {full:>14.2} {off:>12.2}");
    }
    let stat: String = connections[2]
        .query_row("SELECT onejournal_stat()", [], |row| row.get(0))
        .unwrap_or_default();
    println!("{stat}");
    Ok(())
}

/// Eight processes, each with eight databases, one commit in each in turn.
fn many(library: &Path, directory: &Path) -> Result<(), Failed> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..3 {
        for (which, times) in times.iter_mut().enumerate() {
            let begin = Instant::now();
            let mut children = Vec::new();
            for process in 0..8 {
                let mut command = Command::new(std::env::current_exe()?);
                command
                    .arg(library)
                    .arg(directory)
                    .env("PART", format!("{which} {round} {process}"));
                children.push(command.spawn()?);
            }
            for child in &mut children {
                child.wait()?;
            }
            times.push(u64::try_from(begin.elapsed().as_micros())?);
        }
    }
    let [plain, ours] = times.map(median);
    println!(
        "64 databases, 8 processes: plain {plain} us, log on disk {ours} us, {:.2} x",
        plain as f64 / ours as f64
    );
    Ok(())
}

fn part(library: &Path, directory: &Path, part: &str) -> Result<(), Failed> {
    let mut words = part.split(' ');
    let is_ours = words.next() == Some("1");
    let (_, process) = (words.next(), words.next().unwrap_or("0"));
    let more = if is_ours { "vfs=onejournal" } else { "" };
    if is_ours {
        load(library)?;
    }
    let mut connections = Vec::new();
    for number in 0..8 {
        let name = format!("many-{}-{process}-{number}.db", u8::from(is_ours));
        connections.push(open(&directory.join(name), more, "FULL")?);
    }
    for _ in 0..400 {
        for connection in &connections {
            connection.execute("INSERT INTO t(v) VALUES (hex(randomblob(50)))", [])?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let usage = "usage: commit_cost LIBRARY DIR [NVRAM]";
    let library = arguments.next().ok_or(usage)?;
    let directory = arguments.next().ok_or(usage)?;
    if let Ok(what) = std::env::var("PART") {
        return part(&library, &directory, &what);
    }
    let nvram = arguments.next();
    std::fs::create_dir_all(&directory)?;
    if let Some(nvram) = &nvram {
        std::fs::create_dir_all(nvram)?;
    }
    load(&library)?;
    one_writer(&directory, nvram.as_deref())?;
    many(&library, &directory)
}
