//! Files and directories of a service, made durably.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use host::{Folder, Trust};

use super::denied::system_at;
use crate::{LogError, Result};

/// Opens a file, or makes it. It has at least `len_bytes` afterwards; new bytes are zeros.
pub(crate) fn open_or_make(folder: &Folder, name: &str, len_bytes: u64) -> Result<File> {
    let file = folder.open_or_make_file(name, 0o600).map_err(within(folder, name))?;
    if file.metadata().map_err(within(folder, name))?.len() < len_bytes {
        file.set_len(len_bytes).map_err(within(folder, name))?;
    }
    Ok(file)
}

/// Opens a file that is to be mapped, or makes it, with at least `len_bytes`. Reserves the memory:
/// if there is not enough, this is an error here. Otherwise a later store to the mapping would end
/// the process with a signal.
pub(crate) fn open_reserved(folder: &Folder, name: &str, len_bytes: u64) -> Result<File> {
    let file = open_or_make(folder, name, len_bytes)?;
    reserve(folder, name, &file, len_bytes)?;
    Ok(file)
}

/// Reserves memory for `len_bytes` of an open file, which has at least that length afterwards.
pub(crate) fn reserve(folder: &Folder, name: &str, file: &File, len_bytes: u64) -> Result<()> {
    let reserved = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len_bytes);
    reserved.map_err(|e| within(folder, name)(e.into()))
}

/// The log's directory at `path`; `None`: there is none. `is_found`: a file of a user names it.
pub(crate) fn open_root(path: &Path, trust: Trust, is_found: bool) -> Result<Option<Folder>> {
    let open = if is_found { Folder::found } else { Folder::open };
    match open(path, trust) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).map_err(at(path)),
    }
}

/// Makes the log's directory at `path`, durably.
pub(crate) fn make_root(path: &Path, trust: Trust) -> Result<Folder> {
    if let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty() && !it.is_dir()) {
        let (path, parent) = (path.display(), parent.display());
        return Err(LogError::Usage(format!("the log {path}: there is no directory {parent}")));
    }
    // Others may come to a socket in it, and find no name.
    let (root, _) = Folder::open_or_make(path, 0o711, trust).map_err(at(path))?;
    // Without this sync, a power cut could remove the whole directory.
    sync_directory(&path.join(".."))?;
    Ok(root)
}

/// Makes the directory at `path`, which the user named, and the missing directories above it. If
/// root makes them, they belong to the owner of `root`.
pub(crate) fn make_directory(path: &Path, mode: u32, root: &Folder) -> Result<()> {
    let is_missing = |it: &&Path| !it.as_os_str().is_empty() && !it.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    for path in missing.into_iter().rev() {
        Folder::open_or_make(path, mode, root.trust()).map_err(at(path))?;
    }
    Ok(())
}

/// The directory `name` in a log's directory. Makes it if there is none.
pub(crate) fn make_folder(folder: &Folder, name: &str) -> Result<Folder> {
    folder.open_or_make_folder(name, 0o700).map_err(within(folder, name))
}

/// Replaces the file `name` by one with these bytes, durably.
pub(crate) fn write_whole(folder: &Folder, name: &str, bytes: &[u8]) -> Result<()> {
    replace(folder, name, |file| file.write_all(bytes))
}

/// Replaces the file `name` by one that `fill` writes, durably.
pub(crate) fn replace(
    folder: &Folder,
    name: &str,
    fill: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> Result<()> {
    let new = Path::new(name).with_extension("new");
    let new = new.to_str().expect("of a string");
    // Left by a process that died.
    remove_if_there(folder, new)?;
    let mut file = folder.new_file(new, 0o600).map_err(within(folder, new))?;
    fill(&mut file).and_then(|()| file.sync_all()).map_err(within(folder, new))?;
    folder.rename(new, name).and_then(|()| folder.sync()).map_err(within(folder, name))
}

/// Replaces the file `name` by one with these bytes. After a power cut the file may hold anything.
pub(crate) fn write_for_this_boot(folder: &Folder, name: &str, bytes: &[u8]) -> Result<()> {
    let new = format!("{name}.new");
    remove_if_there(folder, &new)?;
    let mut file = folder.new_file(&new, 0o600).map_err(within(folder, &new))?;
    file.write_all(bytes).map_err(within(folder, &new))?;
    folder.rename(&new, name).map_err(within(folder, name))
}

pub(crate) fn remove_if_there(folder: &Folder, name: &str) -> Result<()> {
    match folder.remove(name) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(within(folder, name)),
    }
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
    move |e| system_at(path, e)
}

/// An error of the system at `name` in a folder.
pub(crate) fn within<'a>(
    folder: &'a Folder,
    name: &'a str,
) -> impl Fn(std::io::Error) -> LogError + 'a {
    move |e| at(&folder.at(name))(e)
}
