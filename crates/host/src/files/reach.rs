//! Follows a path, and asks no server of a user who is not trusted on the way.
//!
//! A user may mount a FUSE server that never answers on a directory of that user. A process that
//! follows a path through it waits without an end, and no signal ends it. So each name of a path is
//! looked up by itself, in the open directory before it. That directory is checked before the
//! lookup, and a symbolic link before it is read. To open something without access (`O_PATH`) asks
//! its server nothing.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx};
use rustix::io::Errno;

use crate::descriptor::above_standard;
use crate::files::trust::Trust;

/// The number of links that the kernel follows.
const LINKS_MAX: usize = 40;

/// The last name of a path, in an open directory.
pub(crate) struct Reached {
    /// The directory of the name. If the path has no name, the directory that it means.
    pub(crate) directory: OwnedFd,
    /// `None`: the path has none, such as `/`.
    pub(crate) name: Option<OsString>,
    /// What has the name, opened without access. It is no symbolic link, and may be the root of a
    /// server that is not trusted. `None`: nothing has the name.
    pub(crate) file: Option<OwnedFd>,
}

impl Reached {
    /// What the path leads to.
    pub(crate) fn opened(self) -> io::Result<OwnedFd> {
        match (self.file, self.name) {
            (Some(file), _) => Ok(file),
            (None, None) => Ok(self.directory),
            (None, Some(_)) => Err(Errno::NOENT.into()),
        }
    }
}

/// A symbolic link on a path.
pub(crate) struct Link<'a> {
    pub(crate) name: &'a OsStr,
    /// Who made it.
    pub(crate) uid: u32,
    directory: &'a OwnedFd,
}

impl Trust {
    /// The file at `path`, opened without access. Symbolic links are followed, except for one that
    /// the kernel would not follow with `fs.protected_symlinks`. An error without a number of the
    /// system says that a user who is not trusted serves a part of the path. Such a user may serve
    /// the file itself, but not with [`Trust::reach_trusted`].
    pub fn reach(self, path: &Path) -> io::Result<OwnedFd> {
        self.walk(path, check_protected)?.opened()
    }

    /// The same; a user who is not trusted does not serve the file itself either.
    pub fn reach_trusted(self, path: &Path) -> io::Result<OwnedFd> {
        let file = self.reach(path)?;
        self.check_server(&file).map(|()| file)
    }

    /// Follows `path`. `check` sees each symbolic link before it is read.
    pub(crate) fn walk(
        self,
        path: &Path,
        mut check: impl FnMut(&Link<'_>) -> io::Result<()>,
    ) -> io::Result<Reached> {
        let mut directory = self.start(path)?;
        let (mut left, mut checked, mut link_count) = (parts(path), None, 0);
        while let Some(name) = left.pop_front() {
            let is_last = left.is_empty();
            let part = match open_part(&directory, &name, is_last) {
                Err(Errno::NOENT) if is_last => {
                    return Ok(Reached { directory, name: Some(name), file: None });
                }
                opened => opened?,
            };
            let found = cached_attributes(&part);
            let link = found.filter(|found| kind_of(found) == FileType::Symlink);
            if is_last && link.is_none() {
                return Ok(Reached { directory, name: Some(name), file: Some(part) });
            }
            let on = found.map(|found| (found.stx_dev_major, found.stx_dev_minor));
            if on.is_none() || on != checked {
                self.check_server(&part)?;
                checked = on;
            }
            let Some(link) = link else {
                directory = part;
                continue;
            };
            check(&Link { name: &name, uid: link.stx_uid, directory: &directory })?;
            link_count += 1;
            if link_count > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            let target = rustix::fs::readlinkat(&part, "", Vec::new())?;
            let target = Path::new(OsStr::from_bytes(target.as_bytes()));
            if target.is_absolute() {
                directory = self.start(target)?;
            }
            for name in parts(target).into_iter().rev() {
                left.push_front(name);
            }
        }
        Ok(Reached { directory, name: None, file: None })
    }

    /// The directory in which a path begins.
    fn start(self, path: &Path) -> io::Result<OwnedFd> {
        let start = if path.is_absolute() { "/" } else { "." };
        let directory = open_at(CWD, OsStr::new(start), OFlags::DIRECTORY)?;
        self.check_server(&directory).map(|()| directory)
    }
}

/// Attributes of the file at `path`, as the kernel has them cached: the file's own server is not
/// asked, and those on the way are.
pub fn cached_stat(path: &Path) -> rustix::io::Result<Statx> {
    statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS)
}

