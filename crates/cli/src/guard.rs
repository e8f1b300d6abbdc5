//! The guard of a mount: a process that aborts the connection to the kernel when the daemon dies.
//!
//! The guard learns of the daemon's death by the signal that the kernel sends to the children of a
//! thread that ends (`PR_SET_PDEATHSIG`). The thread that starts the guard only waits for the
//! guard's end. So a killed daemon always loses that thread, whatever its other threads are blocked
//! in. A pipe would not work: a blocked thread keeps all files of the daemon open.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use clap::Args;
use mount::Guard;
use rustix::fs::OFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::error::{CliError, Result};
use crate::fusectl::{open_control, parse_device};

/// The guard has opened what it is to abort.
const WATCHING: &str = "watching";

/// What it has opened belongs to the process that started it.
const CONFIRMED: &str = "confirmed";

#[derive(Args)]
pub struct GuardArgs {
    /// The number of its device, MAJOR:MINOR
    #[arg(value_parser = parse_device)]
    device: (u32, u32),
}

/// Starts the daemon's guard as a process.
#[derive(Debug, Default)]
pub struct ByProcess(Mutex<Watch>);

#[derive(Debug, Default)]
enum Watch {
    #[default]
    NotNeededYet,
    /// The thread lives as long as the guard, which is this process.
    Watched(JoinHandle<()>, OwnedFd),
    /// It could not be started, and is not tried again.
    None,
}

impl ByProcess {
    /// Ends the guard: this process goes on with another program, which ends all its threads.
    pub fn dismiss(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Watch::Watched(thread, process) = std::mem::take(&mut *state) {
            let _ = pidfd_send_signal(&process, Signal::KILL);
            let _ = thread.join();
        }
    }
}

impl Guard for ByProcess {
    fn watch(&self, device: (u32, u32), is_connected: &dyn Fn() -> bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            Watch::Watched(thread, _) if !thread.is_finished() => return,
            Watch::None => return,
            _ => {}
        }
        *state = match start(device, is_connected) {
            Ok(Some((thread, process))) => Watch::Watched(thread, process),
            // Nothing waits for an answer any more.
            Ok(None) => Watch::None,
            Err(error) if !is_connected() => {
                tracing::debug!("no guard: {error}, and the volume is unmounted");
                Watch::None
            }
            Err(error) => {
                tracing::warn!(
                    "no guard: {error}. If this process is killed, it may have to be ended by \
                     umount -f"
                );
                Watch::None
            }
        };
    }
}

/// Starts the guard. Returns when it watches; without one if the connection has ended.
fn start(
    device: (u32, u32),
    is_connected: &dyn Fn() -> bool,
) -> io::Result<Option<(JoinHandle<()>, OwnedFd)>> {
    let (told, begun) = channel();
    let builder = std::thread::Builder::new().name("oj-guard".into());
    let thread = builder.spawn(move || keep(device, &told))?;
    let (mut confirm, process) =
        begun.recv().map_err(|_| io::Error::other("its thread ended"))??;
    if !is_connected() {
        // The end of its input tells the guard.
        return Ok(None);
    }
    writeln!(confirm, "{CONFIRMED}")?;
    Ok(Some((thread, process)))
}

/// Runs the guard until it ends; the guard also ends with this thread. When the guard has opened
/// what it is to abort, `told` gets the guard's input, through which it is confirmed, and its
/// process.
fn keep((major, minor): (u32, u32), told: &Sender<io::Result<(ChildStdin, OwnedFd)>>) {
    let mut command = Command::new("/proc/self/exe");
    command.arg("guard").arg(format!("{major}:{minor}"));
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let begun = spawned.and_then(|mut child| {
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it was asked for")).read_line(&mut line)?;
        if line.trim() == WATCHING {
            let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
            return Ok((child, process));
        }
        let status = child.wait()?;
        Err(io::Error::other(format!("it ended early: {status}")))
    });
    match begun {
        Ok((mut child, process)) => {
            let confirm = child.stdin.take().expect("it was asked for");
            let _ = told.send(Ok((confirm, process)));
            match child.wait() {
                // It was not confirmed.
                Ok(status) if status.success() => {}
                // It was dismissed, or killed by another process.
                Ok(status) if status.signal() == Some(Signal::KILL.as_raw()) => {
                    tracing::debug!("the guard was killed");
                }
                ended => tracing::warn!("the guard has ended: {ended:?}"),
            }
        }
        // Who waits for it is told.
        Err(error) => drop(told.send(Err(error))),
    }
}

/// `onejournal guard`: aborts the connection of the file system when its parent process dies.
pub fn run(args: &GuardArgs) -> Result<u8> {
    let failed = |what: &str, error: io::Error| CliError::new(format!("guard: {what}: {error}"));
    // SIGTERM, SIGINT and SIGHUP reach the daemon's whole process group. The daemon may take long
    // to end, so the guard survives them.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1]);
    let mut signals = signals.map_err(|error| failed("signals", error))?;
    let abort = open_control(args.device, "abort", OFlags::WRONLY);
    let mut abort = abort.map_err(|error| failed("fusectl", error))?;
    std::env::set_current_dir("/").map_err(|error| failed("/", error))?;
    // A signal to the daemon's process group is not meant for the guard.
    let _ = rustix::process::setsid();
    set_parent_process_death_signal(Some(Signal::USR1))
        .map_err(|errno| failed("prctl", errno.into()))?;
    // Fails if the daemon has died before the signal was asked for.
    let mut stdout = io::stdout();
    writeln!(stdout, "{WATCHING}")
        .and_then(|()| stdout.flush())
        .map_err(|error| failed("its daemon", error))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|error| failed("its daemon", error))?;
    if answer.trim() != CONFIRMED {
        return Ok(0);
    }
    signals.forever().find(|signal| *signal == SIGUSR1);
    // Nothing happens if the connection has ended: the open file belongs to it, even if the number
    // was given away again.
    abort.write_all(b"1").map_err(|error| failed("fusectl", error))?;
    Ok(0)
}
