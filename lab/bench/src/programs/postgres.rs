//! A private PostgreSQL cluster: its data are in the directory under test, and its server is on a
//! Unix socket that no other program sees. It is stopped and verified at the end.
//!
//! The server refuses to run as root, so it runs as `postgres`. The file system must admit that
//! user, as kernel file systems do (FUSE: `allow_other`), and so must every directory above.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use servers::postgres::{self, SIGNALS, program};
use tempfile::TempDir;

use super::{Variable, server, unparsable};
use crate::error::{Error, Result};
use crate::lab::{Child, Program};

/// The operating system's user that Debian's package makes, which is also the database's superuser.
const USER: &str = "postgres";
const STATEMENT_LIMIT: Duration = Duration::from_secs(300);

/// An error when PostgreSQL is not installed.
pub fn need_it() -> Result<()> {
    let text = "PostgreSQL is not installed: scripts/setup-bench installs postgresql";
    if program("initdb").is_file() { Ok(()) } else { Err(Error::other(text)) }
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
    data: PathBuf,
    /// A directory that holds only the socket.
    socket: TempDir,
    server: Child,
}

impl Cluster {
    /// Makes it in `dir`, with checksums of pages, and starts the server.
    pub fn create(dir: &Path, settings: ClusterSettings<'_>) -> Result<Cluster> {
        need_it()?;
        let data = dir.join("postgres");
        fs::create_dir(&data).map_err(Error::at(&data))?;
        server::give_to(USER, &data)?;
        let initdb = postgres::initdb(as_server("initdb"), USER, &data);
        Program::of(initdb).arg("-k").args(settings.initdb).run()?;
        Stopped { data }.start(settings)
    }

    /// A client program with the arguments to reach the server.
    pub fn client(&self, name: &str) -> Program {
        Program::new(program(name)).arg("-h").arg(self.socket.path()).args(["-U", USER])
    }

    /// Executes statements, each in a transaction of its own. Returns the rows, one a line.
    pub fn execute(&self, statements: &[&str]) -> Result<String> {
        let psql = postgres::psql(Command::new(program("psql")), USER, self.socket.path());
        let statements = statements.iter().flat_map(|statement| ["-c", statement]);
        Program::of(psql).args(statements).time_limit(STATEMENT_LIMIT).run()
    }

    /// The only row of a query, its columns as numbers.
    pub fn numbers(&self, query: &str) -> Result<Vec<i64>> {
        let output = self.execute(&[query])?;
        let numbers = output.trim().split('|').map(str::parse).collect::<Result<_, _>>();
        numbers.map_err(|_| unparsable("psql", "numbers", &output))
    }

    /// Stops the server (a *fast* shutdown).
    pub fn stop(self) -> Result<Stopped> {
        self.server.stop()?;
        Ok(Stopped { data: self.data })
    }
}

/// A cluster whose server has stopped.
pub struct Stopped {
    data: PathBuf,
}

impl Stopped {
    /// Starts the server.
    pub fn start(self, settings: ClusterSettings<'_>) -> Result<Cluster> {
        let Stopped { data } = self;
        let socket = TempDir::new().map_err(Error::io("a temporary folder"))?;
        server::give_to(USER, socket.path())?;
        let all = [&["max_connections=300"], settings.server].concat();
        let server = postgres::postgres(as_server("postgres"), &data, socket.path(), &all);
        let server =
            Variable::add(settings.environment, Program::of(server)).serve(SIGNALS, &[])?;
        Ok(Cluster { data, socket, server })
    }

    /// Checks that the server shut down in order and that all pages are valid, and removes the
    /// cluster.
    pub fn remove(self) -> Result<()> {
        let data = self.data;
        let state = Program::of(as_server("pg_controldata")).arg("-D").arg(&data).run()?;
        let is_down = |line: &str| {
            line.starts_with("Database cluster state:") && line.ends_with(" shut down")
        };
        if !state.lines().any(is_down) {
            return Err(unparsable("pg_controldata", "`shut down`", &state));
        }
        Program::of(as_server("pg_checksums")).args(["--check", "-D"]).arg(&data).run()?;
        fs::remove_dir_all(&data).map_err(Error::at(&data))
    }
}

/// A program of the server, run as a user that it accepts.
fn as_server(name: &str) -> Command {
    server::as_user(USER, program(name))
}
