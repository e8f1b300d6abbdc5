//! Atomic writes: the ioctls of F2FS, and SQLite built with `SQLITE_ENABLE_BATCH_ATOMIC_WRITE`.

use crate::support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use onejournal_testing::{test_name, tier};
use rusqlite::Connection;
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use support::{Peer, Scratch, spawn};

/// The interval is longer than any test, so commits happen only when a test asks for them.
const OPTIONS: &str = "atomic_writes,commit=300";

/// For a peer: the ioctls, and a file that is read through another descriptor each time.
const IOCTLS: &str = "
START, COMMIT, ABORT, FEATURES = 0xf501, 0xf502, 0xf505, 0x8004f50c
def features(fd): return struct.unpack('I', fcntl.ioctl(fd, FEATURES, bytes(4)))[0]
def content(path):
    with open(path, 'rb') as file: return file.read()
def make(path, data):
    with open(path, 'wb') as file: file.write(data)
    return os.open(path, os.O_RDWR)
def look(path):
    data = content(path)
    assert len(data) == os.stat(path).st_size, (len(data), os.stat(path).st_size)
    return [len(data), ''.join(sorted({chr(byte) for byte in data}))]
";

fn peer(scratch: &Scratch) -> Option<Peer> {
    let mut peer = Peer::new(&scratch.dir())?;
    peer.good(IOCTLS);
    Some(peer)
}

/// Through io_uring where the kernel has it, and through `/dev/fuse`.
fn each_transport(test: impl Fn(&mut Scratch, &str)) {
    for options in [OPTIONS.to_string(), format!("{OPTIONS},io_uring=off,threads=1")] {
        let Some(mut scratch) = Scratch::mounted(&options) else { return };
        test(&mut scratch, &options);
        scratch.close_and_check();
    }
}

