//! `onejournal restart`: has the program that is installed now go on with a mount.
//!
//! The daemon does it, in its own process ([`crate::handover`]). It answers when the volume is
//! served again.

use std::path::PathBuf;

use clap::Args;

use crate::aside;
use crate::counters::{cannot_read, read_raw};
use crate::error::{CliError, Result};
use crate::inventory::{Subject, ask_once};
use crate::verbs::umount;
use crate::volumes::ServedVolume;

const GONE: &str = "the daemon has ended, and its messages say why; mount the volume again, which \
                    recovers it";

#[derive(Args)]
pub struct RestartArgs {
    /// Directory the volume is mounted on, or its image or device
    path: PathBuf,
}

pub fn run(args: &RestartArgs, is_aside: bool) -> Result<u8> {
    let path = args.path.as_path();
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
