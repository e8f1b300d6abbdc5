//! An external journal: what PATH in `-o journal=PATH` and `--journal PATH` may be.
//!
//! | PATH | becomes |
//! |---|---|
//! | a DAX device; a file on a DAX file system, tmpfs, ramfs or hugetlbfs | NVRAM |
//! | a block device | a block device |
//! | any other file | a block device of its blocks |
//! | nothing | made as a file of `journal_size=` bytes, then as above |
//!
//! The content of the journal is as private as the volume, and OneJournal believes it. So for
//! writing it must belong to a trusted user ([`target::trust`]), others must not be able to write a
//! regular file, and a link to it must have been made by a trusted user.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{AddedLatency, Disk, Durability, MappedNvram, Metered, MeteredNvram, Nvram};
use host::{Access, Found, Trust};
use journal::Medium;
use mount::JournalCounters;
use rustix::fs::{FileType, OFlags};

use crate::new_file::{NewFile, remove_if_failed};
use crate::output::plain_path;
use crate::target::{REPLACED, Unopened};
use crate::{CliError, Result, target};

/// Smallest journal of four regions. A smaller one, in a file that exists, gets fewer regions.
pub const MIN_JOURNAL_BYTES: u64 = 4 << 20;

/// The options that concern it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalOptions {
    /// Where it is.
    pub path: PathBuf,
    /// Size in bytes of a file that is made because it does not exist.
    pub size_bytes: Option<u64>,
    /// Additional nanoseconds for each cache line; NVRAM only.
    pub latency_ns_per_line: u64,
}

/// Opens the journal for a mount of the volume `target`, which is on `disk`. `asked`: the
/// durability class that the user asked for, if any.
pub fn open_for_mount(
    target: &Path,
    disk: &Disk,
    options: &JournalOptions,
    asked: Option<Durability>,
) -> Result<OpenJournal> {
    let path = &options.path;
    let how = "does not exist; to make it: -o journal=TARGET,journal_size=64M";
    let trust = target::trust(target, disk)?;
    let made = look_or_make(path, target, trust, options.size_bytes, how)?;
    let opened = open_made(path, made.as_ref(), asked, trust);
    let opened = opened.and_then(|medium| slow_down(medium, options));
    Ok(remove_if_failed(made.as_ref(), opened)?.metered())
}

/// Opens the journal of `target`, which is on `disk`, for a command that does not mount, whatever
/// its durability class.
pub fn open_as_it_is(path: &Path, access: Access, target: &Path, disk: &Disk) -> Result<Medium> {
    let writes = access == Access::ReadWrite;
    let trust = writes.then(|| target::trust(target, disk)).transpose()?;
    Ok(open(path, access, Some(Durability::Process), trust)?.metered().medium)
}

/// The same for writing. A file that does not exist is made with `size_bytes` bytes; the second
/// value is that file.
pub fn open_or_make(
    path: &Path,
    target: &Path,
    disk: &Disk,
    size_bytes: Option<u64>,
) -> Result<(Medium, Option<NewFile>)> {
    let how = "does not exist; to make a file there, add: --journal-size 64M";
    let trust = target::trust(target, disk)?;
    let made = look_or_make(path, target, trust, size_bytes, how)?;
    let opened = open_made(path, made.as_ref(), Some(Durability::Process), trust);
    Ok((remove_if_failed(made.as_ref(), opened)?.metered().medium, made))
}

/// An open journal.
pub struct OpenJournal {
    pub medium: Medium,
    /// Counters of what reached it. They do not change after it was closed.
    pub counters: Arc<dyn Fn() -> JournalCounters + Send + Sync>,
}

enum Opened {
    Disk(Disk),
    Mapped(MappedNvram),
    Slow(AddedLatency<MappedNvram>),
}

impl Opened {
    /// The attributes of the open file or device.
    fn metadata(&self) -> std::io::Result<Metadata> {
        let file = match self {
            Opened::Disk(disk) => disk.file(),
            Opened::Mapped(nvram) => nvram.file(),
            Opened::Slow(nvram) => nvram.inner().file(),
        };
        file.map_err(|error| error.source)?.metadata()
    }

    fn metered(self) -> OpenJournal {
        match self {
            Opened::Disk(disk) => metered_block(disk),
            Opened::Mapped(nvram) => metered_nvram(nvram),
            Opened::Slow(nvram) => metered_nvram(nvram),
        }
    }
}

fn metered_block(disk: Disk) -> OpenJournal {
    let device = Arc::new(Metered::new(disk));
    let counted = Arc::downgrade(&device);
    let counters = move || {
        let counters = counted.upgrade().map(|device| device.counters());
        JournalCounters::Block(counters.unwrap_or_default())
    };
    OpenJournal { medium: Medium::Block(device), counters: Arc::new(counters) }
}

