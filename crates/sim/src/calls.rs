//! Performs operations and reads trees by system calls on a directory of any mounted file system.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ext4::{FileKind, XattrFlags};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, RenameFlags, Uid};

use crate::content::{Content, pattern};
use crate::op::{MODE_ATTRIBUTE, Op, RenameKind, Reserve, Target, symlink_target};
use crate::tree::{Entry, Tree, Xattrs};

/// The umask that the model has.
const UMASK: u32 = 0o022;

/// Performs operations in a directory.
pub struct Calls {
    dir: PathBuf,
    slots: BTreeMap<u32, File>,
}

impl Calls {
    /// Paths of operations begin in `dir`. Sets the umask of the process to the model's, 022.
    pub fn new(dir: &Path) -> Calls {
        rustix::process::umask(Mode::from_raw_mode(UMASK));
        Calls { dir: dir.into(), slots: BTreeMap::new() }
    }

    /// Closes what is open.
    pub fn close_all(&mut self) {
        self.slots.clear();
    }

    /// Performs one operation, with one system call if that is possible.
    pub fn apply(&mut self, op: &Op) -> io::Result<()> {
        let at = |path: &str| self.dir.join(path);
        match op {
            Op::Create { path, mode } => {
                let mode = u32::from(*mode);
                OpenOptions::new().write(true).create_new(true).mode(mode).open(at(path)).map(drop)
            }
            Op::MakeDir { path, mode } => {
                fs::DirBuilder::new().mode((*mode).into()).create(at(path))
            }
            Op::Symlink { path, target_bytes } => {
                let target = std::ffi::OsString::from_vec(symlink_target(*target_bytes));
                std::os::unix::fs::symlink(target, at(path))
            }
            Op::Special { path, kind, rdev } => {
                let device =
                    rustix::fs::makedev(*rdev >> 8 & 0xfff, *rdev & 0xff | *rdev >> 12 & 0xf_ff00);
                let mode = Mode::from_raw_mode(0o644);
                Ok(rustix::fs::mknodat(CWD, at(path), file_type(*kind), mode, device)?)
            }
            Op::Link { from, to } => fs::hard_link(at(from), at(to)),
            Op::Unlink { path } => fs::remove_file(at(path)),
            Op::RemoveDir { path } => fs::remove_dir(at(path)),
            Op::Rename { from, to, kind } => {
                let flags = match kind {
                    RenameKind::Replace => RenameFlags::empty(),
                    RenameKind::NoReplace => RenameFlags::NOREPLACE,
                    RenameKind::Exchange => RenameFlags::EXCHANGE,
                };
                Ok(rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)?)
            }
            Op::Open { path, slot } => {
                let file = self.file_of(&Target::Path(path.clone()))?;
                self.slots.insert(*slot, file);
                Ok(())
            }
            Op::Close { slot } => {
                self.slots.remove(slot);
                Ok(())
            }
            Op::Remount => {
                self.slots.clear();
                Ok(())
            }
            Op::Sync | Op::Checkpoint | Op::Restart => {
                Ok(rustix::fs::syncfs(File::open(&self.dir)?)?)
            }
            _ => self.apply_to_inode(op),
        }
    }

    fn path_of(&self, target: &Target) -> io::Result<PathBuf> {
        match target {
            Target::Path(path) => Ok(self.dir.join(path)),
            Target::Open(slot) => {
                let file = self.slots.get(slot).ok_or(io::ErrorKind::NotFound)?;
                let number = std::os::fd::AsRawFd::as_raw_fd(file);
                Ok(PathBuf::from(format!("/proc/self/fd/{number}")))
            }
        }
    }

    /// An error if the file does not exist.
    pub fn exists(&self, target: &Target) -> io::Result<()> {
        fs::symlink_metadata(self.path_of(target)?).map(drop)
    }

    fn file_of(&self, target: &Target) -> io::Result<File> {
        match target {
            Target::Open(slot) => self.slots.get(slot).ok_or(io::ErrorKind::NotFound)?.try_clone(),
            Target::Path(_) => {
                let path = self.path_of(target)?;
                if !fs::symlink_metadata(&path)?.is_file() {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                OpenOptions::new().read(true).write(true).open(path)
            }
        }
    }

    fn apply_to_inode(&self, op: &Op) -> io::Result<()> {
        match op {
            Op::Write { target, offset, len_bytes, tag } => {
                self.file_of(target)?.write_all_at(&pattern(*tag, *offset, *len_bytes), *offset)
            }
            Op::WriteAtomic { target, pieces, tag } => {
                let file = self.file_of(target)?;
                let mut pieces = pieces.iter();
                pieces.try_for_each(|(at, len)| file.write_all_at(&pattern(*tag, *at, *len), *at))
            }
            Op::Truncate { target, size_bytes } => self.file_of(target)?.set_len(*size_bytes),
            Op::Fallocate { target, how, offset, len_bytes } => {
                let flags = match how {
                    Reserve::Extend => FallocateFlags::empty(),
                    Reserve::KeepSize => FallocateFlags::KEEP_SIZE,
                    Reserve::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Reserve::Zero { keep_size: true } => {
                        FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE
                    }
                    Reserve::Zero { keep_size: false } => FallocateFlags::ZERO_RANGE,
                };
                let file = self.file_of(target)?;
                Ok(rustix::fs::fallocate(file.as_fd(), flags, *offset, *len_bytes)?)
            }
            Op::SetAttr { target, mode, uid, gid } => {
                let path = self.path_of(target)?;
                let follow = match target {
                    Target::Path(_) => AtFlags::SYMLINK_NOFOLLOW,
                    Target::Open(_) => AtFlags::empty(),
                };
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                if uid.is_some() || gid.is_some() {
                    rustix::fs::chownat(CWD, &path, uid, gid, follow)?;
                }
                mode.map_or(Ok(()), |mode| {
                    let mode = Mode::from_raw_mode(mode.into());
                    Ok(rustix::fs::chmodat(CWD, &path, mode, AtFlags::empty())?)
                })
            }
            Op::SetMode { target, mode } => {
                let value = mode.name().as_bytes();
                let flags = rustix::fs::XattrFlags::empty();
                Ok(rustix::fs::setxattr(self.path_of(target)?, MODE_ATTRIBUTE, value, flags)?)
            }
            Op::SetXattr { target, name, len_bytes, tag, flags } => {
                let flags = match flags {
                    XattrFlags::Any => rustix::fs::XattrFlags::empty(),
                    XattrFlags::Create => rustix::fs::XattrFlags::CREATE,
                    XattrFlags::Replace => rustix::fs::XattrFlags::REPLACE,
                };
                let value = pattern(*tag, 0, *len_bytes);
                Ok(rustix::fs::setxattr(self.path_of(target)?, name.as_str(), &value, flags)?)
            }
            Op::RemoveXattr { target, name } => {
                Ok(rustix::fs::removexattr(self.path_of(target)?, name.as_str())?)
            }
            Op::Fsync { target, data_only } => {
                let path = self.path_of(target)?;
                let kind = fs::metadata(&path)?.file_type();
                if !kind.is_file() && !kind.is_dir() {
                    return Err(io::ErrorKind::InvalidInput.into()); // to open a FIFO would wait
                }
                let file = File::open(path)?;
                if *data_only { file.sync_data() } else { file.sync_all() }
            }
            other => unreachable!("{other} is not about an inode"),
        }
    }
}

