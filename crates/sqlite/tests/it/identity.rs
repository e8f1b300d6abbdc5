//! A database that is reached by another name, moved, copied, replaced or restored: no acknowledged
//! row is missing without a message, whichever way its first process ended.
//!
//! Each cell of the table is three processes: the first commits rows and ends; then something is
//! done to the files; the second finds what is there and commits more, and the power fails; the
//! third finds the rows of both.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::crash_vfs::{self, Recorder};
use crate::common::{Place, copy_tree, count, load, told};
use crate::grounds::{Ground, GroundKind};
use onejournal_sqlite::Fault;
use onejournal_testing::{again_words, has_namespaces, lose_memory, tier};
use rusqlite::{Connection, OpenFlags};

const SIGKILL: i32 = 9;
const FIRST_ROWS: i64 = 20;
const MORE_ROWS: i64 = 5;
/// Rows of a database that takes the place of the first one.
const OTHER_ROWS: i64 = 3;

unsafe extern "C" {
    fn kill(process: i32, signal: i32) -> i32;
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    Kill,
    /// It is killed, and of its files only what it synced is left.
    Cut,
}

/// What is done between the first process and the second one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    /// The log by another spelling of its path.
    LogRelative,
    LogThroughLink,
    LogThroughParent,
    /// The database by another path.
    Link,
    Bind,
    BindNamedLog,
    Namespace,
    FileBind,
    HardLink,
    Rename,
    Move,
    /// The log's place.
    OtherLog,
    MovedLog,
    /// Another file at the path.
    Replace,
    DeleteAndMakeAnew,
    RestoreOver,
    /// Copies.
    CopyAll,
    CopyAllWithoutAttributes,
    CopyDatabase,
    Chown,
    LostAttribute,
}

impl Change {
    const ALL: [Change; 22] = [
        Change::Nothing,
        Change::LogRelative,
        Change::LogThroughLink,
        Change::LogThroughParent,
        Change::Link,
        Change::Bind,
        Change::BindNamedLog,
        Change::Namespace,
        Change::FileBind,
        Change::HardLink,
        Change::Rename,
        Change::Move,
        Change::OtherLog,
        Change::MovedLog,
        Change::Replace,
        Change::DeleteAndMakeAnew,
        Change::RestoreOver,
        Change::CopyAll,
        Change::CopyAllWithoutAttributes,
        Change::CopyDatabase,
        Change::Chown,
        Change::LostAttribute,
    ];

    /// Whether vfat, which has neither links nor owners, can do it.
    fn needs_links_or_owners(self) -> bool {
        use Change::*;
        matches!(self, LogThroughLink | LogThroughParent | Link | HardLink | Chown)
    }

    /// The rows that are there afterwards; `None`: those of the first process.
    fn rows(self) -> Option<i64> {
        match self {
            Change::Replace | Change::RestoreOver => Some(OTHER_ROWS),
            Change::DeleteAndMakeAnew => Some(0),
            _ => None,
        }
    }
}

/// Where a process opens the database, and its log.
#[derive(Debug, Clone)]
struct Way {
    database: PathBuf,
    /// The parameter `log`, if it is given.
    log: Option<String>,
    /// The working directory.
    directory: PathBuf,
    /// In a mount namespace of its own, with the first directory bound to the second.
    bind: Option<(PathBuf, PathBuf)>,
    is_plain: bool,
}

/// What a process found.
#[derive(Debug, Clone, Default)]
struct Outcome {
    rows: Option<i64>,
    /// Rows that it committed.
    committed: i64,
    messages: Vec<String>,
}

/// A cell of the table.
struct Cell<'a> {
    ground: &'a Ground,
    home: PathBuf,
    memory: PathBuf,
    end: End,
    change: Change,
    /// Whether the second process is one without the extension, which reads.
    is_plain: bool,
    fault: Option<Fault>,
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.is_plain { ", first read without the extension," } else { "" };
        write!(f, "{:?} after {:?}{who} on {}", self.change, self.end, self.ground.kind)
    }
}

