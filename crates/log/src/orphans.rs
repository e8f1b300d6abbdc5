//! Shared memory that killed processes left: its records are brought to the log files, and it is
//! removed.
//!
//! Records that were appended and not synced are only in shared memory, and the kill of a process
//! must not lose them. So there is one way to remove such memory: open its log and close it, which
//! brings all records to the log files.
//!
//! Memory stays if its log cannot be opened: the log's directory may be on a file system that is
//! not mounted, or may have been moved. A directory on NVRAM always stays. The user may name memory
//! that is removed with all that it holds.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use host::{Access, Folder, Trust};
use rustix::fs::{AtFlags, CWD, FlockOperation, StatxFlags, statx};

use crate::directory::incarnation::{
    Content, content_of, is_memory_of, is_named_as_ours, remove_memory,
};
use crate::directory::served::serving_socket;
use crate::directory::slots::Slots;
use crate::media::files::{at, within};
use crate::{Log, LogError, Options, Result};

/// Shared memory of a log, or its directory on NVRAM, and what was done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The directory in `/dev/shm`.
    pub path: PathBuf,
    /// What was done.
    pub outcome: Outcome,
}

/// What was done with shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its records are in the files of the log in this directory, and it is removed.
    BroughtHome(PathBuf),
    /// It is removed with all that it held.
    GivenUp,
    /// A process uses it.
    InUse,
    /// It may hold records that are nowhere else.
    Kept {
        /// Why it was not brought home.
        why: String,
    },
}

/// Looks at each directory of this user in `memory` that a log made. Brings the records to the log
/// files if no process uses the directory. `given_up` names directories that are removed whatever
/// they hold. `is_open` says whether a process has a file in a directory open.
///
/// # Errors
/// If `memory` cannot be read, or a directory of `given_up` cannot be removed.
pub fn collect_orphans(
    memory: &Path,
    given_up: &[PathBuf],
    is_open: impl Fn(&Path) -> bool,
) -> Result<Vec<Orphan>> {
    let memory = fs::canonicalize(memory).map_err(at(memory))?;
    let entries = fs::read_dir(&memory).map_err(at(&memory))?;
    let own = rustix::process::geteuid().as_raw();
    let is_own = |path: &PathBuf| owner_of(path) == Some(own);
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| is_named_as_ours(path) && is_own(path));
    paths.sort_unstable();
    let mut found = Vec::new();
    for path in paths {
        let is_given_up = given_up.iter().any(|named| named.file_name() == path.file_name());
        let kept = |error: LogError| Outcome::Kept { why: error.to_string() };
        let outcome = match outcome_of(&path).unwrap_or_else(kept) {
            Outcome::Kept { .. } if is_given_up => give_up(&path, &is_open)?,
            outcome => outcome,
        };
        found.push(Orphan { path, outcome });
    }
    Ok(found)
}

/// To whom a directory belongs, as far as the kernel knows: what another user has mounted there is
/// not asked, because it may never answer.
fn owner_of(path: &Path) -> Option<u32> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    statx(CWD, path, flags, StatxFlags::UID).ok().map(|found| found.stx_uid)
}

fn outcome_of(path: &Path) -> Result<Outcome> {
    let kept = |why: String| Ok(Outcome::Kept { why });
    let folder = Folder::open(path, Trust::own()).map_err(at(path))?;
    let (log, is_nvram) = match content_of(&folder)? {
        Content::Memory(log) => (log, false),
        Content::Nvram(log) => (log, true),
        Content::Unknown => return kept("it does not say which log it belongs to".into()),
    };
    let root = match Folder::found(&log, Trust::own()) {
        Ok(root) => root,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let log = log.display();
            return kept(format!("its log {log} is not there: removed, moved, or not mounted"));
        }
        Err(e) => return Err(at(&log)(e)),
    };
    let is_joined = serving_socket(&root)?.is_some() || Slots::open(&root)?.is_joined(None);
    // A client waits for the next daemon. Until that starts, the client continues to append.
    if is_joined || has_client(&folder)? {
        return Ok(Outcome::InUse);
    }
    if is_nvram {
        return kept(format!("it is the NVRAM of the log {}", log.display()));
    }
    if !is_memory_of(&root, path)? {
        return kept(format!("the log {} has other shared memory", log.display()));
    }
    bring_home(&log, path)
}

/// Opens and closes the log, which removes the memory when all of it is in the log files.
fn bring_home(log: &Path, memory: &Path) -> Result<Outcome> {
    let parent = memory.parent().expect("it was found in a directory");
    let opened = Log::open(log, &Options { memory: parent.into(), ..Options::default() })?;
    opened.close()?;
    if !memory.exists() {
        return Ok(Outcome::BroughtHome(log.into()));
    }
    let log = log.display();
    let why = format!("the log {log} has records in it that cannot be brought to its files");
    Ok(Outcome::Kept { why })
}

/// Removes a directory with all that it holds, unless a process uses it.
fn give_up(path: &Path, is_open: impl Fn(&Path) -> bool) -> Result<Outcome> {
    let folder = Folder::open(path, Trust::own()).map_err(at(path))?;
    if is_open(path) || has_client(&folder)? {
        return Ok(Outcome::InUse);
    }
    remove_memory(&folder)?;
    Ok(Outcome::GivenUp)
}

/// Whether a client of a daemon lives. It holds a lock on its words.
fn has_client(folder: &Folder) -> Result<bool> {
    for name in folder.names().map_err(within(folder, ""))? {
        if !name.starts_with("client-") {
            continue;
        }
        let file = folder.file(&name, Access::ReadOnly).map_err(within(folder, &name))?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
            return Ok(true);
        }
    }
    Ok(false)
}
