//! Finds a volume's journal among the block devices of the machine, by the UUIDs in its label. So a
//! mount needs no option for a journal on a disk, and `fsck` and `dump` need none either.
//!
//! Files and NVRAM cannot be searched for: `-o journal=PATH` and `--journal PATH` name them.
//!
//! The search reads 4 KiB of each device that this user may read. A label alone proves nothing: the
//! volume checks the journal when it is opened (UUIDs, incarnation).

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{AlignedBuf, BlockDevice};
use ext4::{RecordedJournal, uuid_text};
use host::{ListedDevice, block_devices};
use journal::Label;

use crate::advice;
use crate::error::{CliError, Result};
use crate::output::plain_path;

/// Bytes of each device that are read.
const LABEL_BYTES: usize = 4096;

/// What a command needs the journal for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Mount,
    ReadOnlyMount,
    Recovery,
    /// To print it.
    Print,
}

impl Need {
    fn is_met_without(self, recorded: &RecordedJournal) -> bool {
        match self {
            Need::Mount => false,
            Need::ReadOnlyMount | Need::Recovery => !recorded.holds_changes,
            Need::Print => !recorded.holds_changes && !recorded.is_closed,
        }
    }
}

/// The path of the journal of the volume on `device`, if the command needs one elsewhere: `given`,
/// or the device that has the journal that the volume records. `target` is for messages.
pub fn locate(
    target: &Path,
    device: &Arc<dyn BlockDevice>,
    given: Option<&Path>,
    need: Need,
) -> Result<Option<PathBuf>> {
    if let Some(given) = given {
        return Ok(Some(given.to_owned()));
    }
    match ext4::recorded_journal(device) {
        Ok(Some(recorded)) if !need.is_met_without(&recorded) => {
            Journals::look().path_of(target, &recorded).map(Some)
        }
        // The opening of the volume reports its errors.
        Ok(_) | Err(_) => Ok(None),
    }
}

/// The first bytes of a device, past the page cache.
fn start_of(device: &ListedDevice) -> io::Result<AlignedBuf> {
    let mut start = AlignedBuf::zeroed(LABEL_BYTES);
    device.open()?.read_exact_at(&mut start, 0)?;
    Ok(start)
}

/// The journals on the block devices of the machine.
pub struct Journals {
    found: Vec<(ListedDevice, Label)>,
    /// Devices that could not be read.
    unread_count: usize,
}

impl Journals {
    /// Looks for all of them.
    pub fn look() -> Journals {
        let mut journals = Journals { found: Vec::new(), unread_count: 0 };
        for device in block_devices() {
            match start_of(&device) {
                Ok(start) => journals.add(device, &start),
                Err(_) => journals.unread_count += 1,
            }
        }
        journals
    }

    fn add(&mut self, device: ListedDevice, start: &[u8]) {
        let Some(label) = Label::peek(start) else { return };
        // Two loop devices of one file are one journal.
        if !self.found.iter().any(|(other, _)| other.begins_where(&device)) {
            self.found.push((device, label));
        }
    }

    fn paths(&self, is_it: impl Fn(&Label) -> bool) -> Vec<PathBuf> {
        let found = self.found.iter().filter(|(_, label)| is_it(label));
        found.map(|(device, _)| device.path.clone()).collect()
    }

    /// Where the journals of this volume are.
    pub fn of_volume(&self, volume_uuid: &[u8; 16]) -> Vec<PathBuf> {
        self.paths(|label| label.volume_uuid == *volume_uuid)
    }

    /// Where the journal is that the volume `target` records.
    fn path_of(&self, target: &Path, recorded: &RecordedJournal) -> Result<PathBuf> {
        match &self.paths(|label| label.journal_uuid == recorded.journal_uuid)[..] {
            [path] => Ok(path.clone()),
            [] => {
                let unread = match self.unread_count {
                    0 => String::new(),
                    count => format!(" ({count} of them cannot be read)"),
                };
                let missing = advice::of_volume(&recorded.missing());
                let why = format!("no block device has its journal{unread}: {missing}");
                Err(CliError::at(target, why))
            }
            paths => {
                let names: Vec<String> = paths.iter().map(|path| plain_path(path)).collect();
                let why = format!(
                    "its journal {} is on {}, so one of them is a copy: detach the copy. Or name \
                     the journal that the volume was mounted with last: onejournal mount -o \
                     journal=PATH TARGET DIR, or onejournal fsck --journal PATH TARGET",
                    uuid_text(&recorded.journal_uuid),
                    names.join(" and on ")
                );
                Err(CliError::at(target, why))
            }
        }
    }
}
