//! Writes back the pages that the kernel holds of a mount, by a process that calls syncfs(2).
//!
//! The process waits until it is told to begin: by then the daemon knows its number, and answers
//! the SYNCFS of that process at once.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use mount::PageWriter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::{CliError, Result};
use crate::fusectl::parse_device;

/// So long it may wait for the kernel while the volume is sent no page.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether the volume was sent pages.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
const LOOKS_PER_SECOND: u32 = 4;

/// So long a process may take to fall asleep after it has sent a request.
const ASLEEP_WITHIN: Duration = Duration::from_secs(1);

/// System calls that send SYNCFS after they have waited for the pages. A second syncfs(2) would
/// wait for the lock that some of them hold.
const WAITING_CALLS: [libc::c_long; 4] =
    [libc::SYS_syncfs, libc::SYS_umount2, libc::SYS_mount, libc::SYS_fsconfig];

/// The same calls, and umount(2), by their numbers in a 32-bit program: fsconfig(2) has the same
/// number there. A 64-bit program has other calls with these numbers, which send no SYNCFS.
const WAITING_CALLS_32: [libc::c_long; 4] =
    [if cfg!(target_arch = "x86_64") { 344 } else { 373 }, 52, 21, 22];

#[derive(Args)]
pub struct PageWriterArgs {
    /// The number of its device, MAJOR:MINOR
    #[arg(value_parser = parse_device)]
    device: (u32, u32),
}

/// Writes back the pages of the mount of a device.
#[derive(Debug)]
pub struct ByProcess {
    device: (u32, u32),
    patience: Duration,
    /// One at a time.
    running: Mutex<()>,
    /// The number of the process; 0: there is none.
    pid: AtomicU32,
}

impl ByProcess {
    pub fn of(device: (u32, u32)) -> ByProcess {
        let (running, pid) = (Mutex::new(()), AtomicU32::new(0));
        ByProcess { device, patience: PATIENCE, running, pid }
    }

    /// Waits for the process to end.
    fn wait(&self, child: &mut Child, writes: &dyn Fn() -> u64) -> io::Result<()> {
        let pid = Pid::from_child(child);
        let ends = pidfd_open(pid, PidfdFlags::empty())?;
        let looks = u32::try_from(self.patience.as_secs()).unwrap_or(u32::MAX) * LOOKS_PER_SECOND;
        let (mut seen, mut left) = (writes(), looks);
        loop {
            let mut asked = [PollFd::new(&ends, PollFlags::IN)];
            if retry_on_intr(|| poll(&mut asked, Some(&LOOK_EVERY)))? > 0 {
                break;
            }
            let now = writes();
            left = if now == seen { left.saturating_sub(1) } else { looks };
            seen = now;
            if left == 0 {
                let text = format!(
                    "the kernel did not send the pages that programs changed within {} s",
                    self.patience.as_secs()
                );
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
        }
        let status = child.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("the process that calls syncfs: {status}"))),
        }
    }
}

impl PageWriter for ByProcess {
    fn write_back(&self, sender: u32, writes: &dyn Fn() -> u64) -> io::Result<()> {
        let is_own = sender != 0 && sender == self.pid.load(Ordering::SeqCst);
        if is_own || has_waited(sender) {
            return Ok(());
        }
        let _one = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let (major, minor) = self.device;
        let mut command = Command::new("/proc/self/exe");
        command.arg("write-pages").arg(format!("{major}:{minor}"));
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        self.pid.store(child.id(), Ordering::SeqCst);
        let told = writeln!(child.stdin.take().expect("it was asked for"));
        let done = told.and_then(|()| self.wait(&mut child, writes));
        if done.is_err() {
            let _ = child.kill();
            // It may wait in the kernel until this request is answered.
            let builder = std::thread::Builder::new().name("oj-reaper".into());
            let _ = builder.spawn(move || child.wait());
        }
        self.pid.store(0, Ordering::SeqCst);
        done
    }
}

/// Whether the kernel has waited for the pages before the process `sender` sent SYNCFS. A process
/// that cannot be seen may have called sync(2).
fn has_waited(sender: u32) -> bool {
    let path = format!("/proc/{sender}/syscall");
    is_waiting_call(|| std::fs::read_to_string(&path).unwrap_or_default())
}

