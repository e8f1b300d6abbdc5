//! `onejournal umount`: unmounts, waits until the daemon has brought everything home, and says when it could not.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use device::{Access, BlockDevice};
use ext4::Survey;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

use crate::stat::{parse, read_attribute};
use crate::{CliError, Result, target};

pub fn run(dir: &Path) -> Result<u8> {
    let stat = parse(dir, &read_attribute(dir, mount::STAT_XATTR)?)?;
    let pid = read_attribute(dir, mount::PID_XATTR)?;
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| CliError::at(dir, "the mount does not tell its process"))?;
    let daemon = pidfd_open(pid, PidfdFlags::empty())
        .map_err(|errno| CliError::at(dir, format!("process {pid} of the mount: {errno}")))?;
    take_away(dir)?;
    loop {
        match poll(&mut [PollFd::new(&daemon, PollFlags::IN)], None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(CliError::at(dir, errno)),
        }
    }
    let volume = stat.get("target").and_then(Value::as_str).map(Path::new);
    let Some((volume, left)) = volume.and_then(|volume| Some((volume, left_open(volume)?))) else {
        return Ok(0);
    };
    let why = stat.get("last_error").and_then(Value::as_str);
    let why = why.map_or(String::new(), |why| format!(" ({why})"));
    Err(CliError::at(volume, format!("unmounted, but not closed{why}: {left}")))
}

/// What is to be done about a volume that was not closed. `None`: nothing, or it is gone or in use again.
fn left_open(volume: &Path) -> Option<String> {
    let device: Arc<dyn BlockDevice> = Arc::new(target::open(volume, Access::ReadOnly).ok()?);
    match Survey::take(&device, None) {
        Ok(survey) if survey.needs_recovery => {
            Some("the next mount recovers it, or `onejournal fsck`".into())
        }
        Ok(_) => None,
        Err(error) => Some(format!("it cannot be opened any more: {error}")),
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
