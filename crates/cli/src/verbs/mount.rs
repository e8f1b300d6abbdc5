//! `onejournal mount`: opens the volume, mounts it, and serves it until it is unmounted.
//!
//! Without `-f` the command starts itself again with `--announce`. That process serves the volume,
//! and prints `ready` to its standard output when the mount can be used.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Weak};

use device::{BlockDevice, Disk, Durability, Metered};
use ext4::{Claimant, InodeNo, JournalChoice, Pin, Volume};
use host::{Access, LoopDevice, LoopOptions, link_to};
use journal::Medium;
use mount::{
    Ended, IoUring, Memory, MountOptions, MountPoint, Session, SessionError, SessionOptions,
    Source, StatSource,
};
use rustix::fs::{major, minor};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::advice;
use crate::claimant::{self, TAKE_OVER};
use crate::handover::{self, NextProgram, Received};
use crate::inventory::{Subject, ask_once};
use crate::journal_path::{self, JournalOptions, OpenJournal};
use crate::journal_search::{self, Need};
use crate::messages::{self, Outlet};
use crate::mount_options::{self, Parsed};
use crate::namespaces::ByProcess;
use crate::output::{plain, plain_path};
use crate::service_manager::notify;
use crate::signals::is_ignored;
use crate::verbs::{remount, sync, umount};
use crate::volumes::ServedVolume;
use crate::{
    CliError, MountArgs, Result, ending, guard, memory, mention, page_writer, surroundings, target,
};

const READY: &str = "ready";

/// `is_aside`: another process of this command waits for this one.
pub fn run(args: &MountArgs, is_aside: bool) -> Result<u8> {
    if mount_options::words(&args.options).any(|option| option == "remount") {
        return remount::run(args, is_aside);
    }
    let parsed = mount_options::parse(&args.options)?;
    surroundings::of_server();
    if args.resume {
        let outlet = listen(args, &parsed)?;
        return go_on(args, parsed, outlet);
    }
    if !args.announce {
        check_answers(&args.dir)?;
    }
    umount::take_dead_away(&args.dir, |dead| is_on_target(dead, &args.target))?;
    // The process that serves gets the path that was checked. It must lead to the same directory.
    let place = match args.announce {
        true => MountPoint::open_checked(&args.dir),
        false => MountPoint::open(&args.dir),
    };
    let place = place.map_err(|error| advice::of_mount(&error))?;
    if args.foreground || args.announce {
        serve(args, parsed, place)
    } else {
        start(args, place.dir())
    }
}

/// An error if the directory is on a FUSE file system, or below one, that does not answer.
fn check_answers(dir: &Path) -> Result<()> {
    let mounts = host::own_mounts().unwrap_or_default();
    match mounts.iter().any(|mount| mount.user().is_some()) {
        true => ask_once(dir, Subject::Volume).map(drop),
        false => Ok(()),
    }
}

/// Whether `mounted` is on the image or device `target`. A wrong target is refused later.
fn is_on_target(mounted: &ServedVolume, target: &Path) -> bool {
    let wanted = target::find(target).and_then(|path| ServedVolume::on_target(&path));
    wanted.is_ok_and(|wanted| wanted.is_some_and(|wanted| mounted.is_on(&wanted)))
}

/// Starts the serving process and returns when it is ready or has failed.
fn start(args: &MountArgs, dir: &Path) -> Result<u8> {
    let program = std::env::current_exe().map_err(|error| CliError::new(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["mount", "--announce"]);
    if !args.options.is_empty() {
        command.arg("-o").arg(args.options.join(","));
    }
    // The daemon does not have the files that a path such as /dev/fd/3 means here.
    command.arg("--").arg(target::absolute(&target::find(&args.target)?)?).arg(dir);
    // Its variables may change what the daemon is (LD_PRELOAD, RUST_MIN_STACK).
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    surroundings::of_daemon();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| CliError::new(format!("starting the daemon: {error}")))?;
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it was asked for");
    let _ = BufReader::new(stdout).read_line(&mut line);
    if line.trim() == READY {
        sync::tell_what_is_missing(dir);
        return Ok(0);
    }
    let status = child.wait().map_err(|error| CliError::new(error.to_string()))?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code > 0 => Ok(code), // it has said why
        _ => Err(CliError::new(format!("the daemon ended early: {status}"))),
    }
}

