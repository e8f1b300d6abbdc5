//! `onejournal restart`: has the program that is installed now go on with a mount.
//!
//! The daemon does it, in its own process ([`crate::handover`]). It answers when the volume is
//! served again.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::aside;
use crate::counters::{cannot_read, read_raw};
use crate::error::{CliError, OPERATIONAL, Result};
use crate::inventory::{Subject, ask_once};
use crate::output::complain;
use crate::verbs::umount;
use crate::volumes::ServedVolume;

const GONE: &str = "the daemon has ended, and its messages say why; mount the volume again, which \
                    recovers it";

#[derive(Args)]
pub struct RestartArgs {
    /// All volumes that are mounted here, one after the other
    #[arg(long, conflicts_with = "path")]
    all: bool,
    /// Directory the volume is mounted on, or its image or device
    #[arg(required_unless_present = "all")]
    path: Option<PathBuf>,
}

pub fn run(args: &RestartArgs, is_aside: bool) -> Result<u8> {
    args.path.as_ref().map_or_else(all, |path| one(path, is_aside))
}

/// The others are restarted also if one of them is not.
fn all() -> Result<u8> {
    let mounts = host::own_mounts().map_err(|error| CliError::new(error.to_string()))?;
    let mut seen = Vec::new();
    let mut code = 0;
    for mount in mounts.iter().filter(|mount| mount.is_volume()) {
        if seen.contains(&mount.device) {
            continue;
        }
        seen.push(mount.device);
        let words = [OsStr::new("restart"), OsStr::new("--"), mount.dir.as_os_str()];
        match aside::run(words) {
            Ok(0) => {}
            Ok(_) => code = OPERATIONAL,
            Err(error) => {
                complain!("onejournal: {error}");
                code = OPERATIONAL;
            }
        }
    }
    Ok(code)
}

fn one(path: &Path, is_aside: bool) -> Result<u8> {
    let mounted = ServedVolume::mounted_on(path)?;
    let volume =
        mounted.map_or_else(|| ServedVolume::on_target(path), |volume| Ok(Some(volume)))?;
    let dirs = volume.map(|volume| volume.reachable_dirs()).unwrap_or_default();
    let Some(dir) = dirs.last() else { return Err(umount::not_mounted(path)) };
    if !is_aside {
        // An error if it does not answer.
        ask_once(dir, Subject::Mode)?;
        return aside::run_again();
    }
    let answer = read_raw(dir, mount::RESTART_XATTR).map_err(|errno| match errno {
        errno if mount::is_daemon_gone(errno) => CliError::at(path, GONE),
        errno => cannot_read(path, errno),
    })?;
    let answer = String::from_utf8_lossy(&answer);
    if answer == mount::RESTARTED {
        return Ok(0);
    }
    let text =
        format!("cannot be restarted: {answer}; to replace its daemon, unmount and mount it");
    Err(CliError::at(path, text))
}
