//! Database servers refuse to run as root: server and data belong to the user that the server's
//! package makes.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Gid, Uid, chown};
use rustix::process::geteuid;

use crate::error::{Error, Result};

/// A program that runs as `user` if this process is root, and as the present user otherwise.
pub fn as_user(user: &str, program: impl AsRef<Path>) -> Command {
    if !geteuid().is_root() {
        return Command::new(program.as_ref());
    }
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid", user, "--regid", user, "--clear-groups", "--"]);
    setpriv.arg(program.as_ref()).env("HOME", "/").current_dir("/");
    setpriv
}

/// Gives a file to `user` if this process is root.
pub fn give_to(user: &str, path: &Path) -> Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let accounts = Path::new("/etc/passwd");
    let text = fs::read_to_string(accounts).map_err(Error::at(accounts))?;
    let accounts = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut ids = accounts
        .filter(|fields| fields.len() > 3 && fields[0] == user)
        .filter_map(|fields| Some((fields[2].parse().ok()?, fields[3].parse().ok()?)));
    let (uid, gid) = ids.next().ok_or_else(|| Error::other(format!("there is no user {user}")))?;
    let given = chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    given.map_err(|errno| Error::at(path)(errno.into()))
}