fn serve(args: &MountArgs, mut parsed: Parsed, place: MountPoint) -> Result<u8> {
    if let Some(journal) = &mut parsed.journal {
        // A daemon leaves its directory.
        journal.path = std::path::absolute(&journal.path)
            .map_err(|error| CliError::at(&journal.path, error))?;
    }
    let outlet = listen(args, &parsed)?;
    abort_on_panic();
    memory::protect_from_oom_killer();
    let (memory, options) = divide_memory(&parsed)?;
    let path = target::absolute(&target::find(&args.target)?)?;
    let read_only = parsed.session.mount.read_only;
    let disk = open_disk(&path, read_only)?;
    check_durability(&path, disk.0.durability(), &parsed)?;
    // Who has the volume says more than who has the port.
    let metrics = parsed.metrics.map(listen_for_metrics).transpose()?;
    let opened = open_volume(args, &parsed, &path, disk, &memory, Vec::new())?;
    let OpenVolume { volume, device, journal, stat_source, is_writable } = opened;
    let journal_target = stat_source.journal_target.clone();
    let disk = Arc::downgrade(&device);
    let mounted = mount_volume(args, (volume, device), stat_source, place, &path, &options);
    let (mut session, signals) = mounted?;
    let surroundings = Surroundings { journal, options, is_writable, metrics, disk };
    let (guard, next) = equip(&mut session, surroundings);
    if let Err(error) = begin(&session, signals, &outlet, &path, journal_target.as_deref()) {
        take_back(session);
        return Err(error);
    }
    run_session(session, &guard, &next, Serving { args, parsed, outlet, path })
}

/// What a session gets before it runs.
struct Surroundings {
    journal: JournalChoice,
    options: SessionOptions,
    is_writable: bool,
    metrics: Option<TcpListener>,
    disk: Weak<Metered<Disk>>,
}

fn equip(
    session: &mut Session,
    surroundings: Surroundings,
) -> (Arc<guard::ByProcess>, Arc<NextProgram>) {
    let Surroundings { journal, options, is_writable, metrics, disk } = surroundings;
    if let Some(listener) = metrics {
        session.serve_metrics(listener);
    }
    if options.mount.read_only && is_writable {
        let mount = MountOptions { read_only: false, ..options.mount.clone() };
        let options = SessionOptions { mount, ..options };
        session.allow_writing(journal, &options);
    }
    session.speak(advice::of_volume);
    let guard = Arc::new(guard::ByProcess::default());
    session.guarded_by(guard.clone());
    let mounted = session.handle().device();
    if let Some(device) = mounted {
        session.write_pages_by(Arc::new(page_writer::ByProcess::of(device)));
    }
    let next = Arc::new(NextProgram::for_volume(disk, mounted));
    session.succeeded_by(next.clone());
    (guard, next)
}

/// What outlives a session that is handed over.
struct Serving<'a> {
    args: &'a MountArgs,
    parsed: Parsed,
    outlet: Option<Arc<Outlet>>,
    path: PathBuf,
}

/// Serves until the volume is unmounted, or hands it over.
fn run_session(
    session: Session,
    guard: &guard::ByProcess,
    next: &NextProgram,
    serving: Serving<'_>,
) -> Result<u8> {
    let Serving { args, parsed, outlet, path } = serving;
    let failed = |text: String| {
        tracing::error!("{text}");
        CliError::at(&path, text)
    };
    let ended = session.run().map_err(|error| failed(advice::of_session(&error)))?;
    let (Ended::Restarting(session), Some(held)) = (ended, next.take_held()) else {
        tell_of(&outlet)("unmounted, and closed");
        return Ok(0);
    };
    guard.dismiss();
    let sent = handover::send(&path, session, held)
        .and_then(|socket| Ok(rustix::stdio::dup2_stdin(&socket)?));
    sent.map_err(|error| failed(format!("handing the mount over: {error}")))?;
    let why = match handover::program() {
        Ok((path, program)) => {
            let arguments = arguments_of_next(&path, args, &parsed);
            host::replace_program(&link_to(&program), arguments).to_string()
        }
        Err(why) => why,
    };
    tracing::error!("{why}; the old program goes on with the mount");
    go_on(args, parsed, outlet)
}

