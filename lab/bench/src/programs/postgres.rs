//! A private PostgreSQL cluster: its data are in the directory under test, and its server is on a
//! Unix socket that no other program sees. It is stopped and verified at the end.
//!
//! The server refuses to run as root, so it runs as `postgres`. The file system must admit that
//! user, as kernel file systems do (FUSE: `allow_other`), and so must every directory above.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid, chown};
use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use super::{Variable, unparsable};
use crate::error::{Error, Result};
use crate::lab::{Child, Program, interrupt};

/// The operating system's user that Debian's package makes, which is also the database's superuser.
const USER: &str = "postgres";
const READY_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The newest installed version's programs.
pub fn program_dir() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let numbers = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let dirs = numbers.map(|number| (number, format!("/usr/lib/postgresql/{number}/bin")));
    let newest = dirs.filter(|(_, dir)| Path::new(dir).join("initdb").is_file()).max();
    let missing = || {
        let text = "PostgreSQL is not installed: scripts/setup-bench installs postgresql";
        Error::other(text)
    };
    newest.map(|(_, dir)| PathBuf::from(dir)).ok_or_else(missing)
}

/// A cluster whose server runs.
pub struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    /// A directory that holds only the socket.
    socket: TempDir,
    server: Child,
}

impl Cluster {
    /// Makes it in `dir`, with checksums of pages, and starts the server.
    pub fn create(dir: &Path, environment: &[Variable]) -> Result<Cluster> {
        let programs = program_dir()?;
        let data = dir.join("postgres");
        let socket = TempDir::new().map_err(Error::io("a temporary folder"))?;
        fs::create_dir(&data).map_err(Error::at(&data))?;
        if geteuid().is_root() {
            for path in [&data, socket.path()] {
                give_away(path)?;
            }
        }
        let options = ["-k", "-A", "trust", "-U", USER, "-E", "UTF8", "--no-locale", "-D"];
        as_server(&programs.join("initdb")).args(options).arg(&data).run()?;
        let server = Variable::add(environment, as_server(&programs.join("postgres")))
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "max_connections=300"])
            .arg("-c")
            .arg(format!("unix_socket_directories={}", socket.path().display()))
            .time_limit(STOP_LIMIT)
            .start()?;
        let mut cluster = Cluster { programs, data, socket, server };
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        while self.client("pg_isready").arg("-q").run().is_err() {
            self.server.must_run()?;
            interrupt::check()?;
            if Instant::now() > deadline {
                let text = format!("postgres was not ready within {} s", READY_LIMIT.as_secs());
                return Err(Error::other(text));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// A client program with the arguments to reach the server.
    pub fn client(&self, name: &str) -> Program {
        Program::new(self.programs.join(name)).arg("-h").arg(self.socket.path()).args(["-U", USER])
    }

    /// The only row of a query, its columns as numbers.
    pub fn numbers(&self, query: &str) -> Result<Vec<i64>> {
        let output = self.client("psql").args(["-X", "-A", "-t", "-d", USER, "-c", query]).run()?;
        let numbers = output.trim().split('|').map(str::parse).collect::<Result<_, _>>();
        numbers.map_err(|_| unparsable("psql", "numbers", &output))
    }

    /// Stops the server (a *fast* shutdown), checks that it shut down in order and that all pages
    /// are valid, and removes the cluster.
    pub fn stop(self) -> Result<()> {
        let Cluster { programs, data, socket: _socket, server } = self;
        server.end_by(Signal::INT)?;
        let state = as_server(&programs.join("pg_controldata")).arg("-D").arg(&data).run()?;
        let is_down = |line: &str| {
            line.starts_with("Database cluster state:") && line.ends_with(" shut down")
        };
        if !state.lines().any(is_down) {
            return Err(unparsable("pg_controldata", "`shut down`", &state));
        }
        as_server(&programs.join("pg_checksums")).args(["--check", "-D"]).arg(&data).run()?;
        fs::remove_dir_all(&data).map_err(Error::at(&data))
    }
}

/// A program of the server, run as a user that it accepts.
fn as_server(program: &Path) -> Program {
    if !geteuid().is_root() {
        return Program::new(program);
    }
    Program::new("setpriv")
        .args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"])
        .arg(program)
        .env("HOME", "/")
        .current_dir(Path::new("/"))
}

fn give_away(path: &Path) -> Result<()> {
    let accounts = Path::new("/etc/passwd");
    let text = fs::read_to_string(accounts).map_err(Error::at(accounts))?;
    let accounts = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut ids = accounts
        .filter(|fields| fields.len() > 3 && fields[0] == USER)
        .filter_map(|fields| Some((fields[2].parse().ok()?, fields[3].parse().ok()?)));
    let (uid, gid) = ids.next().ok_or_else(|| Error::other(format!("there is no user {USER}")))?;
    let given = chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    given.map_err(|errno| Error::at(path)(errno.into()))
}
