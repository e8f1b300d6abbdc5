//! Files of one directory: what a log is kept in, where there is a file system below.
//!
//! # What we assume of files
//!
//! 1. A write that has returned is visible to later reads, and may be lost in a power cut, in any
//!    512 bytes of it, until a [`StoredFile::sync`] that was called after it has returned.
//! 2. A file that was created or removed is so for others at once, and after a power cut either way
//!    until a [`FileStore::sync_names`] that was called after it has returned. Names are lost
//!    each by itself, in no order.
//! 3. The length that a file was created with, or that a write gave it, is its length, or the one
//!    before is (for a new file none), until a [`StoredFile::sync`] that was called after it has
//!    returned. What was never written reads as zeros.
//! 4. A write to room that was reserved finds space.
//!
//! The simulator ([`SimFiles`]) breaks everything that is not on this list.

mod sim;
mod sim_trace;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::claim::refused;
use crate::{DeviceError, Operation, Result};

pub use sim::{SimDirectory, SimFiles};
pub use sim_trace::{FilesCursor, FilesImage, FilesTrace};

/// A flat directory of files.
pub trait FileStore: Send + Sync {
    /// The names of all files, in no order.
    fn names(&self) -> Result<Vec<String>>;

    /// Makes a file of `len_bytes` zeros with room reserved for them. Fails when there is one.
    fn create(&self, name: &str, len_bytes: u64) -> Result<Box<dyn StoredFile>>;

    /// Opens a file for reading and, where the user may, for writing.
    fn open(&self, name: &str) -> Result<Box<dyn StoredFile>>;

    /// Removes a file.
    fn remove(&self, name: &str) -> Result<()>;

    /// Returns when what was created and removed is so after a power cut too.
    fn sync_names(&self) -> Result<()>;
}

/// A file that is read and written at offsets in bytes.
pub trait StoredFile: Send + Sync {
    /// Length in bytes.
    fn len_bytes(&self) -> Result<u64>;

    /// Fills `buf` from `offset`; what lies behind the end is an error.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes `data` at `offset`, beyond the end too.
    fn write(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Returns when every write that returned before this call is durable.
    fn sync(&self) -> Result<()>;
}

/// A directory of the machine's file systems.
pub struct Directory {
    path: PathBuf,
    /// Permission bits of the files it makes.
    mode: u32,
}

impl Directory {
    /// The directory at `path`, which must exist; files are made with the permissions `mode`.
    pub fn open(path: impl Into<PathBuf>, mode: u32) -> Result<Directory> {
        let path = path.into();
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() => Ok(Directory { path, mode }),
            Ok(_) => Err(refused(&path, ErrorKind::NotADirectory, "is not a directory")),
            Err(e) => Err(refused(&path, e.kind(), e)),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        assert!(!name.contains('/'), "a name, not a path: {name}");
        self.path.join(name)
    }
}

impl FileStore for Directory {
    fn names(&self) -> Result<Vec<String>> {
        let list = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(&self.path)? {
                // A name that is not UTF-8 is none that we gave.
                names.extend(entry?.file_name().into_string());
            }
            Ok(names)
        };
        list().map_err(|e| refused(&self.path, e.kind(), e))
    }

    fn create(&self, name: &str, len_bytes: u64) -> Result<Box<dyn StoredFile>> {
        let path = self.at(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(self.mode);
        let file = options.open(&path).map_err(|e| refused(&path, e.kind(), e))?;
        match reserve(&file, len_bytes) {
            Ok(()) => Ok(Box::new(NamedFile { file, path })),
            Err(e) => {
                // The error to report is the one there is already.
                let _ = std::fs::remove_file(&path);
                Err(refused(&path, e.kind(), e))
            }
        }
    }

    fn open(&self, name: &str) -> Result<Box<dyn StoredFile>> {
        let path = self.at(name);
        let opened = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                File::open(&path)
            }
            opened => opened,
        };
        let file = opened.map_err(|e| refused(&path, e.kind(), e))?;
        Ok(Box::new(NamedFile { file, path }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.at(name);
        std::fs::remove_file(&path).map_err(|e| refused(&path, e.kind(), e))
    }

    fn sync_names(&self) -> Result<()> {
        let directory = File::open(&self.path).map_err(|e| refused(&self.path, e.kind(), e))?;
        // Names that could not be synced may be lost for good; a directory that could not be opened is as it was.
        directory.sync_all().map_err(|e| {
            let why = io::Error::new(e.kind(), format!("{}: {e}", self.path.display()));
            DeviceError::new(Operation::Flush, 0, 0, why)
        })
    }
}

/// Room for `len_bytes` zeros, so that no later write finds the disk full; where the file system
/// cannot promise that, only the length.
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

    /// Never repeated after an error: the kernel may have dropped what it could not write.
    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| self.error(Operation::Flush, 0, 0, e))
    }
}

impl AsRef<Path> for Directory {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_what_is_written() {
        let place = tempfile::tempdir().expect("directory");
        let directory = Directory::open(place.path(), 0o600).expect("open");
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
    fn what_is_no_directory_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let error = Directory::open(file.path(), 0o600).err().expect("a file");
        assert!(error.to_string().contains("is not a directory"), "{error}");
        assert!(Directory::open("/nonexistent/x", 0o600).is_err());
    }
}
