//! A whole file system as values, to be compared with a model.
//!
//! Two trees are equal if every path leads to the same kind, mode, owner, size, link count,
//! content, target, device number and attributes, and if the same paths are links of one inode.
//! Times, inode numbers and used space are not compared; e2fsck checks used space.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use ext4::{Attr, FileKind, InodeNo, Volume};

use crate::content::Content;

/// Extended attributes: value by full name.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// What one path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Type.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub link_count: u32,
    /// Size in bytes of a regular file or symlink; 0 for others.
    pub size_bytes: u64,
    /// Device number of a special file.
    pub rdev: u32,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// The first path (in byte order) that leads to this inode.
    pub first_path: Vec<u8>,
    /// Bytes of a regular file, or target of a symlink; otherwise empty.
    pub content: Content,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, hash {:016x}", self.len_bytes(), self.hash())
    }
}

/// All paths of a file system; the root is the empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// What each path leads to. Names are separated by `/`.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

/// Two hashes of a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Hash of everything except the bytes of regular files.
    pub metadata: u64,
    /// Hash of everything.
    pub whole: u64,
}

/// Keeps one copy of equal contents.
#[derive(Default)]
pub struct Interner(HashMap<u64, Content>);

impl Interner {
    fn intern(&mut self, bytes: Vec<u8>) -> Content {
        let content = Content::new(bytes);
        self.0.entry(content.hash()).or_insert(content).clone()
    }
}

impl Tree {
    /// The hashes of the tree.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut metadata = DefaultHasher::new();
        let mut contents = DefaultHasher::new();
        for (path, entry) in &self.entries {
            entry.hash_metadata(path, &mut metadata);
            if entry.kind == FileKind::Regular {
                contents.write_u64(entry.content.hash());
            }
        }
        let metadata = metadata.finish();
        contents.write_u64(metadata);
        Fingerprint { metadata, whole: contents.finish() }
    }

    /// The first differences to `other`, as text for people. `names` are the names of the two
    /// trees.
    pub fn differences(&self, other: &Tree, names: [&str; 2], limit: usize) -> String {
        let mut text = String::new();
        let paths = self.entries.keys().chain(other.entries.keys());
        let mut paths: Vec<_> = paths.collect();
        paths.sort_unstable();
        paths.dedup();
        let differing = paths.iter().filter(|p| self.entries.get(**p) != other.entries.get(**p));
        for path in differing.clone().take(limit) {
            let _ = write!(text, "  /{}:", String::from_utf8_lossy(&path[..path.len().min(80)]));
            match (self.entries.get(*path), other.entries.get(*path)) {
                (Some(_), None) => drop(writeln!(text, " only in {}", names[0])),
                (None, Some(_)) => drop(writeln!(text, " only in {}", names[1])),
                (Some(a), Some(b)) => drop(writeln!(text, " {}", a.differences(b, names))),
                (None, None) => unreachable!("the path is of one of them"),
            }
        }
        let count = differing.count();
        if count > limit {
            let _ = writeln!(text, "  ... and {} more", count - limit);
        }
        text
    }
}

impl Entry {
    fn hash_metadata(&self, path: &[u8], hasher: &mut DefaultHasher) {
        path.hash(hasher);
        self.kind.hash(hasher);
        (self.mode, self.uid, self.gid, self.link_count, self.size_bytes, self.rdev).hash(hasher);
        self.xattrs.hash(hasher);
        self.first_path.hash(hasher);
        if self.kind == FileKind::Symlink {
            self.content.bytes().hash(hasher);
        }
    }

    fn differences(&self, other: &Entry, names: [&str; 2]) -> String {
        let mut parts = Vec::new();
        let mut compare = |what: &str, a: String, b: String| {
            if a != b {
                parts.push(format!("{what} {a} in {}, {b} in {}", names[0], names[1]));
            }
        };
        compare("kind", format!("{:?}", self.kind), format!("{:?}", other.kind));
        compare("mode", format!("{:o}", self.mode), format!("{:o}", other.mode));
        compare(
            "owner",
            format!("{}:{}", self.uid, self.gid),
            format!("{}:{}", other.uid, other.gid),
        );
        compare("links", self.link_count.to_string(), other.link_count.to_string());
        compare("size", self.size_bytes.to_string(), other.size_bytes.to_string());
        compare("rdev", self.rdev.to_string(), other.rdev.to_string());
        compare("xattrs", describe(&self.xattrs), describe(&other.xattrs));
        let path = |entry: &Entry| String::from_utf8_lossy(&entry.first_path).into_owned();
        compare("inode of", path(self), path(other));
        if self.content != other.content {
            let pairs = self.content.bytes().iter().zip(other.content.bytes());
            let at = pairs.take_while(|(a, b)| a == b).count();
            let byte = |entry: &Entry| entry.content.bytes().get(at).copied();
            parts.push(format!(
                "content from byte {at} on ({:?} in {}, {:?} in {})",
                byte(self),
                names[0],
                byte(other),
                names[1]
            ));
        }
        parts.join("; ")
    }
}

