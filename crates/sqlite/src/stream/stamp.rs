//! Which open file a stream's transactions are of at this moment.

use std::path::Path;

use host::FileId;

use crate::failure::Failure;

/// Which open file a stream's transactions are of, for as long as the machine runs. Part of the
/// stream header. 0: that is not known.
///
/// A block-level copy of a file system has files with the identity of the originals
/// (`host::FileId`), and a file that is mounted or linked elsewhere has another WAL. Both are
/// told by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// A checksum of the file's device and inode.
    pub file: u32,
    /// A checksum of the directory that its WAL is in, and of its name there: 24 bits.
    pub name: u32,
}

/// Bits of [`Stamp::name`].
pub const NAME_BITS: u32 = 24;

impl Stamp {
    /// The stamp of the open file `id` at `path`.
    pub fn of(path: &Path, id: &FileId) -> Result<Stamp, Failure> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        let found = rustix::fs::stat(parent).map_err(|e| {
            Failure::CannotOpen(format!("{}: {}", parent.display(), std::io::Error::from(e)))
        })?;
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let directory = [found.st_dev, found.st_ino].map(u64::to_le_bytes).concat();
        let file = [id.device, id.inode].map(u64::to_le_bytes).concat();
        // 0 says that nothing is known.
        let name = crc32c::crc32c_append(crc32c::crc32c(&directory), name) >> (32 - NAME_BITS);
        Ok(Stamp { file: crc32c::crc32c(&file).max(1), name: name.max(1) })
    }

    /// Whether two stamps can be of one file, by one of their parts.
    fn fits(a: u32, b: u32) -> bool {
        a == b || a == 0 || b == 0
    }

    /// Whether both are of one file.
    pub fn is_same_file(&self, other: &Stamp) -> bool {
        Stamp::fits(self.file, other.file)
    }

    /// Whether both are of one place of the file.
    pub fn is_same_place(&self, other: &Stamp) -> bool {
        Stamp::fits(self.name, other.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_tells_another_file_and_another_place() {
        let home = tempfile::tempdir().expect("directory");
        std::fs::create_dir(home.path().join("other")).expect("directory");
        let id = |inode| FileId { lasting: Some(7), device: 1, inode, name_count: 1 };
        let of = |name: &str, inode| Stamp::of(&home.path().join(name), &id(inode)).expect("stat");
        let stamp = of("a.db", 1);
        assert_eq!(stamp, of("a.db", 1));
        assert!(!stamp.is_same_file(&of("a.db", 2)) && stamp.is_same_place(&of("a.db", 2)));
        for name in ["b.db", "other/a.db"] {
            assert!(stamp.is_same_file(&of(name, 1)) && !stamp.is_same_place(&of(name, 1)));
        }
        let unknown = Stamp::default();
        assert!(unknown.is_same_file(&stamp) && stamp.is_same_place(&unknown));
        assert!(stamp.name < 1 << NAME_BITS);
    }
}
