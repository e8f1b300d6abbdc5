//! What a service's records lie on: chunk files on NVRAM, or the group log on the directory's disk.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use device::{Access, Disk, Durability, MappedNvram, Nvram};

use crate::chunk::DATA_OFFSET;
use crate::files::{at, open_or_make, replace, sync_directory};
use crate::host::Settings;
use crate::{LogError, Result};

/// What a store to the log's directory `nvram` survives; makes the files of the chunks there, durably.
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
/// changes no metadata. It is made before the first stream is; when it `may_hold` records another one is none.
pub(crate) fn open_group(path: &Path, len_bytes: u64, may_hold: bool) -> Result<Disk> {
    let found = match fs::metadata(path) {
        Ok(found) => Some(found.len()),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(at(path)(e)),
    };
    if found != Some(len_bytes) {
        if may_hold {
            let found = match found {
                Some(found) => format!("is {found} bytes long instead of {len_bytes}"),
                None => "is missing".into(),
            };
            let path = path.display();
            return Err(LogError::Incompatible(format!(
                "the group log {path} {found}: records that were synced may be nowhere else. Put it back; to give \
                 those up, end all processes that use the log and make an empty one: truncate -s {len_bytes} {path}"
            )));
        }
        let zeros = vec![0; 1 << 20];
        replace(path, 0o600, |file| {
            (0..len_bytes).step_by(zeros.len()).try_for_each(|at| {
                let left = usize::try_from(len_bytes - at).unwrap_or(usize::MAX);
                file.write_all(&zeros[..left.min(zeros.len())])
            })
        })?;
    }
    Ok(Disk::open_shared(path)?)
}
