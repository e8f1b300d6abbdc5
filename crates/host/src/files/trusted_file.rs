//! Opens a file that only certain users may have made, as `ssh` does with its keys.
//!
//! 1. A symbolic link on the path is followed only if a trusted user made it.
//! 2. The file must belong to a trusted user. After a link of a user who is neither root nor the
//!    own one it must belong to that user: otherwise the owner of an image could have root write to
//!    a file or device of root.
//! 3. Each part of the path is opened in the directory before it, and the file is checked when it
//!    is open. So nothing can be exchanged in between.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, openat};
use rustix::io::Errno;

use crate::descriptor::{above_standard, link_to};
use crate::error::Result;
use crate::error::{errno, refused};
use crate::files::found::Found;
use crate::files::reach::Link;
use crate::files::trust::Trust;

/// The end of a path: a name in an open directory, which is no symbolic link that is followed.
struct Followed {
    directory: OwnedFd,
    name: OsString,
    /// What has the name, opened without access.
    file: Option<OwnedFd>,
    /// Another user, whose link led here.
    by: Option<u32>,
}

impl Followed {
    /// A path that leads there while this value exists. It has to be opened with `O_NOFOLLOW`.
    fn path(&self) -> PathBuf {
        link_to(&self.directory).join(&self.name)
    }
}

/// The file or device that a path leads to, before it is opened.
pub struct Sought<'p> {
    path: &'p Path,
    last: Option<(Trust, Followed)>,
    /// What was found.
    pub found: Found,
}

impl Sought<'_> {
    /// Follows `path`. With `trust`, links of other users are refused.
    pub fn at(path: &Path, trust: Option<Trust>) -> Result<Sought<'_>> {
        let last = trust.map(|trust| Ok((trust, trust.follow(path)?))).transpose()?;
        let found = match &last {
            Some((_, last)) => Found::at(&last.path(), OFlags::NOFOLLOW),
            None => Found::at(path, OFlags::empty()),
        };
        Ok(Sought { path, last, found: found.map_err(|e| errno(path, e))? })
    }

    /// Refuses the file, open as `fd`, if users who are not trusted may have made it or can write
    /// to it.
    pub fn check(&self, fd: impl AsFd) -> Result<()> {
        match &self.last {
            Some((trust, last)) => trust.check(self.path, last, fd, &self.found.stat),
            None => Ok(()),
        }
    }
}

