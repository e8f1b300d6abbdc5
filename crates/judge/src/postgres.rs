//! PostgreSQL on a volume: a cluster that is made once, a server, sessions, and what a crash
//! leaves.
//!
//! A session is a `psql` that reads a pipe. Its transactions are like those of `database`: each
//! adds a row, changes an old one, and updates the count of both. The server has its default
//! `fsync` and `full_page_writes`. Its memory and WAL are small, so that it writes pages and makes
//! checkpoints all the time.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use device::sync::Mutex;
use onejournal_testing::Image;
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{outcome, run, spawn};
use crate::history::Survivor;
use crate::rig::{USER, Volume, command};

/// The directory of the programs on Debian.
const BIN: &str = "/usr/lib/postgresql/15/bin";
/// Size of the volume.
const VOLUME: &str = "96M";
/// Directory of the cluster on the volume.
pub const DIR: &str = "pg";
/// Suffix of the mount's name that gives the directory of the socket.
pub const SOCKETS: &str = "sockets";
const NAME: &str = "judge";
/// The most sessions of a run.
const SESSION_COUNT_MAX: usize = 4;
/// The longest time until the server must be ready, or must have recovered.
const BEGIN_LIMIT: Duration = Duration::from_secs(120);

/// Why PostgreSQL cannot be run here.
pub fn obstacle() -> Option<String> {
    for name in ["initdb", "postgres", "psql", "pg_amcheck"] {
        if !Path::new(BIN).join(name).exists() {
            return Some(format!("needs PostgreSQL 15 ({BIN}/{name})"));
        }
    }
    let ran = outcome(program("postgres").arg("--version"));
    match ran {
        Ok((0, _)) => None,
        Ok((_, text)) | Err(text) => Some(format!("user {USER} cannot run PostgreSQL: {text}")),
    }
}

/// One of its programs, as a user who is not root: the server refuses to run as root.
fn program(name: &str) -> Command {
    let mut program = command(&Path::new(BIN).join(name), true);
    program.current_dir("/").env("LC_ALL", "C");
    program
}

/// A volume with a cluster. `dir` is used to make it.
pub fn base(onejournal: &Path, dir: &Path) -> Result<Image, String> {
    static BASE: Mutex<Option<Image>> = Mutex::new(None);
    let mut base = BASE.lock();
    if base.is_none() {
        *base = Some(make_base(onejournal, dir)?);
    }
    Ok(base.clone().expect("it was just made"))
}

fn make_base(onejournal: &Path, dir: &Path) -> Result<Image, String> {
    let text = |e: io::Error| e.to_string();
    let (file, mnt) = (dir.join("formatted"), dir.join("formatted-mnt"));
    run(command(onejournal, false).args(["mkfs", "--size", VOLUME]).arg(&file))?;
    fs::create_dir(&mnt).map_err(text)?;
    let volume = Volume::mount(onejournal, &file, &mnt, "", false)?;
    let data = mnt.join(DIR);
    fs::create_dir(&data).map_err(text)?;
    chown(&data, Some(USER), Some(USER)).map_err(text)?;
    let mut initdb = program("initdb");
    initdb.args(["--username", NAME, "--auth", "trust", "--wal-segsize", "1", "--no-sync"]);
    initdb.args(["--locale", "C", "--encoding", "UTF8", "--no-instructions", "--pgdata"]);
    run(initdb.arg(&data))?;
    let mut single = program("postgres");
    single.args(["--single", "-j", "-c", "exit_on_error=on", "-D"]).arg(&data).arg("postgres");
    single.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut single = spawn(&mut single).map_err(text)?;
    single.stdin.take().expect("it was asked for").write_all(schema().as_bytes()).map_err(text)?;
    let status = single.wait().map_err(text)?;
    if !status.success() {
        return Err(format!("postgres --single ended with {status}"));
    }
    volume.umount()?;
    let bytes = fs::read(&file).map_err(text)?;
    fs::remove_file(file).and_then(|()| fs::remove_dir(mnt)).map_err(text)?;
    Ok(Image::from_bytes(&bytes))
}

/// The schema. In a single-user server an empty line ends a statement.
fn schema() -> String {
    let mut statements = vec!["create extension amcheck;".to_owned()];
    for actor in 0..SESSION_COUNT_MAX {
        statements.push(format!(
            "create table t{actor}(k bigint primary key, changes bigint not null, v text);"
        ));
        statements.push(format!("create table total{actor}(rows bigint, changes bigint);"));
        statements.push(format!("insert into total{actor} values(0, 0);"));
    }
    statements.iter().map(|statement| format!("{statement}\n\n")).collect()
}

/// A server; killed when dropped.
pub struct Server {
    child: Child,
    sockets: PathBuf,
}

