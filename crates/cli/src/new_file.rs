//! A file that a command makes, and removes again when it fails.
//!
//! Both happen in the directory that was opened first. By its path, another user who may rename a
//! directory above it could have a file of the same name removed elsewhere.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

/// A new file, open, and the directory that it is in.
pub struct NewFile {
    file: File,
    directory: OwnedFd,
    name: OsString,
}

impl NewFile {
    /// Makes the file `path`, which must not exist, with `size_bytes` zeros and the permissions
    /// `mode`.
    pub fn make(path: &Path, size_bytes: u64, mode: u32) -> io::Result<NewFile> {
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
        NewFile::make_in(host::open_parent(path)?, name, size_bytes, mode)
    }

    /// The same in an open directory.
    pub fn make_in(
        directory: OwnedFd,
        name: OsString,
        size_bytes: u64,
        mode: u32,
    ) -> io::Result<NewFile> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&directory, &*name, flags, Mode::from_raw_mode(mode))?;
        let made = NewFile { file: file.into(), directory, name };
        match made.file.set_len(size_bytes) {
            Ok(()) => Ok(made),
            Err(error) => {
                made.remove();
                Err(error)
            }
        }
    }

    /// Returns when the file and its name are durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::fsync(openat(&self.directory, ".", flags, Mode::empty())?)?)
    }

    /// Its attributes.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Whether `found` is of this file.
    pub fn is(&self, found: &Metadata) -> bool {
        self.file.metadata().is_ok_and(|own| is_same(&own, found))
    }

    /// Removes it. An error is not reported: there is one already, for which it is removed.
    pub fn remove(&self) {
        let _ = unlinkat(&self.directory, &*self.name, AtFlags::empty());
    }
}

/// The result. If it is an error, the file that was made before is removed.
pub fn remove_if_failed<T, E>(
    made: Option<&NewFile>,
    result: std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    if let (Err(_), Some(made)) = (&result, made) {
        made.remove();
    }
    result
}

/// Whether both are of the same file or device.
pub fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn regression_a_new_file_is_removed_where_it_was_made() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for name in ["theirs", "other"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("other/image"), "kept").unwrap();
        let made = NewFile::make(&at("theirs/image"), 4096, 0o600).unwrap();
        assert!(made.is(&fs::metadata(at("theirs/image")).unwrap()));
        // Another user exchanges the directory.
        fs::rename(at("theirs"), at("moved")).unwrap();
        symlink(at("other"), at("theirs")).unwrap();
        made.sync().unwrap();
        assert!(!made.is(&fs::metadata(at("theirs/image")).unwrap()));
        made.remove();
        assert_eq!(fs::read(at("other/image")).unwrap(), b"kept");
        assert!(!at("moved/image").exists());
        assert!(NewFile::make(&at("theirs/image"), 4096, 0o600).is_err(), "there is one");
        assert_eq!(fs::read(at("other/image")).unwrap(), b"kept");
    }
}
