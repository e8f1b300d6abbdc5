//! A log that another user prepared beside a database, in a directory where everybody may make
//! files: the extension believes nothing in it, writes nothing into it, and does not wait for its
//! locks. In a program of its own: it starts others. It takes root, which can act as other users.

use crate::common;

use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use common::actor::{act, give, permit, public_place, said};
use common::{Place, copy_tree, count, load};
use onejournal_testing::is_root;
use rusqlite::Connection;

/// The attacker.
const NOBODY: u32 = 65_534;
/// Two users who do not trust each other.
const OTHER: u32 = 65_533;

fn last_told(place: &Place) -> String {
    let about = [&place.root, &place.memory].map(|path| path.display().to_string());
    let told = common::told();
    let is_about = |text: &&String| about.iter().any(|path| text.contains(path));
    told.iter().rfind(is_about).expect("told why").clone()
}

/// It is not opened, at once, and the error log says whose it is.
fn refused(place: &Place, why: &str) {
    for _ in 0..2 {
        let opened = place.try_open("a.db", "").and_then(|connection| {
            // A log is used when something is written at the latest.
            connection.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE u(x)")
        });
        let error = opened.expect_err("refused");
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::CannotOpen), "{error}");
        let told = last_told(place);
        assert!(told.contains(why), "{told}");
    }
}

/// A database after a crash, with a transaction that is only in the log.
fn crashed(from: &Place) -> Place {
    load();
    let after = public_place();
    let connection = from.wal("a.db");
    connection.execute_batch("INSERT INTO t(v) VALUES ('old')").expect("old");
    connection.execute_batch("PRAGMA wal_checkpoint(RESTART)").expect("home");
    connection.execute_batch("INSERT INTO t(v) VALUES ('logged')").expect("logged");
    copy_tree(&from.root, &after.root);
    std::fs::remove_file(after.path("a.db-shm")).expect("index");
    std::fs::write(after.path("a.db-wal"), std::fs::read(after.path("a.db-wal")).expect("WAL"))
        .expect("WAL");
    // The power took the frame.
    let wal = std::fs::read(after.path("a.db-wal")).expect("WAL");
    let mut cut = wal.clone();
    cut[32..].fill(0);
    std::fs::write(after.path("a.db-wal"), cut).expect("WAL");
    after
}

#[test]
fn forged_transactions_are_not_recovered() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    let made = Place::new(false);
    // The best forgery that there is: a log of exactly this database.
    let place = crashed(&made);
    let log = place.path(".onejournal");
    let genuine = tempfile::tempdir().expect("directory");
    copy_tree(&log, genuine.path());
    for mode in [0o700, 0o711, 0o777] {
        give(&log, NOBODY);
        permit(&log, mode);
        refused(&place, "belongs to user 65534");
    }
    let stream = common::stream_directory(&place, "a.db");
    // What one of root's directories holds of another user's is no better.
    give(&log, 0);
    permit(&log, 0o711);
    for part in ["streams", &stream, "clients", "group.log", "service.json", "lock"] {
        give(&log.join(part), NOBODY);
        refused(&place, "belongs to user 65534");
        give(&log.join(part), 0);
        let mode = std::fs::metadata(log.join(part)).expect("there").mode();
        permit(&log.join(part), mode | 0o002);
        refused(&place, "can be written by other users");
        permit(&log.join(part), mode);
    }
    // It was a good one: of root's own, the transaction is there.
    assert_eq!(count(&place.open("a.db")), 2);
}

#[test]
fn a_prepared_log_is_neither_joined_nor_waited_for() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    load();
    let place = public_place();
    Connection::open(place.path("a.db"))
        .expect("database")
        .execute_batch("CREATE TABLE t(id, v)")
        .expect("table");
    // A whole service, made by the attacker, who keeps its lock.
    let made = act(&place, NOBODY, "users::attacker_makes_a_log", &[]);
    assert!(said(&made).contains("made"), "{}", said(&made));
    let lock = std::fs::File::open(place.path(".onejournal/lock")).expect("lock");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("kept");
    refused(&place, "belongs to user 65534");
    // Garbage instead of files.
    for name in ["service.json", "incarnation", "group.log"] {
        std::fs::write(place.path(".onejournal").join(name), "garbage").expect("written");
    }
    refused(&place, "belongs to user 65534");
    let told = last_told(&place);
    assert!(told.contains("remove it") && told.contains("onejournal logd"), "{told}");
    assert!(told.contains(&place.path(".onejournal").display().to_string()), "{told}");
    // What it says to do helps.
    std::fs::remove_dir_all(place.path(".onejournal")).expect("removed");
    place.wal("a.db").execute_batch("INSERT INTO t VALUES (1, 1)").expect("insert");
}

