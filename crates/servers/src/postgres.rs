//! PostgreSQL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

/// On Debian, a directory for each version that is installed.
const VERSIONS: &str = "/usr/lib/postgresql";
/// It does not wait for sessions. When it is killed, its shared memory goes.
pub const SIGNALS: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// A program of the newest version.
pub fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let numbers = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let programs = |number: u32| Path::new(VERSIONS).join(number.to_string()).join("bin");
    let newest = numbers.filter(|number| programs(*number).join("initdb").is_file()).max();
    programs(newest.unwrap_or(0)).join(name)
}

/// Makes a cluster. Its superuser needs no password.
pub fn initdb(mut initdb: Command, superuser: &str, data: &Path) -> Command {
    initdb.args(["-A", "trust", "-U", superuser, "-E", "UTF8", "--no-locale", "-D"]).arg(data);
    initdb
}

/// The server, on a socket in `sockets` only. Settings are `NAME=VALUE`.
pub fn postgres(mut server: Command, data: &Path, sockets: &Path, settings: &[&str]) -> Command {
    server.arg("-D").arg(data).arg("-k").arg(sockets).args(["-c", "listen_addresses="]);
    server.args(settings.iter().flat_map(|setting| ["-c", setting]));
    server
}

/// The client: rows only, `|` between columns. An error ends it.
pub fn psql(mut psql: Command, superuser: &str, sockets: &Path) -> Command {
    psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-h"]);
    psql.arg(sockets).args(["-U", superuser]);
    psql
}
