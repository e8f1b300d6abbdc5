//! A directory for shared memory that is on a disk, or that has no room: a new database works
//! without a log, an error says what to do, and commits sync while the log has no memory.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use onejournal_testing::{can_mount, has_disk, has_namespaces};
use rusqlite::{Connection, ErrorCode};
use rustix::mount::UnmountFlags;

use crate::common::{Place, count, is_sound, load, set, stat, told};

const ROWS: i64 = 10;

/// What a process found.
#[derive(Debug)]
struct Found {
    rows: Option<i64>,
    /// Why the database has no log.
    no_log: Option<String>,
    /// The error, and what the extension said.
    said: String,
}

/// One process of a database: says how many rows it has, and commits more.
#[test]
#[ignore = "a process of the tests below"]
fn user_of_a_database() {
    load();
    let place = Place::of_environment();
    let connection = match place.try_open("a.db", "") {
        Ok(connection) => connection,
        Err(e) => {
            assert_eq!(e.sqlite_error_code(), Some(ErrorCode::CannotOpen), "{e}");
            return println!("\nerror {}", told().join("; "));
        }
    };
    set(&connection, "PRAGMA journal_mode=WAL");
    let table = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)";
    connection.execute_batch(table).expect("table");
    println!("\nrows {}", count(&connection));
    for _ in 0..ROWS {
        connection.execute("INSERT INTO t(v) VALUES (1)", []).expect("insert");
    }
    if let Some(why) = stat(&connection)["databases"][0]["no_log"].as_str() {
        println!("no log {why}");
    }
    println!("said {}", told().join("; "));
}

/// Runs such a process after `script`, in a mount namespace of its own.
fn run(place: &Place, script: &str) -> Found {
    let script = format!("{script} && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", &script, "sh"]);
    command.args(onejournal_testing::again_words(module_path!(), "user_of_a_database"));
    place.tell(&mut command);
    let output = command.output().expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    let find = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    Found {
        rows: find("rows ").map(|rows| rows.parse().expect("a number")),
        no_log: find("no log ").map(String::from),
        said: find("error ").or(find("said ")).unwrap_or(&text).to_owned(),
    }
}

/// A place whose shared memory is in `memory`.
fn place_with(memory: &Path) -> Place {
    Place { memory: memory.to_owned(), ..Place::new(false) }
}

/// The ways in which shared memory has no place: a script that makes it so, the directory, and
/// words of the message.
fn ways() -> Vec<(String, PathBuf, Vec<String>)> {
    let shm = Path::new("/dev/shm");
    let of = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let tmpfs = |size: &str| format!("mount -t tmpfs -o size={size} none /dev/shm");
    let full = of(&["/dev/shm has no room", "are needed", "--shm-size", "memory=DIR"]);
    let full_of =
        |size: &str| [full.clone(), of(&[&format!("{size} of {size} are free")])].concat();
    let on_disk = of(&["is on a disk (file system", "--tmpfs", "memory=DIR"]);
    let overlay = "mkdir -p $ROOT/u $ROOT/w $ROOT/l; \
                   mount -t overlay none /dev/shm \
                   -o lowerdir=$ROOT/l,upperdir=$ROOT/u,workdir=$ROOT/w";
    vec![
        (
            "mkdir -p $ROOT/disk; mount --bind $ROOT/disk /dev/shm".into(),
            shm.into(),
            on_disk.clone(),
        ),
        (overlay.into(), shm.into(), [on_disk.clone(), of(&["file system overlay"])].concat()),
        ("true".into(), "/var/tmp".into(), on_disk),
        (tmpfs("4k"), shm.into(), full_of("4 KiB")),
        (tmpfs("64k"), shm.into(), full_of("64 KiB")),
        (format!("{}; fallocate -l 3950k /dev/shm/other", tmpfs("4m")), shm.into(), full),
    ]
}

