//! SQLite on the mount: every journal mode, two processes, and a storm of crashes.

use crate::support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onejournal_testing::{has_program, test_name, tier};
use rustix::process::Signal;
use support::{Peer, Scratch, python, spawn};

/// The journal modes with the `synchronous` that makes a commit durable when it returns. (As SQLite
/// documents, `DELETE` needs `EXTRA`: only that syncs the directory after the journal's removal.)
const MODES: [(&str, &str); 4] =
    [("wal", "full"), ("delete", "extra"), ("truncate", "full"), ("persist", "full")];

/// Commits one key after the other and says each when its commit has returned. A transaction adds
/// a row, changes an old one and counts both, so that half of one would be noticed.
///
/// A power cut takes the writer with it; here it outlives the daemon. SQLite takes a directory that
/// it cannot open for one that need not be synced, and says that it has committed (`DELETE`, killed
/// between removing the journal and opening the directory). So the writer looks, without syncing
/// anything, whether the daemon was still there when the commit returned.
const WRITER: &str = r#"
import os, random, sqlite3, sys
path, mode, synchronous, seed = sys.argv[1:]
rng = random.Random(seed)
db = sqlite3.connect(path, isolation_level=None, timeout=30)
db.execute('pragma journal_mode=' + mode).fetchall()
db.execute('pragma synchronous=' + synchronous)
db.execute('create table if not exists t(k integer primary key, changes integer, v blob)')
db.execute('create table if not exists total(rows integer, changes integer)')
if not db.execute('select * from total').fetchall():
    db.execute('insert into total values(0, 0)')
key = db.execute('select rows from total').fetchone()[0]
while True:
    key += 1
    db.execute('begin immediate')
    db.execute('insert into t values(?, 0, randomblob(?))', (key, rng.choice((10, 500, 9000))))
    db.execute('update t set changes = changes + 1 where k = ?', (rng.randint(1, key),))
    db.execute('update total set rows = rows + 1, changes = changes + 1')
    db.execute('commit')
    os.getxattr(os.path.dirname(path), 'user.onejournal.pid')
    print(key, flush=True)
"#;