impl Trust {
    /// Opens a file with `flags`, and makes it with `mode` if `flags` say so. A regular file must
    /// belong to a trusted user.
    pub fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        let last = self.follow(path)?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = above_standard(|| openat(&last.directory, &*last.name, flags, mode));
        let fd = fd.map_err(|e| errno(path, e))?;
        self.check_server_of(path, &fd)?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| errno(path, e))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            self.check_owner(path, &last, &stat)?;
        }
        Ok(fd)
    }

    /// The directory and the name for a new file at `path`. Only links of root and of the own user
    /// may lead there: another user could have a file made in any directory.
    pub fn place_of_new(&self, path: &Path) -> Result<(OwnedFd, OsString)> {
        let last = self.follow(path)?;
        match last.by {
            None => Ok((last.directory, last.name)),
            Some(user) => {
                let why = format!(
                    "a symbolic link of user {user} leads there: give the path that it leads to"
                );
                Err(refused(path, io::ErrorKind::PermissionDenied, why))
            }
        }
    }

    /// Opens what is at a path that a file of a user names, with `O_PATH`. Root uses such files,
    /// and their owner chooses the path. So a link is followed only if root or a trusted user made
    /// it, and a file system is entered only if root or the own user serves it.
    pub fn find(self, path: &Path) -> io::Result<OwnedFd> {
        let (links, servers) = (self.and_root(), self.servers());
        let file = servers.walk(path, |link| links.check_link(link))?.opened()?;
        servers.check_server(&file).map(|()| file)
    }

    /// Follows the links of `path`. The file itself need not exist.
    fn follow(&self, path: &Path) -> Result<Followed> {
        let mut by = None;
        let reached = self.servers().walk(path, |link| {
            self.check_link(link)?;
            if ![0, self.own].contains(&link.uid) {
                by = Some(link.uid);
            }
            Ok(())
        });
        let reached = reached.map_err(|error| refused(path, error.kind(), error))?;
        if let Some(file) = &reached.file {
            self.check_server_of(path, file)?;
        }
        let name = reached.name.ok_or_else(|| errno(path, Errno::ISDIR))?;
        Ok(Followed { directory: reached.directory, name, file: reached.file, by })
    }

    /// The file at a path that [`Trust::open`] may open. `None`: there is none. No server of a user
    /// who is not trusted is asked.
    pub fn look(&self, path: &Path) -> Result<Option<Found>> {
        let found = self.follow(path)?.file.map(Found::of).transpose();
        found.map_err(|e| errno(path, e))
    }

    fn check_link(&self, link: &Link<'_>) -> io::Result<()> {
        if self.has(link.uid) {
            return Ok(());
        }
        let why = format!(
            "{} is a symbolic link of user {}, who is not trusted here: give the path that it \
             points to, or remove it",
            link.name.display(),
            link.uid
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// Refuses an open file of another user, one on a file system that another user serves, and a
    /// regular file that others can write. A block device is accepted: a group of administrators
    /// can often write it.
    fn check(&self, path: &Path, last: &Followed, fd: impl AsFd, stat: &Stat) -> Result<()> {
        self.check_server_of(path, fd)?;
        self.check_owner(path, last, stat)?;
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

    /// The users whose servers are asked: root and the own one. The server of another one, also if
    /// that user is trusted, may never answer.
    fn servers(self) -> Trust {
        Trust { owner: None, ..self }
    }

    fn check_server_of(&self, path: &Path, fd: impl AsFd) -> Result<()> {
        self.servers().check_server(fd).map_err(|error| refused(path, error.kind(), error))
    }

    fn check_owner(&self, path: &Path, last: &Followed, stat: &Stat) -> Result<()> {
        let refuse = |why| Err(refused(path, io::ErrorKind::PermissionDenied, why));
        if let Some(user) = last.by
            && stat.st_uid != user
        {
            return refuse(format!(
                "a symbolic link of user {user} leads to what belongs to user {}: give the path \
                 that it leads to",
                stat.st_uid
            ));
        }
        if self.has(stat.st_uid) {
            return Ok(());
        }
        refuse(format!(
            "belongs to user {}, who could read or change what is written to it; if its contents \
             are yours: chown {} {}",
            stat.st_uid,
            self.own,
            path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

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
        let leads_to = |name: &str| {
            let last = us.follow(&at(name)).expect("ours");
            let parent = last.path().parent().expect("one").canonicalize().expect("there");
            parent.join(&last.name)
        };
        let home = dir.path().canonicalize().expect("there");
        assert_eq!(leads_to("first"), home.join("file"));
        assert_eq!(leads_to("dangling"), home.join("none"));
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
    fn regression_a_link_of_another_user_does_not_lead_to_a_file_of_root() {
        if !onejournal_testing::is_root() {
            return;
        }
        const USER: u32 = 65_533;
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        for name in ["roots", "theirs"] {
            fs::create_dir(at(name)).expect("made");
            fs::write(at(name).join("file"), "").expect("made");
        }
        chown(at("theirs").join("file"), Some(USER), None).expect("given");
        for (name, target) in [
            ("file", "roots/file"),
            ("own", "theirs/file"),
            ("directory", "roots"),
            ("device", "/dev/null"),
        ] {
            symlink(target, at(name)).expect("link");
            lchown(at(name), Some(USER), None).expect("given");
        }
        let trust = Trust::own_and(USER, USER).and_root();
        let check = |name: &str| {
            let last = trust.follow(&at(name))?;
            let found = rustix::fs::open(last.path(), OFlags::PATH, Mode::empty()).expect("there");
            let stat = rustix::fs::fstat(&found).expect("there");
            trust.check(&at(name), &last, found, &stat)
        };
        check("own").expect("a file of the user who made the link");
        check("roots/file").expect("without a link");
        for name in ["file", "directory/file", "device"] {
            let error = check(name).expect_err(name).to_string();
            assert!(error.contains("link of user 65533 leads to"), "{name}: {error}");
        }
        // Nothing is made where such a link leads.
        for name in ["directory/new", "own"] {
            let error = trust.place_of_new(&at(name)).expect_err(name).to_string();
            assert!(error.contains("link of user 65533 leads there"), "{name}: {error}");
        }
        let (_, name) = trust.place_of_new(&at("roots/new")).expect("without a link");
        assert_eq!(name, "new");
        let error = Trust::own().and_root().follow(&at("directory/file")).err().expect("theirs");
        assert!(error.to_string().contains("directory is a symbolic link"), "{error}");
    }

    #[test]
    fn regression_a_path_that_a_user_chose_leads_through_no_link_of_a_third_user() {
        if !onejournal_testing::is_root() {
            return;
        }
        const USER: u32 = 65_533;
        const THIRD: u32 = 65_534;
        let dir = tempfile::tempdir().expect("directory");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("directory/log")).expect("made");
        let trust = Trust::own_and(USER, USER);
        for (owner, is_followed) in [(0, true), (USER, true), (THIRD, false)] {
            let name = format!("link{owner}");
            symlink("directory", at(&name)).expect("link");
            lchown(at(&name), Some(owner), None).expect("given");
            for path in [at(&name), at(&name).join("log")] {
                let found = trust.find(&path).map_err(|error| error.to_string());
                let is_refused = |why: &String| why.contains("is a symbolic link of user 65534");
                assert_eq!(found.is_ok(), is_followed, "{}: {found:?}", path.display());
                assert!(found.err().as_ref().is_none_or(is_refused));
            }
        }
        for name in ["none", "none/log", "directory/none"] {
            let missing = trust.find(&at(name)).expect_err("nothing is there");
            assert_eq!(missing.kind(), io::ErrorKind::NotFound, "{name}");
        }
    }

    #[test]
    fn a_file_that_others_can_write_is_not_private() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let trust = Trust::own().and_root();
        for (mode, is_private) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("mode");
            let stat = rustix::fs::fstat(&file).expect("stat");
            let last = trust.follow(file.path()).expect("no link");
            let checked = trust.check(file.path(), &last, &file, &stat);
            assert_eq!(checked.is_ok(), is_private, "{mode:o}");
        }
    }
}
