//! Directories and files that no other user can have prepared.
//!
//! In a directory that everyone may write to, like `/tmp`, an attacker can make files first. A
//! program that uses such a file without checking its owner lets the attacker read what it writes,
//! and choose what it reads. So these rules hold, which SSH and PostgreSQL have for their files:
//!
//! 1. Each directory and file belongs to a *trusted* user ([`Trust`]), and only its owner can write
//!    it.
//! 2. It is opened relative to the descriptor of a directory that passed rule 1, and no symbolic link is followed.
//! 3. Rule 1 is checked on the open descriptor, so a file cannot be exchanged between check and
//!    use.
//! 4. A new file is created with `O_EXCL`. A new directory is opened by rules 1 to 3.
//! 5. A file that root makes in another user's directory gets that user as its owner, because the
//!    user could not use it otherwise.
//!
//! The path above the first directory is the caller's choice: links in it are followed.

use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, fchown, fstat, mkdirat, open, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::access::Access;
use crate::descriptor::above_standard;
use crate::files::trust::Owner;
use crate::files::trust::Trust;

impl Trust {
    /// Refuses a file that another user made or can change.
    fn check_of_log(self, found: &Stat) -> io::Result<()> {
        let refuse = |why: String| Err(Error::new(ErrorKind::PermissionDenied, why));
        let mode = found.st_mode & 0o7777;
        if !self.has(found.st_uid) {
            let me = self.own;
            let whom = match self.owner.filter(|owner| owner.uid != me) {
                Some(owner) => format!("user {me} or user {}", owner.uid),
                None => format!("user {me}"),
            };
            return refuse(format!(
                "belongs to user {0}, and is used only if it belongs to {whom}: what it holds could be forged. If you \
                 want that user's log, act as that user: sudo -u '#{0}'. If nobody needs it, remove it, or name \
                 another log. Several users share a log through a daemon only: onejournal logd --dir DIR, and \
                 log=DIR/socket",
                found.st_uid
            ));
        }
        if mode & 0o022 != 0 {
            return refuse(format!(
                "can be written by other users (mode {mode:o}): what it holds could be forged. If you are sure that it \
                 is not: chmod go-w. Several users share a log through a daemon only: onejournal logd --dir DIR, and \
                 log=DIR/socket"
            ));
        }
        Ok(())
    }
}

/// An open directory that passed these rules.
#[derive(Debug, Clone)]
pub struct Folder {
    directory: Arc<OwnedFd>,
    /// For messages.
    path: PathBuf,
    trust: Trust,
    owner: Owner,
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags to open a file. Opening a FIFO or a device must not block.
const FILE: OFlags =
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

impl Folder {
    /// The directory at `path`.
    pub fn open(path: &Path, trust: Trust) -> io::Result<Folder> {
        let path = without_end(path);
        let directory = open_directory(&path)?;
        Folder::of(directory, path, trust)
    }

    /// The directory at `path`. If it does not exist, it is made with the permissions `mode`. The
    /// second value says whether it was made.
    pub fn open_or_make(path: &Path, mode: u32, trust: Trust) -> io::Result<(Folder, bool)> {
        let path = without_end(path);
        let made = rustix::fs::mkdir(&path, Mode::from_raw_mode(mode));
        let is_new = match made {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => return Err(e.into()),
        };
        let directory = open_directory(&path)?;
        if is_new {
            hand_over(&directory, trust.owner)?;
        }
        Folder::of(directory, path, trust).map(|folder| (folder, is_new))
    }

    fn of(directory: OwnedFd, path: PathBuf, trust: Trust) -> io::Result<Folder> {
        let found = fstat(&directory)?;
        trust.check_of_log(&found)?;
        let owner = Owner { uid: found.st_uid, gid: found.st_gid };
        Ok(Folder { directory: Arc::new(directory), path, trust, owner })
    }

    /// The path by which it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of `name` in it, for messages.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The users that it trusts.
    pub fn trust(&self) -> Trust {
        Trust::own_and(self.owner.uid, self.owner.gid)
    }

    /// The directory `name` in it.
    pub fn folder(&self, name: &str) -> io::Result<Folder> {
        check_name(name);
        let path = self.at(name);
        let directory = self.open_in(name, DIRECTORY, Mode::empty());
        Folder::of(directory.map_err(|e| self.link(e, name))?, path, self.trust)
    }

