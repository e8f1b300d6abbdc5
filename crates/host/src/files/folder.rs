//! Directories and files that no other user can have prepared.
//!
//! In a directory that everyone may write to, like `/tmp`, an attacker can make files first. A
//! program that uses such a file without checking its owner lets the attacker read what it writes,
//! and choose what it reads. So these rules hold, which SSH and PostgreSQL have for their files:
//!
//! 1. Each directory and file belongs to a *trusted* user ([`Trust`]), and only its owner can write
//!    it.
//! 2. It is opened relative to the descriptor of a directory that passed rule 1, and no symbolic
//!    link is followed.
//! 3. Rule 1 is checked on the open descriptor, so a file cannot be exchanged between check and
//!    use.
//! 4. A new file is created with `O_EXCL`. A new directory is opened by rules 1 to 3.
//! 5. Root makes a file in another user's directory with the permissions of that user only
//!    (`as_owner`). So it belongs to that user, who could not use it otherwise, and it is made
//!    nowhere where that user could not have made it. Nothing is given away.
//! 6. A FUSE server says itself to whom its files belong. So a trusted user must serve the file
//!    system of the first directory, and nothing may be mounted on what is in it (`servers`). Only
//!    root and the own user may serve what is mounted on the first directory itself.
//!
//! The path above the first directory is the caller's choice: links in it are followed, once. A
//! path that a file of a user names is no such choice ([`Trust::find`]).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, StatxFlags, fstat, mkdirat, open, openat,
    renameat, statx, unlinkat,
};
use rustix::io::Errno;

use crate::access::Access;
use crate::descriptor::{above_standard, link_to};
use crate::error::Forgeable;
use crate::files::as_owner::as_owner;
use crate::files::parent::open_parent;
use crate::files::reach::kind_of;
use crate::files::servers::open_on_same_mount;
use crate::files::trust::Owner;
use crate::files::trust::Trust;

