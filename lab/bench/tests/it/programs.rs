//! The programs that experiments run, in a directory of this machine: their numbers must be
//! consistent, and nothing may be left. Without its programs (`scripts/setup-bench`), a test is
//! skipped.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onejournal_testing::{Need, has_program, is_root, skip};
use serde_json::Value;
use tempfile::TempDir;

const BENCH: &str = env!("CARGO_BIN_EXE_onejournal-bench");
/// A variable in the environment of everything that a test starts.
const MARK: &str = "ONEJOURNAL_BENCH_TEST";
/// A program that takes longer counts as stuck.
const PATIENCE: Duration = Duration::from_secs(120);
/// Space that a PostgreSQL database needs.
const FOLDER_BYTES: u64 = 512 << 20;
/// PostgreSQL.
const POSTGRES: &str = "/usr/lib/postgresql";

/// A folder that the user `postgres` may enter. It is in memory if there is room, because syncs
/// cost nothing there.
fn folder() -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let free_bytes = rustix::fs::statvfs("/dev/shm").map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    let dir = match free_bytes >= FOLDER_BYTES {
        true => TempDir::new_in("/dev/shm").unwrap(),
        false => TempDir::new().unwrap(),
    };
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// `words` are the program's name and options.
fn command(dir: &Path, words: &str) -> Command {
    let mut command = Command::new(BENCH);
    command.arg("program").args(words.split(' ')).arg(dir).env(MARK, dir);
    command
}

/// Runs it and returns its numbers. Asserts that nothing is left.
#[track_caller]
fn run(dir: &TempDir, words: &str) -> Value {
    let output = command(dir.path(), words).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.path()).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new(), "{words}");
    assert_all_end(dir.path(), words);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Command lines of processes that a test started.