#[test]
#[ignore = "a process of the tests: a step by another user"]
fn attacker_makes_a_log() {
    let place = Place::of_environment();
    let options = log::Options { memory: place.memory.clone(), ..log::Options::default() };
    let log = log::Log::open(place.path(".onejournal"), &options).expect("log");
    log.stream("db-a.db").expect("stream").append(b"forged").expect("append");
    println!("made");
}

#[test]
fn links_lead_nobodys_writes_elsewhere() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    load();
    for link in
        [".onejournal", ".onejournal/streams", ".onejournal/clients", ".onejournal/group.log"]
    {
        for owner in [0, NOBODY] {
            let place = public_place();
            drop(place.wal("a.db"));
            let victim = tempfile::tempdir().expect("directory");
            std::fs::create_dir_all(place.path(".onejournal")).expect("directory");
            let path = place.path(link);
            match path.is_dir() {
                true => std::fs::remove_dir_all(&path).expect("removed"),
                false => std::fs::remove_file(&path).expect("removed"),
            }
            let target = match link.ends_with(".log") {
                true => victim.path().join("file"),
                false => victim.path().to_owned(),
            };
            symlink(&target, &path).expect("link");
            lchown(&path, Some(owner), Some(owner)).expect("given");
            refused(&place, "symbolic link");
            let found = std::fs::read_dir(victim.path()).expect("directory").count();
            assert_eq!(found, 0, "{link}");
        }
    }
}

/// A user gives a file of root another name, in a log that root opens as the user's. The kernel
/// allows that where its setting fs.protected_hardlinks is 0.
#[test]
fn regression_another_name_of_roots_file_is_not_written_to() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    load();
    for name in ["group.log", "service.json", "incarnation", "lock"] {
        let place = public_place();
        drop(place.wal("a.db"));
        give(&place.root, OTHER);
        let (victim, path) = (place.path("victim"), place.path(".onejournal").join(name));
        // Its content is the same: the attacker may read it.
        std::fs::rename(&path, &victim).expect("moved");
        std::fs::hard_link(&victim, &path).expect("link");
        chown(&victim, Some(0), Some(0)).expect("root's");
        let before = std::fs::read(&victim).expect("there");
        refused(&place, "unlike its directory");
        assert!(std::fs::read(&victim).expect("there") == before, "{name}");
    }
}

#[test]
fn shared_memory_of_another_user_is_not_mapped() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    load();
    let place = public_place();
    let connection = place.wal("a.db");
    connection.execute_batch("INSERT INTO t(v) VALUES (1)").expect("insert");
    // The process is killed: its memory stays.
    let killed = public_place();
    std::fs::remove_dir_all(&killed.root).expect("empty");
    copy_tree(&place.root, &killed.root);
    let incarnation =
        std::fs::read_to_string(killed.path(".onejournal/incarnation")).expect("incarnation");
    let mut incarnation: serde_json::Value = serde_json::from_str(&incarnation).expect("JSON");
    let memory = PathBuf::from(incarnation["memory"].as_str().expect("a path"));
    let forged = killed.memory.join(memory.file_name().expect("a name"));
    copy_tree(&memory, &forged);
    let found = std::fs::metadata(killed.path(".onejournal")).expect("directory");
    incarnation["memory"] = forged.display().to_string().into();
    incarnation["directory"]["device"] = found.dev().into();
    incarnation["directory"]["inode"] = found.ino().into();
    let born = found.created().expect("born").duration_since(std::time::UNIX_EPOCH).expect("since");
    incarnation["directory"]["born_ns"] = u64::try_from(born.as_nanos()).expect("fits").into();
    std::fs::write(killed.path(".onejournal/incarnation"), incarnation.to_string())
        .expect("incarnation");
    permit(&forged, 0o700);
    for (path, mode) in [(forged.clone(), 0o700), (forged.join("control"), 0o600)] {
        permit(&path, mode);
        if path != forged {
            chown(&path, Some(NOBODY), None).expect("given");
            refused(&killed, "belongs to user 65534");
            chown(&path, Some(0), None).expect("taken back");
        }
        permit(&path, mode | 0o022);
        refused(&killed, "by other users");
        permit(&path, mode);
    }
    assert_eq!(count(&killed.open("a.db")), 1, "it was good");
}

/// A user's log names memory that is root's, but of another log.
#[test]
fn roots_memory_of_another_log_is_not_used() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    load();
    let (roots, place) = (Place::new(false), public_place());
    let kept = roots.wal("a.db");
    let incarnation = |place: &Place| -> serde_json::Value {
        let text = std::fs::read_to_string(place.path(".onejournal/incarnation"));
        serde_json::from_str(&text.expect("incarnation")).expect("JSON")
    };
    let memory = incarnation(&roots)["memory"].clone();
    let log = PathBuf::from(memory.as_str().expect("a path")).join("log");
    let before = std::fs::read_to_string(&log).expect("its log");
    drop(place.wal("a.db"));
    give(&place.root, OTHER);
    let mut forged = incarnation(&place);
    forged["memory"] = memory;
    std::fs::write(place.path(".onejournal/incarnation"), forged.to_string()).expect("written");
    let connection = place.open("a.db");
    connection.execute_batch("INSERT INTO t(v) VALUES (1); INSERT INTO t(v) VALUES (2)").expect("");
    assert_eq!(std::fs::read_to_string(&log).expect("its log"), before);
    kept.execute_batch("INSERT INTO t(v) VALUES (1)").expect("insert");
    assert_eq!((count(&connection), count(&kept)), (2, 1));
}