impl Trust {
    /// Refuses a file that another user made or can change.
    fn check_of_log(self, found: &Stat) -> io::Result<()> {
        let refuse =
            |text, user| Err(Error::new(ErrorKind::PermissionDenied, Forgeable { text, user }));
        let (uid, mode) = (found.st_uid, found.st_mode & 0o7777);
        if !self.has(uid) {
            let me = self.own;
            let whom = match self.owner.filter(|owner| owner.uid != me) {
                Some(owner) => format!("user {me} or user {}", owner.uid),
                None => format!("user {me}"),
            };
            let text = format!("belongs to user {uid}, and is used only if it belongs to {whom}");
            return refuse(text, Some(uid));
        }
        if mode & 0o022 != 0 {
            return refuse(format!("can be written by other users (mode {mode:o})"), None);
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
/// Flags to find a directory without a request to its file system.
const PLACE: OFlags = DIRECTORY.union(OFlags::PATH);
/// Flags to open a file. Opening a FIFO or a device must not block.
const FILE: OFlags =
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// Longest file that is read as a whole, in bytes. The longest one that a log makes is
/// `service.json`, of about 8 KiB.
const READ_BYTES_MAX: u64 = 64 << 10;
/// Most names of a directory.
const NAME_COUNT_MAX: usize = 1 << 20;
/// Most levels of directories that are removed. A log has two.
const DEPTH_MAX: usize = 8;

impl Folder {
    /// The directory at `path`.
    pub fn open(path: &Path, trust: Trust) -> io::Result<Folder> {
        let path = without_end(path);
        let place = above_standard(|| open(&path, PLACE, Mode::empty()));
        let directory = enter(place.map_err(|e| link(e, &path))?, trust)?;
        Folder::of(directory, path, trust)
    }

    /// The directory at a path that a file of a user names: see [`Trust::find`].
    pub fn found(path: &Path, trust: Trust) -> io::Result<Folder> {
        Folder::at_place(trust.find(path)?, path, trust)
    }

    /// The directory that [`Trust::find`] found at `path`.
    pub fn at_place(place: OwnedFd, path: &Path, trust: Trust) -> io::Result<Folder> {
        Folder::of(enter(place, trust)?, without_end(path), trust)
    }

    /// The directory at `path`. If it does not exist, it is made with the permissions `mode`. The
    /// second value says whether it was made.
    pub fn open_or_make(path: &Path, mode: u32, trust: Trust) -> io::Result<(Folder, bool)> {
        let path = without_end(path);
        let Some(name) = path.file_name() else {
            return Folder::open(&path, trust).map(|folder| (folder, false));
        };
        let parent = open_parent(&path)?;
        let is_new = make_directory(&parent, name, mode, trust.owner)?;
        let place = above_standard(|| openat(&parent, name, PLACE, Mode::empty()));
        let directory = enter(place.map_err(|e| link_in(e, &parent, name))?, trust)?;
        Folder::of(directory, path, trust).map(|folder| (folder, is_new))
    }

    /// Makes the directory `name` in a directory that a file of a user names.
    pub fn make_in_found(parent: &Path, name: &str, mode: u32, trust: Trust) -> io::Result<Folder> {
        check_name(name);
        make_directory(trust.find(parent)?, name.as_ref(), mode, trust.owner)?;
        Folder::found(&parent.join(name), trust)
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

    /// Where it is now, as the kernel knows it.
    pub fn real_path(&self) -> io::Result<PathBuf> {
        std::fs::read_link(link_to(&*self.directory))
    }

    /// The user to whom it belongs.
    pub fn owner(&self) -> u32 {
        self.owner.uid
    }

    /// The users that it trusts.
    pub fn trust(&self) -> Trust {
        Trust::own_and(self.owner.uid, self.owner.gid)
    }

    /// The directory `name` in it.
    pub fn folder(&self, name: &str) -> io::Result<Folder> {
        check_name(name);
        let path = self.at(name);
        let folder = Folder::of(self.open_in(name, DIRECTORY)?, path, self.trust)?;
        self.check_owner(folder.owner.uid)?;
        Ok(folder)
    }

    /// The directory `name` in it. If it does not exist, it is made with the permissions `mode`.
    pub fn open_or_make_folder(&self, name: &str, mode: u32) -> io::Result<Folder> {
        check_name(name);
        make_directory(&self.directory, name.as_ref(), mode, Some(self.owner))?;
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
        let file = self.open_in(name, how | FILE)?;
        let found = fstat(&file)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(Error::new(ErrorKind::InvalidInput, "is no regular file"));
        }
        self.trust.check_of_log(&found)?;
        self.check_owner(found.st_uid)?;
        Ok(file.into())
    }

    /// Refuses what belongs to another trusted user than this directory does, who may have put it
    /// here by a rename, or by a hard link where fs.protected_hardlinks is 0, without being able to
    /// write to it. Nothing of a log is such: root makes everything as the owner of the directory.
    fn check_owner(&self, uid: u32) -> io::Result<()> {
        if uid == self.owner.uid {
            return Ok(());
        }
        let why = format!(
            "belongs to user {uid}, unlike its directory, whose owner, user {}, may have put it \
             here: it must not be changed. Move it elsewhere, or give it to that user",
            self.owner.uid
        );
        Err(Error::new(ErrorKind::PermissionDenied, why))
    }

    /// A new file `name` with the permissions `mode`, for reading and writing. An error if it
    /// exists.
    pub fn new_file(&self, name: &str, mode: u32) -> io::Result<File> {
        check_name(name);
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | FILE;
        let mode = Mode::from_raw_mode(mode);
        let make = || openat(&self.directory, name, how, mode).map_err(Error::from);
        above_standard(|| as_owner(Some(self.owner), make)).map(File::from)
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

    /// The content of the file `name`; `None` if there is no such file. A file of more than
    /// 64 KiB is refused.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match self.file(name, Access::ReadOnly) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, READ_BYTES_MAX + 1), &mut bytes)?;
        if bytes.len() as u64 > READ_BYTES_MAX {
            let why = format!(
                "has more than {READ_BYTES_MAX} bytes, and no log makes it so long: put it back \
                 from a copy of the log, or name another log"
            );
            return Err(Error::new(ErrorKind::InvalidData, why));
        }
        Ok(Some(bytes))
    }

    /// The attributes of `name`, of the link itself if it is one; `None` if it does not exist. An
    /// error if something is mounted there, whose server is not asked.
    pub fn stat(&self, name: &str) -> io::Result<Option<Stat>> {
        check_name(name);
        match self.open_in(name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            opened => Ok(Some(fstat(opened?)?)),
        }
    }

    /// The names in it that are UTF-8. OneJournal makes no others, and no log has more than
    /// 1,048,576 in a directory: an error if there are more.
    pub fn names(&self) -> io::Result<Vec<String>> {
        self.names_up_to(NAME_COUNT_MAX)
    }

    /// The same for a directory that anyone may have filled: an error if there are more than
    /// `count` names.
    pub fn names_up_to(&self, count: usize) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        self.each_name(count, |name| {
            names.push(name.to_owned());
            Ok(())
        })?;
        Ok(names)
    }

    /// Gives `take` the names in it that are UTF-8, one after the other. An error if there are more
    /// than `count`; then `take` has had `count` of them.
    pub fn each_name(
        &self,
        count: usize,
        mut take: impl FnMut(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut left = count;
        // A descriptor of its own: where it reads from is that of all copies.
        for entry in Dir::read_from(self.directory.as_fd())? {
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                left = left.checked_sub(1).ok_or_else(|| {
                    Error::new(ErrorKind::InvalidData, format!("has more than {count} names"))
                })?;
                take(name)?;
            }
        }
        Ok(())
    }

    /// Renames a file in it. An existing file of the new name is replaced.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from);
        check_name(to);
        let rename = || Ok(renameat(&self.directory, from, &self.directory, to)?);
        as_owner(Some(self.owner), rename)
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name);
        as_owner(Some(self.owner), || Ok(unlinkat(&self.directory, name, AtFlags::empty())?))
    }

