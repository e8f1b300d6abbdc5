//! The kinds of files that can be a disk.

use rustix::fs::{FileType, Stat};

/// What kind of thing a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKind {
    /// A regular file.
    File,
    /// A block device.
    Block,
}

impl DiskKind {
    /// The kind of what `stat` describes, or the name of what cannot be a disk.
    pub fn of(stat: &Stat) -> Result<DiskKind, &'static str> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(DiskKind::File),
            FileType::BlockDevice => Ok(DiskKind::Block),
            FileType::Directory => Err("a directory"),
            FileType::CharacterDevice => Err("a character device"),
            FileType::Fifo => Err("a pipe"),
            FileType::Socket => Err("a socket"),
            _ => Err("of an unknown kind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_everything_that_is_no_disk_has_a_name() {
        let kind = |path: &str| DiskKind::of(&rustix::fs::stat(path).expect("stat"));
        assert_eq!(kind("/"), Err("a directory"));
        assert_eq!(kind("/dev/null"), Err("a character device"));
        assert_eq!(kind("/proc/self/exe"), Ok(DiskKind::File));
    }
}
