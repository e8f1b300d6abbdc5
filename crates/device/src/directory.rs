//! The files of one directory. A log is stored in such a directory, if it is on a file system.
//!
//! # What we assume of files
//!
//! 1. A write that has returned is visible to later reads. A power cut may lose it, in any 512
//!    bytes of it, until a [`StoredFile::sync`] that was called after it has returned.
//! 2. Creating or removing a file takes effect at once for other processes. A power cut may undo it
//!    until a [`FileStore::sync_names`] that was called after it has returned. Each name is lost or
//!    kept by itself, in no order.
//! 3. The length of a file is the one that it was created with, or that a write gave it. A power
//!    cut may restore the previous length (for a new file, no file) until a [`StoredFile::sync`]
//!    that was called after it has returned. Bytes that were never written read as zeros.
//! 4. A write to reserved space finds space.
//!
//! The simulator (`SimFiles` of the crate `testing`) breaks everything that is not on this list.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use host::{Access, Folder};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::error::{DeviceError, Operation, Result, refused_in};

/// A flat directory of files.
pub trait FileStore: Send + Sync {
    /// The names of all files, in no order.
    fn names(&self) -> Result<Vec<String>>;

    /// Makes a file of `len_bytes` zeros with space reserved for them. Fails if the file exists.
    fn create(&self, name: &str, len_bytes: u64) -> Result<Box<dyn StoredFile>>;

    /// Opens a file for reading and, if the user has permission, for writing.
    fn open(&self, name: &str) -> Result<Box<dyn StoredFile>>;

    /// Removes a file.
    fn remove(&self, name: &str) -> Result<()>;

    /// Returns when the creations and removals before this call survive a power cut.
    fn sync_names(&self) -> Result<()>;
}

/// A file that is read and written at offsets in bytes.
pub trait StoredFile: Send + Sync {
    /// Length in bytes.
    fn len_bytes(&self) -> Result<u64>;

    /// Fills `buf` from `offset`. Reading after the end is an error.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes `data` at `offset`, also after the end.
    fn write(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Returns when every write that returned before this call is durable.
    fn sync(&self) -> Result<()>;
}

/// A directory of the machine's file systems, which keeps the rules of [`Folder`].
pub struct Directory {
    /// The directory itself, or its parent.
    folder: Folder,
    /// Its name in the parent. The directory is opened for each use, because descriptors are
    /// scarce.
    name: Option<String>,
    /// Permission bits of the files it makes.
    mode: u32,
}

impl Directory {
    /// The directory `folder`. Its new files get the permissions `mode`.
    pub fn new(folder: Folder, mode: u32) -> Directory {
        Directory { folder, name: None, mode }
    }

    /// The directory `name` in `parent`, which must exist.
    pub fn within(parent: &Folder, name: &str, mode: u32) -> Result<Directory> {
        let within = Directory { folder: parent.clone(), name: Some(name.to_owned()), mode };
        within.open_folder().map(|_| within)
    }

    fn open_folder(&self) -> Result<Folder> {
        match &self.name {
            None => Ok(self.folder.clone()),
            Some(name) => {
                let path = self.folder.at(name);
                self.folder.folder(name).map_err(|e| refused_in(&path, e))
            }
        }
    }
}

impl FileStore for Directory {
    fn names(&self) -> Result<Vec<String>> {
        let folder = self.open_folder()?;
        folder.names().map_err(|e| refused_in(folder.path(), e))
    }

    fn create(&self, name: &str, len_bytes: u64) -> Result<Box<dyn StoredFile>> {
        let folder = self.open_folder()?;
        let path = folder.at(name);
        let file = folder.new_file(name, self.mode).map_err(|e| refused_in(&path, e))?;
        match reserve(&file, len_bytes) {
            Ok(()) => Ok(Box::new(NamedFile { file, path })),
            Err(e) => {
                // The error to report is the one there is already.
                let _ = folder.remove(name);
                Err(refused_in(&path, e))
            }
        }
    }

