//! Runs a command that changes a mount in a process of its own.
//!
//! A process that waits for a daemon that has stopped cannot be ended, not even by SIGKILL. So the
//! process that the user started does not do the work, but waits for the one that does, and a
//! signal ends it. The other process ends with it, as soon as it can.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::error::{CliError, Result};

/// The option of the process that does the work.
const OPTION: &str = "--aside";

/// Runs this command again with the arguments of this process. Returns its exit code.
pub fn run_again() -> Result<u8> {
    run(std::env::args_os().skip(1))
}

/// Runs this command with `arguments`. Returns its exit code.
pub fn run(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<u8> {
    let failed = |error: std::io::Error| CliError::new(format!("/proc/self/exe: {error}"));
    let mut command = Command::new("/proc/self/exe");
    let status = command.arg(OPTION).args(arguments).status().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| {
        let signal = status.signal().unwrap_or_default();
        CliError::new(format!("was ended by signal {signal} before it was done"))
    })
}

/// For the process that does the work, as its first action.
pub fn begin() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| CliError::new(format!("prctl: {errno}")))
}
