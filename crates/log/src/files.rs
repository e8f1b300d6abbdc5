//! Files and directories of a service, made durably.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use device::SharedWords;

use crate::{LogError, Result};

pub(crate) fn open_words(path: &Path, count: usize) -> Result<SharedWords> {
    let file = open_reserved(path, count as u64 * 8)?;
    Ok(SharedWords::of_file(file.as_fd(), count)?)
}

/// Opens a file, which gets at least `len_bytes` zeros.
pub(crate) fn open_or_make(path: &Path, mode: u32, len_bytes: u64) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(mode);
    let file = options.open(path).map_err(at(path))?;
    if file.metadata().map_err(at(path))?.len() < len_bytes {
        file.set_len(len_bytes).map_err(at(path))?;
    }
    Ok(file)
}

/// Opens a file that is to be mapped, which gets at least `len_bytes` zeros. Memory that there is not is an error here,
/// and would be a signal in whoever stores to it.
pub(crate) fn open_reserved(path: &Path, len_bytes: u64) -> Result<File> {
    let file = open_or_make(path, 0o600, len_bytes)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len_bytes)
        .map_err(|e| at(path)(e.into()))?;
    Ok(file)
}

pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(at(path))
}

/// Replaces the file at `path` by one with these bytes, durably.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    replace(path, 0o600, |file| file.write_all(bytes))
}

/// Replaces the file at `path` by one that `fill` writes, durably.
pub(crate) fn replace(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> Result<()> {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let mut file = options.open(&new).map_err(at(&new))?;
    fill(&mut file).and_then(|()| file.sync_all()).map_err(at(&new))?;
    fs::rename(&new, path).map_err(at(path))?;
    sync_directory(path.parent().expect("in a directory"))
}

pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(at(path))
}

pub(crate) fn parse<T: serde::de::DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|e| LogError::Incompatible(format!("{}: {e}", path.display())))
}

/// An error of the system at `path`.
pub(crate) fn at(path: &Path) -> impl Fn(std::io::Error) -> LogError + '_ {
    move |e| LogError::system(path.display().to_string(), e)
}