    fn open(&self, name: &str) -> Result<Box<dyn StoredFile>> {
        use ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let folder = self.open_folder()?;
        let path = folder.at(name);
        let opened = match folder.file(name, Access::ReadWrite) {
            Err(e) if matches!(e.kind(), PermissionDenied | ReadOnlyFilesystem) => {
                folder.file(name, Access::ReadOnly)
            }
            opened => opened,
        };
        let file = opened.map_err(|e| refused_in(&path, e))?;
        Ok(Box::new(NamedFile { file, path }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let folder = self.open_folder()?;
        folder.remove(name).map_err(|e| refused_in(&folder.at(name), e))
    }

    fn sync_names(&self) -> Result<()> {
        let folder = self.open_folder()?;
        // Names that could not be synced may be lost for good; a directory that could not be opened
        // is as it was.
        folder.sync().map_err(|e| {
            let why = io::Error::new(e.kind(), format!("{}: {e}", folder.path().display()));
            DeviceError::new(Operation::Flush, 0, 0, why)
        })
    }
}

/// Reserves space for `len_bytes` zeros, so that no later write finds the disk full. If the file
/// system cannot promise that, sets only the length.
fn reserve(file: &File, len_bytes: u64) -> io::Result<()> {
    if len_bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len_bytes) {
        Err(Errno::OPNOTSUPP) => file.set_len(len_bytes),
        reserved => Ok(reserved?),
    }
}

/// An open file, with its name for messages.
struct NamedFile {
    file: File,
    path: PathBuf,
}

impl NamedFile {
    fn error(
        &self,
        operation: Operation,
        offset: u64,
        len_bytes: usize,
        why: io::Error,
    ) -> DeviceError {
        let why = io::Error::new(why.kind(), format!("{}: {why}", self.path.display()));
        DeviceError::new(operation, offset, len_bytes, why)
    }
}

impl StoredFile for NamedFile {
    fn len_bytes(&self) -> Result<u64> {
        let found = self.file.metadata().map_err(|e| self.error(Operation::Open, 0, 0, e))?;
        Ok(found.len())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(buf, offset);
        read.map_err(|e| self.error(Operation::Read, offset, buf.len(), e))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(data, offset);
        written.map_err(|e| self.error(Operation::Write, offset, data.len(), e))
    }

    /// Never repeated after an error: the kernel may have dropped data that it could not write.
    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| self.error(Operation::Flush, 0, 0, e))
    }
}

#[cfg(test)]
mod tests {
    use host::Trust;

    use super::*;

    #[test]
    fn files_keep_what_is_written() {
        let place = tempfile::tempdir().expect("directory");
        let directory =
            Directory::new(Folder::open(place.path(), Trust::own()).expect("open"), 0o600);
        let file = directory.create("a", 8192).expect("create");
        assert!(directory.create("a", 0).is_err(), "there is one already");
        file.write(8190, b"abcd").expect("beyond the end too");
        file.sync().expect("sync");
        directory.sync_names().expect("sync names");
        assert_eq!(file.len_bytes().expect("length"), 8194);
        let mut found = [0; 5];
        directory.open("a").expect("open").read(8189, &mut found).expect("read");
        assert_eq!(&found, b"\0abcd");
        let error = file.read(8192, &mut found).expect_err("behind the end");
        assert!(error.to_string().starts_with("read of 5 bytes at offset 8192: "), "{error}");
        assert_eq!(directory.names().expect("names"), ["a"]);
        directory.remove("a").expect("remove");
        assert!(directory.open("a").is_err());
    }

    #[test]
    fn a_file_or_missing_name_is_refused_as_directory() {
        let place = tempfile::tempdir().expect("directory");
        let parent = Folder::open(place.path(), Trust::own()).expect("open");
        parent.new_file("file", 0o600).expect("made");
        assert!(Directory::within(&parent, "file", 0o600).is_err());
        assert!(Directory::within(&parent, "nothing", 0o600).is_err());
        parent.open_or_make_folder("inner", 0o700).expect("made");
        let directory = Directory::within(&parent, "inner", 0o600).expect("open");
        directory.create("a", 10).expect("create");
        assert_eq!(directory.names().expect("names"), ["a"]);
        assert!(place.path().join("inner/a").is_file());
    }
}
