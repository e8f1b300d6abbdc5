//! A private PostgreSQL cluster: its data are in the directory under test, and its server is on a
//! Unix socket that no other program sees. It is stopped and verified at the end.
//!
//! The server refuses to run as root, so it runs as `postgres`. The file system must admit that
//! user, as kernel file systems do (FUSE: `allow_other`), and so must every directory above.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Variable, server, unparsable};
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

/// How a cluster is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClusterSettings<'a> {
    /// Further arguments of `initdb`.
    pub initdb: &'a [&'a str],
    /// Settings of the server, each `NAME=VALUE`.
    pub server: &'a [&'a str],
    /// For the server's environment.
    pub environment: &'a [Variable],
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
    pub fn create(dir: &Path, settings: ClusterSettings<'_>) -> Result<Cluster> {
        let programs = program_dir()?;
        let data = dir.join("postgres");
        fs::create_dir(&data).map_err(Error::at(&data))?;
        server::give_to(USER, &data)?;
        let options = ["-k", "-A", "trust", "-U", USER, "-E", "UTF8", "--no-locale", "-D"];
        let initdb = as_server(&programs.join("initdb")).args(settings.initdb);
        initdb.args(options).arg(&data).run()?;
        Stopped { programs, data }.start(settings)
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

    /// Executes statements, each in a transaction of its own. Returns the rows, one a line.
    pub fn execute(&self, statements: &[&str]) -> Result<String> {
        let options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", USER];
        let statements = statements.iter().flat_map(|statement| ["-c", statement]);
        self.client("psql").args(options).args(statements).time_limit(STOP_LIMIT).run()
    }

    /// The only row of a query, its columns as numbers.
    pub fn numbers(&self, query: &str) -> Result<Vec<i64>> {
        let output = self.execute(&[query])?;
        let numbers = output.trim().split('|').map(str::parse).collect::<Result<_, _>>();
        numbers.map_err(|_| unparsable("psql", "numbers", &output))
    }

    /// Stops the server (a *fast* shutdown).
    pub fn stop(self) -> Result<Stopped> {
        self.server.end_by(Signal::INT)?;
        Ok(Stopped { programs: self.programs, data: self.data })
    }
}

/// A cluster whose server has stopped.
pub struct Stopped {
    programs: PathBuf,
    data: PathBuf,
}

impl Stopped {
    /// Starts the server.
    pub fn start(self, settings: ClusterSettings<'_>) -> Result<Cluster> {
        let Stopped { programs, data } = self;
        let socket = TempDir::new().map_err(Error::io("a temporary folder"))?;
        server::give_to(USER, socket.path())?;
        let server = Variable::add(settings.environment, as_server(&programs.join("postgres")))
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "max_connections=300"])
            .arg("-c")
            .arg(format!("unix_socket_directories={}", socket.path().display()))
            .args(settings.server.iter().flat_map(|setting| ["-c", setting]))
            .time_limit(STOP_LIMIT)
            .start()?;
        let mut cluster = Cluster { programs, data, socket, server };
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    /// Checks that the server shut down in order and that all pages are valid, and removes the
    /// cluster.
    pub fn remove(self) -> Result<()> {
        let Stopped { programs, data } = self;
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
    server::as_user(USER, program)
}
