//! Which shared memory, and which directory on NVRAM, belong to a log's directory.
//!
//! An *incarnation* of a service is the time for which its shared memory exists. `DIR/incarnation`
//! names the memory: its random name, the boot of the machine, and the log's directory by device,
//! inode and time of birth. Three things follow:
//!
//! - A copy of a directory gets memory of its own.
//! - Memory that outlived the machine on a disk is not used.
//! - A process with another `memory` option uses the memory that is there.
//!
//! `DIR/incarnation` is not synced. After a power cut it may hold anything, and the memory that it
//! named is gone.
//!
//! A directory on NVRAM is named by the UUID that the log was made with, also of a copy. So it has
//! a file `owner` with the log's directory. The shared memory has a file `log` with the path of
//! DIR, for `orphans`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use host::Folder;
use rustix::fs::fstat;
use serde::{Deserialize, Serialize};

use crate::directory::room::Room;
use crate::directory::slots::Slots;
use crate::error::advised;
use crate::host::{DirectoryId, Settings};
use crate::media::files::{
    at, make_directory, parse, remove_if_there, within, write_for_this_boot, write_whole,
};
use crate::{LogError, Result};

/// What the names of shared memory, and of directories on NVRAM, begin with; 32 hexadecimal digits
/// follow.
const PREFIX: &str = "onejournal-";

/// File in a directory on NVRAM that names the log it belongs to.
const OWNER: &str = "owner";

/// File in an incarnation's memory with the path of the log's directory.
const LOG: &str = "log";

/// File in an incarnation's memory. It exists once the service was recovered to that memory.
pub(crate) const CONTROL: &str = "control";

/// An incarnation of a service's shared memory.
#[derive(Debug, Serialize, Deserialize)]
struct Incarnation {
    /// Path of the memory, a directory.
    memory: PathBuf,
    /// The boot of the machine in which it was made.
    boot: String,
    /// The log's directory that it belongs to.
    directory: MountedDirectory,
}

/// Tells a directory from its copies, and from itself when it is mounted anew.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MountedDirectory {
    device: u64,
    #[serde(flatten)]
    id: DirectoryId,
}

/// The log that a directory on NVRAM belongs to.
#[derive(Debug, Serialize, Deserialize)]
struct Owner {
    /// Path of the log's directory, for people: it may have been renamed.
    log: String,
    /// Boot of the machine in which it was last opened.
    boot: String,
    directory: MountedDirectory,
}

impl DirectoryId {
    /// That of an open directory.
    pub(crate) fn of(root: &Folder) -> Result<DirectoryId> {
        MountedDirectory::of(root).map(|found| found.id)
    }
}

impl MountedDirectory {
    fn of(root: &Folder) -> Result<MountedDirectory> {
        let copy = root.as_fd().try_clone_to_owned().map(File::from);
        let found = copy.and_then(|copy| copy.metadata()).map_err(at(root.path()))?;
        let born = found.created().ok();
        let since = born.and_then(|born| born.duration_since(SystemTime::UNIX_EPOCH).ok());
        let born_ns = since.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Ok(MountedDirectory {
            device: found.dev(),
            id: DirectoryId { inode: found.ino(), born_ns },
        })
    }
}

/// Name of the file. Part of the format.
const INCARNATION: &str = "incarnation";

/// What became of a service's shared memory.
pub(crate) enum Found {
    /// The service can continue in it.
    Memory(Folder),
    /// There is none.
    None,
    /// Processes use memory that this process cannot find. The error says so.
    Used(LogError),
}

/// Finds the shared memory of the service in `root`. Removes memory of an older incarnation. The
/// caller has the service's lock.
pub(crate) fn find_memory(root: &Folder, slots: &Slots) -> Result<Found> {
    let Some(text) = root.read(INCARNATION).map_err(within(root, INCARNATION))? else {
        return Ok(Found::None);
    };
    // It is not synced: within the boot that it is for the page cache has it whole.
    let Ok(incarnation) = parse::<Incarnation>(&root.at(INCARNATION), &text) else {
        return Ok(Found::None);
    };
    if incarnation.directory != MountedDirectory::of(root)? {
        tracing::debug!(
            "{} is a copy, or mounted anew: {} is not its own",
            root.path().display(),
            incarnation.memory.display()
        );
        return Ok(Found::None);
    }
    let path = incarnation.memory.display();
    let unless_used = |why: String| {
        let used = slots.refuse_if_joined(&why);
        Ok(used.map_or_else(Found::Used, |()| Found::None))
    };
    let memory = match own_memory(root, &incarnation.memory)? {
        Named::Own(memory) => memory,
        Named::Nothing => {
            return unless_used(format!(
                "a process uses it with the shared memory {path}, which was removed or cannot be \
                 seen from here (another /dev/shm, in a container): end that process first, or let \
                 both see the same"
            ));
        }
        Named::OfUser(uid) => {
            tracing::warn!("the shared memory {path} belongs to user {uid} and is left alone");
            return unless_used(format!(
                "a process uses it with the shared memory {path} of user {uid}: end that process \
                 first"
            ));
        }
    };
    if incarnation.boot == boot()?
        && memory.stat(CONTROL).map_err(within(&memory, CONTROL))?.is_some()
    {
        name_log(root, &memory)?;
        return Ok(Found::Memory(memory));
    }
    let why = "its shared memory was removed while a process uses it: end that process first";
    match slots.refuse_if_joined(why) {
        Err(used) => Ok(Found::Used(used)),
        Ok(()) => remove_memory(&memory).map(|()| Found::None),
    }
}