/// The command line of the program that goes on with the mount.
fn arguments_of_next(program: &Path, args: &MountArgs, parsed: &Parsed) -> Vec<OsString> {
    let mut words = vec![program.into(), "mount".into(), "--resume".into()];
    for (is_given, option) in [(args.foreground, "--foreground"), (args.announce, "--announce")] {
        words.extend(is_given.then(|| option.into()));
    }
    let absolute = |option: &str| match (mount_options::split(option).0, &parsed.journal) {
        ("journal", Some(journal)) => format!("journal={}", journal.path.display()),
        _ => option.to_owned(),
    };
    let options: Vec<String> = mount_options::words(&args.options).map(absolute).collect();
    if !options.is_empty() {
        words.extend(["-o".into(), options.join(",").into()]);
    }
    words.extend(["--".into(), args.target.clone().into(), args.dir.clone().into()]);
    words
}

/// Goes on with a mount that another program of this process, or this one, has handed over.
/// Nothing here may touch the mount: it is not served yet.
fn go_on(args: &MountArgs, mut parsed: Parsed, outlet: Option<Arc<Outlet>>) -> Result<u8> {
    if let Some(outlet) = &outlet {
        outlet.detach();
    }
    abort_on_panic();
    handover::take_name();
    let begun = take_over(args, &mut parsed);
    let (session, guard, next, path) = begun.inspect_err(|error| tracing::error!("{error}"))?;
    notify("STATUS=restarted");
    tell_of(&outlet)("restarted: this program goes on with the mount");
    run_session(session, &guard, &next, Serving { args, parsed, outlet, path })
}

type TakenOver = (Session, Arc<guard::ByProcess>, Arc<NextProgram>, PathBuf);

fn take_over(args: &MountArgs, parsed: &mut Parsed) -> Result<TakenOver> {
    let Received { target: path, session: handed_over, disk: held } = handover::receive()?;
    // It may have become writable since it was mounted.
    parsed.session.mount.read_only = !handed_over.is_writable;
    let (memory, options) = divide_memory(parsed)?;
    let disk = Disk::take_over(&path, held).map_err(target::opening)?;
    let unwritable = match disk.access() {
        Access::ReadOnly => Some(CliError::at(&path, "was opened read-only")),
        Access::ReadWrite => None,
    };
    let metrics = parsed.metrics.map(listen_for_metrics).transpose();
    // The volume is worth more than its metrics.
    let metrics = metrics.inspect_err(|error| tracing::error!("{error}")).unwrap_or_default();
    let pins = handed_over.pins.clone();
    let opened = open_volume(args, parsed, &path, (disk, unwritable), &memory, pins)?;
    let OpenVolume { volume, device, journal, stat_source, is_writable } = opened;
    let disk = Arc::downgrade(&device);
    drop(device);
    let signals = end_signals(args.foreground);
    let signals = signals.map_err(|error| CliError::new(format!("signals: {error}")))?;
    host::reset_signals();
    let session = Session::resume(volume, handed_over, &options, stat_source);
    let mut session = session.map_err(|error| CliError::at(&path, advice::of_session(&error)))?;
    let surroundings = Surroundings { journal, options, is_writable, metrics, disk };
    let (guard, next) = equip(&mut session, surroundings);
    let handle = session.handle().unmounted_by(Arc::new(ByProcess));
    ending::on_signals(signals, handle, session.closer(), |text| tracing::info!("{text}"))?;
    Ok((session, guard, next, path))
}

/// An open volume, and what its mount needs of it.
struct OpenVolume {
    volume: Volume,
    device: Arc<Metered<Disk>>,
    journal: JournalChoice,
    stat_source: StatSource,
    /// Whether the device could be opened for writing.
    is_writable: bool,
}