/// One process: opens the database, says how many rows it has, commits more, and ends.
#[test]
#[ignore = "a process of the tests below"]
fn user_of_a_database() {
    let told_by = |name: &str| std::env::var(name).ok();
    crash_vfs::register();
    load();
    let uri = told_by("URI").expect("URI");
    let more: i64 = told_by("MORE").expect("MORE").parse().expect("number");
    let directory = PathBuf::from(told_by("DATA").expect("DATA"));
    let work = move || {
        Recorder::begin(&directory, Box::new(|_| {}));
        if let Err(e) = use_database(&uri, more) {
            println!("\nerror {}", e.to_string().replace('\n', " "));
        }
        for text in told().iter() {
            println!("\ntold {}", text.replace('\n', " "));
        }
        if let Some(target) = told_by("CUT") {
            Recorder::end().keep_durable(Path::new(&target));
        }
        if told_by("CLOSES").is_none() {
            // SAFETY: it ends this process.
            unsafe { kill(std::process::id().cast_signed(), SIGKILL) };
        }
    };
    match told_by("FAULT").is_some() {
        true => fault::with(Fault::NamesByPath, work),
        false => work(),
    }
}

fn use_database(uri: &str, more: i64) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(20))?;
    // One that only reads writes nothing.
    if more > 0 {
        connection.query_row("PRAGMA journal_mode=WAL", [], |_| Ok(()))?;
        connection.execute_batch("PRAGMA synchronous=FULL")?;
    }
    let table = "SELECT count(*) FROM sqlite_schema WHERE name = 't'";
    let has_table: bool = connection.query_row(table, [], |row| row.get(0))?;
    println!("\nrows {}", if has_table { count(&connection) } else { 0 });
    if more > 0 {
        connection.execute_batch("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)")?;
    }
    for number in 1..=more {
        connection.execute("INSERT INTO t(v) VALUES ('acknowledged')", [])?;
        println!("\ncommitted {number}");
    }
    std::io::stdout().flush().expect("output");
    match std::env::var_os("CLOSES").is_some() {
        true => drop(connection),
        false => std::mem::forget(connection),
    }
    Ok(())
}

impl Cell<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// The first way to the database: as everybody would.
    fn first(&self) -> Way {
        let (database, directory) = (self.path("data/a.db"), self.path("data"));
        let log =
            matches!(self.change, Change::BindNamedLog | Change::Namespace | Change::MovedLog)
                .then(|| self.path("logs/l").display().to_string());
        Way { database, log, directory, bind: None, is_plain: false }
    }

    /// Runs one process of the database.
    fn run(&self, way: &Way, more: i64, end: End) -> Outcome {
        let mut words = Vec::new();
        if let Some((from, to)) = &way.bind {
            let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
            words.extend(["unshare", "-m", "sh", "-c", script, "sh"].map(Into::into));
            words.extend([from.into(), to.into()]);
        }
        words.extend(onejournal_testing::again_words(module_path!(), "user_of_a_database"));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&way.directory).stderr(Stdio::null());
        let vfs = if way.is_plain { "crash" } else { "onejournal" };
        let log = way.log.as_ref().map_or(String::new(), |log| format!("&log={log}"));
        let (path, memory) = (way.database.display(), self.memory.display());
        let uri = match way.is_plain {
            true => format!("file:{path}?vfs={vfs}"),
            false => format!("file:{path}?vfs={vfs}&memory={memory}{log}"),
        };
        let real = way.database.canonicalize().unwrap_or_else(|_| way.database.clone());
        let data = real.parent().expect("a directory").to_owned();
        command.env("URI", uri).env("MORE", more.to_string()).env("DATA", &data);
        let cut = self.path("cut");
        match end {
            End::Close => drop(command.env("CLOSES", "1")),
            End::Kill => {}
            End::Cut => {
                std::fs::create_dir_all(&cut).expect("directory");
                command.env("CUT", &cut);
            }
        }
        if self.fault.is_some() {
            command.env("FAULT", "1");
        }
        let output = command.output().expect("a process");
        if end == End::Cut {
            let real = match &way.bind {
                Some((from, _)) => from.clone(),
                None => data,
            };
            lose(&cut, &real);
            lose_memory(&self.memory);
        }
        outcome_of(&String::from_utf8_lossy(&output.stdout))
    }
}

fn outcome_of(text: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("rows", rows)) => outcome.rows = rows.parse().ok(),
            Some(("committed", rows)) => outcome.committed = rows.parse().expect("number"),
            Some(("told" | "error", text)) => outcome.messages.push(text.to_owned()),
            _ => {}
        }
    }
    outcome
}

