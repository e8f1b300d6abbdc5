//! What a service's records lie on: chunk files on NVRAM, or the group log on the directory's disk.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use device::{Access, Disk, Durability, MappedNvram, Nvram};

use crate::chunk::DATA_OFFSET;
use crate::files::{at, open_or_make, sync_directory};
use crate::host::Settings;
use crate::{LogError, Result};

/// What a store to the directory `nvram` survives; makes the files of the chunks there, durably.
pub(crate) fn class_of(nvram: &Path, settings: &Settings) -> Result<Durability> {
    let known = |name: &String| {
        let unknown = || LogError::Incompatible(format!("durability {name} is not known"));
        Durability::from_name(name).ok_or_else(unknown)
    };
    let asked = settings.durability.as_ref().map(known).transpose()?;
    let len_bytes = DATA_OFFSET + settings.chunk_bytes;
    for index in (0..settings.chunk_count).rev() {
        let path = nvram.join(format!("chunk-{index:04}"));
        if !fs::metadata(&path).is_ok_and(|found| found.len() == len_bytes) {
            // A client may have made it longer.
            let file = open_or_make(&path, 0o600, len_bytes)?;
            file.set_len(len_bytes).and_then(|()| file.sync_all()).map_err(at(&path))?;
        }
    }
    sync_directory(nvram)?;
    // A file that no client has.
    let path = nvram.join("probe");
    let file = open_or_make(&path, 0o600, DATA_OFFSET)?;
    let class = MappedNvram::share(&path, file.into(), Access::ReadWrite, asked)?.durability();
    fs::remove_file(&path).map_err(at(&path))?;
    Ok(class)
}

/// The group log, made with zeros that are written and not only reserved: a durable write there then
/// changes no metadata.
pub(crate) fn open_group(path: &Path, len_bytes: u64) -> Result<Disk> {
    let is_whole = fs::metadata(path).is_ok_and(|found| found.len() == len_bytes);
    if !is_whole {
        let new = path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .map_err(at(&new))?;
        let zeros = vec![0; 1 << 20];
        let mut left = len_bytes;
        while left > 0 {
            let count = left.min(zeros.len() as u64);
            file.write_all(&zeros[..usize::try_from(count).expect("1 MiB at most")])
                .map_err(at(&new))?;
            left -= count;
        }
        file.sync_all().map_err(at(&new))?;
        fs::rename(&new, path).map_err(at(path))?;
        sync_directory(path.parent().expect("in a directory"))?;
    }
    Ok(Disk::open_shared(path)?)
}
