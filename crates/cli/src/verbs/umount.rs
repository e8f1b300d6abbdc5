//! `onejournal umount`: unmounts, waits until the daemon has brought everything home, and reports a
//! failure.
//!
//! For a directory, the mount there is removed. For an image or a device, all its mounts are
//! removed, in every namespace. Nothing depends on the root directory of the volume, which may be
//! damaged.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{BlockDevice, Disk};
use ext4::Survey;
use host::{Access, Trust};
use mount::MountError;
use rustix::io::Errno;

use crate::counters::Counters;
use crate::inventory::{MountState, Subject, ask_once};
use crate::namespaces::{self, Detached, Holder, Manner, NamespaceId};
use crate::volumes::{Daemon, ServedVolume};
use crate::{CliError, Result, advice, aside, in_place};

const MOUNTED_ARE: &str = "to list the mounted volumes: onejournal ls";
/// How long an unmounted volume may take to tell whether it was closed, on a slow disk.
const CLOSED_LIMIT: Duration = Duration::from_secs(30);

/// With `only_dead` a mount that serves stays.
pub fn run(path: &Path, only_dead: bool) -> Result<u8> {
    if only_dead {
        return take_dead_away(path, |_| true).map(|()| 0);
    }
    let (volume, is_target) = match ServedVolume::mounted_on(path)? {
        Some(volume) => (volume, false),
        None => match ServedVolume::on_target(path)? {
            Some(volume) => (volume, true),
            None => return Err(not_mounted(path)),
        },
    };
    let daemon = volume.daemon()?;
    let why = volume.dirs.last().and_then(|dir| last_error(dir));
    for dir in volume.dirs.iter().rev() {
        take_away(dir)?;
    }
    let elsewhere = if is_target { take_away_elsewhere(&volume, daemon.as_ref())? } else { 0 };
    match &daemon {
        Some(daemon) => wait_for_end(path, &volume, daemon)?,
        None if volume.dirs.is_empty() && elsewhere == 0 => {
            let unseen = volume.unless_unseen();
            return Err(CliError::at(path, format!("is not mounted{unseen}; {MOUNTED_ARE}")));
        }
        None => {}
    }
    if !volume.has_target(daemon.as_ref()) {
        return Ok(0);
    }
    let has_failed = why.is_some() || volume.is_pulled();
    let Some(left) = ask_left_open(&volume.target, has_failed) else { return Ok(0) };
    let why = why.map_or(String::new(), |why| format!(" ({why})"));
    Err(CliError::at(&volume.target, format!("unmounted, but not closed{why}: {left}")))
}

/// Takes the mounts on `dir` away whose daemons have died, also while programs use them, as far as
/// `is_wanted` says so of their volume.
pub fn take_dead_away(dir: &Path, is_wanted: impl Fn(&ServedVolume) -> bool) -> Result<()> {
    while let Some(volume) = ServedVolume::mounted_on(dir)?
        && is_dead(dir)
        && is_wanted(&volume)
    {
        // By the path of the mount table.
        volume.dirs.iter().try_for_each(|dir| take_away(dir))?;
    }
    Ok(())
}

/// A daemon that dies while it receives the question gives no clear answer. The next one does.
fn is_dead(dir: &Path) -> bool {
    let state = || ask_once(dir, Subject::Volume).ok().map(|answer| answer.state);
    match state() {
        Some(MountState::Hidden) => state() == Some(MountState::Dead),
        state => state == Some(MountState::Dead),
    }
}

/// The reason why nothing can be done with `path`.
pub fn not_mounted(path: &Path) -> CliError {
    match Trust::own().and_root().reach(path) {
        Ok(_) => {
            CliError::at(path, format!("no OneJournal volume is mounted on it; {MOUNTED_ARE}"))
        }
        Err(error) => CliError::at(path, error),
    }
}

/// The last error of the mount, if it has one and answers.
fn last_error(dir: &Path) -> Option<String> {
    let answer = ask_once(dir, Subject::Volume).ok()?;
    Counters(answer.counters).text("last_error").map(String::from)
}

/// Returns when the daemon has ended, or returns what keeps it.
fn wait_for_end(path: &Path, volume: &ServedVolume, daemon: &Daemon) -> Result<()> {
    let begun = Instant::now();
    while !daemon.ended()? {
        let waited = begun.elapsed();
        let is_closing = daemon.is_closing_after(waited);
        let is_closing = is_closing
            .map_err(|error| CliError::at(path, format!("unmounted, but not closed: {error}")))?;
        if !is_closing && !volume.may_serve_after(waited) {
            let is_held = !volume.holders().is_empty();
            let (pid, whereabouts) = (daemon.pid, volume.whereabouts());
            let what_to_do = if is_held {
                "`onejournal umount` on the image or device takes all mounts off".to_owned()
            } else {
                format!("`kill {pid}` closes the volume, and those programs get errors")
            };
            let text = format!(
                "unmounted here, but still in use: {whereabouts}. Process {pid} serves it until \
                 then; {what_to_do}"
            );
            return Err(CliError::at(path, text));
        }
    }
    Ok(())
}