    /// The directory `name` in it. If it does not exist, it is made with the permissions `mode`.
    pub fn open_or_make_folder(&self, name: &str, mode: u32) -> io::Result<Folder> {
        check_name(name);
        match mkdirat(&self.directory, name, Mode::from_raw_mode(mode)) {
            Ok(()) => {
                let made = self.open_in(name, DIRECTORY, Mode::empty());
                hand_over(&made.map_err(|e| self.link(e, name))?, Some(self.owner))?;
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        self.folder(name)
    }

    /// The file `name` in it.
    pub fn file(&self, name: &str, access: Access) -> io::Result<File> {
        let how = match access {
            Access::ReadOnly => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        self.file_with(name, how)
    }

    /// The file `name` in it for reading and writing, without the page cache if the file system
    /// allows that.
    pub fn file_direct(&self, name: &str) -> io::Result<File> {
        match self.file_with(name, OFlags::RDWR | OFlags::DIRECT) {
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.file_with(name, OFlags::RDWR)
            }
            opened => opened,
        }
    }

    fn file_with(&self, name: &str, how: OFlags) -> io::Result<File> {
        check_name(name);
        let file = self.open_in(name, how | FILE, Mode::empty());
        let file = file.map_err(|e| self.link(e, name))?;
        let found = fstat(&file)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(Error::new(ErrorKind::InvalidInput, "is no regular file"));
        }
        self.trust.check_of_log(&found)?;
        Ok(file.into())
    }

    /// A new file `name` with the permissions `mode`, for reading and writing. An error if it
    /// exists.
    pub fn new_file(&self, name: &str, mode: u32) -> io::Result<File> {
        check_name(name);
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | FILE;
        let file = self.open_in(name, how, Mode::from_raw_mode(mode))?;
        hand_over(&file, Some(self.owner))?;
        Ok(file.into())
    }

    /// The file `name` for reading and writing. If it does not exist, it is made with the
    /// permissions `mode`.
    pub fn open_or_make_file(&self, name: &str, mode: u32) -> io::Result<File> {
        loop {
            match self.file(name, Access::ReadWrite) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                opened => return opened,
            }
            match self.new_file(name, mode) {
                // Another process made it meanwhile.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }

    /// The content of the file `name`; `None` if there is no such file.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut file = match self.file(name, Access::ReadOnly) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// The attributes of `name`, of the link itself if it is one; `None` if it does not exist.
    pub fn stat(&self, name: &str) -> io::Result<Option<Stat>> {
        check_name(name);
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// The names in it that are UTF-8. OneJournal makes no others.
    pub fn names(&self) -> io::Result<Vec<String>> {
        // A descriptor of its own: where it reads from is that of all copies.
        let mut names = Vec::new();
        for entry in Dir::read_from(self.directory.as_fd())? {
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Renames a file in it. An existing file of the new name is replaced.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from);
        check_name(to);
        Ok(renameat(&self.directory, from, &self.directory, to)?)
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name);
        Ok(unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    /// Removes the directory `name` and everything in it. Follows no link.
    pub fn remove_folder(&self, name: &str) -> io::Result<()> {
        self.folder(name)?.empty()?;
        Ok(unlinkat(&self.directory, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes everything that is in it.
    pub fn empty(&self) -> io::Result<()> {
        for name in self.names()? {
            let is_folder = self
                .stat(&name)?
                .is_some_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
            let removed = if is_folder { self.remove_folder(&name) } else { self.remove(&name) };
            match removed {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Returns when the names in it are durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.directory)?)
    }

    fn open_in(&self, name: &str, how: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        above_standard(|| openat(&self.directory, name, how, mode))
    }

    /// Gives the error of a symbolic link a message of its own.
    fn link(&self, error: Errno, name: &str) -> Error {
        let found = self.stat(name).ok().flatten();
        link_or(error, found.is_some_and(|found| is_link(&found)))
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    above_standard(|| open(path, DIRECTORY, Mode::empty())).map_err(|e| link(e, path))
}

/// The path without a slash at its end: before a slash, a link would be followed.
fn without_end(path: &Path) -> PathBuf {
    match path.components().collect::<PathBuf>() {
        path if path.as_os_str().is_empty() => PathBuf::from("."),
        path => path,
    }
}

fn check_name(name: &str) {
    assert!(!name.contains('/') && name != "..", "a name, not a path: {name}");
}

fn is_link(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Symlink
}

fn link(error: Errno, path: &Path) -> Error {
    link_or(error, rustix::fs::lstat(path).is_ok_and(|found| is_link(&found)))
}

fn link_or(error: Errno, is_link: bool) -> Error {
    match is_link {
        true => Error::new(
            ErrorKind::InvalidInput,
            "is a symbolic link, which another user may have made: name what it leads to",
        ),
        false => error.into(),
    }
}

/// Gives a file that root made to the owner.
fn hand_over(made: impl AsFd, owner: Option<Owner>) -> io::Result<()> {
    match owner {
        Some(owner) if geteuid().is_root() && owner.uid != 0 => {
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            Ok(fchown(made, Some(uid), Some(gid))?)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use onejournal_testing::is_root;

    use super::*;

    fn refusal<T>(result: io::Result<T>) -> String {
        result.err().expect("refused").to_string()
    }

    fn permit(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode");
    }

    #[test]
    fn what_others_can_write_is_refused() {
        let home = tempfile::tempdir().expect("directory");
        let (folder, is_new) =
            Folder::open_or_make(&home.path().join("log"), 0o711, Trust::own()).expect("made");
        assert!(is_new);
        folder.new_file("file", 0o600).expect("made");
        folder.open_or_make_folder("inner", 0o700).expect("made");
        for mode in [0o620, 0o602, 0o777] {
            for name in ["file", "inner", ""] {
                permit(&folder.at(name), mode | 0o500);
            }
            assert!(refusal(folder.file("file", Access::ReadOnly)).contains("by other users"));
            assert!(refusal(folder.folder("inner")).contains("by other users"));
            assert!(refusal(folder.open_or_make_folder("inner", 0o700)).contains("by other users"));
            assert!(refusal(Folder::open(folder.path(), Trust::own())).contains("by other users"));
        }
        for name in ["file", "inner", ""] {
            permit(&folder.at(name), 0o755);
        }
        folder.file("file", Access::ReadWrite).expect("readable by others only");
        folder.folder("inner").expect("the same");
    }

    #[test]
    fn no_link_is_followed() {
        let home = tempfile::tempdir().expect("directory");
        let (folder, _) =
            Folder::open_or_make(&home.path().join("log"), 0o700, Trust::own()).expect("made");
        let target = home.path().join("target");
        std::fs::create_dir(&target).expect("made");
        std::fs::write(target.join("file"), "kept").expect("written");
        symlink(&target, home.path().join("link")).expect("link");
        symlink(&target, folder.at("inner")).expect("link");
        symlink(target.join("file"), folder.at("file")).expect("link");
        for end in ["link", "link/", "link/."] {
            let path = home.path().join(end);
            assert!(refusal(Folder::open(&path, Trust::own())).contains("symbolic link"), "{end}");
            let made = Folder::open_or_make(&path, 0o700, Trust::own());
            assert!(refusal(made).contains("symbolic link"), "{end}");
        }
        assert!(refusal(folder.folder("inner")).contains("symbolic link"));
        assert!(refusal(folder.open_or_make_folder("inner", 0o700)).contains("symbolic link"));
        assert!(refusal(folder.open_or_make_file("file", 0o600)).contains("symbolic link"));
        assert_eq!(
            folder.new_file("file", 0o600).expect_err("taken").kind(),
            ErrorKind::AlreadyExists
        );
        folder.empty().expect("the links go, not what they lead to");
        assert_eq!(std::fs::read_to_string(target.join("file")).expect("there"), "kept");
    }

    #[test]
    fn what_another_user_made_is_refused_unless_trusted() {
        if !is_root() {
            return;
        }
        const OTHER: u32 = 65_534;
        let home = tempfile::tempdir().expect("directory");
        let path = home.path().join("log");
        let (folder, _) = Folder::open_or_make(&path, 0o700, Trust::own()).expect("made");
        folder.new_file("file", 0o600).expect("made");
        std::os::unix::fs::chown(folder.at("file"), Some(OTHER), None).expect("given away");
        assert!(refusal(folder.file("file", Access::ReadOnly)).contains("belongs to user 65534"));
        std::os::unix::fs::chown(&path, Some(OTHER), Some(OTHER)).expect("given away");
        assert!(refusal(Folder::open(&path, Trust::own())).contains("belongs to user 65534"));
        let others = Folder::open(&path, Trust::own_and(OTHER, OTHER)).expect("trusted");
        others.file("file", Access::ReadOnly).expect("trusted");
        others.new_file("new", 0o600).expect("made");
        others.open_or_make_folder("inner", 0o700).expect("made");
        for name in ["new", "inner"] {
            let found = std::fs::metadata(others.at(name)).expect("there");
            assert_eq!((found.uid(), found.gid()), (OTHER, OTHER), "{name} is usable by its owner");
        }
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let home = tempfile::tempdir().expect("directory");
        let folder = Folder::open(home.path(), Trust::own()).expect("open");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(&folder, "pipe", FileType::Fifo, mode, 0).expect("made");
        assert!(refusal(folder.file("pipe", Access::ReadOnly)).contains("no regular file"));
        assert!(Folder::open(&folder.at("pipe"), Trust::own()).is_err());
        assert!(folder.read("nothing").expect("asked").is_none());
    }
}