fn metered_nvram(nvram: impl Nvram + 'static) -> OpenJournal {
    let nvram = Arc::new(MeteredNvram::new(nvram));
    let counted = Arc::downgrade(&nvram);
    let counters = move || {
        let counters = counted.upgrade().map(|nvram| nvram.counters());
        JournalCounters::Nvram(counters.unwrap_or_default())
    };
    OpenJournal { medium: Medium::Nvram(nvram), counters: Arc::new(counters) }
}

fn open(
    path: &Path,
    access: Access,
    asked: Option<Durability>,
    trust: Option<Trust>,
) -> Result<Opened> {
    let found = match trust {
        Some(trust) => trust.look(path).map_err(target::opening)?,
        None => {
            target::check_way(path)?;
            Found::at(path, OFlags::empty()).ok()
        }
    };
    let is_block =
        |found: Found| FileType::from_raw_mode(found.stat.st_mode) == FileType::BlockDevice;
    if !found.is_some_and(is_block) {
        let mapped = match trust {
            Some(trust) => MappedNvram::open_trusted(path, access, asked, trust),
            None => MappedNvram::open(path, access, asked),
        };
        match mapped {
            Ok(nvram) => return Ok(Opened::Mapped(nvram)),
            // It cannot be mapped as memory: a file like any other.
            Err(error) if error.source.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(target::opening(error)),
        }
    }
    // A daemon that has just closed the volume has the journal a moment longer.
    let disk = target::patiently(path, || match trust {
        Some(trust) => Disk::open_trusted(path, access, trust),
        None => Disk::open(path, access),
    });
    Ok(Opened::Disk(disk.map_err(|unopened| match unopened {
        Unopened::Device(error) => target::opening(error),
        Unopened::Explained { error, .. } => error,
    })?))
}

/// Opens the journal for writing. Its file is `made`, if that was made for it.
fn open_made(
    path: &Path,
    made: Option<&NewFile>,
    asked: Option<Durability>,
    trust: Trust,
) -> Result<Opened> {
    let opened = open(path, Access::ReadWrite, asked, Some(trust))?;
    let Some(made) = made else { return Ok(opened) };
    match opened.metadata().is_ok_and(|found| made.is(&found)) {
        true => Ok(opened),
        false => Err(CliError::at(path, REPLACED)),
    }
}

fn slow_down(opened: Opened, options: &JournalOptions) -> Result<Opened> {
    match (options.latency_ns_per_line, opened) {
        (0, opened) => Ok(opened),
        (ns_per_line, Opened::Mapped(nvram)) => {
            Ok(Opened::Slow(AddedLatency::new(nvram, ns_per_line)))
        }
        (_, Opened::Disk(_) | Opened::Slow(_)) => {
            Err(CliError::at(&options.path, "is not NVRAM: leave journal_latency out"))
        }
    }
}

/// Refuses a journal that is the volume `target`, a part of it, or its disk. Makes the file durably
/// if it does not exist, and returns it then. `how`: what to say of a file that does not exist if
/// no size is given.
fn look_or_make(
    path: &Path,
    target: &Path,
    trust: Trust,
    size_bytes: Option<u64>,
    how: &str,
) -> Result<Option<NewFile>> {
    let failed = |error: std::io::Error| CliError::at(path, error);
    if let Some(found) = trust.look(path).map_err(target::opening)? {
        return match host::share_bytes(target, &found).unwrap_or(false) {
            false => Ok(None),
            true => {
                let volume = plain_path(target);
                let why = format!(
                    "has bytes in common with the volume {volume}: name another device for the \
                     journal"
                );
                Err(CliError::at(path, why))
            }
        };
    }
    let Some(size_bytes) = size_bytes else { return Err(CliError::at(path, how)) };
    let (directory, name) = trust.place_of_new(path).map_err(target::opening)?;
    let made = NewFile::make_in(directory, name, size_bytes, 0o600).map_err(failed)?;
    match made.sync() {
        Ok(()) => Ok(Some(made)),
        Err(error) => {
            made.remove();
            Err(failed(error))
        }
    }
}

/// Parses the size of a journal.
pub fn parse_journal_size(text: &str) -> std::result::Result<u64, String> {
    let size_bytes = target::parse_size(text)?;
    if size_bytes < MIN_JOURNAL_BYTES {
        return Err("a journal needs at least 4M".into());
    }
    Ok(size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_journal_that_was_exchanged_for_the_new_file_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let trust = Trust::own().and_root();
        let make = |name: &str| {
            let made = look_or_make(&at(name), &at("volume"), trust, Some(MIN_JOURNAL_BYTES), "");
            made.ok().flatten()
        };
        let (made, other) = (make("made").expect("made"), make("other").expect("made"));
        let open =
            |made: &NewFile| open_made(&at("made"), Some(made), Some(Durability::Process), trust);
        assert!(open(&made).is_ok());
        assert!(open(&other).err().expect("refused").text.contains(REPLACED));
        assert!(make("made").is_none(), "there is one");
    }
}