fn describe(xattrs: &Xattrs) -> String {
    let mut text = String::from("{");
    for (name, value) in xattrs {
        let hash = Content::new(value.clone()).hash();
        let _ = write!(text, "{}={}b/{hash:x} ", String::from_utf8_lossy(name), value.len());
    }
    text + "}"
}

/// Reads everything on a volume. Also looks up every name, and checks that `read_dir`, `lookup` and
/// `get_attr` agree. The error is a text.
pub fn read_tree(volume: &Volume, interner: &mut Interner) -> Result<Tree, String> {
    let mut reader = Reader { volume, interner, tree: Tree::default(), first: HashMap::new() };
    let root = volume.get_attr(InodeNo::ROOT).map_err(|e| format!("the root: {e}"))?;
    reader.add(Vec::new(), root)?;
    Ok(reader.tree)
}

struct Reader<'a> {
    volume: &'a Volume,
    interner: &'a mut Interner,
    tree: Tree,
    first: HashMap<InodeNo, Vec<u8>>,
}

impl Reader<'_> {
    fn add(&mut self, path: Vec<u8>, attr: Attr) -> Result<(), String> {
        let place = |e: ext4::Error| format!("/{}: {e}", String::from_utf8_lossy(&path));
        if let Some(first) = self.first.get(&attr.ino) {
            // Paths come in no order; `first_path` is put right at the end of a directory walk.
            let known = self.tree.entries[first].clone();
            self.tree.entries.insert(path.clone(), known);
            return self.rename_first(attr.ino, path);
        }
        let is_sized = matches!(attr.kind, FileKind::Regular | FileKind::Symlink);
        let content = match attr.kind {
            FileKind::Regular => self.read_file(&attr).map_err(place)?,
            FileKind::Symlink => self.volume.read_link(attr.ino).map_err(place)?,
            _ => Vec::new(),
        };
        let entry = Entry {
            kind: attr.kind,
            mode: attr.mode & 0o7777,
            uid: attr.uid,
            gid: attr.gid,
            link_count: attr.link_count,
            size_bytes: if is_sized { attr.size_bytes } else { 0 },
            rdev: attr.rdev,
            xattrs: self.read_xattrs(attr.ino).map_err(place)?,
            first_path: path.clone(),
            content: self.interner.intern(content),
        };
        self.tree.entries.insert(path.clone(), entry);
        self.first.insert(attr.ino, path.clone());
        if attr.kind == FileKind::Directory { self.add_children(&path, &attr) } else { Ok(()) }
    }

    /// Makes the smallest of an inode's paths the first path of all of them.
    fn rename_first(&mut self, ino: InodeNo, path: Vec<u8>) -> Result<(), String> {
        let first = self.first.get_mut(&ino).expect("the caller found it");
        if path >= *first {
            return Ok(());
        }
        let old = std::mem::replace(first, path.clone());
        let links = self.tree.entries.values_mut().filter(|entry| entry.first_path == old);
        links.for_each(|entry| entry.first_path = path.clone());
        Ok(())
    }

    fn add_children(&mut self, path: &[u8], parent: &Attr) -> Result<(), String> {
        let place = |e: ext4::Error| format!("/{}: {e}", String::from_utf8_lossy(path));
        let mut children = Vec::new();
        let each = &mut |entry: ext4::DirEntry<'_>| {
            if entry.name != b"." && entry.name != b".." {
                children.push((entry.name.to_vec(), entry.ino, entry.kind));
            }
            true
        };
        self.volume.read_dir(parent.ino, 0, each).map_err(place)?;
        children.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, ino, kind) in children {
            let mut child = path.to_vec();
            if !child.is_empty() {
                child.push(b'/');
            }
            child.extend_from_slice(&name);
            let text = String::from_utf8_lossy(&child).into_owned();
            let attr =
                self.volume.lookup(parent.ino, &name).map_err(|e| format!("/{text}: {e}"))?;
            if attr.ino != ino || kind.is_some_and(|kind| kind != attr.kind) {
                return Err(format!("/{text}: read_dir says {ino} {kind:?}, lookup says {attr:?}"));
            }
            let added = self.add(child, attr);
            self.volume.forget(ino, 1);
            added?;
        }
        Ok(())
    }

    fn read_file(&self, attr: &Attr) -> ext4::Result<Vec<u8>> {
        let size = usize::try_from(attr.size_bytes).map_err(|_| ext4::Error::FileTooBig)?;
        let mut bytes = vec![0; size];
        let mut done = 0;
        while done < size {
            match self.volume.read(attr.ino, done as u64, &mut bytes[done..])? {
                0 => return Err(ext4::Error::corrupt("short read", attr.ino)),
                count => done += count,
            }
        }
        Ok(bytes)
    }

    fn read_xattrs(&self, ino: InodeNo) -> ext4::Result<Xattrs> {
        let names = self.volume.list_xattr(ino)?;
        names
            .into_iter()
            .map(|name| Ok((name.clone(), self.volume.get_xattr(ino, &name)?)))
            .collect()
    }
}
