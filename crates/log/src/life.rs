//! Which shared memory, and which directory on NVRAM, are a directory's own.
//!
//! `DIR/life` names the memory: by a random name, for one boot of the machine and one directory, known by device, inode and
//! time of birth. So a copy of a directory has memory of its own, memory that outlived the machine on a disk is none, and
//! whoever was given another `memory` goes on in the one that is there.
//!
//! NVRAM is named by the log's UUID, which a copy has, too: a file `owner` there says whose it is.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::files::{at, make_directory, parse, sync_directory, write_whole};
use crate::host::Settings;
use crate::slots::refuse_if_joined;
use crate::{LogError, Result};

/// What the names of shared memory, and of directories on NVRAM, begin with; 32 hexadecimal digits follow.
const PREFIX: &str = "onejournal-";

/// What is in a life's memory when the service was recovered to it.
pub(crate) const CONTROL: &str = "control";

/// A life of a service's shared memory.
#[derive(Debug, Serialize, Deserialize)]
struct Life {
    /// Path of the memory, a directory.
    memory: PathBuf,
    /// Boot of the machine that it was made in.
    boot: String,
    /// Whose it is.
    directory: DirectoryId,
}

/// Tells a directory from its copies.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DirectoryId {
    device: u64,
    inode: u64,
    /// Nanoseconds since 1970; `None` where the file system does not know.
    born_ns: Option<u64>,
}

/// Whose a directory on NVRAM is.
#[derive(Debug, Serialize, Deserialize)]
struct Owner {
    /// For people: it may have been renamed.
    log: String,
    /// Boot of the machine in which it was last opened.
    boot: String,
    directory: DirectoryId,
}

impl DirectoryId {
    fn of(path: &Path) -> Result<DirectoryId> {
        let found = fs::metadata(path).map_err(at(path))?;
        let born = found.created().ok();
        let since = born.and_then(|born| born.duration_since(SystemTime::UNIX_EPOCH).ok());
        Ok(DirectoryId {
            device: found.dev(),
            inode: found.ino(),
            born_ns: since.and_then(|since| u64::try_from(since.as_nanos()).ok()),
        })
    }

    /// Whether it is the same one after a restart of the machine, which numbers devices anew.
    fn is_still(&self, other: &DirectoryId) -> bool {
        (self.inode, self.born_ns) == (other.inode, other.born_ns)
    }
}

/// The shared memory of the service in `path`, if there is one that it can go on in. What is left of an older one is
/// removed. The caller has the service's lock.
pub(crate) fn find_memory(path: &Path) -> Result<Option<PathBuf>> {
    let file = path.join("life");
    let life: Life = match fs::read(&file) {
        Ok(text) => parse(&file, &text)?,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at(&file)(e)),
    };
    if life.directory != DirectoryId::of(path)? {
        tracing::debug!(
            "{} is a copy, or mounted anew: {} is not its own",
            path.display(),
            life.memory.display()
        );
        return Ok(None);
    }
    if !is_own(path, &life.memory)? {
        refuse_if_joined(
            path,
            &format!(
                "a process uses it with the shared memory {}, which was removed or cannot be seen from here (another \
                 /dev/shm, in a container): end that process first, or let both see the same",
                life.memory.display()
            ),
        )?;
        return Ok(None);
    }
    if life.boot == boot()? && life.memory.join(CONTROL).try_exists().map_err(at(&life.memory))? {
        return Ok(Some(life.memory));
    }
    refuse_if_joined(
        path,
        "its shared memory was removed while a process uses it: end that process first",
    )?;
    fs::remove_dir_all(&life.memory).map_err(at(&life.memory))?;
    Ok(None)
}

/// Makes shared memory for the service in `path`, a directory in `memory` that others may not enter.
pub(crate) fn make_memory(path: &Path, memory: &Path) -> Result<PathBuf> {
    refuse_if_joined(path, "a process uses it with other shared memory: end that process first")?;
    make_directory(memory, 0o700)?;
    let memory = fs::canonicalize(memory).map_err(at(memory))?;
    let memory = memory.join(format!("{PREFIX}{}", random_name()?));
    let life = Life { memory, boot: boot()?, directory: DirectoryId::of(path)? };
    // Named first: what is made is never left behind without a name.
    let text = serde_json::to_vec_pretty(&life)
        .map_err(|e| LogError::Usage(format!("{}: {e}", life.memory.display())))?;
    write_whole(&path.join("life"), &text)?;
    let Life { memory, .. } = life;
    if let Err(e) = fs::DirBuilder::new().mode(0o700).create(&memory) {
        // Else it would name what is another's.
        let _ = fs::remove_file(path.join("life"));
        return Err(at(&memory)(e));
    }
    Ok(memory)
}