fn marked(dir: &Path) -> Vec<String> {
    let mark = format!("{MARK}={}", dir.display());
    let is_ours = |pid: &Path| {
        let environment = fs::read(pid.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let line =
        |pid: &Path| fs::read_to_string(pid.join("cmdline")).map(|line| line.replace('\0', " "));
    processes.filter(|pid| is_ours(pid)).filter_map(|pid| line(&pid).ok()).collect()
}

/// Starts a long run, ends it by SIGTERM when `sign` exists, and checks what is left.
#[track_caller]
fn interrupt(words: &str, sign: &str) {
    let dir = folder();
    let mut bench =
        command(dir.path(), words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(&dir.path().join(sign), &mut bench);
    assert!(marked(dir.path()).len() > 1, "{words}: nothing runs");
    let pid = rustix::process::Pid::from_child(&bench);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(!bench.wait().unwrap().success(), "{words}: an interrupted run is a failure");
    assert_all_end(dir.path(), words);
}

/// The processes were told to end with their groups; the kernel ends them when they run next.
#[track_caller]
fn assert_all_end(dir: &Path, words: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !marked(dir).is_empty() {
        assert!(Instant::now() < deadline, "{words}: left {:?}", marked(dir));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn wait_for(path: &Path, bench: &mut Child) {
    let deadline = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(bench.try_wait().unwrap().is_none(), "it ended before {}", path.display());
        assert!(Instant::now() < deadline, "no {}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn count(result: &Value, path: &str) -> u64 {
    result.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {result}"))
}

#[test]
fn fio() {
    if !has_program("fio") {
        return;
    }
    let dir = folder();
    let every = run(&dir, "fio --file-kib 1024 --millis 500 --sync fdatasync=4");
    let (writes, syncs) = (count(&every, "/writes"), count(&every, "/syncs"));
    assert!(writes > 0 && syncs.abs_diff(writes / 4) <= 1, "{every}");
    let never = run(&dir, "fio --file-kib 1024 --millis 500 --sync never");
    assert_eq!(never["sync"], Value::Null);
    let append =
        "fio --file-kib 64 --block-bytes 1024 --pattern append --sync o_sync --processes 3";
    let appended = run(&dir, append);
    assert_eq!(count(&appended, "/writes"), 3 * 64);
}

#[test]
fn postmark() {
    if !has_program("postmark") || !has_program("cc") {
        return;
    }
    let result = run(&folder(), "postmark --transactions 100 --files 30 --processes 2");
    assert_eq!(count(&result, "/transactions"), 100);
    assert_eq!(count(&result, "/read") + count(&result, "/appended"), 100);
}

#[test]
fn postmark_writes_synchronously() {
    if !has_program("postmark") || !has_program("cc") || !has_program("strace") {
        return;
    }
    let opened = |more: &str| {
        let dir = folder();
        let trace = TempDir::new().unwrap();
        let file = trace.path().join("trace");
        let words = format!("program postmark --transactions 20 --processes 1{more}");
        let status = Command::new("strace")
            .args(["-f", "-e", "trace=openat", "-o"])
            .arg(&file)
            .arg(BENCH)
            .args(words.split(' '))
            .arg(dir.path())
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success());
        let text = fs::read_to_string(file).unwrap();
        let in_dir = format!("\"{}/postmark.0/", dir.path().display());
        let written = text.lines().filter(|line| line.contains(&in_dir) && line.contains("O_RDWR"));
        let written: Vec<&str> = written.collect();
        let synced = written.iter().filter(|line| line.contains("O_SYNC")).count();
        assert!(!written.is_empty());
        (written.len(), synced)
    };
    let (written, synced) = opened("");
    assert_eq!(written, synced);
    assert_eq!(opened(" --unsynced").1, 0);
}

#[test]
fn pgbench() {
    if !has_program(POSTGRES) {
        return;
    }
    let result = run(&folder(), "pgbench --scale 1 --clients 2 --seconds 1");
    assert!(count(&result, "/transactions") > 0);
    assert_eq!(count(&result, "/transactions"), count(&result, "/latency/count"));
    assert!(count(&result, "/wal_syncs") > 0, "{result}");
    interrupt("pgbench --scale 1 --seconds 100", "postgres/postmaster.pid");
}

#[test]
fn pgbench_without_full_pages() {
    if !has_program(POSTGRES) {
        return;
    }
    // A page of 8 KiB a transaction, as long as most transactions change a page for the first time.
    let log_bytes = |more: &str| {
        let words =
            format!("pgbench --scale 1 --clients 1 --seconds 1 --script simple-update{more}");
        let result = run(&folder(), &words);
        count(&result, "/wal_bytes") / count(&result, "/transactions")
    };
    let (with, without) = (log_bytes(""), log_bytes(" --no-full-page-writes"));
    assert!(without < with, "bytes of log for a transaction: {with}, without full pages {without}");
}

#[test]
fn mariadb() {
    if !has_program("mariadbd") || !has_program("mariadb-install-db") {
        return;
    }
    let words = "mariadb --rows 20000 --clients 2 --seconds 1";
    let with = run(&folder(), words);
    assert!(count(&with, "/transactions") > 0, "{with}");
    assert_eq!(count(&with, "/transactions"), count(&with, "/latency/count"));
    assert!(count(&with, "/log_bytes") > 0, "{with}");
    let without = run(&folder(), &format!("{words} --no-doublewrite"));
    assert_eq!(count(&without, "/doublewrite_pages"), 0, "{without}");
    interrupt("mariadb --rows 1000 --seconds 100", "mariadb/ibdata1");
}

#[test]
fn etcd() {
    if !has_program("etcd") || !has_program("fio") {
        return;
    }
    let result = run(&folder(), "etcd --clients 2 --seconds 1 --disk-kib 64");
    let puts = count(&result, "/puts/count");
    // Two clients can share a sync, and etcd syncs now and then for itself.
    assert!(count(&result, "/puts/wal_fsync/count") * 2 + 2 >= puts && puts > 0, "{result}");
    assert_eq!(count(&result, "/disk/writes"), count(&result, "/disk/syncs"));
    interrupt("etcd --seconds 100 --disk-kib 64", "etcd/member/wal");
}

#[test]
fn gluster() {
    if !has_program("glusterd") || !has_program("fio") || !is_root() {
        return;
    }
    let result = run(&folder(), "gluster --clients 2 --processes 2 --records 50");
    assert_eq!(count(&result, "/writes"), 2 * 2 * 50);
    interrupt("gluster --clients 2 --processes 2 --seconds 100", "brick/fio.0");
}

fn fillsync(database: &str) {
    let plugin = Path::new(BENCH).ancestors().nth(2).unwrap().join("plugins").join(database);
    if !plugin.join("bench").exists() {
        return skip(Need::Database, format!("needs the plugin for {database} (make plugins)"));
    }
    let plain = run(&folder(), &format!("fillsync {database} --plain --puts 500"));
    assert_eq!(plain["streams"], Value::Null);
    let both = run(&folder(), &format!("fillsync {database} --puts 500"));
    assert!(both["streams"]["median_us"].as_f64().unwrap() > 0.0, "{both}");
}

#[test]
fn fillsync_on_leveldb() {
    fillsync("leveldb");
}

#[test]
fn fillsync_on_rocksdb() {
    fillsync("rocksdb");
}

#[test]
fn a_program_that_cannot_run_is_named() {
    let output = command(Path::new("/nonexistent"), "fio --sync never").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("fio"), "{text}");
}
