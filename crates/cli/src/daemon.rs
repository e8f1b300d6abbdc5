//! `onejournal mount`: opens the volume, mounts it, and serves it until it is unmounted.
//!
//! Without `-f` the command starts itself again with `--announce`; that process serves, and says
//! `ready` on its standard output when the mount can be used.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use device::{
    Access, BlockDevice, Disk, Durability, LoopDevice, LoopOptions, Metered, TrustedUsers,
};
use ext4::Volume;
use journal::Medium;
use mount::{Closer, MountHandle, Session, Source, StatSource};
use rustix::fs::{Mode, OFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::claimant::{self, TAKE_OVER};
use crate::journal_path::{self, JournalOptions, OpenJournal};
use crate::mount_options::{self, Parsed};
use crate::namespaces::ByProcess;
use crate::{CliError, MountArgs, Result, error, target};

const READY: &str = "ready";

pub fn run(args: &MountArgs) -> Result<u8> {
    let parsed = mount_options::parse(&args.options)?;
    mount::check_directory(&args.dir).map_err(|error| CliError::new(error.to_string()))?;
    if args.foreground || args.announce { serve(args, parsed) } else { start(args) }
}

/// Starts the serving process and returns when it is ready or has failed.
fn start(args: &MountArgs) -> Result<u8> {
    let program = std::env::current_exe().map_err(|error| CliError::new(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["mount", "--announce"]);
    if !args.options.is_empty() {
        command.arg("-o").arg(args.options.join(","));
    }
    if let Some(log) = &args.log {
        command.arg("--log").arg(log);
    }
    command.arg("--").arg(&args.target).arg(&args.dir);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| CliError::new(format!("starting the daemon: {error}")))?;
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it was asked for");
    let _ = BufReader::new(stdout).read_line(&mut line);
    if line.trim() == READY {
        return Ok(0);
    }
    let status = child.wait().map_err(|error| CliError::new(error.to_string()))?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code > 0 => Ok(code), // it has said why
        _ => Err(CliError::new(format!("the daemon ended early: {status}"))),
    }
}

fn serve(args: &MountArgs, parsed: Parsed) -> Result<u8> {
    log_to(args.log.as_deref())?;
    abort_on_panic();
    let path = target::absolute(&args.target)?;
    let metrics = parsed.metrics.map(listen_for_metrics).transpose()?;
    let (disk, read_only) = open_disk(&path, parsed.mount.read_only)?;
    check_durability(&path, disk.durability(), &parsed)?;
    let trust = target::trust(&path);
    let journal = parsed.journal.as_ref().map(|journal| open_journal(journal, &parsed, &trust));
    let journal = journal.transpose()?;
    let (journal, journal_counters) = journal.map(|j| (j.medium, j.counters)).unzip();
    let durability = journal.iter().map(Medium::durability).fold(disk.durability(), Ord::min);
    let durability = durability.name();
    let device = Arc::new(Metered::new(disk));
    let options = ext4::OpenOptions {
        read_only,
        noatime: parsed.mount.noatime,
        journal,
        claimant: Some(claimant::claimant(parsed.take_over, parsed.heartbeat_s)?),
        data_mode: parsed.data_mode,
        threshold_bytes: parsed.threshold_bytes,
        region_count: parsed.region_count,
        delta_codec: parsed.delta_codec,
        commit_interval: Some(parsed.commit_interval),
        ..ext4::OpenOptions::default()
    };
    let volume = Volume::open(device.clone(), options).map_err(|error| {
        let dir = args.dir.display();
        let retry = format!("onejournal mount -o {TAKE_OVER} {} {dir}", path.display());
        claimant::failed(&path, &error, &retry)
    })?;
    // The volume alone keeps the device open and locked: when it is closed, before umount(2)
    // returns, the target is free again.
    let counted = Arc::downgrade(&device);
    let stat_source = StatSource {
        target: path.display().to_string(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        durability,
        device_counters: Arc::new(move || {
            counted.upgrade().map(|device| device.counters()).unwrap_or_default()
        }),
        journal_counters,
    };
    let (source, attached) = mount_source(&path, device.inner());
    drop(device);
    // From now on none of them ends the process, which would leave a dead mount.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let signals = signals.map_err(|error| CliError::new(format!("signals: {error}")))?;
    let mut session = Session::mount(volume, &source, &args.dir, &parsed.mount, stat_source)
        .map_err(|error| CliError::new(error.to_string()))?;
    drop(attached);
    if let Some(listener) = metrics {
        session.serve_metrics(listener);
    }
    let handle = session.handle().unmounted_by(Arc::new(ByProcess));
    let begun = unmount_on_signal(signals, handle, session.closer());
    let begun = begun.and_then(|()| if args.announce { announce() } else { Ok(()) });
    if let Err(error) = begun {
        // Nobody learns that it is mounted.
        if let Err(error) = session.take_back() {
            tracing::error!("{error}");
        }
        return Err(error);
    }
    session.run().map_err(|error| CliError::at(&path, error))?;
    Ok(0)
}

fn listen_for_metrics(address: SocketAddr) -> Result<TcpListener> {
    let failed = |error| CliError::new(format!("metrics={address}: {error}"));
    mount::listen_for_metrics(address).map_err(failed)
}

/// A violated assertion in any thread ends the daemon as a power cut would: the promises hold for
/// a crash at any point, not for going on with a state that is wrong.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort()
    }));
}

