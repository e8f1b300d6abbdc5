//! MariaDB, and MySQL with the same arguments.

use std::path::Path;
use std::process::Command;

/// Arguments of `mariadb-install-db`.
pub const INSTALL: [&str; 4] = [
    "--no-defaults",
    "--auth-root-authentication-method=normal",
    "--skip-test-db",
    "--skip-name-resolve",
];

/// The server, on a socket in `sockets` only. No setting of the machine counts.
pub fn mariadbd(mut mariadbd: Command, data: &Path, sockets: &Path) -> Command {
    mariadbd.arg("--no-defaults").arg(option("datadir", data)).arg(socket(sockets));
    mariadbd.arg(option("pid-file", &sockets.join("pid")));
    mariadbd.args(["--skip-networking", "--skip-log-bin"]);
    mariadbd.arg("--innodb-buffer-pool-dump-at-shutdown=OFF");
    mariadbd
}

/// The client: no names of columns, tabs between columns.
pub fn mariadb(mut mariadb: Command, sockets: &Path) -> Command {
    mariadb.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"]);
    mariadb.arg(socket(sockets));
    mariadb
}

fn socket(sockets: &Path) -> String {
    option("socket", &sockets.join("socket"))
}

/// An option with a path.
pub fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
