//! Opens the medium of a service's records: chunk files on NVRAM, or the group log on the
//! directory's disk.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use device::{Disk, Durability, MappedNvram, Nvram};
use host::{Access, Folder, above_standard};
use rustix::fs::{Mode, OFlags};

use crate::format::chunk::DATA_OFFSET;
use crate::host::Settings;
use crate::media::files::{at, open_or_make, replace, within};
use crate::{LogError, Result};

/// The file of a chunk.
pub(crate) fn chunk_name(index: usize) -> String {
    format!("chunk-{index:04}")
}

/// Refuses a directory that is not NVRAM of the class `asked`, before a log is made on it.
pub(crate) fn check_nvram(nvram: &Path, asked: Option<Durability>) -> Result<()> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = above_standard(|| rustix::fs::open(nvram, flags, Mode::from_raw_mode(0o600)));
    let file = File::from(file.map_err(|e| at(nvram)(e.into()))?);
    file.set_len(DATA_OFFSET).map_err(at(nvram))?;
    MappedNvram::share(nvram, file.into(), Access::ReadWrite, asked)?;
    Ok(())
}

/// What a store to `nvram`, the log's directory there, survives. Makes the files of the chunks
/// there, durably.
pub(crate) fn class_of(nvram: &Folder, settings: &Settings) -> Result<Durability> {
    let known = |name: &String| {
        let unknown = || LogError::Incompatible(format!("durability {name} is not known"));
        Durability::from_name(name).ok_or_else(unknown)
    };
    let asked = settings.durability.as_ref().map(known).transpose()?;
    let len_bytes = DATA_OFFSET + settings.chunk_bytes;
    for index in (0..settings.chunk_count as usize).rev() {
        let name = chunk_name(index);
        let found = nvram.stat(&name).map_err(within(nvram, &name))?;
        if !found.is_some_and(|found| u64::try_from(found.st_size) == Ok(len_bytes)) {
            // A client may have made it longer.
            let file = open_or_make(nvram, &name, len_bytes)?;
            file.set_len(len_bytes).and_then(|()| file.sync_all()).map_err(within(nvram, &name))?;
        }
    }
    const PROBE: &str = "probe";
    nvram.sync().map_err(within(nvram, ""))?;
    // A file that no client has.
    let file = open_or_make(nvram, PROBE, DATA_OFFSET)?;
    let path = nvram.at(PROBE);
    let class = MappedNvram::share(&path, file.into(), Access::ReadWrite, asked)?.durability();
    nvram.remove(PROBE).map_err(within(nvram, PROBE))?;
    Ok(class)
}

/// Opens the group log, or makes it before the first stream is made. Its zeros are written and not
/// only reserved, so a durable write to it changes no metadata. If it `may_hold` records and is
/// missing, that is an error.
pub(crate) fn open_group(root: &Folder, len_bytes: u64, may_hold: bool) -> Result<Disk> {
    const NAME: &str = "group.log";
    let found = match root.file(NAME, Access::ReadOnly) {
        Ok(file) => Some(file.metadata().map_err(within(root, NAME))?.len()),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(within(root, NAME)(e)),
    };
    if found != Some(len_bytes) {
        if may_hold {
            let found = match found {
                Some(found) => format!("is {found} bytes long instead of {len_bytes}"),
                None => "is missing".into(),
            };
            let path = root.at(NAME);
            let path = path.display();
            return Err(LogError::Incompatible(format!(
                "the group log {path} {found}: records that were synced may be nowhere else. Put \
                 it back; to give those up, end all processes that use the log and make an empty \
                 one: truncate -s {len_bytes} {path}"
            )));
        }
        let zeros = vec![0; 1 << 20];
        replace(root, NAME, |file| {
            (0..len_bytes).step_by(zeros.len()).try_for_each(|at| {
                let left = usize::try_from(len_bytes - at).unwrap_or(usize::MAX);
                file.write_all(&zeros[..left.min(zeros.len())])
            })
        })?;
    }
    let file = root.file_direct(NAME).map_err(within(root, NAME))?;
    Ok(Disk::share(root.at(NAME), file.into())?)
}