/// Opens the volume on the disk that [`open_disk`] has opened.
fn open_volume(
    args: &MountArgs,
    parsed: &Parsed,
    path: &Path,
    (disk, unwritable): (Disk, Option<CliError>),
    memory: &Memory,
    pins: Vec<Pin>,
) -> Result<OpenVolume> {
    let durability = disk.durability();
    let device = Arc::new(Metered::new(disk));
    let claimant = claimant::claimant(parsed.take_over, parsed.heartbeat_s)?;
    let elsewhere = checked_journal(args, parsed, path, &device, &claimant, unwritable.as_ref())?;
    let (journal_target, journal) = elsewhere.unzip();
    let (journal, journal_counters) = journal.map(|j| (j.medium, j.counters)).unzip();
    let durability = journal.iter().map(Medium::durability).fold(durability, Ord::min);
    let journal = match journal {
        Some(medium) => JournalChoice::On(medium),
        None if parsed.journal_inside => JournalChoice::Inside,
        None => JournalChoice::Own,
    };
    let options = open_options(parsed, &journal, claimant, memory);
    let volume = Volume::open(device.clone(), ext4::OpenOptions { pins: pins.into(), ..options });
    let volume = volume.map_err(|error| refused(args, path, &error))?;
    let volume = if parsed.session.no_xattr { check_root(volume, path)? } else { volume };
    // The volume alone keeps the device open and locked: when it is closed, before umount(2)
    // returns, the target is free again.
    let counted = Arc::downgrade(&device);
    let stat_source = StatSource {
        target: path.display().to_string(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        durability: durability.name(),
        device_counters: Arc::new(move || {
            counted.upgrade().map(|device| device.counters()).unwrap_or_default()
        }),
        memory_bytes_max: Some(memory.bytes),
        journal_target,
        journal_counters,
    };
    let is_writable = unwritable.is_none();
    Ok(OpenVolume { volume, device, journal, stat_source, is_writable })
}

/// The journal that is not in the volume. An error if a look at the volume shows that it cannot be
/// opened. `unwritable`: why its device cannot be written.
fn checked_journal(
    args: &MountArgs,
    parsed: &Parsed,
    path: &Path,
    device: &Arc<Metered<Disk>>,
    claimant: &Claimant,
    unwritable: Option<&CliError>,
) -> Result<Option<(String, OpenJournal)>> {
    let as_device: Arc<dyn BlockDevice> = device.clone();
    if let Some(why) = unwritable {
        let claimed = ext4::check_claim(&as_device, claimant);
        claimed.map_err(|error| refused(args, path, &error))?;
        refuse_unclosed(path, &as_device, why)?;
    }
    let is_writable = unwritable.is_none();
    let elsewhere = journal_elsewhere(path, device.inner(), &as_device, parsed, is_writable);
    // A volume that another machine has open lacks a journal that is there, too.
    elsewhere.map_err(|error| match ext4::check_claim(&as_device, claimant) {
        Err(claimed @ ext4::Error::Claimed { .. }) => refused(args, path, &claimed),
        Ok(()) | Err(_) => error,
    })
}

fn open_options(
    parsed: &Parsed,
    journal: &JournalChoice,
    claimant: Claimant,
    memory: &Memory,
) -> ext4::OpenOptions {
    let read_only = parsed.session.mount.read_only;
    ext4::OpenOptions {
        read_only,
        noatime: parsed.session.mount.noatime,
        journal: match journal {
            // To read it needs no journal elsewhere, unless that holds changes.
            JournalChoice::Own if read_only => JournalChoice::Inside,
            journal => journal.clone(),
        },
        claimant: Some(claimant),
        data_mode: parsed.data_mode,
        threshold_bytes: parsed.threshold_bytes,
        region_count: parsed.region_count,
        delta_codec: parsed.delta_codec,
        checkpoint: parsed.checkpoint,
        commit_interval: Some(parsed.commit_interval),
        memory: memory.journal,
        ..ext4::OpenOptions::default()
    }
}

/// Mounts the volume. Also returns the signals that unmount: before the mount exists, they are
/// caught, because a process that they end would leave a dead mount.
fn mount_volume(
    args: &MountArgs,
    (volume, device): (Volume, Arc<Metered<Disk>>),
    stat_source: StatSource,
    place: MountPoint,
    path: &Path,
    options: &SessionOptions,
) -> Result<(Session, Signals)> {
    let (source, attached) = mount_source(path, device.inner());
    let number = number_of_source(&source, path, device.inner(), attached.as_ref());
    drop(device);
    let signals = end_signals(args.foreground);
    let signals = signals.map_err(|error| CliError::new(format!("signals: {error}")))?;
    let session = Session::mount(volume, &source, &place, options, stat_source);
    let session = session.map_err(|error| match error {
        SessionError::MayTear(why) => CliError::at(path, why),
        SessionError::Connection(error) => advice::of_mount(&error),
        SessionError::Close(_) => CliError::at(path, advice::of_session(&error)),
    })?;
    drop((attached, place));
    match check_source(session.handle().device(), number, path) {
        Ok(()) => Ok((session, signals)),
        Err(error) => {
            take_back(session);
            Err(error)
        }
    }
}

/// Says that the volume is mounted. From now on signals unmount it.
fn begin(
    session: &Session,
    signals: Signals,
    outlet: &Option<Arc<Outlet>>,
    path: &Path,
    journal_target: Option<&str>,
) -> Result<()> {
    let handle = session.handle().unmounted_by(Arc::new(ByProcess));
    let dir = handle.dir().display().to_string();
    ending::on_signals(signals, handle, session.closer(), tell_of(outlet))?;
    match outlet {
        Some(outlet) => announce(outlet, path, journal_target),
        None => {
            say_mounted(path, &dir);
            tell_what_is_missing(&dir)
        }
    }
}

/// The signals that unmount. `nohup` has the command ignore SIGHUP; a daemon has left the terminal
/// that it comes from.
fn end_signals(foreground: bool) -> std::io::Result<Signals> {
    let is_kept = |signal: &i32| *signal != SIGHUP || !foreground || !is_ignored(SIGHUP);
    Signals::new([SIGTERM, SIGINT, SIGHUP].into_iter().filter(is_kept))
}

/// What the daemon takes of memory, and the options of a session that keeps to it.
fn divide_memory(parsed: &Parsed) -> Result<(Memory, SessionOptions)> {
    let mut options = parsed.session.clone();
    let limit = memory::for_mount(parsed.memory_bytes, memory::limit());
    let memory = Memory::divide(limit, &options, mount::online_cpu_count());
    if parsed.session.mount.io_uring == IoUring::On && memory.io_uring == IoUring::Off {
        let why = format!(
            "io_uring=on needs more memory than the {} MiB of this mount: leave it out, or raise \
             memory=",
            memory.bytes >> 20
        );
        return Err(CliError::usage(why));
    }
    if !memory.huge_pages {
        memory::do_without_huge_pages();
    }
    options.mount.thread_count = memory.thread_count;
    options.mount.stand_in_count = memory.stand_in_count;
    options.mount.io_uring = memory.io_uring;
    Ok((memory, options))
}

/// The error of opening the volume.
fn refused(args: &MountArgs, path: &Path, error: &ext4::Error) -> CliError {
    let (shown, dir) = (plain_path(path), plain_path(&args.dir));
    let retry = format!("onejournal mount -o {TAKE_OVER} {shown} {dir}");
    claimant::failed(path, error, &retry)
}

/// The journal that is not in the volume, and where it is: where the options say, or on the device
/// that holds the journal that the volume records.
fn journal_elsewhere(
    path: &Path,
    disk: &Disk,
    device: &Arc<dyn BlockDevice>,
    parsed: &Parsed,
    is_writable: bool,
) -> Result<Option<(String, OpenJournal)>> {
    let open = |place: JournalOptions| {
        let journal = open_journal(path, disk, &place, parsed)?;
        Ok((place.path.display().to_string(), journal))
    };
    let find = |need| {
        let located = journal_search::locate(path, device, None, need)?;
        let place = located.map(|path| JournalOptions { path, ..JournalOptions::default() });
        place.map(open).transpose()
    };
    if parsed.journal.is_some() || parsed.journal_inside {
        return parsed.journal.clone().map(open).transpose();
    }
    if !parsed.session.mount.read_only {
        return find(Need::Mount);
    }
    match find(Need::ReadOnlyMount)? {
        // A mount that may become writable takes the journal if it is there.
        None if is_writable => Ok(find(Need::Mount).unwrap_or_default()),
        found => Ok(found),
    }
}

/// Sets where messages go from now on: to standard error, or for a daemon, to the outlet.
fn listen(args: &MountArgs, parsed: &Parsed) -> Result<Option<Arc<Outlet>>> {
    if args.announce {
        return messages::of_daemon(parsed.log_level, &args.dir).map(Some);
    }
    messages::to_standard_error(parsed.log_level);
    Ok(None)
}

/// How the command tells which programs it waits for: on standard output, or for a daemon, in its
/// messages.
fn tell_of(outlet: &Option<Arc<Outlet>>) -> fn(&str) {
    match outlet {
        Some(_) => |text| tracing::info!("{text}"),
        None => tell,
    }
}

/// Standard output may be closed; that must not end the process.
fn tell(text: &str) {
    mention!("{text}");
}

/// Another process asks, because this one has to answer.
fn tell_what_is_missing(dir: &str) -> Result<()> {
    let failed = |error: std::io::Error| CliError::new(format!("sync --check: {error}"));
    let mut teller = sync::teller(Path::new(dir)).stdout(Stdio::null()).spawn().map_err(failed)?;
    let builder = std::thread::Builder::new().name("oj-teller".into());
    builder.spawn(move || teller.wait()).map_err(failed)?;
    Ok(())
}

fn say_mounted(path: &Path, dir: &str) {
    // Each line would be another statement to the service manager.
    let text = plain(&format!("mounted {} on {dir}", path.display()));
    notify(&format!("READY=1\nSTATUS={text}"));
    tell(&text);
    tell("Ctrl-C unmounts");
}

/// Opens the port of the metrics.
pub fn listen_for_metrics(address: SocketAddr) -> Result<TcpListener> {
    let failed = |error| CliError::new(format!("metrics={address}: {error}"));
    mount::listen_for_metrics(address).map_err(failed)
}

/// A violated assertion in any thread ends the daemon as a power cut would. The promises hold for a
/// crash at any point, but not for continuing with a wrong state.
pub fn abort_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        tracing::error!("{info}");
        std::process::abort()
    }));
}