/// Whether there is a directory `memory` as [`make_memory`] makes it, by us or by the owner of `path`.
fn is_own(path: &Path, memory: &Path) -> Result<bool> {
    let found = match fs::symlink_metadata(memory) {
        Ok(found) => found,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(at(memory)(e)),
    };
    let name = memory.file_name().and_then(|name| name.to_str());
    let is_named = name.and_then(|name| name.strip_prefix(PREFIX)).is_some_and(is_uuid);
    let owners = [rustix::process::geteuid().as_raw(), fs::metadata(path).map_err(at(path))?.uid()];
    if is_named && found.is_dir() && owners.contains(&found.uid()) && found.mode() & 0o077 == 0 {
        return Ok(true);
    }
    Err(LogError::Incompatible(format!(
        "{} should be a directory of shared memory that nobody else may enter, and is owned by user {} with mode {:o}: \
         end all processes that use the log and remove {}",
        memory.display(),
        found.uid(),
        found.mode(),
        path.join("life").display(),
    )))
}

/// 32 hexadecimal digits.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// 32 hexadecimal digits of the kernel's: a forked process has the random numbers of its parent.
pub(crate) fn random_name() -> Result<String> {
    let path = Path::new("/proc/sys/kernel/random/uuid");
    Ok(fs::read_to_string(path).map_err(at(path))?.trim().replace('-', ""))
}

fn boot() -> Result<String> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    Ok(fs::read_to_string(path).map_err(at(path))?.trim().to_owned())
}

/// The directory of the service in `path` on `nvram`. It is made, durably, before the first stream is; when it `may_hold`
/// records another one is none. An error also when it is another log's.
pub(crate) fn nvram_of(
    path: &Path,
    nvram: &Path,
    settings: &Settings,
    may_hold: bool,
) -> Result<PathBuf> {
    let own = nvram.join(format!("{PREFIX}{}", settings.uuid));
    let file = own.join("owner");
    let (boot, directory) = (boot()?, DirectoryId::of(path)?);
    let claim = || -> Result<()> {
        let log = fs::canonicalize(path).map_err(at(path))?.to_string_lossy().into_owned();
        let owner = Owner { log, boot: boot.clone(), directory: DirectoryId::of(path)? };
        write_whole(&file, &serde_json::to_vec_pretty(&owner).expect("plain data"))
    };
    match fs::read(&file) {
        Ok(text) => {
            let owner: Owner = parse(&file, &text)?;
            if owner.boot == boot && owner.directory == directory {
                return Ok(own);
            }
            // Devices are numbered anew by a restart, and by nothing else.
            if owner.boot != boot && owner.directory.is_still(&directory) {
                claim()?;
                return Ok(own);
            }
            let (own, file, path) = (own.display(), file.display(), path.display());
            Err(LogError::Incompatible(format!(
                "{own} holds records of the log in {}, and {path} is a copy of that. If it is that log, moved as a \
                 whole or mounted anew: remove {file}. If that log is gone and this an older copy: empty {own}. To \
                 use both: give this one another uuid, 32 hexadecimal digits, in {path}/service.json and make its \
                 directory on the NVRAM, onejournal-UUID; it begins with what is in its files",
                owner.log
            )))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            if !own.try_exists().map_err(at(&own))? {
                if may_hold {
                    let own = own.display();
                    return Err(LogError::Incompatible(format!(
                        "the NVRAM directory {own} is missing: records that were synced may be nowhere else. Is it \
                         mounted? To give those up, end all processes that use the log and make an empty one: mkdir \
                         -m 700 {own}"
                    )));
                }
                fs::DirBuilder::new().mode(0o700).create(&own).map_err(at(&own))?;
            }
            sync_directory(nvram)?;
            claim()?;
            Ok(own)
        }
        Err(e) => Err(at(&file)(e)),
    }
}
