//! Runs a command that changes a mount in a process of its own.
//!
//! A process that waits for a daemon that has stopped cannot be ended, not even by SIGKILL. So the
//! process that the user started does not do the work, but waits for the one that does, and a
//! signal ends it. The other process ends with it, as soon as it can.
//!
//! The same for a look at processes of other users. A process that is in execve(2) and waits for a
//! file system that does not answer keeps each process waiting that looks at its open files.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};

use crate::error::{CliError, Result};
use crate::surroundings;

/// The option of the process that does the work.
const OPTION: &str = "--aside";
/// How long a process may take to start on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long the end of a process is waited for.
const END_LIMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// The last line of a process that has told everything.
pub const ALL: &str = "all";
/// The last line of a process that could not look everywhere.
pub const SOME: &str = "some";

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

/// The lines that another process has told.
#[derive(Debug, Default)]
pub struct Told {
    pub lines: Vec<String>,
    /// Whether it could look everywhere, in time.
    pub is_all: bool,
}

/// Runs this command with `arguments`, and returns the lines that it prints within `limit`. It
/// prints an empty line when it has started, and at the end [`ALL`] or [`SOME`]. A process that
/// cannot be ended is left behind.
pub fn told_within(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    limit: Duration,
) -> Told {
    if cfg!(test) {
        // There the program is the tests.
        return Told::default();
    }
    // It may live longer than this process, and would keep its locks as long.
    surroundings::keep_descriptors();
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Told::default() };
    let told = lines_of(&mut child).map(|lines| told_by(&lines, limit)).unwrap_or_default();
    end(child);
    told
}

/// Ends the process, and waits for a moment until it has ended: so long it has its own copy of each
/// mount of its namespace.
fn end(mut child: Child) {
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let _ = child.kill();
    if let Ok(process) = process {
        let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&END_LIMIT));
    }
    // Without a thread it stays as a zombie.
    let reaper = std::thread::Builder::new().name("oj-reaper".into());
    let _ = reaper.spawn(move || child.wait());
}

/// The lines that the process prints, from a thread of its own.
fn lines_of(child: &mut Child) -> std::io::Result<Receiver<String>> {
    let lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
    let (sender, told) = channel();
    let body = move || {
        let _ = lines.map_while(std::result::Result::ok).try_for_each(|line| sender.send(line));
    };
    std::thread::Builder::new().name("oj-told".into()).spawn(body)?;
    Ok(told)
}

fn told_by(lines: &Receiver<String>, limit: Duration) -> Told {
    let mut told = Told::default();
    let mut give_up = Instant::now() + START_LIMIT;
    while let Ok(line) = lines.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
        match line.as_str() {
            "" => give_up = Instant::now() + limit,
            ALL | SOME => {
                told.is_all = line == ALL;
                break;
            }
            _ => told.lines.push(line),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_that_are_told_before_the_limit() {
        let told = |lines: &[&str]| {
            let (sender, told) = channel();
            lines.iter().for_each(|line| sender.send((*line).to_owned()).unwrap());
            // The sender lives: the process does not end.
            let Told { lines, is_all } = told_by(&told, Duration::from_millis(1));
            drop(sender);
            (lines, is_all)
        };
        assert_eq!(told(&["", "a", "b", ALL, "c"]), (vec!["a".into(), "b".into()], true));
        assert_eq!(told(&["", "a", SOME]), (vec!["a".into()], false));
        assert_eq!(told(&["", "a"]), (vec!["a".into()], false));
    }
}
