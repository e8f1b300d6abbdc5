//! Opens a file that only certain users may have made, as `ssh` does with its keys.
//!
//! A symbolic link as the last component is followed only if a trusted user made it, and the file
//! that it leads to must belong to a trusted user. The check is made on the open file, so the file
//! cannot be exchanged in between. The directories above it are not checked.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::descriptor::above_standard;
use crate::error::Result;
use crate::error::{errno, refused};
use crate::files::trust::Trust;

/// The number of links that the kernel follows.
const LINKS_MAX: usize = 40;

impl Trust {
    /// Opens a file with `flags`, and makes it with `mode` if `flags` say so. A regular file must
    /// belong to a trusted user.
    pub fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        let last = self.follow(path)?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = above_standard(|| rustix::fs::open(&last, flags, mode));
        let fd = fd.map_err(|e| errno(path, e))?;
        self.check_server_of(path, &fd)?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| errno(path, e))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            self.check_owner(path, &stat)?;
        }
        Ok(fd)
    }

    /// The path with the links of its last component resolved. The file itself need not exist. The
    /// caller has to open it with `O_NOFOLLOW`.
    pub(crate) fn follow(&self, path: &Path) -> Result<PathBuf> {
        let mut last = path.to_owned();
        for _ in 0..LINKS_MAX {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let link = match rustix::fs::open(&last, flags, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(last),
                opened => opened.map_err(|e| errno(path, e))?,
            };
            self.check_server_of(path, &link)?;
            let stat = rustix::fs::fstat(&link).map_err(|e| errno(path, e))?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                return Ok(last);
            }
            if !self.has(stat.st_uid) {
                let why = format!(
                    "{} is a symbolic link of user {}, who is not trusted here: give the path that \
                     it points to, or remove it",
                    last.display(),
                    stat.st_uid
                );
                return Err(refused(path, io::ErrorKind::PermissionDenied, why));
            }
            let target = rustix::fs::readlinkat(&link, "", Vec::new());
            let target = target.map_err(|e| errno(path, e))?;
            let target = OsStr::from_bytes(target.as_bytes());
            last = last.parent().unwrap_or(Path::new("")).join(target);
        }
        Err(errno(path, Errno::LOOP))
    }

    /// Refuses an open file of another user, one on a file system that another user serves, and a
    /// regular file that others can write. A block device is accepted: a group of administrators
    /// can often write it.
    pub(crate) fn check(&self, path: &Path, fd: impl AsFd, stat: &Stat) -> Result<()> {
        self.check_server_of(path, fd)?;
        self.check_owner(path, stat)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if is_file && mode.intersects(Mode::WGRP | Mode::WOTH) {
            let why = format!(
                "others can write to it (mode {:04o}), so what it holds cannot be trusted; if its \
                 contents are yours: chmod go-w {}",
                mode.as_raw_mode(),
                path.display()
            );
            return Err(refused(path, io::ErrorKind::PermissionDenied, why));
        }
        Ok(())
    }

    fn check_server_of(&self, path: &Path, fd: impl AsFd) -> Result<()> {
        self.check_server(fd).map_err(|error| refused(path, error.kind(), error))
    }

    fn check_owner(&self, path: &Path, stat: &Stat) -> Result<()> {
        if self.has(stat.st_uid) {
            return Ok(());
        }
        let why = format!(
            "belongs to user {}, who could read or change what is written to it; if its contents \
             are yours: chown {} {}",
            stat.st_uid,
            self.own,
            path.display()
        );
        Err(refused(path, io::ErrorKind::PermissionDenied, why))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_and_files_of_trusted_users_are_opened_and_no_others() {
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "x").expect("write");
        symlink("second", at("first")).expect("link");
        symlink(at("file"), at("second")).expect("link");
        symlink("round", at("round")).expect("link");
        symlink("none", at("dangling")).expect("link");
        let us = Trust::own().and_root();
        assert_eq!(us.follow(&at("first")).expect("ours"), at("file"));
        assert_eq!(us.follow(&at("dangling")).expect("ours"), at("none"));
        assert!(us.follow(&at("round")).is_err());
        let others = Trust { own: u32::MAX - 1, ..Trust::own() };
        for (name, why) in [("first", "symbolic link"), ("file", "belongs to user")] {
            us.open(&at(name), OFlags::RDONLY, Mode::empty()).expect("ours");
            let error = others.open(&at(name), OFlags::RDONLY, Mode::empty());
            let error = error.expect_err("not theirs").to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_others_can_write_to_is_not_private() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let trust = Trust::own().and_root();
        for (mode, is_private) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("mode");
            let stat = rustix::fs::fstat(&file).expect("stat");
            assert_eq!(trust.check(file.path(), &file, &stat).is_ok(), is_private, "{mode:o}");
        }
    }
}