/// Opens the target for writing: recovery writes even when the mount is to be read-only. A target
/// that cannot be written can still be mounted read-only, but not one that is in use.
fn open_disk(path: &Path, read_only: bool) -> Result<(Disk, bool)> {
    match target::try_open(path, Access::ReadWrite) {
        Ok(disk) => Ok((disk, read_only)),
        Err(refusal) if read_only && !refusal.in_use => {
            Ok((target::open(path, Access::ReadOnly)?, true))
        }
        Err(refusal) => Err(refusal.error),
    }
}

fn open_journal(
    options: &JournalOptions,
    parsed: &Parsed,
    trust: &TrustedUsers,
) -> Result<OpenJournal> {
    let journal = journal_path::open_for_mount(options, parsed.durability, trust)?;
    check_durability(&options.path, journal.medium.durability(), parsed)?;
    Ok(journal)
}

fn check_durability(path: &Path, durability: Durability, parsed: &Parsed) -> Result<()> {
    if durability >= parsed.durability.unwrap_or(Durability::Power) {
        return Ok(());
    }
    let class = durability.name();
    Err(CliError::at(
        path,
        format!(
            "lies on a medium of durability class `{class}`: nothing on it survives a power cut. \
             Mount with -o durability={class} if that is what you want"
        ),
    ))
}

/// What the kernel shall see as the source of the mount. As root an image file gets a loop device,
/// which detaches itself with the mount, because only mounts of block devices are told about
/// `sync` and waited for by `umount`; our own I/O goes to the file directly.
fn mount_source(path: &Path, disk: &Disk) -> (Source, Option<File>) {
    let plain = Source::Plain { name: path.display().to_string() };
    if !rustix::process::geteuid().is_root() {
        return (plain, None);
    }
    if !path.is_file() {
        disk.release_exclusive();
        return (Source::BlockDevice(path.to_owned()), None);
    }
    match attach_loop(path) {
        Ok((device_path, file)) => (Source::BlockDevice(device_path), Some(file)),
        Err(error) => {
            tracing::warn!("no loop device ({error}): `sync` is left to the commit timer");
            (plain, None)
        }
    }
}

fn attach_loop(path: &Path) -> std::result::Result<(PathBuf, File), String> {
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| e.to_string())?;
    let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
    let device = LoopDevice::attach(&file, options).map_err(|e| e.to_string())?;
    Ok(device.into_parts())
}

/// Tells the parent that the mount is ready, and lets go of its terminal.
fn announce() -> Result<()> {
    let failed = |error: std::io::Error| CliError::new(format!("becoming a daemon: {error}"));
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush()).map_err(failed)?;
    let _ = rustix::process::setsid();
    let null = OpenOptions::new().write(true).open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(|errno| failed(errno.into()))?;
    rustix::stdio::dup2_stderr(&null).map_err(|errno| failed(errno.into()))?;
    std::env::set_current_dir("/").map_err(failed)
}

/// SIGTERM, SIGINT and SIGHUP unmount; while programs use the mount it is detached, and the daemon
/// ends with the last of them. When it is detached already, they close the volume under these programs.
fn unmount_on_signal(mut signals: Signals, handle: MountHandle, closer: Closer) -> Result<()> {
    let body = move || {
        for _ in signals.forever() {
            // Once it is gone, or detached, what is mounted there is somebody else's.
            if !handle.is_mounted() {
                close_and_end(&closer);
            } else if handle.unmount().is_err()
                && let Err(error) = handle.unmount_lazily()
            {
                tracing::error!("unmounting: {error}");
            }
        }
    };
    let thread = std::thread::Builder::new().name("oj-signals".into()).spawn(body);
    thread.map(|_| ()).map_err(|error| CliError::new(format!("signals: {error}")))
}

/// Ends the process when the volume is closed. Before it is served, it goes on.
fn close_and_end(closer: &Closer) {
    match closer.close() {
        Some(Ok(())) => std::process::exit(0),
        Some(Err(error)) => {
            tracing::error!("{error}");
            std::process::exit(error::OPERATIONAL.into())
        }
        None => {}
    }
}

/// Sends messages to the file `path`, or to standard error. Messages may name files: one that is
/// made can be read by its owner alone. A file or symbolic link that another user made is refused.
pub fn log_to(path: Option<&Path>) -> Result<()> {
    let builder = tracing_subscriber::fmt().with_ansi(false).with_target(false);
    let builder = builder.with_max_level(tracing::Level::WARN);
    match path {
        Some(path) => {
            let flags = OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY;
            let file = TrustedUsers::of_us_and([]).open(path, flags, Mode::RUSR | Mode::WUSR);
            let file = File::from(file.map_err(target::opening)?);
            builder.with_writer(std::sync::Mutex::new(file)).init();
        }
        None => builder.with_writer(std::io::stderr).init(),
    }
    Ok(())
}
