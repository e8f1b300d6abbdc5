//! The reference file system: the same operations on values in memory.
//!
//! It has no blocks, space or time. A clone is a snapshot: the clones share inodes until one of
//! them changes an inode.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ext4::{Error, FileKind, Result, XattrFlags};

use crate::content::{Content, pattern};
use crate::op::{MODE_ATTRIBUTE, Op, Reserve, Target, symlink_target};
use crate::tree::{Entry, Tree, Xattrs};

mod names;

/// Number of an inode of the model. It is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u32);

const ROOT: Id = Id(0);
const NAME_BYTES_MAX: usize = 255;

#[derive(Clone)]
enum Body {
    File(Content),
    Dir(BTreeMap<Vec<u8>, Id>),
    Symlink(Content),
    Special(FileKind, u32),
}

#[derive(Clone)]
struct Node {
    body: Body,
    mode: u16,
    uid: u32,
    gid: u32,
    link_count: u32,
    xattrs: Xattrs,
}

impl Node {
    fn kind(&self) -> FileKind {
        match &self.body {
            Body::File(_) => FileKind::Regular,
            Body::Dir(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    fn children(&self) -> Result<&BTreeMap<Vec<u8>, Id>> {
        match &self.body {
            Body::Dir(children) => Ok(children),
            _ => Err(Error::NotDirectory),
        }
    }
}

/// A change by an operation that `fsync` promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The inode.
    pub id: Id,
    /// Whether `fdatasync` promises it, too: content, size, or that the file exists.
    pub is_data: bool,
}

/// A file system in memory.
#[derive(Clone)]
pub struct Model {
    nodes: BTreeMap<Id, Arc<Node>>,
    open: BTreeMap<u32, Id>,
    next: u32,
    changes: Vec<Change>,
}

impl Model {
    /// The file system that mke2fs makes: a root with `lost+found`.
    pub fn formatted() -> Model {
        let directory = |mode, link_count, children| Node {
            body: Body::Dir(children),
            mode,
            uid: 0,
            gid: 0,
            link_count,
            xattrs: Xattrs::new(),
        };
        let root = directory(0o755, 3, BTreeMap::from([(b"lost+found".to_vec(), Id(1))]));
        let lost = directory(0o700, 2, BTreeMap::new());
        let nodes = [(ROOT, Arc::new(root)), (Id(1), Arc::new(lost))].into();
        Model { nodes, open: BTreeMap::new(), next: 2, changes: Vec::new() }
    }

    /// An empty directory with mode 755.
    pub fn empty() -> Model {
        let root = Node {
            body: Body::Dir(BTreeMap::new()),
            mode: 0o755,
            uid: 0,
            gid: 0,
            link_count: 2,
            xattrs: Xattrs::new(),
        };
        let nodes = [(ROOT, Arc::new(root))].into();
        Model { nodes, open: BTreeMap::new(), next: 1, changes: Vec::new() }
    }

    /// Closes all open files, as the end of a process does.
    pub fn close_all(&mut self) {
        for slot in self.open_slots() {
            self.close(slot);
        }
    }

    /// Performs `op`. An error changes nothing. A write or a reservation covers only its first
    /// `written_bytes`. [`Model::take_changes`] returns the changes of a successful operation.
    pub fn apply(&mut self, op: &Op, written_bytes: Option<usize>) -> Result<()> {
        self.changes.clear();
        match op {
            Op::Create { path, mode } => {
                self.make(path, Body::File(Content::default()), *mode & !0o022)
            }
            Op::MakeDir { path, mode } => {
                self.make(path, Body::Dir(BTreeMap::new()), *mode & !0o022)
            }
            Op::Symlink { path, target_bytes } => {
                let target = Content::new(symlink_target(*target_bytes));
                self.make(path, Body::Symlink(target), 0o777)
            }
            Op::Special { path, kind, rdev } => self.make(path, Body::Special(*kind, *rdev), 0o644),
            Op::Link { from, to } => self.link(from, to),
            Op::Unlink { path } => self.unlink(path),
            Op::RemoveDir { path } => self.remove_dir(path),
            Op::Rename { from, to, kind } => self.rename(from, to, *kind),
            Op::Write { target, offset, len_bytes, tag } => {
                let len_bytes = written_bytes.unwrap_or(*len_bytes);
                let data = pattern(*tag, *offset, len_bytes);
                self.edit_file(target, |bytes| write_at(bytes, *offset, &data))
            }
            Op::WriteAtomic { target, pieces, tag } => self.edit_file(target, |bytes| {
                for (offset, len) in pieces {
                    write_at(bytes, *offset, &pattern(*tag, *offset, *len));
                }
            }),
            Op::Truncate { target, size_bytes } => {
                self.edit_file(target, |bytes| bytes.resize(to_len(*size_bytes), 0))
            }
            Op::Fallocate { target, how, offset, len_bytes } => {
                let done = written_bytes.map_or(*len_bytes, |done| (*len_bytes).min(done as u64));
                let end = offset + done;
                self.edit_file(target, |bytes| reserve(bytes, *how, to_len(*offset), to_len(end)))
            }
            Op::SetAttr { target, mode, uid, gid } => self.set_attr(target, *mode, *uid, *gid),
            Op::SetXattr { target, name, len_bytes, tag, flags } => {
                self.set_xattr(target, name, pattern(*tag, 0, *len_bytes), *flags)
            }
            Op::SetMode { target, mode } => {
                let value = mode.name().as_bytes().to_vec();
                self.set_xattr(target, MODE_ATTRIBUTE, value, XattrFlags::Any)
            }
            Op::RemoveXattr { target, name } => self.remove_xattr(target, name),
            Op::Open { path, slot } => {
                let id = self.find(path)?;
                self.close(*slot);
                self.open.insert(*slot, id);
                Ok(())
            }
            Op::Close { slot } => {
                self.close(*slot);
                Ok(())
            }
            Op::Fsync { target, .. } => self.resolve(target).map(drop),
            Op::Sync | Op::Checkpoint | Op::Restart => Ok(()),
            Op::Remount => {
                let slots: Vec<u32> = self.open.keys().copied().collect();
                slots.into_iter().for_each(|slot| self.close(slot));
                Ok(())
            }
        }
    }

    /// What the last operation changed.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The inode of a target.
    pub fn resolve(&self, target: &Target) -> Result<Id> {
        match target {
            Target::Path(path) => self.find(path),
            Target::Open(slot) => self.open.get(slot).copied().ok_or(Error::NotFound),
        }
    }

    /// The inode at a path.
    pub fn find(&self, path: &str) -> Result<Id> {
        let mut id = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let children = self.nodes[&id].children()?;
            if name.len() > NAME_BYTES_MAX {
                return Err(Error::NameTooLong);
            }
            id = *children.get(name.as_bytes()).ok_or(Error::NotFound)?;
        }
        Ok(id)
    }

    /// What kind of inode it is.
    pub fn kind(&self, id: Id) -> Option<FileKind> {
        Some(self.nodes.get(&id)?.kind())
    }

    /// The bytes of a regular file.
    pub fn content(&self, id: Id) -> Option<&Content> {
        match &self.nodes.get(&id)?.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// Slots with an open file.
    pub fn open_slots(&self) -> Vec<u32> {
        self.open.keys().copied().collect()
    }

    /// Every path with its type, in order, without the root and `lost+found`.
    pub fn paths(&self) -> Vec<(String, FileKind)> {
        let mut paths = Vec::new();
        self.walk(ROOT, &mut Vec::new(), &mut |path, id| {
            let text = String::from_utf8(path.to_vec()).expect("paths of the model are text");
            if !text.is_empty() && text != "lost+found" {
                paths.push((text, self.nodes[&id].kind()));
            }
        });
        paths
    }

    /// A path of an inode, if it has one.
    pub fn path_of(&self, id: Id) -> Option<String> {
        let mut path = None;
        self.walk(ROOT, &mut Vec::new(), &mut |at, found| {
            if found == id {
                path = Some(String::from_utf8_lossy(at).into_owned());
            }
        });
        path
    }

    /// The whole file system as a tree.
    pub fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        let mut first: BTreeMap<Id, Vec<u8>> = BTreeMap::new();
        let mut paths = Vec::new();
        self.walk(ROOT, &mut Vec::new(), &mut |path, id| paths.push((path.to_vec(), id)));
        paths.sort();
        for (path, id) in paths {
            let first_path = first.entry(id).or_insert_with(|| path.clone()).clone();
            tree.entries.insert(path, self.entry(id, first_path));
        }
        tree
    }

    fn entry(&self, id: Id, first_path: Vec<u8>) -> Entry {
        let node = &self.nodes[&id];
        let (content, rdev) = match &node.body {
            Body::File(content) | Body::Symlink(content) => (content.clone(), 0),
            Body::Dir(_) => (Content::default(), 0),
            Body::Special(_, rdev) => (Content::default(), *rdev),
        };
        Entry {
            kind: node.kind(),
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            link_count: node.link_count,
            size_bytes: content.len_bytes(),
            rdev,
            xattrs: node.xattrs.clone(),
            first_path,
            content,
        }
    }

    fn walk(&self, id: Id, path: &mut Vec<u8>, each: &mut dyn FnMut(&[u8], Id)) {
        each(path, id);
        let Body::Dir(children) = &self.nodes[&id].body else { return };
        for (name, child) in children {
            let len = path.len();
            if len > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            self.walk(*child, path, each);
            path.truncate(len);
        }
    }

    fn node(&mut self, id: Id) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&id).expect("an inode that is named exists"))
    }

    fn children(&mut self, id: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match &mut self.node(id).body {
            Body::Dir(children) => children,
            _ => unreachable!("the caller found it to be a directory"),
        }
    }

    /// The directory and name of a path.
    fn parent<'p>(&self, path: &'p str) -> Result<(Id, &'p str)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.find(parent)?;
        self.nodes[&parent].children()?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        Ok((parent, name))
    }

    fn child(&self, parent: Id, name: &str) -> Option<Id> {
        self.nodes[&parent].children().ok()?.get(name.as_bytes()).copied()
    }

    fn note(&mut self, id: Id, is_data: bool) {
        self.changes.push(Change { id, is_data });
    }

    fn edit_file(&mut self, target: &Target, edit: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let id = self.resolve(target)?;
        let content = match &self.nodes[&id].body {
            Body::File(content) => content,
            Body::Dir(_) => return Err(Error::IsDirectory),
            _ => return Err(Error::InvalidArgument),
        };
        let mut bytes = content.bytes().to_vec();
        edit(&mut bytes);
        let edited = Content::new(bytes);
        // What changes nothing (a hole punched into a hole) need not become durable.
        if edited != *content {
            self.node(id).body = Body::File(edited);
            self.note(id, true);
        }
        Ok(())
    }

    fn set_attr(
        &mut self,
        target: &Target,
        mode: Option<u16>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        let id = self.resolve(target)?;
        let node = self.node(id);
        node.mode = mode.unwrap_or(node.mode);
        node.uid = uid.unwrap_or(node.uid);
        node.gid = gid.unwrap_or(node.gid);
        self.note(id, false);
        Ok(())
    }

    fn set_xattr(
        &mut self,
        target: &Target,
        name: &str,
        value: Vec<u8>,
        flags: XattrFlags,
    ) -> Result<()> {
        let id = self.resolve(target)?;
        self.check_xattr(id, name)?;
        let exists = self.nodes[&id].xattrs.contains_key(name.as_bytes());
        match flags {
            XattrFlags::Create if exists => return Err(Error::Exists),
            XattrFlags::Replace if !exists => return Err(Error::NoAttribute),
            _ => {}
        }
        self.node(id).xattrs.insert(name.into(), value);
        self.note(id, false);
        Ok(())
    }

    /// Checks that the inode may have user attributes: only files and directories may.
    fn check_xattr(&self, id: Id, name: &str) -> Result<()> {
        let may_have = matches!(self.nodes[&id].body, Body::File(_) | Body::Dir(_));
        if name.starts_with("user.") && !may_have { Err(Error::NotPermitted) } else { Ok(()) }
    }

    fn remove_xattr(&mut self, target: &Target, name: &str) -> Result<()> {
        let id = self.resolve(target)?;
        self.check_xattr(id, name)?;
        if !self.nodes[&id].xattrs.contains_key(name.as_bytes()) {
            return Err(Error::NoAttribute);
        }
        self.node(id).xattrs.remove(name.as_bytes());
        self.note(id, false);
        Ok(())
    }

    /// Contents of the inodes that [`Model::take_changes`] names.
    pub fn contents_of(&self, ids: &BTreeSet<Id>) -> Vec<(Id, Content)> {
        ids.iter().filter_map(|id| Some((*id, self.content(*id)?.clone()))).collect()
    }
}

fn to_len(size_bytes: u64) -> usize {
    usize::try_from(size_bytes).expect("files of the model fit into memory")
}

fn write_at(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let offset = to_len(offset);
    let end = offset + data.len();
    if bytes.len() < end && !data.is_empty() {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

fn reserve(bytes: &mut Vec<u8>, how: Reserve, start: usize, end: usize) {
    let len = bytes.len();
    match how {
        Reserve::KeepSize => {}
        Reserve::Extend => bytes.resize(len.max(end), 0),
        Reserve::Punch | Reserve::Zero { keep_size: true } => {
            bytes[start.min(len)..end.min(len)].fill(0);
        }
        Reserve::Zero { keep_size: false } => {
            bytes.resize(len.max(end), 0);
            bytes[start..end].fill(0);
        }
    }
}
