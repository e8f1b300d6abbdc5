//! Reads everything on a volume, with a bound on the number of requests.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use ext4::{FileKind, InodeNo, SeekTo, Volume};

/// The most inodes that are read.
const INODE_LIMIT: usize = 64;
/// The most entries of a directory that are read.
const ENTRY_LIMIT: usize = 80;
/// Bytes that are read at one place.
const READ_BYTES: usize = 8192;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Inodes with their type and the directory in which they were found, in the order of finding.
    pub inodes: Vec<(InodeNo, FileKind, InodeNo)>,
    /// A hash of all answers.
    pub digest: u64,
}

/// Reads the volume, beginning with the root.
pub fn walk(volume: &Volume) -> Seen {
    let mut hasher = DefaultHasher::new();
    let mut seen = Seen::default();
    let mut known = HashSet::new();
    let mut queue = VecDeque::from([(InodeNo::ROOT, InodeNo::ROOT)]);
    let _ = volume.stat_fs();
    while let Some((ino, parent)) = queue.pop_front() {
        if seen.inodes.len() >= INODE_LIMIT {
            break;
        }
        if !known.insert(ino) {
            continue;
        }
        let Ok(attr) = volume.get_attr(ino) else { continue };
        (ino, attr.mode, attr.size_bytes, attr.link_count, attr.sectors).hash(&mut hasher);
        seen.inodes.push((ino, attr.kind, parent));
        attributes(volume, ino, &mut hasher);
        match attr.kind {
            FileKind::Directory => {
                let children = children(volume, ino, &mut hasher);
                queue.extend(children.into_iter().map(|child| (child, ino)));
            }
            FileKind::Regular => content(volume, ino, attr.size_bytes, &mut hasher),
            FileKind::Symlink => told(volume.read_link(ino), &mut hasher),
            _ => {}
        }
    }
    seen.digest = hasher.finish();
    seen
}

fn told<T: Hash>(result: ext4::Result<T>, hasher: &mut DefaultHasher) {
    result.map_err(|error| error.to_string()).hash(hasher);
}

fn attributes(volume: &Volume, ino: InodeNo, hasher: &mut DefaultHasher) {
    for name in volume.list_xattr(ino).unwrap_or_default().into_iter().take(16) {
        told(volume.get_xattr(ino, &name), hasher);
        name.hash(hasher);
    }
    told(volume.get_xattr(ino, b"user.missing"), hasher);
}

fn children(volume: &Volume, dir: InodeNo, hasher: &mut DefaultHasher) -> Vec<InodeNo> {
    let mut names = Vec::new();
    let read = volume.read_dir(dir, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.cursor));
        names.len() < ENTRY_LIMIT
    });
    told(read, hasher);
    if let Some((_, cursor)) = names.get(names.len() / 2) {
        let mut left = ENTRY_LIMIT;
        let again = volume.read_dir(dir, *cursor, &mut |_| {
            left -= 1;
            left > 0
        });
        told(again, hasher);
    }
    let mut found = Vec::new();
    for (name, cursor) in names {
        (&name, cursor).hash(hasher);
        let looked_up = volume.lookup(dir, &name);
        if let Ok(attr) = &looked_up {
            found.push(attr.ino);
            volume.forget(attr.ino, 1);
        }
        told(looked_up.map(|attr| attr.ino), hasher);
    }
    told(volume.lookup(dir, b"there is no such name").map(|attr| attr.ino), hasher);
    found
}

fn content(volume: &Volume, ino: InodeNo, size_bytes: u64, hasher: &mut DefaultHasher) {
    let mut bytes = vec![0; READ_BYTES];
    for offset in [0, 12 << 12, size_bytes / 2, size_bytes.saturating_sub(4000), u64::MAX - 9] {
        let read = volume.read(ino, offset, &mut bytes);
        told(read.map(|count| bytes[..count].to_vec()), hasher);
        told(volume.seek(ino, offset, SeekTo::Data), hasher);
        told(volume.seek(ino, offset, SeekTo::Hole), hasher);
    }
}