/// One test at a time: a process that another test starts closes, for a moment before it becomes
/// that program, the files that this one has open, and a close ends an atomic write.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn an_atomic_write_is_seen_at_once_and_durable_with_its_commit() {
    let _alone = ALONE.lock();
    each_transport(|scratch, options| {
        let Some(mut one) = peer(scratch) else { return };
        one.good("fd = make('f', b'a' * 10000); os.fsync(fd); r = features(fd)");
        assert_eq!(one.good("r = features(fd)"), 4);
        let commits = scratch.counter("commits");
        one.good("fcntl.ioctl(fd, START)");
        one.good("os.pwrite(fd, b'b' * 5000, 0); os.pwrite(fd, b'b' * 15000, 5000)");
        assert_eq!(one.good("r = look('f')").to_string(), r#"[20000,"b"]"#);
        // A sync takes nothing of it to the volume.
        one.good("os.fsync(fd)");
        assert_eq!(scratch.counter("commits"), commits);
        one.good("fcntl.ioctl(fd, COMMIT)");
        assert_eq!(scratch.counter("commits"), commits + 1);
        one.good("os.fsync(fd)");
        assert_eq!(scratch.counter("commits"), commits + 1, "it was durable already");
        drop(one);
        scratch.kill();
        scratch.mount(options);
        let mut one = peer(scratch).unwrap();
        assert_eq!(one.good("r = look('f')").to_string(), r#"[20000,"b"]"#);
    });
}

#[test]
fn an_abort_restores_what_everybody_sees() {
    let _alone = ALONE.lock();
    each_transport(|scratch, _| {
        let (Some(mut one), Some(mut two)) = (peer(scratch), peer(scratch)) else { return };
        let old = r#"[10000,"a"]"#;
        let new = r#"[20000,"ab"]"#;
        one.good("fd = make('f', b'a' * 10000)");
        two.good(
            "import mmap; kept = open('f', 'rb'); \
             m = mmap.mmap(kept.fileno(), 10000, prot=mmap.PROT_READ)",
        );
        for _ in 0..3 {
            one.good("fcntl.ioctl(fd, START); os.pwrite(fd, b'b' * 12000, 8000)");
            assert_eq!(two.good("r = look('f')").to_string(), new);
            assert_eq!(two.good("r = chr(m[9999])"), "b");
            one.good("fcntl.ioctl(fd, ABORT)");
            assert_eq!(two.good("r = chr(m[9999])"), "a");
            assert_eq!(two.good("r = look('f')").to_string(), old);
        }
        // Aborting what was not begun is no error, committing it is.
        one.good("fcntl.ioctl(fd, ABORT)");
        one.fails(Errno::INVAL, "fcntl.ioctl(fd, COMMIT)");
        // Afterwards the file is like any other.
        one.good("os.pwrite(fd, b'c' * 10000, 0)");
        assert_eq!(two.good("r = look('f')").to_string(), r#"[10000,"c"]"#);
    });
}

#[test]
fn the_end_of_the_holder_aborts() {
    let _alone = ALONE.lock();
    each_transport(|scratch, _| {
        let Some(mut two) = peer(scratch) else { return };
        two.good("fd = make('f', b'a' * 10000); os.close(fd)");
        let begin = "fd = os.open('f', os.O_RDWR); fcntl.lockf(fd, fcntl.LOCK_EX); \
                     fcntl.ioctl(fd, START); os.pwrite(fd, b'b' * 20000, 0); r = os.getpid()";
        for round in 0..6 {
            let mut one = peer(scratch).unwrap();
            let pid = one.good(begin).as_i64().unwrap();
            assert_eq!(two.good("r = look('f')").to_string(), r#"[20000,"b"]"#);
            two.fails(
                Errno::AGAIN,
                "k = os.open('f', os.O_RDWR); fcntl.lockf(k, fcntl.LOCK_EX | fcntl.LOCK_NB)",
            );
            if round % 2 == 0 {
                let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
                kill_process(pid, Signal::KILL).unwrap();
            } else {
                one.good("os.close(fd)");
            }
            // The next holder of the lock sees nothing of the aborted transaction.
            two.good("fcntl.lockf(k, fcntl.LOCK_EX); r = look('f'); os.close(k)");
            assert_eq!(two.good("r = look('f')").to_string(), r#"[10000,"a"]"#);
        }
        assert_eq!(scratch.counter("atomic_aborts"), 6);
    });
}

#[test]
fn a_holder_that_lost_its_write_is_told() {
    let _alone = ALONE.lock();
    each_transport(|scratch, _| {
        let Some(mut one) = peer(scratch) else { return };
        one.good("fd = make('f', b'a' * 10000); fcntl.ioctl(fd, START)");
        one.good("os.pwrite(fd, b'b', 0); os.close(os.dup(fd))");
        one.fails(Errno::CANCELED, "os.pwrite(fd, b'b', 1)");
        one.fails(Errno::CANCELED, "fcntl.ioctl(fd, COMMIT)");
        assert_eq!(one.good("r = look('f')").to_string(), r#"[10000,"a"]"#);
        one.good("fcntl.ioctl(fd, START); os.pwrite(fd, b'b' * 10000, 0); fcntl.ioctl(fd, COMMIT)");
        assert_eq!(one.good("r = look('f')").to_string(), r#"[10000,"b"]"#);
    });
}

#[test]
fn others_may_not_change_the_content_meanwhile() {
    let _alone = ALONE.lock();
    each_transport(|scratch, _| {
        let (Some(mut one), Some(mut two)) = (peer(scratch), peer(scratch)) else { return };
        one.good("fd = make('f', b'a' * 10000); fcntl.ioctl(fd, START)");
        one.good("fcntl.ioctl(fd, START); os.pwrite(fd, b'b' * 10000, 0)");
        two.good("fd = os.open('f', os.O_RDWR)");
        for busy in [
            "fcntl.ioctl(fd, START)",
            "os.pwrite(fd, b'x', 0)",
            "os.truncate('f', 5)",
            "os.posix_fallocate(fd, 0, 100000)",
            "open('f', 'wb')",
        ] {
            two.fails(Errno::BUSY, busy);
        }
        one.fails(Errno::BUSY, "os.ftruncate(fd, 5)");
        two.fails(Errno::BADF, "fcntl.ioctl(os.open('f', os.O_RDONLY), START)");
        // Names, modes and other files are free.
        two.good("os.chmod('f', 0o600); os.rename('f', 'g'); os.link('g', 'h'); os.unlink('g')");
        two.good("other = make('other', b'c' * 5000); fcntl.ioctl(other, START)");
        two.good("os.pwrite(other, b'd' * 5000, 0)");
        one.good("fcntl.ioctl(fd, COMMIT)");
        two.good("fcntl.ioctl(other, ABORT)");
        assert_eq!(two.good("r = look('h')").to_string(), r#"[10000,"b"]"#);
        assert_eq!(two.good("r = look('other')").to_string(), r#"[5000,"c"]"#);
        // A file without a name keeps its atomic write.
        one.good("fcntl.ioctl(fd, START); os.pwrite(fd, b'e' * 10000, 0); os.unlink('h')");
        one.good("fcntl.ioctl(fd, COMMIT); r = chr(os.pread(fd, 1, 9999)[0])");
    });
}

#[test]
fn a_write_that_overflows_a_transaction_is_refused_and_leaves_the_rest() {
    let _alone = ALONE.lock();
    each_transport(|scratch, _| {
        let Some(mut one) = peer(scratch) else { return };
        one.good("fd = make('f', b'a' * 4096); fcntl.ioctl(fd, START); os.pwrite(fd, b'b', 1)");
        one.fails(
            Errno::FBIG,
            "for block in range(100000): os.pwrite(fd, b'c' * 65536, 4096 + block * 65536)",
        );
        assert_eq!(one.good("r = block > 2"), true);
        one.good("fcntl.ioctl(fd, COMMIT)");
        assert_eq!(one.good("r = look('f')[1]"), "abc");
        assert_eq!(one.good("r = look('f')[0] == 4096 + block * 65536"), true);
    });
}

/// Letters in lower case are committed, those in upper case aborted, in one way or the other.
const WRITER: &str = "
fd = os.open('f', os.O_RDWR)
for i in range(150):
    fcntl.lockf(fd, fcntl.LOCK_EX)
    fcntl.ioctl(fd, START)
    letter = b'abcdefgh'[i % 8:i % 8 + 1]
    size = (1 + i % 5) * 30000
    os.pwrite(fd, (letter if i % 3 == 0 else letter.upper()) * size, 0)
    if i % 3 == 0: fcntl.ioctl(fd, COMMIT)
    if i % 3 == 1: fcntl.ioctl(fd, ABORT)
    if i % 3 == 2: os.close(fd); fd = os.open('f', os.O_RDWR)
    else: fcntl.lockf(fd, fcntl.LOCK_UN)
os.close(fd)
";

const READER: &str = "
seen = set()
for i in range(400):
    open('f', 'rb').read() # without the lock: anything
    with open('f', 'rb') as file:
        fcntl.lockf(file, fcntl.LOCK_SH)
        data = file.read()
        assert len(data) == os.fstat(file.fileno()).st_size, 'size'
        seen.add(data[:30000].decode()[::29999])
        assert data[:30000].islower(), 'aborted, and seen'
        assert data.islower(), 'aborted, and seen behind the end'
r = all(pair[0] == pair[1] for pair in seen)
";

#[test]
fn a_process_that_takes_the_lock_never_sees_aborted_writes() {
    let _alone = ALONE.lock();
    each_transport(|scratch, _| {
        let Some(mut writer) = peer(scratch) else { return };
        writer.good("os.close(make('f', b'a' * 30000))");
        let mut readers: Vec<_> = (0..3).map(|_| peer(scratch).unwrap()).collect();
        std::thread::scope(|scope| {
            for reader in &mut readers {
                scope.spawn(|| assert_eq!(reader.good(READER), true));
            }
            writer.good(WRITER);
        });
    });
}

/// Begins and aborts while others truncate, list and read without the kernel's cache.
const CROWD: &str = "
for i in range(60):
    open(name + '-cut', 'wb').close()
    os.stat(name); list(os.scandir('.'))
    try: fcntl.ioctl(fd, START)
    except OSError as error: assert error.errno == errno.ENFILE; continue
    os.pwrite(fd, b'B' * 150000, 1000)
    other = os.open(name, os.O_RDONLY); os.posix_fadvise(other, 0, 0, 4); os.pread(other, 200000, 0)
    fcntl.ioctl(fd, ABORT)
    assert os.pread(fd, 300000, 0) == b'a' * 200000
    os.close(other)
os.close(fd)
";

#[test]
fn regression_many_aborts_do_not_wait_for_each_other() {
    let _alone = ALONE.lock();
    each_transport(|scratch, _| {
        let mut crowd: Vec<_> = (0..6).map_while(|_| peer(scratch)).collect();
        std::thread::scope(|scope| {
            for (index, one) in crowd.iter_mut().enumerate() {
                one.good(&format!("name = 'f{index}'; fd = make(name, b'a' * 200000)"));
                scope.spawn(|| one.good(CROWD));
            }
        });
    });
}

#[test]
fn without_the_option_it_is_not_offered() {
    let _alone = ALONE.lock();
    let Some(scratch) = Scratch::mounted("") else { return };
    let Some(mut one) = peer(&scratch) else { return };
    one.good("fd = make('f', b'a')");
    one.fails(Errno::NOTTY, "features(fd)");
    one.fails(Errno::NOTTY, "fcntl.ioctl(fd, START)");
    drop(one);
    scratch.close_and_check();
}

/// One row more, all rows changed, both counted: half of a transaction would be noticed.
fn transaction(database: &mut Connection, key: u64) -> rusqlite::Result<()> {
    let transaction = database.transaction()?;
    transaction.execute("insert into t values(?1, 0, randomblob(?2))", (key, 3000))?;
    transaction.execute("update t set changes = changes + 1 where k % 7 = ?1 % 7", [key])?;
    let changes = "update total set rows = rows + 1, changes = (select sum(changes) from t)";
    transaction.execute(changes, ())?;
    transaction.commit()
}

fn open_database(path: &Path) -> Connection {
    let database = Connection::open(path).unwrap();
    database.busy_timeout(Duration::from_secs(30)).unwrap();
    database
        .execute_batch(
            "pragma synchronous = full;
             create table if not exists t(k integer primary key, changes integer, v blob);
             create table if not exists total(rows integer, changes integer);
             insert into total select 0, 0 where not exists (select * from total)",
        )
        .unwrap();
    database
}

/// Sound and whole; the number of its rows.
#[track_caller]
fn check_database(database: &Connection) -> u64 {
    let text = |sql: &str| database.query_row(sql, (), |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text("pragma integrity_check"), "ok");
    let sums = text("select count(*) || ' ' || ifnull(sum(changes), 0) from t");
    assert_eq!(sums, text("select rows || ' ' || changes from total"), "half a transaction");
    sums.split(' ').next().unwrap().parse().unwrap()
}

/// The names that came to be in the directory since it was last asked.
fn created(watch: &rustix::fd::OwnedFd) -> Vec<String> {
    let mut names = Vec::new();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    while let Ok(event) = reader.next() {
        names.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    names
}

#[test]
fn sqlite_commits_a_transaction_as_one_commit_and_without_a_journal() {
    let _alone = ALONE.lock();
    each_transport(|scratch, _| {
        let mut database = open_database(&scratch.path("db"));
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, scratch.dir(), inotify::WatchFlags::CREATE).unwrap();
        let before = scratch.stat();
        let count = 40;
        (1..=count).for_each(|key| transaction(&mut database, key).unwrap());
        let after = scratch.stat();
        let grown = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
        assert_eq!(created(&watch), Vec::<String>::new());
        assert_eq!((grown("commits"), grown("atomic_commits")), (count, count));
        println!("fsyncs {} of which without I/O {}", grown("fsyncs"), grown("syncs_without_io"));
        // What is rolled back leaves nothing.
        let rolled_back = database.transaction().unwrap();
        rolled_back.execute("delete from t", ()).unwrap();
        drop(rolled_back);
        assert_eq!(check_database(&database), count);
        // What is larger than a transaction of the volume takes a journal after all.
        let large = database.transaction().unwrap();
        let fill = "insert into t select k + 1000000, 0, zeroblob(1000000) from t";
        large.execute(fill, ()).unwrap();
        large.execute("update total set rows = rows * 2", ()).unwrap();
        large.commit().unwrap();
        assert!(created(&watch).contains(&"db-journal".to_string()));
        assert_eq!(check_database(&database), 2 * count);
    });
}

const DATABASE: &str = "ONEJOURNAL_TEST_DATABASE";

/// Not a test: the process that [`storm`] kills. Says each key when its commit has returned.
#[test]
#[ignore = "a process of the tests that kill it"]
fn client() {
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let mut database = Connection::open(path).unwrap();
    let rows = database.query_row("select rows from total", (), |row| row.get::<_, u64>(0));
    for key in rows.unwrap() + 1.. {
        transaction(&mut database, key).unwrap();
        println!("\n{key}");
    }
}

fn start_client(database: &Path) -> Child {
    let mut command = onejournal_testing::again(module_path!(), "client");
    command.env(DATABASE, database);
    spawn(command.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap()
}

/// Kills the client or the daemon somewhere in a transaction: what was promised is there, whole.
fn storm(kills_daemon: bool, seed: u64) {
    let Some(mut scratch) = Scratch::mounted(OPTIONS) else { return };
    drop(open_database(&scratch.path("db")));
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut promised = 0;
    for round in 0..tier::count(16) {
        let mut child = start_client(&scratch.path("db"));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut keys = lines.filter_map(|line| line.unwrap().parse::<u64>().ok());
        for _ in 0..rng.usize(1..30) {
            promised = keys.next().expect("it goes on for ever");
        }
        std::thread::sleep(Duration::from_micros(rng.u64(0..3000)));
        if kills_daemon {
            scratch.daemon().signal(Signal::KILL);
        } else {
            child.kill().unwrap();
        }
        promised = keys.last().unwrap_or(promised);
        child.wait().unwrap();
        if kills_daemon {
            scratch.kill();
            scratch.mount(OPTIONS);
        }
        assert!(!scratch.path("db-journal").exists(), "seed {seed} round {round}: a journal");
        let found = check_database(&Connection::open(scratch.path("db")).unwrap());
        assert!(
            (promised..=promised + 1).contains(&found),
            "seed {seed} round {round}: {promised} acknowledged, {found} found"
        );
        promised = found;
    }
    scratch.close_and_check();
}

#[test]
fn a_killed_client_leaves_whole_transactions() {
    let _alone = ALONE.lock();
    storm(false, tier::seed_of(test_name!()));
}

#[test]
fn a_killed_daemon_leaves_whole_transactions() {
    let _alone = ALONE.lock();
    storm(true, tier::seed_of(test_name!()));
}

/// The kernel keeps the size of what was dropped, and appends there.
#[test]
fn regression_an_append_after_an_aborted_atomic_write_is_at_the_end() {
    let _alone = ALONE.lock();
    each_transport(|scratch, _| {
        let Some(mut one) = peer(scratch) else { return };
        let Some(mut other) = peer(scratch) else { return };
        for how in ["fcntl.ioctl(fd, ABORT)", "os.close(fd)"] {
            one.good("fd = make('f', b'a' * 1000)");
            other.good("log = os.open('f', os.O_WRONLY | os.O_APPEND)");
            one.good("fcntl.ioctl(fd, START); os.pwrite(fd, b'x' * 20000, 0)");
            one.good(how);
            // Several records, in one page and over its end, before anything asks for the size.
            other.good("for byte in [b'1', b'2', b'3']: assert os.write(log, byte * 3000) == 3000");
            let expected =
                "r = content('f') == b'a' * 1000 + b'1' * 3000 + b'2' * 3000 + b'3' * 3000";
            assert_eq!(other.good(expected), true, "{how}");
            assert_eq!(one.good(expected), true, "{how}");
            // The size is known now.
            other.good("os.write(log, b'4' * 100)");
            assert_eq!(one.good("r = content('f')[10000:] == b'4' * 100"), true, "{how}");
            other.good("os.close(log); os.unlink('f')");
        }
        drop((one, other));
    });
}