/// Asks another process for [`left_open`]: the target may be another user's, and its path one that
/// never answers.
fn ask_left_open(target: &Path, has_failed: bool) -> Option<String> {
    let failed = has_failed.then_some(OsStr::new("--has-failed"));
    let look = [OsStr::new("look"), OsStr::new("left-open")].into_iter().chain(failed);
    let arguments = look.chain([OsStr::new("--"), target.as_os_str()]);
    let told = aside::told_within(arguments, CLOSED_LIMIT);
    if !told.is_all {
        let seconds = CLOSED_LIMIT.as_secs();
        return Some(format!("whether it was closed could not be seen within {seconds} s"));
    }
    told.lines.first().and_then(|line| serde_json::from_str(line).ok())
}

/// The advice for a volume that was not closed. `None`: it was closed, or is in use again; or it is
/// gone, and its mount had not failed. May wait without an end.
pub fn left_open(volume: &Path, has_failed: bool) -> Option<String> {
    let device: Arc<dyn BlockDevice> = match Disk::open(volume, Access::ReadOnly) {
        Ok(disk) => Arc::new(disk),
        Err(error) if has_failed && error.source.kind() == io::ErrorKind::NotFound => {
            return Some("it is gone; when it is back, the next mount recovers it".into());
        }
        Err(error) => return error.is_shrunk().then(|| error.source.to_string()),
    };
    match Survey::take(&device, None) {
        Ok(survey) if survey.needs_recovery => Some(match survey.space {
            Ok(_) => "the next mount recovers it, or: onejournal fsck TARGET".into(),
            // Its journal is on another medium, and both commands need that.
            Err(error) => advice::of_volume(&error),
        }),
        Ok(_) => None,
        Err(error) => Some(format!("it cannot be opened any more: {}", advice::of_volume(&error))),
    }
}

/// Removes the mounts in other namespaces. Returns their number. One that no user may remove is an
/// error after the others.
fn take_away_elsewhere(volume: &ServedVolume, daemon: Option<&Daemon>) -> Result<usize> {
    let own = NamespaceId::own().map_err(|error| CliError::new(error.to_string()))?;
    let mut count = 0;
    let mut locked = None;
    for (holder, device) in volume.holders() {
        if holder.namespace == own {
            continue;
        }
        let failed = |why: String| CliError::new(format!("{}: {why}", holder.place()));
        let namespace = namespaces::of_process(&holder.pid.to_string());
        let namespace = namespace.map_err(|error| failed(error.to_string()))?;
        // Programs get nothing but errors from a dead one.
        let manner = match is_dead(&holder.reachable_dir()) {
            true => Manner::Lazily,
            false => Manner::Patiently,
        };
        let detached = namespaces::detach(namespace, device, manner);
        match detached.map_err(|error| failed(error.text))? {
            Detached::Done => count += 1,
            Detached::Locked => locked = Some(holder),
        }
    }
    locked.map_or(Ok(count), |holder| Err(CliError::new(what_ends(&holder, daemon))))
}

/// Says how a mount ends that no user may remove. A signal closes the volume if its daemon's mount
/// is gone.
fn what_ends(locked: &Holder, daemon: Option<&Daemon>) -> String {
    let (place, pid) = (locked.place(), locked.pid);
    let user = host::process_owner(pid).map_or("unknown".into(), |(user, _)| user.to_string());
    let closing = daemon.map_or(String::new(), |daemon| {
        format!(
            "; or `kill {}` closes the volume, and programs that use it there get errors",
            daemon.pid
        )
    });
    format!(
        "{place}, of user {user}: the kernel lets no user unmount there, because that namespace is \
         in a user namespace. End that process, and others in its namespace: kill {pid}{closing}"
    )
}

/// A dead mount also while programs use it: they get nothing but errors.
fn take_away(dir: &Path) -> Result<()> {
    let lazily = is_dead(dir);
    let taken_away = namespaces::unmount_patiently(|| match in_place::unmount(dir, lazily) {
        Err(MountError::System { errno: Errno::PERM, .. }) => {
            mount::unmount_by_fusermount(dir, lazily)
        }
        unmounted => unmounted,
    });
    taken_away.map_err(|error| match error {
        MountError::System { errno, .. } => CliError::at(dir, errno),
        error => CliError::new(error.to_string()),
    })
}