/// Removes a service's shared memory.
pub(crate) fn remove_memory(memory: &Folder) -> Result<()> {
    memory.empty().and_then(|()| memory.remove_itself()).map_err(at(memory.path()))
}

/// Makes shared memory for the service in `root`, a directory in `memory` that others may not
/// enter, if there is `room`.
pub(crate) fn make_memory(
    root: &Folder,
    slots: &Slots,
    memory: &Path,
    room: Room,
) -> Result<Folder> {
    slots.refuse_if_joined("a process uses it with other shared memory: end that process first")?;
    room.check(memory)?;
    make_directory(memory, 0o700, root)?;
    let memory = fs::canonicalize(memory).map_err(at(memory))?;
    let memory = memory.join(format!("{PREFIX}{}", random_name()?));
    let incarnation = Incarnation { memory, boot: boot()?, directory: MountedDirectory::of(root)? };
    // Named first: what is made is never left behind without a name.
    let text = serde_json::to_vec_pretty(&incarnation)
        .map_err(|e| LogError::Usage(format!("{}: {e}", incarnation.memory.display())))?;
    write_for_this_boot(root, INCARNATION, &text)?;
    let Incarnation { memory, .. } = incarnation;
    let made =
        Folder::open_or_make(&memory, 0o700, root.trust()).and_then(
            |(folder, is_new)| match is_new {
                true => Ok(folder),
                false => Err(ErrorKind::AlreadyExists.into()),
            },
        );
    let folder = made.map_err(|e| {
        // The file must not name memory that this process did not make.
        let _ = remove_if_there(root, INCARNATION);
        at(&memory)(e)
    })?;
    name_log(root, &folder)?;
    Ok(folder)
}

/// Writes into the shared memory where its log is, unless it says so: the log's directory may have
/// been renamed.
fn name_log(root: &Folder, memory: &Folder) -> Result<()> {
    let log = root.real_path().map_err(at(root.path()))?;
    let log = log.as_os_str().as_encoded_bytes();
    match memory.read(LOG).map_err(within(memory, LOG))? {
        Some(known) if known == log => Ok(()),
        _ => write_for_this_boot(memory, LOG, log),
    }
}

/// Whether the directory `path` has a name as shared memory and directories on NVRAM have.
pub(crate) fn is_named_as_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_prefix(PREFIX)).is_some_and(is_uuid)
}

/// The log that a directory's records belong to, as far as the directory says.
pub(crate) enum Content {
    /// Shared memory of the log in this directory.
    Memory(PathBuf),
    /// Chunks on NVRAM of the log in this directory.
    Nvram(PathBuf),
    Unknown,
}

/// What the directory `folder` holds, which is named as ours.
pub(crate) fn content_of(folder: &Folder) -> Result<Content> {
    if let Some(text) = folder.read(OWNER).map_err(within(folder, OWNER))? {
        let owner: Owner = parse(&folder.at(OWNER), &text)?;
        return Ok(Content::Nvram(owner.log.into()));
    }
    let path = folder.read(LOG).map_err(within(folder, LOG))?;
    Ok(path.map_or(Content::Unknown, |path| Content::Memory(OsString::from_vec(path).into())))
}

/// Whether `memory` is the shared memory that the log in `root` goes on with.
pub(crate) fn is_memory_of(root: &Folder, memory: &Path) -> Result<bool> {
    let Some(text) = root.read(INCARNATION).map_err(within(root, INCARNATION))? else {
        return Ok(false);
    };
    let Ok(incarnation) = parse::<Incarnation>(&root.at(INCARNATION), &text) else {
        return Ok(false);
    };
    Ok(incarnation.memory == memory
        && incarnation.boot == boot()?
        && incarnation.directory == MountedDirectory::of(root)?)
}