#[test]
fn root_and_the_owner_of_a_database_use_it_together() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    load();
    let place = public_place();
    let made = act(&place, OTHER, "users::owner_makes_the_database", &[]);
    assert!(said(&made).contains("made"), "{}", said(&made));
    // Root comes first to the log, and stays.
    let connection = place.open("a.db");
    connection.execute_batch("INSERT INTO t(v) VALUES ('root')").expect("insert");
    let owned = |path: &Path| {
        let found = std::fs::symlink_metadata(path).expect("there");
        assert_eq!((found.uid(), found.gid()), (OTHER, OTHER), "{}", path.display());
    };
    owned(&place.path(".onejournal"));
    let stream = common::stream_directory(&place, "a.db");
    for part in ["streams", &stream, "clients", "clients/000", "group.log", "lock", "incarnation"] {
        owned(&place.path(".onejournal").join(part));
    }
    let joined = act(&place, OTHER, "users::owner_writes", &[]);
    assert!(said(&joined).contains("written"), "{}", said(&joined));
    connection.execute_batch("INSERT INTO t(v) VALUES ('again')").expect("insert");
    assert_eq!(count(&connection), 3);
    // A third user is told what to do, whether there is a log or not.
    permit(&place.path("a.db"), 0o666);
    for name in ["a.db-wal", "a.db-shm"] {
        permit(&place.path(name), 0o666);
    }
    let third = act(&place, NOBODY, "users::owner_writes", &[]);
    assert!(
        said(&third).contains("For several users") && said(&third).contains("onejournal logd"),
        "{}",
        said(&third)
    );
    drop(connection);
    std::fs::remove_dir_all(place.path(".onejournal")).expect("removed");
    let third = act(&place, NOBODY, "users::owner_writes", &[]);
    assert!(
        said(&third).contains("For several users") && !said(&third).contains("written"),
        "{}",
        said(&third)
    );
    assert!(!place.path(".onejournal").exists());
}

#[test]
fn a_daemon_admits_another_user_when_the_stream_says_so() {
    onejournal_testing::own_process!();
    if !is_root() {
        return;
    }
    load();
    let place = public_place();
    let options = log::Options { memory: place.memory.clone(), ..log::Options::default() };
    let serve = || {
        let server = log::ServerOptions::at(place.path("socket"));
        log::Server::start(place.path("log"), &options, &server).expect("serve")
    };
    let act_through = |uid, step| {
        let socket = place.path("socket").display().to_string();
        said(&act(&place, uid, step, &[("ONEJOURNAL_LOG", &socket)]))
    };
    let server = serve();
    let made = act_through(OTHER, "users::owner_makes_the_database");
    assert!(made.contains("made"), "{made}");
    let written = act_through(OTHER, "users::owner_writes");
    assert!(written.contains("written"), "{written}");
    permit(&place.path("a.db"), 0o666);
    let refused = act_through(NOBODY, "users::owner_writes");
    assert!(
        refused.contains("user 65533 made it") && refused.contains("run: onejournal log permit"),
        "{refused}"
    );
    server.stop().expect("stopped");
    let streams = std::fs::read_dir(place.path("log/streams")).expect("streams");
    for stream in streams {
        let name = stream.expect("entry").file_name().into_string().expect("text");
        log::permit(&place.path("log"), &name, 0, 0o666).expect("no daemon");
    }
    let server = serve();
    for uid in [NOBODY, OTHER] {
        let written = act_through(uid, "users::owner_writes");
        assert!(written.contains("written"), "{written}");
    }
    server.stop().expect("stopped");
    let rows = Connection::open(place.path("a.db")).expect("plain");
    assert_eq!(count(&rows), 3);
}

#[test]
#[ignore = "a process of the tests: a step by another user"]
fn owner_makes_the_database() {
    let place = Place::of_environment();
    let connection = Connection::open(place.path("a.db")).expect("open");
    let table = "PRAGMA journal_mode=WAL; CREATE TABLE t(id INTEGER PRIMARY KEY, v)";
    connection.execute_batch(table).expect("table");
    println!("made");
}

#[test]
#[ignore = "a process of the tests: a step by another user"]
fn owner_writes() {
    load();
    let place = Place::of_environment();
    let connection = place.open("a.db");
    connection.execute_batch("INSERT INTO t(v) VALUES ('owner')").expect("insert");
    println!("written");
}