impl Server {
    /// Starts a server on the cluster `data`, with its socket in `sockets`. Returns when it accepts
    /// connections.
    pub fn start(data: &Path, sockets: &Path) -> Result<Server, String> {
        let mut postgres = program("postgres");
        postgres.arg("-D").arg(data).arg("-k").arg(sockets);
        for setting in [
            "listen_addresses=",
            "shared_buffers=1MB",
            "max_connections=12",
            "min_wal_size=2MB",
            "max_wal_size=3MB",
            "checkpoint_timeout=30s",
            "bgwriter_delay=10ms",
            "dynamic_shared_memory_type=sysv",
            "logging_collector=off",
        ] {
            postgres.args(["-c", setting]);
        }
        let log = sockets.join("server.log");
        let file = fs::File::create(&log).map_err(|e| e.to_string())?;
        postgres.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = spawn(&mut postgres).map_err(|e| format!("postgres: {e}"))?;
        let mut server = Server { child, sockets: sockets.into() };
        let begin = Instant::now();
        loop {
            let mut ready = program("pg_isready");
            if outcome(ready.args(["--timeout", "5", "--host"]).arg(sockets))?.0 == 0 {
                return Ok(server);
            }
            let said = || fs::read_to_string(&log).unwrap_or_default();
            if let Some(status) = server.child.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("postgres ended with {status}:\n{}", said()));
            }
            if begin.elapsed() > BEGIN_LIMIT {
                return Err(format!("postgres does not begin:\n{}", said()));
            }
        }
    }

    /// Stops it without waiting for sessions.
    pub fn stop(mut self) -> Result<(), String> {
        kill_process(Pid::from_child(&self.child), Signal::INT).map_err(|e| e.to_string())?;
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("postgres ended with {status}")) }
    }

    fn ask(&self, sql: &str) -> Result<String, String> {
        run(psql(&self.sockets).args(["--command", sql]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Its other processes end, too, and its shared memory goes.
            let _ = kill_process(Pid::from_child(&self.child), Signal::QUIT);
            let _ = self.child.wait();
        }
    }
}

fn psql(sockets: &Path) -> Command {
    let mut psql = program("psql");
    psql.args([
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-U",
        NAME,
        "-d",
        "postgres",
        "-h",
    ]);
    psql.arg(sockets);
    psql
}

/// A session.
pub struct Session {
    child: Child,
    input: Option<ChildStdin>,
    answers: BufReader<ChildStderr>,
    actor: usize,
}

impl Session {
    /// Connects to the server whose socket is in `sockets`.
    pub fn open(sockets: &Path, actor: usize) -> io::Result<Session> {
        assert!(actor < SESSION_COUNT_MAX, "the cluster has tables for so many sessions only");
        let mut psql = psql(sockets);
        // What `\warn` says is not held back, and so are errors.
        let mut child =
            spawn(psql.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()))?;
        let input = child.stdin.take();
        let answers = BufReader::new(child.stderr.take().expect("it was asked for"));
        Ok(Session { child, input, answers, actor })
    }

    /// Commits the transaction of this number.
    pub fn commit(&mut self, number: u64) -> io::Result<()> {
        let mut rng = fastrand::Rng::with_seed(number);
        let (size, changed) = ([1, 20, 300][rng.usize(..3)], rng.u64(1..=number));
        let actor = self.actor;
        let input = self.input.as_mut().expect("it is open until the end");
        write!(
            input,
            "begin;\n\
             insert into t{actor} select {number}, 0, string_agg(md5((i * {number})::text), '') from generate_series(1, {size}) i;\n\
             update t{actor} set changes = changes + 1 where k = {changed};\n\
             update total{actor} set rows = rows + 1, changes = changes + 1;\n\
             commit;\n\
             \\warn done {number}\n"
        )?;
        input.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match line.trim_end() == format!("done {number}") {
            true => Ok(()),
            false => Err(io::Error::other(format!("psql says {line:?}"))),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.input.take()); // The end of its input ends it.
        let _ = self.child.wait();
    }
}

/// A copy of the cluster on a volume that is mounted at `root`. A copy is needed because recovering
/// what a crash left writes to the cluster.
pub fn copy(root: &Path) -> io::Result<tempfile::TempDir> {
    let copy = tempfile::Builder::new().prefix("onejournal-judge-").tempdir_in("/dev/shm")?;
    fs::set_permissions(copy.path(), fs::Permissions::from_mode(0o755))?;
    chown(copy.path(), Some(USER), Some(USER))?;
    copy_dir(&root.join(DIR), &copy.path().join(DIR))?;
    Ok(copy)
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            chown(&target, Some(USER), Some(USER))?;
        }
    }
    chown(to, Some(USER), Some(USER))
}

/// Recovers the cluster in the directory `copy`, checks each of its tables and indexes, and counts
/// each actor's transactions.
pub fn count_all(copy: &Path, actor_count: usize) -> Result<Vec<Survivor>, String> {
    let server = Server::start(&copy.join(DIR), copy)?;
    let counts = (0..actor_count).map(|actor| count(&server, actor).map(Survivor::Count));
    let counts = counts.collect::<Result<_, _>>()?;
    let mut amcheck = program("pg_amcheck");
    amcheck.args(["-U", NAME, "-d", "postgres", "--heapallindexed", "--parent-check", "-h"]);
    run(amcheck.arg(copy))?;
    server.stop()?;
    Ok(counts)
}

fn count(server: &Server, actor: usize) -> Result<u64, String> {
    let counts = server.ask(&format!(
        "select rows, changes, (select count(*) from t{actor}), (select coalesce(sum(changes), 0) from t{actor}),
         (select coalesce(max(k), 0) from t{actor}), (select count(*) from t{actor} where v is null) from total{actor}"
    ))?;
    let numbers: Vec<u64> = counts.split('|').filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [rows, ref others @ .., 0] if others.len() == 4 && others.iter().all(|n| *n == rows) => {
            Ok(rows)
        }
        _ => Err(format!("actor {actor}: a part of a transaction: {counts}")),
    }
}
