//! An operation of a workload, and its text form.

use std::fmt;

use ext4::{DataMode, FileKind, SetAttr, XattrFlags};

/// The attribute of [`Op::SetMode`].
pub use ext4::DATA_MODE_XATTR as MODE_ATTRIBUTE;

/// A file, by name or by the slot in which it is held open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A path from the root, names separated by `/`; empty for the root itself.
    Path(String),
    /// A file that [`Op::Open`] keeps pinned, with or without a name.
    Open(u32),
}

/// The file at `path`.
pub fn at(path: &str) -> Target {
    Target::Path(path.to_owned())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Path(path) => write!(f, "/{}", Short(path)),
            Target::Open(slot) => write!(f, "#{slot}"),
        }
    }
}

/// Cuts long names for printing.
struct Short<'a>(&'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(60) {
            Some((end, _)) => write!(f, "{}..({} bytes)", &self.0[..end], self.0.len()),
            None => f.write_str(self.0),
        }
    }
}

/// How to reserve or clear a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// Reserve, and make the file longer.
    Extend,
    /// Reserve without changing the size.
    KeepSize,
    /// Make a hole.
    Punch,
    /// Make zeros.
    Zero {
        /// Do not change the size.
        keep_size: bool,
    },
}

/// How a rename treats an existing name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameKind {
    /// Replaces it.
    Replace,
    /// Fails.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

/// An operation. Data and attribute values are not stored in it: they are computed from `tag`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "of the fields: each is named after what it is")]
pub enum Op {
    /// Creates an empty regular file.
    Create { path: String, mode: u16 },
    /// Creates a directory.
    MakeDir { path: String, mode: u16 },
    /// Creates a symbolic link to `a/a/a/...` of this length.
    Symlink { path: String, target_bytes: usize },
    /// Creates a device, FIFO or socket.
    Special { path: String, kind: FileKind, rdev: u32 },
    /// Gives a file one more name.
    Link { from: String, to: String },
    /// Removes a name.
    Unlink { path: String },
    /// Removes an empty directory.
    RemoveDir { path: String },
    /// Renames a file or directory.
    Rename { from: String, to: String, kind: RenameKind },
    /// Writes [`crate::content::pattern`] bytes.
    Write { target: Target, offset: u64, len_bytes: usize, tag: u32 },
    /// Writes pattern bytes in several pieces (offset and length), atomically.
    WriteAtomic { target: Target, pieces: Vec<(u64, usize)>, tag: u32 },
    /// Sets the size.
    Truncate { target: Target, size_bytes: u64 },
    /// Reserves, punches or zeroes.
    Fallocate { target: Target, how: Reserve, offset: u64, len_bytes: u64 },
    /// Sets mode, owner, group.
    SetAttr { target: Target, mode: Option<u16>, uid: Option<u32>, gid: Option<u32> },
    /// Sets an extended attribute to pattern bytes.
    SetXattr { target: Target, name: String, len_bytes: usize, tag: u32, flags: XattrFlags },
    /// Gives a file its own data mode, through an attribute.
    SetMode { target: Target, mode: DataMode },
    /// Removes an extended attribute.
    RemoveXattr { target: Target, name: String },
    /// Pins a file in a slot.
    Open { path: String, slot: u32 },
    /// Closes the file of the slot.
    Close { slot: u32 },
    /// Makes one file durable.
    Fsync { target: Target, data_only: bool },
    /// Makes everything durable.
    Sync,
    /// Makes everything durable and brings it home.
    Checkpoint,
    /// Closes the volume and opens it again. Slots are closed before that.
    Remount,
    /// Hands the volume over and opens it again. Slots stay open.
    Restart,
}

impl Op {
    /// The attributes an [`Op::SetAttr`] sets.
    pub(crate) fn attributes(mode: Option<u16>, uid: Option<u32>, gid: Option<u32>) -> SetAttr {
        SetAttr { mode, uid, gid, ..SetAttr::default() }
    }
}

/// The target of a symbolic link of this length.
pub fn symlink_target(len_bytes: usize) -> Vec<u8> {
    (0..len_bytes).map(|i| if i % 2 == 1 && i + 1 < len_bytes { b'/' } else { b'a' }).collect()
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create { path, mode } => write!(f, "create /{} {mode:o}", Short(path)),
            Op::MakeDir { path, mode } => write!(f, "mkdir /{} {mode:o}", Short(path)),
            Op::Symlink { path, target_bytes } => {
                write!(f, "symlink /{} ({target_bytes} bytes)", Short(path))
            }
            Op::Special { path, kind, rdev } => write!(f, "mknod /{} {kind:?} {rdev}", Short(path)),
            Op::Link { from, to } => write!(f, "link /{} /{}", Short(from), Short(to)),
            Op::Unlink { path } => write!(f, "unlink /{}", Short(path)),
            Op::RemoveDir { path } => write!(f, "rmdir /{}", Short(path)),
            Op::Rename { from, to, kind } => {
                write!(f, "rename /{} /{} {kind:?}", Short(from), Short(to))
            }
            Op::Write { target, offset, len_bytes, tag } => {
                write!(f, "write {target} {offset}+{len_bytes} tag {tag}")
            }
            Op::WriteAtomic { target, pieces, tag } => {
                write!(f, "write atomically {target} {pieces:?} tag {tag}")
            }
            Op::Truncate { target, size_bytes } => write!(f, "truncate {target} {size_bytes}"),
            Op::Fallocate { target, how, offset, len_bytes } => {
                write!(f, "fallocate {target} {offset}+{len_bytes} {how:?}")
            }
            Op::SetAttr { target, mode, uid, gid } => {
                write!(f, "setattr {target} mode {mode:?} uid {uid:?} gid {gid:?}")
            }
            Op::SetXattr { target, name, len_bytes, tag, flags } => {
                write!(f, "setxattr {target} {name} {len_bytes} bytes tag {tag} {flags:?}")
            }
            Op::SetMode { target, mode } => write!(f, "set-mode {target} {}", mode.name()),
            Op::RemoveXattr { target, name } => write!(f, "removexattr {target} {name}"),
            Op::Open { path, slot } => write!(f, "open /{} as #{slot}", Short(path)),
            Op::Close { slot } => write!(f, "close #{slot}"),
            Op::Fsync { target, data_only: true } => write!(f, "fdatasync {target}"),
            Op::Fsync { target, data_only: false } => write!(f, "fsync {target}"),
            Op::Sync => f.write_str("sync"),
            Op::Checkpoint => f.write_str("checkpoint"),
            Op::Remount => f.write_str("remount"),
            Op::Restart => f.write_str("restart"),
        }
    }
}
