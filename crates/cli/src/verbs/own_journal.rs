//! A volume's own journal elsewhere: what `mkfs --journal` and `set-journal` have in common.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use device::{BlockDevice, Disk};
use ext4::NewJournal;
use journal::{JournalError, Label, Medium};

use crate::advice;
use crate::error::{CliError, Result};
use crate::journal_path::{self, MIN_JOURNAL_BYTES};
use crate::new_file::{NewFile, remove_if_failed};
use crate::output::{complain, plain_path};

/// A medium that becomes the journal of a volume, claimed until the value is dropped.
pub struct Opened {
    pub path: PathBuf,
    pub new: NewJournal,
    /// Its file, if that was made.
    made: Option<NewFile>,
    /// Whether `mount` finds it by itself.
    is_found: bool,
    /// Whether it is on the disk of the volume.
    is_on_same_disk: bool,
}

/// Opens `path` for the journal of the volume on `disk`, which is at `target`. A file that does not
/// exist is made with `size_bytes` bytes. Nothing of an existing medium is changed.
pub fn open(
    target: &Path,
    disk: &Disk,
    path: &Path,
    size_bytes: Option<u64>,
    force: bool,
) -> Result<Opened> {
    let (medium, made) = journal_path::open_or_make(path, target, disk, size_bytes)?;
    let is_on_same_disk =
        matches!(&medium, Medium::Block(journal) if share_a_disk(&**journal, disk));
    let checked = check_size(path, medium.len_bytes())
        .and_then(|()| path.canonicalize().map_err(|error| CliError::at(path, error)));
    Ok(Opened {
        path: remove_if_failed(made.as_ref(), checked)?,
        made,
        is_found: std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()),
        is_on_same_disk,
        new: NewJournal { medium, size_bytes, force },
    })
}

fn check_size(path: &Path, len_bytes: u64) -> Result<()> {
    if len_bytes >= MIN_JOURNAL_BYTES {
        return Ok(());
    }
    let why =
        format!("has {len_bytes} bytes, and a journal needs 4M at least: name a larger device");
    Err(CliError::at(path, why))
}

fn share_a_disk(journal: &dyn BlockDevice, volume: &dyn BlockDevice) -> bool {
    journal.caches().iter().any(|cache| volume.caches().contains(cache))
}

impl Opened {
    /// The error of making it a journal, which is about the volume `target` or about this medium.
    pub fn failed(&self, target: &Path, error: &ext4::Error) -> CliError {
        use ext4::Error::{Journal, WrongJournal};
        let is_of_medium = matches!(error, WrongJournal(_) | Journal(JournalError::TooSmall(_)));
        advice::at_volume(if is_of_medium { &self.path } else { target }, error)
    }

    /// Removes a file that was made for nothing.
    pub fn take_back(self) {
        if let Some(made) = self.made {
            made.remove();
        }
    }

    /// Size of the journal that it holds.
    pub fn size_bytes(&self) -> u64 {
        let label = Label::read(&self.new.medium).ok().flatten();
        let space = label.and_then(|label| label.space(&self.new.medium).ok());
        space.map_or(0, |space| space.len_bytes())
    }

    /// The command that mounts the volume `target` with it.
    pub fn how_to_mount(&self, target: &Path) -> String {
        let option = match self.is_found {
            true => String::new(),
            false => format!("-o journal={} ", plain_path(&self.path)),
        };
        format!("onejournal mount {option}{} DIR", plain_path(target))
    }

    /// Says what its place costs.
    pub fn warn(&self, target: &Path) {
        if self.is_on_same_disk {
            complain!(
                "onejournal: {}: warning: it is on the same disk as {}, so it is no faster than a \
                 journal in the volume",
                plain_path(&self.path),
                plain_path(target)
            );
        }
    }
}