/// Leaves of the files in `data` only what is in `durable`. They stay the same files.
fn lose(durable: &Path, data: &Path) {
    for entry in std::fs::read_dir(data).expect("directory") {
        let path = entry.expect("entry").path();
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        if !path.is_file() || !name.contains(".db") {
            continue;
        }
        match std::fs::read(durable.join(&name)) {
            Ok(bytes) => std::fs::write(&path, bytes).expect("write"),
            Err(_) => std::fs::remove_file(&path).expect("remove"),
        }
    }
    std::fs::remove_dir_all(durable).expect("removed");
}

fn sh(script: &str, home: &Path) {
    let mut command = Command::new("sh");
    let status = command.args(["-ec", script]).current_dir(home).status().expect("sh");
    assert!(status.success(), "{script}");
}

/// A database without the extension, with so many rows.
fn plain_database(path: &Path, rows: i64) {
    let connection = Connection::open(path).expect("open");
    connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v)").expect("table");
    for _ in 0..rows {
        connection.execute("INSERT INTO t(v) VALUES ('other')", []).expect("insert");
    }
}

impl Cell<'_> {
    /// Does to the files what the change is. Returns the way to the database afterwards.
    fn change_files(&self) -> Way {
        let first = self.first();
        let to = |database: &str, log: Option<&str>| Way {
            database: self.path(database),
            log: log.map(String::from),
            ..first.clone()
        };
        let do_and = |script: &str, way: Way| {
            sh(script, &self.home);
            way
        };
        let log = first.log.as_deref();
        let through_link = self.path("link").display().to_string();
        match self.change {
            Change::Nothing => first.clone(),
            Change::LogRelative => to("data/a.db", Some(".onejournal")),
            Change::LogThroughLink => {
                do_and("ln -s data/.onejournal link", to("data/a.db", Some(&through_link)))
            }
            Change::LogThroughParent => {
                let through = format!("{through_link}/../data/.onejournal");
                do_and("mkdir -p other; ln -s other link", to("data/a.db", Some(&through)))
            }
            Change::Link => do_and("ln -s data/a.db link.db", to("link.db", None)),
            Change::Bind => do_and("mkdir b; mount --bind data b", to("b/a.db", None)),
            Change::BindNamedLog => do_and("mkdir b; mount --bind data b", to("b/a.db", log)),
            Change::Namespace => {
                std::fs::create_dir(self.path("b")).expect("directory");
                let bind = Some((self.path("data"), self.path("b")));
                Way { bind, ..to("b/a.db", log) }
            }
            Change::FileBind => do_and(
                "mkdir b; touch b/b.db; mount --bind data/a.db b/b.db",
                to("b/b.db", Some(&self.path("data/.onejournal").display().to_string())),
            ),
            Change::HardLink => do_and("ln data/a.db data/b.db", to("data/b.db", None)),
            Change::Rename => {
                let script = "cd data; for f in a.db*; do mv $f b${f#a}; done";
                do_and(script, to("data/b.db", None))
            }
            Change::Move => {
                let script = "mkdir other; for f in data/a.db*; do mv $f other; done";
                do_and(script, to("other/a.db", None))
            }
            Change::OtherLog => {
                let other = self.path("logs/other").display().to_string();
                to("data/a.db", Some(&other))
            }
            Change::MovedLog => {
                let moved = self.path("moved").display().to_string();
                do_and("[ ! -e logs/l ] || mv logs/l moved", to("data/a.db", Some(&moved)))
            }
            _ => self.change_content(&first),
        }
    }

    fn change_content(&self, first: &Way) -> Way {
        let copied = Way { database: self.path("copy/a.db"), ..first.clone() };
        match self.change {
            Change::Replace => {
                plain_database(&self.path("other.db"), OTHER_ROWS);
                sh("rm -f data/a.db-*; mv other.db data/a.db", &self.home);
            }
            Change::DeleteAndMakeAnew => sh("rm -f data/a.db*", &self.home),
            Change::RestoreOver => {
                plain_database(&self.path("other.db"), OTHER_ROWS);
                sh("rm -f data/a.db-*; cp other.db data/a.db", &self.home);
            }
            Change::CopyAll => {
                sh("cp -a data copy; rm -f copy/a.db-shm", &self.home);
                return copied;
            }
            Change::CopyAllWithoutAttributes => {
                copy_tree(&self.path("data"), &self.path("copy"));
                sh("rm -f copy/a.db-shm", &self.home);
                return copied;
            }
            Change::CopyDatabase => {
                sh(
                    "cd data; for f in a.db a.db-wal; do [ ! -e $f ] || cp -a $f b${f#a}; done",
                    &self.home,
                );
                return Way { database: self.path("data/b.db"), ..first.clone() };
            }
            Change::Chown => sh("chown 65534:65534 data/a.db*", &self.home),
            Change::LostAttribute => {
                // There is none where no log is used.
                sh("setfattr -x user.onejournal data/a.db 2>/dev/null || true", &self.home);
            }
            other => unreachable!("{other:?} is in change_files"),
        }
        first.clone()
    }

    /// A program without the extension reads, and closes the database. It sees all rows, unless the
    /// power failed. Then the extension finds them.
    fn check_plain(&self, way: &Way) -> Result<(), String> {
        let expected = self.change.rows().unwrap_or(FIRST_ROWS);
        let plain = self.run(&Way { is_plain: true, ..way.clone() }, 0, End::Close);
        let sees_another_wal = matches!(self.change, Change::FileBind | Change::HardLink);
        let sees_all = self.end != End::Cut && !(sees_another_wal && self.end == End::Kill);
        if sees_all && plain.rows != Some(expected) {
            return Err(format!("{self}: the plain process: {plain:?}, of {expected} rows"));
        }
        let third = self.run(way, MORE_ROWS, End::Close);
        if third.rows.is_none_or(|rows| rows < expected) && third.messages.is_empty() {
            return Err(format!("{self}: the third process: {third:?}, of {expected} rows"));
        }
        Ok(())
    }

    /// What is wrong with this cell, if anything is.
    fn check(&self) -> Result<(), String> {
        for name in ["data", "logs"] {
            std::fs::create_dir_all(self.path(name)).expect("directory");
        }
        let first = self.run(&self.first(), FIRST_ROWS, self.end);
        if first.committed != FIRST_ROWS {
            return Err(format!("{self}: the first process: {first:?}"));
        }
        let way = self.change_files();
        if self.is_plain {
            return self.check_plain(&way);
        }
        let expected = self.change.rows().unwrap_or(FIRST_ROWS);
        let has_replaced = self.change.rows().is_some() && self.end != End::Close;
        let second = self.run(&way, MORE_ROWS, End::Cut);
        let is_told = !second.messages.is_empty();
        // Rows that were replaced are lost, and that is said. On some file systems nothing was in a
        // log.
        if second.rows.is_none_or(|rows| rows < expected) && !is_told {
            return Err(format!("{self}: the second process: {second:?}, of {expected} rows"));
        }
        if has_replaced && self.ground.kind.has_logs() && self.end == End::Cut && !is_told {
            return Err(format!("{self}: nothing was said of what was replaced: {second:?}"));
        }
        let found = second.rows.unwrap_or(0) + second.committed;
        let third = self.run(&way, 0, End::Close);
        if third.rows.is_none_or(|rows| rows < found) && third.messages.is_empty() {
            return Err(format!("{self}: the third process: {third:?}, of {found} rows"));
        }
        // Who was not refused goes on without being refused.
        if second.rows.is_some() && third.rows != Some(found) {
            return Err(format!("{self}: the third process: {third:?}, of {found} rows"));
        }
        Ok(())
    }
}