/// Opens the target for writing, because recovery writes even if the mount is read-only. A target
/// that cannot be written (the second value says why) can still be mounted read-only, but not if it
/// is in use.
fn open_disk(path: &Path, read_only: bool) -> Result<(Disk, Option<CliError>)> {
    match target::try_open(path, Access::ReadWrite) {
        Ok(disk) => Ok((disk, None)),
        Err(refusal) if read_only && !refusal.in_use => {
            Ok((target::open(path, Access::ReadOnly)?, Some(refusal.error)))
        }
        Err(refusal) if refusal.is_write_protected => {
            let text = format!("{}; or mount it read-only (-o ro)", refusal.error);
            Err(CliError::new(text))
        }
        Err(refusal) => Err(refusal.error),
    }
}

/// Refuses a volume that has to be recovered and that cannot be written, for the reason `why`.
fn refuse_unclosed(path: &Path, device: &Arc<dyn BlockDevice>, why: &CliError) -> Result<()> {
    match ext4::Survey::take(device, None) {
        Ok(survey) if survey.needs_recovery => {
            let text = format!(
                "it was not closed, and has to be recovered first, which writes. {why}. Or mount \
                 a copy of it"
            );
            Err(CliError::at(path, text))
        }
        // Opening says what else is wrong.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn open_journal(
    target: &Path,
    disk: &Disk,
    options: &JournalOptions,
    parsed: &Parsed,
) -> Result<OpenJournal> {
    let journal = journal_path::open_for_mount(target, disk, options, parsed.durability)?;
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
            "is on a medium of durability class `{class}`: nothing on it survives a power cut. \
             Mount with -o durability={class} if that is what you want"
        ),
    ))
}