    /// Removes this directory, which must be empty. It must not be used after this call.
    pub fn remove_itself(&self) -> io::Result<()> {
        let name = self.path.file_name().ok_or(Errno::INVAL)?;
        let parent = above_standard(|| openat(&self.directory, "..", PLACE, Mode::empty()))?;
        let remove = || unlinkat(&parent, name, AtFlags::REMOVEDIR).map_err(Error::from);
        as_owner(Some(self.owner), remove)
    }

    /// Removes the directory `name` and everything in it. Follows no link. An error, and nothing
    /// more is removed, at a directory of another user, and where directories are too deep.
    pub fn remove_folder(&self, name: &str) -> io::Result<()> {
        as_owner(Some(self.owner), || self.remove_tree(name, DEPTH_MAX))
    }

    /// Removes everything that is in it, as [`Folder::remove_folder`] does.
    pub fn empty(&self) -> io::Result<()> {
        as_owner(Some(self.owner), || self.remove_all(DEPTH_MAX))
    }

    fn remove_tree(&self, name: &str, depth: usize) -> io::Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            let why = format!("has more than {DEPTH_MAX} levels of directories, and no log has");
            return Err(Error::new(ErrorKind::InvalidData, why));
        };
        self.folder(name)?.remove_all(depth)?;
        Ok(unlinkat(&self.directory, name, AtFlags::REMOVEDIR)?)
    }

    fn remove_all(&self, depth: usize) -> io::Result<()> {
        for name in self.names()? {
            let is_folder = self
                .stat(&name)?
                .is_some_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
            let removed = match is_folder {
                true => self.remove_tree(&name, depth),
                false => unlinkat(&self.directory, &*name, AtFlags::empty()).map_err(Error::from),
            };
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

    /// Returns when its own name is durable.
    pub fn sync_name(&self) -> io::Result<()> {
        let parent = above_standard(|| openat(&self.directory, "..", DIRECTORY, Mode::empty()))?;
        Ok(rustix::fs::fsync(&parent)?)
    }

    /// Gives the errors of a symbolic link and of a mount messages of their own.
    fn open_in(&self, name: &str, how: OFlags) -> io::Result<OwnedFd> {
        let opened = above_standard(|| open_on_same_mount(&self.directory, name, how));
        opened.map_err(|errno| match errno {
            Errno::XDEV => Error::new(
                ErrorKind::PermissionDenied,
                "is on another mount than its directory, and another user may have mounted that: \
                 unmount it",
            ),
            errno => link_in(errno, &self.directory, name.as_ref()),
        })
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Opens a directory that was found as a place, unless another user serves its file system.
fn enter(place: OwnedFd, trust: Trust) -> io::Result<OwnedFd> {
    trust.check_place(&place)?;
    Ok(above_standard(|| openat(&place, ".", DIRECTORY, Mode::empty()))?)
}

/// Makes a directory, which belongs to `owner`. `false`: it exists.
fn make_directory(
    parent: impl AsFd + Sync,
    name: &OsStr,
    mode: u32,
    owner: Option<Owner>,
) -> io::Result<bool> {
    let mode = Mode::from_raw_mode(mode);
    let made = as_owner(owner, || mkdirat(&parent, name, mode).map_err(Error::from));
    #[cfg(test)]
    tests::after_making();
    match made {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
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

/// Whether the name is that of a symbolic link. If something is mounted there, it is not asked.
fn is_link(directory: impl AsFd, name: &OsStr) -> bool {
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let found = statx(directory, name, how, StatxFlags::TYPE);
    found.is_ok_and(|found| kind_of(&found) == FileType::Symlink)
}

fn link(error: Errno, path: &Path) -> Error {
    link_or(error, is_link(CWD, path.as_os_str()))
}

fn link_in(error: Errno, directory: impl AsFd, name: &OsStr) -> Error {
    link_or(error, is_link(directory, name))
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use onejournal_testing::is_root;

    use super::*;

    const OTHER: u32 = 65_534;

    thread_local! {
        /// The act of another user between the making of a directory and its opening.
        static EXCHANGE: Cell<Option<fn(&Path)>> = const { Cell::new(None) };
        static HOME: RefCell<PathBuf> = RefCell::default();
    }

    /// Is called after a directory was made.
    pub(super) fn after_making() {
        if let Some(exchange) = EXCHANGE.take() {
            HOME.with_borrow(|home| exchange(home));
        }
    }

    /// Runs `f` while another user exchanges something in `home`, in the moment that is worst.
    fn while_exchanged<T>(home: &Path, exchange: fn(&Path), f: impl FnOnce() -> T) -> T {
        HOME.set(home.to_owned());
        EXCHANGE.set(Some(exchange));
        let done = f();
        assert!(EXCHANGE.take().is_none(), "nothing was made");
        done
    }

    fn refusal<T>(result: io::Result<T>) -> String {
        result.err().expect("refused").to_string()
    }

    fn permit(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode");
    }

    #[test]
    fn entries_that_others_can_write_are_refused() {
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
    fn entries_of_another_user_are_refused_unless_trusted() {
        if !is_root() {
            return;
        }
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

    /// A user gave root's file a name in the directory of a log that root opens, too.
    #[test]
    fn regression_another_name_of_roots_file_is_refused() {
        if !is_root() {
            return;
        }
        let home = tempfile::tempdir().expect("directory");
        let (victim, path) = (home.path().join("victim"), home.path().join("log"));
        std::fs::write(&victim, "root's").expect("written");
        std::fs::create_dir(&path).expect("made");
        std::fs::hard_link(&victim, path.join("file")).expect("link");
        let access = Access::ReadWrite;
        Folder::open(&path, Trust::own()).expect("ours").file("file", access).expect("ours");
        chown(&path, Some(OTHER), Some(OTHER)).expect("given away");
        let others = Folder::open(&path, Trust::own_and(OTHER, OTHER)).expect("trusted");
        assert!(refusal(others.file("file", access)).contains("unlike its directory"));
        assert!(refusal(others.open_or_make_file("file", 0o600)).contains("unlike its directory"));
        // It may have been moved here by a rename.
        std::fs::remove_file(&victim).expect("removed");
        assert!(refusal(others.file("file", access)).contains("unlike its directory"));
        chown(path.join("file"), Some(OTHER), None).expect("given away");
        std::fs::hard_link(path.join("file"), &victim).expect("link");
        others.file("file", access).expect("a copy that its owner made of the log");
    }

    #[test]
    fn a_pipe_is_refused_at_once() {
        let home = tempfile::tempdir().expect("directory");
        let folder = Folder::open(home.path(), Trust::own()).expect("open");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(&folder, "pipe", FileType::Fifo, mode, 0).expect("made");
        assert!(refusal(folder.file("pipe", Access::ReadOnly)).contains("no regular file"));
        assert!(Folder::open(&folder.at("pipe"), Trust::own()).is_err());
        assert!(refusal(folder.read("pipe")).contains("no regular file"));
        assert!(folder.read("nothing").expect("asked").is_none());
    }

    /// A directory of another user, `theirs`, with a directory of root, and root's own directory
    /// `secret`.
    fn exchangeable() -> tempfile::TempDir {
        let home = tempfile::tempdir().expect("directory");
        let at = |name: &str| home.path().join(name);
        for name in ["theirs", "theirs/backup", "secret", "secret/log"] {
            std::fs::create_dir(at(name)).expect("made");
            permit(&at(name), if name == "secret" { 0o755 } else { 0o700 });
        }
        chown(at("theirs"), Some(OTHER), Some(OTHER)).expect("given away");
        home
    }

    fn owner_of(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).expect("there").uid()
    }

    /// The owner of a directory cannot remove a directory of root in it that is not empty, and
    /// puts it where root removes something.
    #[test]
    fn regression_directories_of_root_are_not_removed_for_the_owner_of_the_directory() {
        if !is_root() {
            return;
        }
        let home = exchangeable();
        let at = |name: &str| home.path().join(name);
        std::fs::write(at("theirs/backup/file"), "root's").expect("written");
        let open = |name: &str| Folder::open(&at(name), Trust::own_and(OTHER, OTHER));
        let theirs = open("theirs").expect("opened");
        assert!(refusal(theirs.folder("backup")).contains("unlike its directory"));
        let is_denied = |removed: io::Result<()>| {
            removed.expect_err("root's").kind() == ErrorKind::PermissionDenied
        };
        assert!(is_denied(theirs.remove_folder("backup")) && is_denied(theirs.empty()));
        let log = open("theirs").and_then(|theirs| theirs.open_or_make_folder("log", 0o700));
        std::fs::rename(at("theirs/backup"), at("theirs/log/backup")).expect("renamed");
        assert!(is_denied(theirs.remove_folder("log")));
        assert!(at("theirs/log/backup/file").exists());
        // A file of root's in a directory of root's is not theirs to remove, either.
        let secret = Folder {
            owner: theirs.owner,
            ..Folder::open(&at("theirs/log/backup"), Trust::own()).expect("opened")
        };
        assert!(is_denied(secret.remove("file")));
        drop(log);
    }

    #[test]
    fn directories_that_are_too_deep_are_not_removed() {
        let home = tempfile::tempdir().expect("directory");
        let folder = Folder::open(home.path(), Trust::own()).expect("open");
        let deep = |levels: usize| home.path().join(vec!["a"; levels].join("/"));
        std::fs::create_dir_all(deep(DEPTH_MAX)).expect("made");
        folder.remove_folder("a").expect("removed");
        std::fs::create_dir_all(deep(DEPTH_MAX + 1)).expect("made");
        assert!(refusal(folder.remove_folder("a")).contains("levels of directories"));
        assert!(refusal(folder.empty()).contains("levels of directories"));
        assert!(deep(DEPTH_MAX + 1).exists());
    }

    /// The owner of the directory above exchanges it for a link to a directory of root.
    #[test]
    fn regression_a_directory_of_root_is_not_given_away_through_a_link() {
        if !is_root() {
            return;
        }
        let home = exchangeable();
        let at = |name: &str| home.path().join(name);
        let made = while_exchanged(
            home.path(),
            |home| {
                std::fs::rename(home.join("theirs"), home.join("moved")).expect("renamed");
                symlink(home.join("secret"), home.join("theirs")).expect("link");
            },
            || Folder::open_or_make(&at("theirs/log"), 0o700, Trust::own_and(OTHER, OTHER)),
        );
        let (folder, is_new) = made.expect("made");
        assert_eq!((owner_of(&at("secret/log")), owner_of(&at("moved/log"))), (0, OTHER));
        // The directory that was made is the one that was opened.
        folder.new_file("file", 0o600).expect("made");
        assert!(is_new && at("moved/log/file").exists() && !at("secret/log/file").exists());
    }

    /// The owner of the directory above puts another directory of root in the place of the new one.
    #[test]
    fn regression_a_directory_of_root_is_not_given_away_by_its_name() {
        if !is_root() {
            return;
        }
        let exchange: fn(&Path) = |home| {
            let at = |name: &str| home.join("theirs").join(name);
            std::fs::rename(at("log"), at("moved")).expect("renamed");
            std::fs::rename(at("backup"), at("log")).expect("renamed");
        };
        let trust = Trust::own_and(OTHER, OTHER);
        for is_inner in [false, true] {
            let home = exchangeable();
            let at = |name: &str| home.path().join("theirs").join(name);
            while_exchanged(home.path(), exchange, || match is_inner {
                false => drop(Folder::open_or_make(&at("log"), 0o700, trust)),
                true => {
                    let theirs = Folder::open(&home.path().join("theirs"), trust).expect("theirs");
                    drop(theirs.open_or_make_folder("log", 0o700));
                }
            });
            assert_eq!((owner_of(&at("log")), owner_of(&at("moved"))), (0, OTHER), "{is_inner}");
        }
    }

    /// A path that leads to a directory where its owner may make nothing.
    #[test]
    fn regression_root_makes_nothing_for_a_user_where_that_user_may_not() {
        if !is_root() {
            return;
        }
        let home = exchangeable();
        let at = |name: &str| home.path().join(name);
        symlink(at("secret"), at("link")).expect("link");
        for path in ["secret/new", "link/new"] {
            let made = Folder::open_or_make(&at(path), 0o700, Trust::own_and(OTHER, OTHER));
            let why = refusal(made);
            assert!(why.contains("user 65534") && why.contains("install -d"), "{why}");
        }
        assert!(!at("secret/new").exists());
        // For root itself it is made.
        Folder::open_or_make(&at("link/new"), 0o700, Trust::own()).expect("made");
    }

    #[test]
    fn a_directory_removes_itself_when_it_is_empty() {
        let home = tempfile::tempdir().expect("directory");
        let path = home.path().join("log");
        let (folder, _) = Folder::open_or_make(&path, 0o700, Trust::own()).expect("made");
        folder.new_file("file", 0o600).expect("made");
        assert!(folder.remove_itself().is_err(), "it holds a file");
        folder.empty().expect("removed");
        folder.remove_itself().expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn regression_a_file_that_was_made_long_is_not_read() {
        let home = tempfile::tempdir().expect("directory");
        let folder = Folder::open(home.path(), Trust::own()).expect("open");
        let file = folder.new_file("file", 0o600).expect("made");
        file.set_len(READ_BYTES_MAX).expect("length");
        let whole = folder.read("file").expect("read").expect("there");
        assert_eq!(whole.len() as u64, READ_BYTES_MAX);
        // Reading it would take this much memory.
        file.set_len(1 << 40).expect("length");
        assert!(refusal(folder.read("file")).contains("more than 65536 bytes"));
    }

    #[test]
    fn a_directory_with_too_many_names_is_refused() {
        let home = tempfile::tempdir().expect("directory");
        let folder = Folder::open(home.path(), Trust::own()).expect("open");
        for name in ["a", "b", "c"] {
            folder.new_file(name, 0o600).expect("made");
        }
        assert_eq!(folder.names_up_to(3).expect("all").len(), 3);
        assert!(refusal(folder.names_up_to(2)).contains("more than 2 names"));
    }
}