/// The kind of the file at `path`, with the same requests.
pub fn cached_kind(path: &Path) -> rustix::io::Result<FileType> {
    cached_stat(path).map(|found| kind_of(&found))
}

/// Type, number and owner of an open file, as the kernel has them cached: its server is not asked.
/// `None`: its server is another user's, who lets no other user in.
pub(crate) fn cached_attributes(file: impl AsFd) -> Option<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, c"", flags, StatxFlags::TYPE | StatxFlags::INO | StatxFlags::UID).ok()
}

pub(crate) fn kind_of(found: &Statx) -> FileType {
    FileType::from_raw_mode(found.stx_mode.into())
}

/// Opens a part of a path without access. A part before the last is asked for as a directory, so
/// that the kernel mounts what automount(8) has there.
fn open_part(directory: &OwnedFd, name: &OsStr, is_last: bool) -> Result<OwnedFd, Errno> {
    if !is_last {
        match open_at(directory, name, OFlags::DIRECTORY | OFlags::NOFOLLOW) {
            Err(Errno::NOTDIR) => {}
            opened => return opened,
        }
    }
    open_at(directory, name, OFlags::NOFOLLOW)
}

fn open_at(directory: impl AsFd, name: &OsStr, how: OFlags) -> Result<OwnedFd, Errno> {
    let how = how | OFlags::PATH | OFlags::CLOEXEC;
    above_standard(|| openat(&directory, name, how, Mode::empty()))
}

/// Refuses a link in a directory such as `/tmp` that neither this user nor the owner of the
/// directory has made.
fn check_protected(link: &Link<'_>) -> io::Result<()> {
    let found = rustix::fs::fstat(link.directory)?;
    let is_shared = Mode::from_raw_mode(found.st_mode).contains(Mode::SVTX | Mode::WOTH);
    let own = rustix::process::geteuid().as_raw();
    match is_shared && ![own, found.st_uid].contains(&link.uid) {
        true => Err(Errno::ACCESS.into()),
        false => Ok(()),
    }
}

/// The names of a path, one after the other.
fn parts(path: &Path) -> VecDeque<OsString> {
    let is_named = |part: &Component<'_>| !matches!(part, Component::RootDir | Component::CurDir);
    path.components().filter(is_named).map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};

    use super::*;

    #[test]
    fn a_path_leads_where_the_kernel_leads_it() {
        let home = tempfile::tempdir().expect("directory");
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("one/two")).expect("made");
        fs::write(at("one/two/file"), "").expect("written");
        symlink("two/file", at("one/near")).expect("link");
        symlink(at("one"), at("far")).expect("link");
        symlink("round", at("round")).expect("link");
        let trust = Trust::own().and_root();
        for name in ["one/two/file", "one/near", "far/near", "far/two/../near", "far", ".", "one/"]
        {
            let reached = trust.reach(&at(name)).expect(name);
            let found = cached_attributes(reached).expect(name);
            assert_eq!(found.stx_ino, fs::metadata(at(name)).expect(name).ino(), "{name}");
        }
        trust.reach(Path::new("/")).expect("no name");
        for (name, errno) in [
            ("none", Errno::NOENT),
            ("none/file", Errno::NOENT),
            ("one/near/file", Errno::NOTDIR),
            ("round", Errno::LOOP),
        ] {
            let error = trust.reach(&at(name)).expect_err(name);
            assert_eq!(Errno::from_io_error(&error), Some(errno), "{name}");
        }
    }

    #[test]
    fn a_link_in_a_shared_directory_is_followed_if_its_owner_may_lead_there() {
        if !onejournal_testing::is_root() {
            return;
        }
        const OTHER: u32 = 65_534;
        let home = tempfile::tempdir().expect("directory");
        let at = |name: &str| home.path().join(name);
        for name in ["own", "theirs"] {
            symlink("/", at(name)).expect("link");
        }
        lchown(at("theirs"), Some(OTHER), None).expect("given");
        let trust = Trust::own();
        trust.reach(&at("theirs")).expect("the directory is not shared");
        fs::set_permissions(home.path(), Permissions::from_mode(0o1777)).expect("shared");
        trust.reach(&at("own")).expect("own");
        let error = trust.reach(&at("theirs")).expect_err("refused");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::ACCESS));
        lchown(home.path(), Some(OTHER), None).expect("given");
        trust.reach(&at("theirs")).expect("its owner owns the directory");
    }
}