/// Refuses a volume whose root has an access list, which a mount with `noxattr` would not obey.
fn check_root(volume: Volume, path: &Path) -> Result<Volume> {
    let why = match mount::has_access_list(&volume, InodeNo::ROOT) {
        Ok(false) => return Ok(volume),
        Ok(true) => "the root directory has an access list, which a mount with noxattr \
                     does not obey: leave noxattr out"
            .into(),
        Err(error) => advice::of_volume(&error),
    };
    if let Err(error) = volume.close() {
        tracing::error!(%error, "closing the volume");
    }
    Err(CliError::at(path, why))
}

/// The source of the mount that the kernel sees. As root, an image file gets a loop device, which
/// detaches itself with the mount. The reason: only for mounts of block devices does the kernel
/// send `sync`, and wait in `umount`. OneJournal's own I/O goes directly to the file.
fn mount_source(path: &Path, disk: &Disk) -> (Source, Option<File>) {
    let plain = Source::Plain { name: path.display().to_string() };
    if !rustix::process::geteuid().is_root() {
        return (plain, None);
    }
    if !target::metadata(path, disk).is_ok_and(|found| found.is_file()) {
        disk.release_exclusive();
        return (Source::BlockDevice(path.to_owned()), None);
    }
    match attach_loop(disk) {
        Ok((device_path, file)) => (Source::BlockDevice(device_path), Some(file)),
        Err(error) => {
            tracing::warn!("no loop device ({error}): `sync` is left to the commit timer");
            (plain, None)
        }
    }
}

