//! `onejournal umount`: unmounts and waits until the daemon has brought everything home.

use std::path::Path;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::stat::read_attribute;
use crate::{CliError, Result};

pub fn run(dir: &Path) -> Result<u8> {
    let pid = read_attribute(dir, mount::PID_XATTR)?;
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| CliError::at(dir, "the mount does not tell its process"))?;
    let daemon = pidfd_open(pid, PidfdFlags::empty())
        .map_err(|errno| CliError::at(dir, format!("process {pid} of the mount: {errno}")))?;
    take_away(dir)?;
    loop {
        match poll(&mut [PollFd::new(&daemon, PollFlags::IN)], None) {
            Ok(_) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(CliError::at(dir, errno)),
        }
    }
}

fn take_away(dir: &Path) -> Result<()> {
    match unmount(dir, UnmountFlags::empty()) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => {
            let text = "in use by a program (`fuser -vm` on it shows which)";
            Err(CliError::at(dir, text))
        }
        Err(Errno::PERM) => take_away_as_user(dir),
        Err(errno) => Err(CliError::at(dir, errno)),
    }
}

fn take_away_as_user(dir: &Path) -> Result<()> {
    let status = Command::new("fusermount3").arg("-u").arg("--").arg(dir).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(CliError::at(dir, "fusermount3 could not unmount it")),
        Err(error) => Err(CliError::new(format!("fusermount3: {error} (apt install fuse3)"))),
    }
}