impl Drop for Cell<'_> {
    fn drop(&mut self) {
        for name in ["b/b.db", "b"] {
            let _ = rustix::mount::unmount(self.path(name), rustix::mount::UnmountFlags::DETACH);
        }
        for path in [&self.home, &self.memory] {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// Everything that is wrong on a file system.
/// The gate checks a fifth of a sampled one.
fn wrong_on(kind: GroundKind, is_sampled: bool, fault: Option<Fault>) -> Vec<String> {
    let Some(ground) = Ground::new(kind) else { return Vec::new() };
    let mut wrong = Vec::new();
    let seed = tier::seed_of(&format!("identity on {kind}"));
    for (index, end) in [End::Close, End::Kill, End::Cut].into_iter().enumerate() {
        for change in Change::ALL {
            let number = index * Change::ALL.len() + change as usize;
            let is_taken = !is_sampled || tier::takes(seed, number);
            if kind == GroundKind::Vfat && change.needs_links_or_owners() || !is_taken {
                continue;
            }
            for is_plain in [false, true] {
                // A fifth of these cells in the gate, everywhere.
                if is_plain && (fault.is_some() || !tier::takes(seed, number)) {
                    continue;
                }
                let home = ground.path().join(format!("{change:?}-{end:?}-{is_plain}"));
                let memory = tempfile::tempdir_in("/dev/shm").expect("memory").keep();
                std::fs::create_dir(&home).expect("directory");
                let cell = Cell { ground: &ground, home, memory, end, change, is_plain, fault };
                wrong.extend(cell.check().err());
            }
        }
    }
    wrong
}

fn check_on(kind: GroundKind, is_sampled: bool) {
    let wrong = wrong_on(kind, is_sampled, None);
    assert!(wrong.is_empty(), "{} cells:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_row_is_lost_without_a_message_on_ext4() {
    check_on(GroundKind::Ext4, false);
}

#[test]
fn no_row_is_lost_without_a_message_on_xfs() {
    check_on(GroundKind::Xfs, true);
}

#[test]
fn no_row_is_lost_without_a_message_on_btrfs() {
    check_on(GroundKind::Btrfs, true);
}

#[test]
fn no_row_is_lost_without_a_message_on_tmpfs() {
    check_on(GroundKind::Tmpfs, false);
}

#[test]
fn no_row_is_lost_without_a_message_on_an_overlay() {
    check_on(GroundKind::Overlay, true);
}

#[test]
fn no_row_is_lost_without_a_message_on_vfat() {
    check_on(GroundKind::Vfat, true);
}

/// It has no attributes.
#[test]
fn no_row_is_lost_without_a_message_on_ramfs() {
    check_on(GroundKind::Ramfs, false);
}

/// The naming of earlier versions is found out, by each of the ways that people met.
#[test]
fn canary_streams_that_are_named_by_paths_are_found_out() {
    let wrong = wrong_on(GroundKind::Tmpfs, false, Some(Fault::NamesByPath));
    let changes: BTreeSet<&str> =
        wrong.iter().filter_map(|text| text.split_once(' ').map(|(change, _)| change)).collect();
    println!("{changes:?}");
    for change in ["Bind", "BindNamedLog", "Move", "Rename", "OtherLog"] {
        assert!(changes.contains(change), "{change}: {wrong:?}");
    }
}

/// A process that has a database open, and commits when it is told to.
struct Live {
    child: std::process::Child,
    words: BufReader<std::process::ChildStdout>,
}

#[test]
#[ignore = "a process of the tests below"]
fn committer() {
    load();
    match std::env::var_os("FAULT").is_some() {
        true => fault::with(Fault::TrustsStamps, commit_when_told),
        false => commit_when_told(),
    }
}

fn commit_when_told() {
    let uri = std::env::var("URI").expect("URI");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags).expect("open");
    connection.query_row("PRAGMA journal_mode=WAL", [], |_| Ok(())).expect("WAL");
    let table = "PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)";
    connection.execute_batch(table).expect("table");
    println!("\nrows {}", count(&connection));
    for line in std::io::stdin().lines() {
        let rows: i64 = line.expect("line").parse().expect("number");
        for _ in 0..rows {
            connection.execute("INSERT INTO t(v) VALUES ('acknowledged')", []).expect("insert");
        }
        println!("\nrows {}", count(&connection));
    }
}

impl Live {
    /// Starts it; `words` come before the program, for example to make a namespace.
    fn start(uri: &str, words: &[OsString]) -> Live {
        let words = [words, &again_words(module_path!(), "committer")].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("URI", uri);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let words = BufReader::new(child.stdout.take().expect("output"));
        let mut live = Live { child, words };
        live.rows();
        live
    }

    /// How many rows it has. A process that was refused has none.
    fn rows(&mut self) -> i64 {
        let mut line = String::new();
        loop {
            line.clear();
            if self.words.read_line(&mut line).expect("a line") == 0 {
                return 0;
            }
            if let Some(rows) = line.trim().strip_prefix("rows ") {
                return rows.parse().expect("number");
            }
        }
    }

    fn commit(&mut self, rows: i64) -> i64 {
        let input = self.child.stdin.as_mut().expect("input");
        // One that was refused has ended.
        let _ = writeln!(input, "{rows}");
        self.rows()
    }

    fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

/// Bytes of the database's WAL: after the first commit of one row all of them are durable.
fn wal_bytes(database: &Path) -> u64 {
    std::fs::metadata(format!("{}-wal", database.display())).expect("WAL").len()
}

/// The rows of a database of which the power left nothing of its WAL after the first bytes.
fn rows_after_a_cut(database: &Path, durable_bytes: u64, memory: &Path, uri: &str) -> i64 {
    let wal = PathBuf::from(format!("{}-wal", database.display()));
    let file = std::fs::OpenOptions::new().write(true).open(&wal).expect("WAL");
    file.set_len(durable_bytes).expect("cut");
    let _ = std::fs::remove_file(format!("{}-shm", database.display()));
    lose_memory(memory);
    let mut live = Live::start(uri, &[]);
    let rows = live.commit(0);
    live.kill();
    rows
}

struct TwoDatabases {
    home: tempfile::TempDir,
    memory: tempfile::TempDir,
}

impl TwoDatabases {
    fn new() -> TwoDatabases {
        let home = tempfile::tempdir().expect("directory");
        for name in ["one", "two", "log", "at"] {
            std::fs::create_dir(home.path().join(name)).expect("directory");
        }
        let memory = tempfile::tempdir_in("/dev/shm").expect("memory");
        TwoDatabases { home, memory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn uri(&self, database: &str, log: &str) -> String {
        let (database, log) = (self.path(database), self.path(log));
        let memory = self.memory.path().display();
        let (database, log) = (database.display(), log.display());
        format!("file:{database}?vfs=onejournal&memory={memory}&log={log}")
    }
}

/// A process has a database open that is deleted. Another one makes a new database at the path and
/// commits 30 times; then the first one commits once to the deleted file.
#[test]
fn a_deleted_database_that_is_still_open_leaves_the_new_one_alone() {
    onejournal_testing::own_process!();
    load();
    for is_cut in [true, false] {
        let place = TwoDatabases::new();
        let (uri, path) = (place.uri("one/a.db", "log/l"), place.path("one/a.db"));
        let mut old = Live::start(&uri, &[]);
        old.commit(5);
        sh("rm one/a.db*", place.home.path());
        let mut new = Live::start(&uri, &[]);
        new.commit(1);
        let durable_bytes = wal_bytes(&path);
        assert_eq!(new.commit(29), 30);
        old.commit(1);
        let rows = match is_cut {
            true => {
                new.kill();
                old.kill();
                rows_after_a_cut(&path, durable_bytes, place.memory.path(), &uri)
            }
            false => {
                drop(new.child.stdin.take());
                assert!(new.child.wait().expect("ended").success(), "closed");
                old.kill();
                let mut again = Live::start(&uri, &[]);
                let rows = again.commit(0);
                again.kill();
                rows
            }
        };
        assert_eq!(rows, 30, "{is_cut}");
    }
}

/// Two containers, each with a volume of its own at one path, and one log for both.
#[test]
fn two_namespaces_with_one_path_have_two_streams() {
    onejournal_testing::own_process!();
    if !has_namespaces() {
        return;
    }
    load();
    let place = TwoDatabases::new();
    let uri = place.uri("at/app.db", "log/l");
    let inside = |directory: &str| -> Vec<OsString> {
        let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
        let words = ["unshare", "-m", "sh", "-c", script, "sh"].map(OsString::from);
        [&words[..], &[place.path(directory).into(), place.path("at").into()]].concat()
    };
    let mut one = Live::start(&uri, &inside("one"));
    one.commit(1);
    let durable_bytes = wal_bytes(&place.path("one/app.db"));
    assert_eq!(one.commit(29), 30);
    let mut two = Live::start(&uri, &inside("two"));
    assert_eq!(two.commit(1), 1);
    one.kill();
    two.kill();
    for (directory, rows) in [("one", 30), ("two", 1)] {
        let database = format!("{directory}/app.db");
        let uri = place.uri(&database, "log/l");
        let path = place.path(&database);
        let found = rows_after_a_cut(&path, durable_bytes, place.memory.path(), &uri);
        assert_eq!(found, rows, "{directory}");
    }
}

/// A snapshot of a file system is mounted beside it; its files have the identity of the originals.
/// Returns how many of 30 rows the original has after the snapshot was written and the power
/// failed.
fn rows_beside_a_snapshot() -> Option<i64> {
    let ground = Ground::new(GroundKind::Ext4)?;
    let place = TwoDatabases::new();
    let memory = place.memory.path().display();
    let log = place.path("log/l");
    let uri = |directory: &Path| {
        let path = directory.join("a.db");
        format!("file:{}?vfs=onejournal&memory={memory}&log={}", path.display(), log.display())
    };
    let mut original = Live::start(&uri(&ground.path()), &[]);
    original.commit(1);
    let durable_bytes = wal_bytes(&ground.path().join("a.db"));
    original.commit(9);
    let snapshot = ground.snapshot();
    original.commit(10);
    let mut copy = Live::start(&uri(&snapshot.path()), &[]);
    copy.commit(7);
    original.commit(10);
    copy.kill();
    original.kill();
    let database = ground.path().join("a.db");
    let uri = uri(&ground.path());
    Some(rows_after_a_cut(&database, durable_bytes, place.memory.path(), &uri))
}

#[test]
fn a_snapshot_that_is_written_leaves_the_original_alone() {
    onejournal_testing::own_process!();
    load();
    assert!(rows_beside_a_snapshot().is_none_or(|rows| rows == 30));
}

#[test]
fn canary_a_snapshot_that_is_taken_for_the_original_is_found_out() {
    onejournal_testing::own_process!();
    load();
    // SAFETY: this process has one thread, and this is what its children are told.
    unsafe { std::env::set_var("FAULT", "1") };
    assert!(rows_beside_a_snapshot().is_none_or(|rows| rows < 30));
}

/// A database that was closed, and its log, on a medium that cannot be written.
#[test]
fn a_closed_database_opens_on_a_read_only_medium() {
    onejournal_testing::own_process!();
    load();
    let Some(ground) = Ground::new(GroundKind::Ext4) else { return };
    let memory = tempfile::tempdir_in("/dev/shm").expect("memory");
    let path = ground.path().join("a.db");
    let uri = |more: &str| {
        let memory = memory.path().display();
        format!("file:{}?vfs=onejournal&memory={memory}{more}", path.display())
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri(""), flags).expect("open");
    connection.query_row("PRAGMA journal_mode=WAL", [], |_| Ok(())).expect("WAL");
    let rows = "CREATE TABLE t(v); INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)";
    connection.execute_batch(rows).expect("rows");
    drop(connection);
    ground.remount("ro");
    for more in ["&mode=ro&immutable=1", "&immutable=1"] {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(uri(more), flags).expect(more);
        assert_eq!(count(&connection), 2);
    }
    assert!(told().iter().any(|text| text.contains("on a read-only medium")));
    // One that was not closed is refused, and it is said what to do.
    ground.remount("rw");
    let mut live = Live::start(&uri(""), &[]);
    live.commit(3);
    live.kill();
    ground.remount("ro");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri("&mode=ro&immutable=1"), flags).expect_err("refused");
    assert!(told().iter().any(|text| text.contains("Open it once where both can be written")));
}

/// A tool removed the attribute, or wrote that of another file there.
#[test]
fn a_lost_attribute_is_written_again() {
    onejournal_testing::own_process!();
    load();
    const ATTRIBUTE: &str = "user.onejournal";
    let place = Place::new(false);
    let path = place.path("a.db");
    let read = |path: &Path| {
        let mut value = vec![0; 3000];
        let found = rustix::fs::getxattr(path, ATTRIBUTE, value.as_mut_slice());
        found.ok().map(|len_bytes| value[..len_bytes].to_owned())
    };
    drop(place.wal("a.db"));
    drop(place.wal("b.db"));
    let first = read(&path).expect("an attribute");
    let others = read(&place.path("b.db")).expect("an attribute");
    for lost in [None, Some(others)] {
        match &lost {
            None => rustix::fs::removexattr(&path, ATTRIBUTE).expect("removed"),
            Some(others) => {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(&path, ATTRIBUTE, others, flags).expect("written over");
            }
        }
        let reader = place.try_open("a.db", "&mode=ro").expect("open");
        assert_eq!(count(&reader), 0);
        drop(reader);
        assert_eq!(read(&path), lost, "a reader writes nothing");
        drop(place.open("a.db"));
        assert_eq!(read(&path).as_ref(), Some(&first));
    }
}
