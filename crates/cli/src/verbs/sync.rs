//! `onejournal sync`: makes everything durable that programs have written to a mounted volume.
//!
//! sync(1) does it on newer kernels. Before Linux 6.18 the kernel does not tell a FUSE file system
//! of it, and sends only the pages that it holds.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::{Mode, OFlags};

use crate::aside;
use crate::counters::{Counters, parse, read_attribute};
use crate::error::{CliError, Result};
use crate::fusectl::open_control;
use crate::inventory::check_answers;
use crate::kernel::{self, WAITS_SINCE};
use crate::output::{complain, plain_path};

/// How long it waits for copies of pages. They are few, but others may come meanwhile.
const COPIES_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Args)]
pub struct SyncArgs {
    /// Only say what this kernel does not give the volume
    #[arg(long, hide = true)]
    check: bool,
    /// Directories or files of the volumes
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub fn run(args: &SyncArgs, is_aside: bool) -> Result<u8> {
    if args.check {
        args.paths.iter().for_each(|path| tell_what_is_missing(path));
        return Ok(0);
    }
    if !is_aside {
        // Elsewhere there is an error that says so.
        check_answers(&args.paths)?;
        return aside::run_again();
    }
    args.paths.iter().try_for_each(|path| volume(path)).map(|()| 0)
}

/// Makes everything durable that the volume at `path` and the kernel have of it.
pub fn volume(path: &Path) -> Result<()> {
    let failed = |errno| CliError::at(path, errno);
    let file = open(path).map_err(failed)?;
    rustix::fs::syncfs(&file).map_err(failed)?;
    if kernel::is_before(kernel::version(), WAITS_SINCE) {
        wait_for_copies(path, &file)?;
    }
    volume_client::sync_volume(&file).map_err(failed)
}

/// Says what this kernel does not give the volume that was just mounted on `dir`. A kernel that
/// sends SYNCFS has sent it when this returns.
pub fn tell_what_is_missing(dir: &Path) {
    if open(dir).and_then(rustix::fs::syncfs).is_err() {
        return;
    }
    let stat = read_attribute(dir, mount::STAT_XATTR).and_then(|text| parse(dir, &text));
    let Ok(counters) = stat.map(Counters) else { return };
    let is_root = rustix::process::geteuid().is_root();
    let dir = plain_path(dir);
    for warning in kernel::warnings(kernel::version(), &counters, is_root, &dir) {
        complain!("onejournal: {warning}");
    }
}

/// The process that says so while this one serves the volume.
pub fn teller(dir: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["sync", "--check"]).arg(dir);
    command
}

fn open(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}

/// Returns when the kernel has sent all that it had to send. There is no other way to learn that
/// copies of pages have arrived.
fn wait_for_copies(path: &Path, file: &File) -> Result<()> {
    let failed = |error: std::io::Error| CliError::at(path, format!("fusectl: {error}"));
    let found = rustix::fs::fstat(file).map_err(|errno| failed(errno.into()))?;
    let device = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
    let begun = Instant::now();
    while begun.elapsed() < COPIES_PATIENCE {
        let mut text = String::new();
        let mut waiting = open_control(device, "waiting", OFlags::RDONLY).map_err(failed)?;
        waiting.read_to_string(&mut text).map_err(failed)?;
        if text.trim() == "0" {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let text = "programs write so much that this kernel (before Linux 6.16) cannot tell whether \
                everything was sent: stop them for a moment, or use fsync(2)";
    Err(CliError::at(path, text))
}