/// The same by what `/proc/PID/syscall` says, which `look` reads. The call is there as soon as the
/// sender sleeps.
fn is_waiting_call(look: impl Fn() -> String) -> bool {
    let begun = Instant::now();
    let mut call = look();
    while call.trim_end() == "running" && begun.elapsed() < ASLEEP_WITHIN {
        std::thread::sleep(Duration::from_millis(1));
        call = look();
    }
    let number = call.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
    let all = [WAITING_CALLS, WAITING_CALLS_32];
    number.is_some_and(|number| all.as_flattened().contains(&number))
}

/// `onejournal write-pages`: has the kernel write back the pages of the file system.
pub fn run(args: &PageWriterArgs) -> Result<u8> {
    let failed =
        |what: &str, error: io::Error| CliError::new(format!("write-pages: {what}: {error}"));
    // The end of its input is the end of the daemon.
    let mut line = String::new();
    match io::stdin().read_line(&mut line) {
        Ok(0) => return Ok(0),
        told => told.map_err(|error| failed("its daemon", error))?,
    };
    let dir = open(args.device).map_err(|error| failed("its mount", error))?;
    rustix::fs::syncfs(&dir).map_err(|errno| failed("syncfs", errno.into()))?;
    Ok(0)
}

/// Opens a mount of the file system with this number.
fn open(device: (u32, u32)) -> io::Result<File> {
    let dirs = host::own_mounts()?.into_iter().filter(|mount| mount.device == device);
    let is_of_it = |file: &File| is_on(file, device);
    let open = |dir: PathBuf| File::open(Path::new(&dir)).ok().filter(is_of_it);
    let none = || io::Error::new(ErrorKind::NotFound, "this mount namespace has no mount of it");
    dirs.map(|mount| mount.dir).find_map(open).ok_or_else(none)
}

/// Another file system may be mounted over it, or it may have been unmounted.
fn is_on(file: &File, (major, minor): (u32, u32)) -> bool {
    rustix::fs::fstat(file).is_ok_and(|found| found.st_dev == rustix::fs::makedev(major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> ByProcess {
        ByProcess { patience: Duration::from_secs(1), ..ByProcess::of((0, 0)) }
    }

    #[test]
    fn a_process_that_does_not_end_is_an_error_unless_pages_come() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let looks = AtomicU32::new(0);
        // Pages come eight times.
        let writes = || u64::from(looks.fetch_add(1, Ordering::Relaxed).min(8));
        let error = writer().wait(&mut child, &writes).expect_err("it does not end");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(looks.into_inner(), 1 + 8 + 4, "one second after the last page");
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }

    #[test]
    fn the_exit_code_of_the_process_counts() {
        for (program, is_done) in [("true", true), ("false", false)] {
            let mut child = Command::new(program).spawn().expect("a program");
            assert_eq!(writer().wait(&mut child, &|| 0).is_ok(), is_done, "{program}");
        }
    }

    #[test]
    fn only_a_call_that_waits_has_waited() {
        assert!(!has_waited(0));
        assert!(!has_waited(std::process::id()), "it reads a file");
        assert!(!is_waiting_call(|| format!("{} 0x0", libc::SYS_sync)));
        assert!(is_waiting_call(|| format!("{} 0x3", libc::SYS_syncfs)));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn calls_of_a_32_bit_program_have_other_numbers() {
        const SYNC: u32 = 36;
        // syncfs, umount, umount2, mount and fsconfig of i386.
        for number in [344, 22, 52, 21, 431] {
            assert!(is_waiting_call(|| format!("{number} 0x3")), "{number}");
        }
        assert!(!is_waiting_call(|| format!("{SYNC} 0x0")));
    }

    #[test]
    fn a_sender_that_does_not_sleep_yet_is_looked_at_again() {
        let looks = AtomicU32::new(0);
        let look = || match looks.fetch_add(1, Ordering::Relaxed) {
            0..3 => "running\n".to_owned(),
            _ => format!("{} 0x3", libc::SYS_mount),
        };
        assert!(is_waiting_call(look));
        assert!(!is_waiting_call(|| "running\n".to_owned()), "it never sleeps");
    }
}
