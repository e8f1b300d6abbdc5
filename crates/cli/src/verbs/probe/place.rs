//! What is measured: a directory, or a block device that may be overwritten.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use device::{DeviceError, DirectIo};
use host::Access;
use probe::{Area, Cache, Medium, kib};
use serde::{Serialize, Serializer};

use crate::occupant::Occupant;
use crate::{CliError, Result, target};

/// What is known without measuring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facts {
    pub path: String,
    pub kind: Kind,
    /// The type of the file system; nothing for a device.
    pub file_system: Option<String>,
    pub is_onejournal_volume: bool,
    /// Names of the whole disks below.
    pub disks: Vec<String>,
    pub durability: &'static str,
    /// Whether writes bypass the page cache.
    #[serde(serialize_with = "word")]
    pub direct_io: DirectIo,
    /// How an overwrite gets to the disk.
    #[serde(skip)]
    pub medium: Medium,
    pub area_bytes: u64,
}

/// What is measured, open.
pub struct Place {
    pub area: Area,
    pub facts: Facts,
    pub cache: Cache,
}

/// Whether a block device may be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    No,
    /// If nothing is found on it.
    IfEmpty,
    /// Whatever it holds.
    Always,
}

impl Permit {
    pub fn of(is_destroy: bool, is_forced: bool) -> Permit {
        match (is_destroy, is_forced) {
            (false, _) => Permit::No,
            (true, false) => Permit::IfEmpty,
            (true, true) => Permit::Always,
        }
    }
}

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Directory,
    Device,
}

impl Kind {
    /// What an interrupted measurement leaves, for people.
    pub fn what_is_left(self) -> &'static str {
        match self {
            Kind::Directory => "its files are removed",
            Kind::Device => "the beginning of the device is overwritten",
        }
    }

    pub fn of(path: &Path) -> Result<Kind> {
        let found = fs::metadata(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                CliError::at(path, "does not exist; name a directory or a block device")
            }
            _ => CliError::at(path, error),
        })?;
        match found.file_type() {
            kind if kind.is_dir() => Ok(Kind::Directory),
            kind if kind.is_block_device() => Ok(Kind::Device),
            kind if kind.is_file() => Err(CliError::at(
                path,
                "is a file; name the directory that it is in, or a block device",
            )),
            _ => Err(CliError::at(
                path,
                "is neither a directory nor a block device; name one of these",
            )),
        }
    }
}

impl Place {
    /// Opens the place. Nothing is written yet. A device is opened only if `permit` allows that.
    pub fn open(path: &Path, area_bytes: u64, permit: Permit) -> Result<Place> {
        let kind = Kind::of(path)?;
        let area = match kind {
            Kind::Directory => directory(path, area_bytes, permit)?,
            Kind::Device => device(path, area_bytes, permit)?,
        };
        let holder = area.holder();
        let (disks, mount) = (&holder.disks, holder.mount.as_ref());
        let facts = Facts {
            path: path.display().to_string(),
            kind,
            is_onejournal_volume: mount.is_some_and(|mount| mount.is_volume()),
            file_system: mount.map(|mount| mount.kind.clone()),
            disks: disks.disks.iter().map(|disk| disk.name.clone()).collect(),
            durability: holder.durability.map_or("unknown", |class| class.name()),
            direct_io: area.direct_io(),
            medium: holder.medium,
            area_bytes: area.area_bytes(),
        };
        let cache = Cache::of(holder.durability, disks.write_cache());
        Ok(Place { area, facts, cache })
    }
}

/// The word in JSON.
fn word<S: Serializer>(
    direct_io: &DirectIo,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(match direct_io {
        DirectIo::Yes => "yes",
        DirectIo::No => "no",
        DirectIo::Unknown => "unknown",
    })
}

fn directory(path: &Path, area_bytes: u64, permit: Permit) -> Result<Area> {
    if permit != Permit::No {
        let why = "is a directory, of which nothing is destroyed; leave --destroy out";
        return Err(CliError { code: crate::error::USAGE, ..CliError::at(path, why) });
    }
    Area::in_directory(path, area_bytes).map_err(|error| refusal(path, &error))
}

/// Why no file can be made in a directory, and what to do.
fn refusal(path: &Path, error: &DeviceError) -> CliError {
    let error = &error.source;
    let text = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("{error}; free some space, or give a smaller --size")
        }
        ErrorKind::FileTooLarge => {
            format!(
                "{error}: a limit of the user (ulimit -f) or of the file system; give a smaller \
                 --size"
            )
        }
        ErrorKind::ReadOnlyFilesystem => {
            "its file system is read-only, and a measurement has to write; name another directory"
                .into()
        }
        ErrorKind::PermissionDenied => {
            format!("{error}; the user who runs this has to be allowed to make files in it")
        }
        _ => error.to_string(),
    };
    CliError::at(path, text)
}

fn device(path: &Path, area_bytes: u64, permit: Permit) -> Result<Area> {
    if permit == Permit::No {
        let why = format!(
            "is a block device, and measuring overwrites its first {}; nothing was written. To \
             lose what it holds: onejournal probe --destroy TARGET. To measure without loss, name \
             a directory on it",
            kib(area_bytes)
        );
        return Err(CliError::at(path, why));
    }
    let disk = target::open(path, Access::ReadWrite)?;
    if !target::metadata(path, &disk)?.file_type().is_block_device() {
        return Err(CliError::at(path, target::REPLACED));
    }
    if permit == Permit::IfEmpty
        && let Some(found) = Occupant::of(&disk).map_err(|error| CliError::at(path, error))?
    {
        return Err(CliError::at(path, found.refusal("onejournal probe --destroy --force")));
    }
    Area::on_device(disk, area_bytes).map_err(|error| CliError::at(path, error.source))
}

#[cfg(test)]
mod tests {
    use probe::AREA_BYTES_MIN;

    use super::*;

    /// The path led to a device when it was looked at.
    #[test]
    fn regression_a_file_in_the_place_of_a_device_is_not_overwritten() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(AREA_BYTES_MIN).unwrap();
        let refused = device(file.path(), AREA_BYTES_MIN, Permit::Always).err().expect("refused");
        assert!(refused.text.contains(target::REPLACED), "{}", refused.text);
    }
}