/// What is at the path that an incarnation names.
enum Named {
    /// Its memory.
    Own(Folder),
    Nothing,
    /// Something of a user who does not own the log. The log's directory was given away, and the
    /// memory was not.
    OfUser(u32),
}

/// The directory `memory`, if it looks as [`make_memory`] makes it, and belongs to the owner of
/// `root`. Root owns the memory of other logs, too, and a user may name that in a log of his own.
fn own_memory(root: &Folder, memory: &Path) -> Result<Named> {
    let refuse = |why: String| {
        Err(LogError::Incompatible(format!(
            "{}, the shared memory of the log, {why}: end all processes that use the log and \
             remove {}",
            memory.display(),
            root.at(INCARNATION).display(),
        )))
    };
    if !is_named_as_ours(memory) {
        return refuse("is not named as it should be".into());
    }
    let place = match root.trust().find(memory) {
        Ok(place) => place,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Named::Nothing),
        Err(e) => return refuse(e.to_string()),
    };
    let found = fstat(&place).map_err(|e| at(memory)(e.into()))?;
    if found.st_uid != root.owner() {
        return Ok(Named::OfUser(found.st_uid));
    }
    let mode = found.st_mode & 0o7777;
    match Folder::at_place(place, memory, root.trust()) {
        Ok(folder) if mode & 0o077 == 0 => Ok(Named::Own(folder)),
        Ok(_) => refuse(format!("can be entered by other users (mode {mode:o})")),
        Err(e) => refuse(advised(e).to_string()),
    }
}

/// 32 hexadecimal digits.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// 32 random hexadecimal digits from the kernel. This process's own random numbers would be the
/// same as those of its parent after a fork.
pub(crate) fn random_name() -> Result<String> {
    let path = Path::new("/proc/sys/kernel/random/uuid");
    Ok(fs::read_to_string(path).map_err(at(path))?.trim().replace('-', ""))
}

fn boot() -> Result<String> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    Ok(fs::read_to_string(path).map_err(at(path))?.trim().to_owned())
}

/// The directory of the service in `root` on `nvram`. It is made, durably, before the first stream
/// is; when it `may_hold` records another one is none. An error also when it is another log's.
pub(crate) fn nvram_of(
    root: &Folder,
    nvram: &Path,
    settings: &Settings,
    may_hold: bool,
) -> Result<Folder> {
    let name = format!("{PREFIX}{}", settings.nvram_name());
    let path = nvram.join(&name);
    let (boot, directory) = (boot()?, MountedDirectory::of(root)?);
    let claim = |own: &Folder| -> Result<()> {
        let log = root.real_path().map_err(at(root.path()))?.to_string_lossy().into_owned();
        let owner = Owner { log, boot: boot.clone(), directory: MountedDirectory::of(root)? };
        write_whole(own, OWNER, &serde_json::to_vec_pretty(&owner).expect("plain data"))
    };
    let own = match Folder::found(&path, root.trust()) {
        Err(e) if e.kind() == ErrorKind::NotFound && may_hold => {
            let own = path.display();
            return Err(LogError::Incompatible(format!(
                "the NVRAM directory {own} is missing: records that were synced may be nowhere \
                 else. Is it mounted? To give those up, end all processes that use the log and \
                 make an empty one: mkdir -m 700 {own}"
            )));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Folder::make_in_found(nvram, &name, 0o700, root.trust()).map_err(at(&path))?
        }
        opened => opened.map_err(at(&path))?,
    };
    let Some(text) = own.read(OWNER).map_err(within(&own, OWNER))? else {
        own.sync_name().map_err(at(nvram))?;
        claim(&own)?;
        return Ok(own);
    };
    let owner: Owner = parse(&own.at(OWNER), &text)?;
    if owner.boot == boot && owner.directory == directory {
        return Ok(own);
    }
    // Devices are numbered again by a restart, and by nothing else.
    if owner.boot != boot && owner.directory.id == directory.id {
        claim(&own)?;
        return Ok(own);
    }
    let file = own.at(OWNER);
    let (own, file, path) = (path.display(), file.display(), root.path().display());
    Err(LogError::Incompatible(format!(
        "{own} holds records of the log in {}, and {path} is a copy of that. If it is that log, \
         moved as a whole or mounted anew: remove {file}. If that log is gone and this an older \
         copy: empty {own}. To use both: give this one another nvram_name, 32 hexadecimal digits, \
         in {path}/service.json and make its directory on the NVRAM, onejournal-NVRAM_NAME; it \
         begins with what is in its files",
        owner.log
    )))
}