fn has_all(text: &str, words: &[String]) {
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn a_new_database_works_without_a_place_for_shared_memory() {
    onejournal_testing::own_process!();
    if !has_namespaces() || !has_disk() {
        return;
    }
    for (script, memory, words) in ways() {
        let place = place_with(&memory);
        for nth in 0..2 {
            let found = run(&place, &script);
            assert_eq!(found.rows, Some(nth * ROWS), "{script}: {}", found.said);
            has_all(&found.no_log.expect("a reason"), &words);
            has_all(&found.said, &words);
            assert!(!place.path(".onejournal").exists(), "{script}");
        }
        let connection = Connection::open(place.path("a.db")).expect("plain");
        is_sound(&connection);
        // Where there is a place, it has a log.
        drop(connection);
        let memory = tempfile::tempdir_in("/dev/shm").expect("memory");
        let place = Place { memory: memory.path().to_owned(), ..place };
        let found = run(&place, "true");
        assert_eq!((found.rows, found.no_log), (Some(2 * ROWS), None), "{}", found.said);
    }
}

/// The log may hold commits of the database.
#[test]
fn a_database_that_has_a_log_is_refused_without_a_place_for_shared_memory() {
    onejournal_testing::own_process!();
    if !has_namespaces() || !has_disk() {
        return;
    }
    for (script, memory, words) in ways() {
        let good = tempfile::tempdir_in("/dev/shm").expect("memory");
        let place = place_with(good.path());
        assert_eq!(run(&place, "true").rows, Some(0));
        let place = Place { memory, ..place };
        // Also if a tool has removed the attribute that says so.
        let lost = format!("setfattr -x user.onejournal {}", place.path("a.db").display());
        for before in ["true", &lost] {
            let found = run(&place, &format!("{before}; {script}"));
            assert_eq!(found.rows, None, "{script}: {}", found.said);
            has_all(&found.said, &words);
        }
        let place = Place { memory: good.path().to_owned(), ..place };
        let found = run(&place, "true");
        assert_eq!((found.rows, found.no_log), (Some(ROWS), None), "{}", found.said);
    }
}

/// A small tmpfs. It is unmounted when this is dropped.
struct SmallMemory(tempfile::TempDir);

impl SmallMemory {
    fn mount() -> SmallMemory {
        let memory = SmallMemory(tempfile::tempdir().expect("directory"));
        let mut command = Command::new("mount");
        let command = command.args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(memory.0.path());
        assert!(command.status().expect("mount").success());
        memory
    }

    /// Takes all that is left.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).expect("file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).expect("removed");
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// The memory fills at each moment in the life of a WAL: each commit works, as a record or as a
/// sync.
#[test]
fn commits_sync_while_the_memory_is_full() {
    onejournal_testing::own_process!();
    if !can_mount() {
        return;
    }
    load();
    // Each row needs a chunk and more.
    let insert = |connection: &Connection, bytes: i64| {
        let sql = "INSERT INTO t(v) VALUES (randomblob(?1))";
        connection.execute(sql, [bytes]).expect("a commit");
    };
    let number = |connection: &Connection, name: &str| stat(connection)[name].as_u64().expect(name);
    for before in 0..4 {
        let memory = SmallMemory::mount();
        let place = place_with(memory.0.path());
        let connection = place.open("a.db");
        set(&connection, "PRAGMA journal_mode=WAL");
        connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v)").expect("table");
        (0..before).for_each(|_| insert(&connection, 100_000));
        memory.fill();
        for _ in 0..120 {
            let (syncs, commits) =
                (number(&connection, "real_syncs"), number(&connection, "commits"));
            insert(&connection, 100_000);
            let done = number(&connection, "real_syncs") - syncs;
            assert!(done > 0 || number(&connection, "commits") > commits, "a record or a sync");
        }
        let said = told().join("; ");
        assert!(said.contains("this commit syncs, because the log fails"), "{said}");
        has_all(&said, &["has no room", "0 KiB of 4096 KiB", "memory=DIR"].map(String::from));
        // A database that the log has never had.
        let other = place.open("b.db");
        set(&other, "PRAGMA journal_mode=WAL");
        other.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v)").expect("table");
        insert(&other, 10);
        assert!(stat(&other)["databases"].to_string().contains("has no room"));
        memory.free();
        (0..3).for_each(|_| insert(&connection, 10));
        let synced = number(&connection, "real_syncs");
        insert(&connection, 10);
        assert_eq!(number(&connection, "real_syncs"), synced, "commits are records again");
        assert_eq!(count(&connection), before + 124);
        drop((connection, other));
        let plain = Connection::open(place.path("a.db")).expect("plain");
        is_sound(&plain);
        assert_eq!(count(&plain), before + 124);
    }
}

#[test]
fn transactions_of_rollback_modes_write_a_journal_while_the_memory_is_full() {
    onejournal_testing::own_process!();
    if !can_mount() {
        return;
    }
    load();
    let memory = SmallMemory::mount();
    let place = place_with(memory.0.path());
    let connection = place.open("a.db");
    set(&connection, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    for nth in 0..100 {
        match nth {
            20 => memory.fill(),
            80 => memory.free(),
            _ => {}
        }
        set(&connection, "INSERT INTO t(v) VALUES (randomblob(100000))");
    }
    let transactions = stat(&connection)["transactions"].as_u64();
    set(&connection, "INSERT INTO t(v) VALUES (1)");
    assert!(stat(&connection)["transactions"].as_u64() > transactions, "a record");
    drop(connection);
    let plain = Connection::open(place.path("a.db")).expect("plain");
    is_sound(&plain);
    assert_eq!(count(&plain), 101);
}