/// Unmounts a volume before anybody learns that it is mounted.
fn take_back(session: Session) {
    if let Err(error) = session.take_back() {
        tracing::error!("{}", advice::of_session(&error));
    }
}

/// The number of the block device (major, minor) that the kernel should have on the mount: the one
/// that is open, or the loop device. `None`: it gets none.
fn number_of_source(
    source: &Source,
    path: &Path,
    disk: &Disk,
    attached: Option<&File>,
) -> Option<(u32, u32)> {
    let Source::BlockDevice(_) = source else { return None };
    let found = match attached {
        Some(file) => file.metadata().ok()?,
        None => target::metadata(path, disk).ok()?,
    };
    Some((major(found.rdev()), minor(found.rdev())))
}

/// The kernel opens the device by its path again, which another user may have exchanged meanwhile.
/// The number of the mount's file system is that of its block device.
fn check_source(
    mounted: Option<(u32, u32)>,
    expected: Option<(u32, u32)>,
    path: &Path,
) -> Result<()> {
    match (mounted, expected) {
        (Some(mounted), Some(expected)) if mounted != expected => {
            Err(CliError::at(path, target::REPLACED))
        }
        _ => Ok(()),
    }
}

/// Attaches the file that is open. It is opened once more, without direct I/O, which the loop
/// device would take over.
fn attach_loop(disk: &Disk) -> std::result::Result<(PathBuf, File), String> {
    let file = disk.file().map_err(|e| e.to_string())?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(link_to(&file))
        .map_err(|e| e.to_string())?;
    let options = LoopOptions { autoclear: true, ..LoopOptions::default() };
    let device = LoopDevice::attach(&file, options).map_err(|e| e.to_string())?;
    Ok(device.into_parts())
}

/// Releases the terminal and the directory of the parent, then tells it that the mount is ready.
fn announce(outlet: &Outlet, path: &Path, journal: Option<&str>) -> Result<()> {
    let failed = |error: std::io::Error| CliError::new(format!("becoming a daemon: {error}"));
    outlet.detach();
    match journal {
        Some(journal) => tracing::info!("mounted {}, its journal on {journal}", path.display()),
        None => tracing::info!("mounted {}", path.display()),
    }
    let _ = rustix::process::setsid();
    let null = OpenOptions::new().write(true).open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stderr(&null).map_err(|errno| failed(errno.into()))?;
    std::env::set_current_dir("/").map_err(failed)?;
    // When the parent ends, its terminal may send SIGHUP.
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush()).map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(|errno| failed(errno.into()))
}

#[cfg(test)]
mod tests {
    use onejournal_testing::has_loop_devices;

    use super::*;

    #[test]
    fn regression_the_loop_device_gets_the_file_that_is_open() {
        if !has_loop_devices() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for name in ["image", "other"] {
            std::fs::write(home.join(name), [0; 64 << 10]).unwrap();
        }
        let disk = target::open(&home.join("image"), Access::ReadWrite).unwrap();
        std::fs::rename(home.join("image"), home.join("moved")).unwrap();
        std::fs::rename(home.join("other"), home.join("image")).unwrap();
        let (Source::BlockDevice(device), Some(_attached)) =
            mount_source(&home.join("image"), &disk)
        else {
            panic!("no loop device")
        };
        let name = device.file_name().unwrap().to_str().unwrap();
        let file = format!("/sys/block/{name}/loop/backing_file");
        let file = std::fs::read_to_string(file).unwrap();
        assert_eq!(Path::new(file.trim()), home.join("moved"));
    }
}