fn writer(database: &Path, (mode, synchronous): (&str, &str), seed: u64) -> Child {
    let mut command = Command::new(python());
    command.args(["-c", WRITER]).arg(database).args([mode, synchronous, &seed.to_string()]);
    // It ends with a traceback when the volume goes away.
    spawn(command.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap()
}

/// The database is sound and holds whole transactions only; the number of its keys.
#[track_caller]
fn check_database(dir: &Path) -> u64 {
    let mut peer = Peer::new(dir).expect("there is Python");
    peer.good("db = sqlite3.connect('db')");
    let sound = peer.good("r = db.execute('pragma integrity_check').fetchall()");
    assert_eq!(sound.to_string(), r#"[["ok"]]"#);
    let sums = "select count(*), max(k), sum(changes) from t";
    let sums = peer.good(&format!("r = list(db.execute('{sums}').fetchone())"));
    let total = peer.good("r = list(db.execute('select rows, changes from total').fetchone())");
    assert_eq!((&sums[0], &sums[2]), (&total[0], &total[1]), "half a transaction");
    assert_eq!(sums[0], sums[1], "a key is missing");
    peer.good("db.close()");
    total[0].as_u64().unwrap()
}

/// Kills the daemon while a writer commits: what the writer had been promised is there afterwards.
fn storm(options: &str, seed: u64) {
    let Some(mut scratch) = Scratch::with_size("128M") else { return };
    if !has_program("python3") {
        return;
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut promised = 0;
    // In each mode once, at least.
    for round in 0..tier::count(16) {
        scratch.mount(options);
        if promised > 0 {
            let found = check_database(&scratch.dir());
            assert!(
                found >= promised,
                "seed {seed} round {round}: {promised} acknowledged, {found}"
            );
            // At most the one transaction that was being committed more than was acknowledged.
            assert!(found <= promised + 1, "seed {seed} round {round}: {found} came from nowhere");
        }
        let mut child = writer(&scratch.path("db"), MODES[round % MODES.len()], rng.u64(..));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..rng.usize(1..60) {
            let key = lines.next().expect("it goes on for ever").unwrap();
            promised = key.parse().unwrap();
        }
        // Not to wait for anything: the moment is somewhere within a transaction.
        std::thread::sleep(Duration::from_micros(rng.u64(0..3000)));
        scratch.daemon().signal(Signal::KILL);
        for line in lines {
            promised = line.unwrap().parse().unwrap();
        }
        child.wait().unwrap();
        scratch.kill();
    }
    scratch.mount(options);
    let found = check_database(&scratch.dir());
    assert!(found >= promised, "seed {seed}, the end: {promised} acknowledged, {found}");
    scratch.close_and_check();
}

#[test]
fn nothing_acknowledged_is_lost_in_a_storm_of_crashes() {
    storm("", tier::seed_of(test_name!()));
}

#[test]
fn nothing_acknowledged_is_lost_in_a_storm_with_ordered_data() {
    storm("data=ordered", tier::seed_of(test_name!()));
}

#[test]
fn nothing_acknowledged_is_lost_in_a_storm_with_order_sync() {
    storm("order=sync", tier::seed_of(test_name!()));
}

/// Inserts 60 rows in transactions of its own, some rolled back, while another process does the
/// same.
const WORK: &str = "
for i in range(60):
    db.execute('begin immediate')
    db.execute('insert into t values(null, ?, randomblob(3000))', (who,))
    db.execute('savepoint s')
    db.execute('delete from t')
    db.execute('rollback to s')
    db.execute('commit')
    if i % 10 == 0:
        db.execute('begin immediate')
        db.execute('update t set v = zeroblob(5000)')
        db.execute('rollback')
";

#[test]
fn two_processes_share_a_database() {
    let few = "threads=1,regions=2,commit=1";
    for (options, modes) in [("", &MODES[..]), ("data=ordered", &MODES[..2]), (few, &MODES[..2])] {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        for (mode, synchronous) in modes {
            let Some(mut one) = Peer::new(&scratch.dir()) else { return };
            let Some(mut two) = Peer::new(&scratch.dir()) else { return };
            for (who, peer) in [&mut one, &mut two].into_iter().enumerate() {
                peer.good(&format!(
                    "who = {who}; db = sqlite3.connect('{mode}', isolation_level=None, timeout=60)"
                ));
            }
            one.good(&format!("db.execute('pragma journal_mode={mode}').fetchall()"));
            one.good("db.execute('create table t(k integer primary key, who, v)')");
            for peer in [&mut one, &mut two] {
                peer.good(&format!("db.execute('pragma synchronous={synchronous}')"));
            }
            std::thread::scope(|scope| {
                scope.spawn(|| one.good(WORK));
                scope.spawn(|| two.good(WORK));
            });
            let rows = "r = db.execute('select who, count(*) from t group by who').fetchall()";
            assert_eq!(two.good(rows).to_string(), "[[0,60],[1,60]]", "{mode}");
            let sound = one.good("r = db.execute('pragma integrity_check').fetchall()");
            assert_eq!(sound.to_string(), r#"[["ok"]]"#);
            for peer in [&mut one, &mut two] {
                peer.good("db.close()");
            }
        }
        scratch.remount(options);
        let mut peer = Peer::new(&scratch.dir()).unwrap();
        for (mode, _) in modes {
            let check = format!(
                "db = sqlite3.connect('{mode}'); \
                 r = db.execute('pragma integrity_check').fetchall(); db.close()"
            );
            assert_eq!(peer.good(&check).to_string(), r#"[["ok"]]"#);
        }
        drop(peer);
        scratch.close_and_check();
    }
}