/// Everything below a directory.
pub fn read_tree(dir: &Path) -> io::Result<Tree> {
    let mut paths = Vec::new();
    list(dir, Path::new(""), &mut paths)?;
    paths.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    let mut first = HashMap::new();
    let mut tree = Tree::default();
    for path in paths {
        let bytes = path.as_os_str().as_bytes().to_vec();
        let full = if bytes.is_empty() { dir.into() } else { dir.join(&path) };
        let metadata = fs::symlink_metadata(&full)?;
        let first_path = first.entry(metadata.ino()).or_insert_with(|| bytes.clone()).clone();
        tree.entries.insert(bytes, entry(&full, &metadata, first_path)?);
    }
    Ok(tree)
}

fn list(root: &Path, relative: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    paths.push(relative.to_owned());
    for child in fs::read_dir(root.join(relative))? {
        let child = child?;
        let path = relative.join(child.file_name());
        if child.file_type()?.is_dir() {
            list(root, &path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
    }
}

fn kind_of(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        _ => FileKind::Regular,
    }
}

fn entry(path: &Path, metadata: &fs::Metadata, first_path: Vec<u8>) -> io::Result<Entry> {
    let kind = kind_of(metadata.mode());
    let content = match kind {
        FileKind::Regular => fs::read(path)?,
        FileKind::Symlink => fs::read_link(path)?.into_os_string().into_vec(),
        _ => Vec::new(),
    };
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    Ok(Entry {
        kind,
        mode: u16::try_from(metadata.mode() & 0o7777).expect("twelve bits"),
        uid: metadata.uid(),
        gid: metadata.gid(),
        link_count: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
        size_bytes: content.len() as u64,
        rdev: minor & 0xff | major << 8 | (minor & !0xff) << 12,
        xattrs: xattrs(path)?,
        first_path,
        content: Content::new(content),
    })
}

fn xattrs(path: &Path) -> io::Result<Xattrs> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names)?;
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(path, name, &mut value)?;
        value.truncate(len);
        Ok((name.to_vec(), value))
    };
    names.map(value).collect()
}
