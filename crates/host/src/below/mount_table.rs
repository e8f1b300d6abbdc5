//! The mount table of a process, `/proc/PID/mountinfo`. Reading it sends no request to any file
//! system.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The kernel's number of the mount.
    pub id: u64,
    /// Device number of the file system. All mounts of one file system have the same number, in
    /// every namespace. While the file system exists, no other one has this number.
    pub device: (u32, u32),
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// Type of the file system, with the subtype after a dot.
    pub kind: String,
    /// What was mounted.
    pub source: PathBuf,
    /// The options of the file system, as the kernel writes them.
    options: Vec<u8>,
}

impl MountEntry {
    /// Whether it is the mount of a OneJournal volume.
    pub fn is_volume(&self) -> bool {
        matches!(self.kind.as_str(), "fuse.onejournal" | "fuseblk.onejournal")
    }

    /// Whether the file system has an option without a value, such as `ro`.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.split(|byte| *byte == b',').any(|option| option == name.as_bytes())
    }

    /// The user who mounted it, as the kernel says of a FUSE file system.
    pub fn user(&self) -> Option<u32> {
        self.option("user_id")?.to_str()?.parse().ok()
    }

    /// The group of that user, as the kernel says of a FUSE file system.
    pub(crate) fn group(&self) -> Option<u32> {
        self.option("group_id")?.to_str()?.parse().ok()
    }

    /// Whether one of these users mounted it. Every user can mount a server that names any source,
    /// also a path below a file system that never answers. In the table of a process in a user
    /// namespace, the user may be a number of that namespace.
    pub fn is_of(&self, users: &[u32]) -> bool {
        self.user().is_some_and(|user| users.contains(&user))
    }

    /// The value of an option of the file system, such as `upperdir`.
    pub fn option(&self, name: &str) -> Option<PathBuf> {
        // The kernel escapes a comma in a value.
        let options = self.options.split(|byte| *byte == b',');
        let mut values = options.filter_map(|option| option.strip_prefix(name.as_bytes()));
        values.find_map(|value| value.strip_prefix(b"=")).map(unescape)
    }

    /// The device number as `stat` shows it.
    pub fn device_number(&self) -> u64 {
        rustix::fs::makedev(self.device.0, self.device.1)
    }
}

/// The table of this thread, in the kernel's order: of several mounts on one directory the last is
/// on top.
pub fn own_mounts() -> io::Result<Vec<MountEntry>> {
    // A thread may have a namespace of its own.
    mounts_in(Path::new("/proc/thread-self/mountinfo"))
        .or_else(|_| mounts_in(Path::new("/proc/self/mountinfo")))
}

/// The entries of the table in a file of `/proc`, one after the other: a user can make very many
/// mounts in a namespace.
pub fn each_mount(table: &Path) -> io::Result<impl Iterator<Item = MountEntry> + use<>> {
    let lines = BufReader::new(File::open(table)?).split(b'\n').map_while(io::Result::ok);
    Ok(lines.filter_map(|line| entry(&line)))
}

/// The table in a file of `/proc`.
pub fn mounts_in(table: &Path) -> io::Result<Vec<MountEntry>> {
    Ok(parse_mounts(&fs::read(table)?))
}

/// The mount that an open file is on, as the mount table of this process shows it. The descriptor
/// may be one of `O_PATH`. No request is sent to the file system.
pub fn mount_of(fd: impl AsFd) -> Option<MountEntry> {
    // What the kernel knows already: a FUSE server may never answer.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(&fd, c"", flags, StatxFlags::MNT_ID).ok()?;
    let has_id = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
    // Before Linux 5.8 the device number decides.
    let is_it = |entry: &MountEntry| match has_id {
        true => entry.id == found.stx_mnt_id,
        false => entry.device == (found.stx_dev_major, found.stx_dev_minor),
    };
    own_mounts().ok()?.into_iter().find(is_it)
}

/// Whether an open file is on a mount that the table does not show, and which may be that of a FUSE
/// server: it was taken off, or is of another namespace. The mount that contains the root directory
/// of the process is not in the table either if that is a directory in it. Before Linux 5.8 the
/// kernel does not tell. An error if the table cannot be read, except where there is none.
pub(crate) fn is_taken_off(fd: impl AsFd) -> io::Result<bool> {
    let id = |found: &Statx| {
        let mask = StatxFlags::from_bits_retain(found.stx_mask);
        mask.contains(StatxFlags::MNT_ID).then_some(found.stx_mnt_id)
    };
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(found) = statx(&fd, c"", flags, StatxFlags::MNT_ID) else { return Ok(false) };
    let root = statx(CWD, c"/", AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID);
    let Some(opened) = id(&found) else { return Ok(false) };
    // Only root can mount one on a block device.
    if found.stx_dev_major != 0 || !root.is_ok_and(|root| id(&root) != Some(opened)) {
        return Ok(false);
    }
    match own_mounts() {
        Ok(mounts) => Ok(mounts.iter().all(|mount| mount.id != opened)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// The entries of a table. Lines that cannot be parsed are left out. A path need not be UTF-8.
pub fn parse_mounts(table: &[u8]) -> Vec<MountEntry> {
    table.split(|byte| *byte == b'\n').filter_map(entry).collect()
}

fn entry(line: &[u8]) -> Option<MountEntry> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let word = |index: usize| fields.get(index).and_then(|field| std::str::from_utf8(field).ok());
    let (major, minor) = word(2)?.split_once(':')?;
    // Optional fields end with a hyphen.
    let hyphen = 6 + fields.get(6..)?.iter().position(|field| *field == b"-")?;
    Some(MountEntry {
        id: word(0)?.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(fields.get(3)?),
        dir: unescape(fields.get(4)?),
        // A user chooses the subtype of a FUSE mount, which need not be text.
        kind: String::from_utf8_lossy(fields.get(hyphen + 1)?).into_owned(),
        source: unescape(fields.get(hyphen + 2)?),
        options: fields.get(hyphen + 3).copied().unwrap_or_default().to_owned(),
    })
}

/// A path in a table of the kernel, which writes space, tab, newline and backslash as a backslash
/// and three octal digits.
pub(crate) fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, byte) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_mount_is_found_among_paths_that_are_no_text() {
        let table = b"20 1 0:5 / / rw - ext4 a rw\n\
            31 20 0:6 / /a\\040b rw - fuse \xff rw\n\
            garbage\n\
            32 20 0:7 / /\xff rw shared:1 master:2 - tmpfs x rw\n\
            33 20 7:8 / /a\\040b rw - fuseblk.onejournal /dev/loop8 rw,user_id=7,group_id=8\n\
            34 20 0:9 / /o rw - overlay overlay \
            rw,lowerdir=/l,upperdir=/u\\054\\040,x,data=journal\n\
            35 20 0:10 / /s rw - fuse.\xff source rw,user_id=9\n";
        let found = parse_mounts(table);
        let ids: Vec<u64> = found.iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [20, 31, 32, 33, 34, 35]);
        assert_eq!(found[5].user(), Some(9), "also of a type that is no text");
        let file = tempfile::NamedTempFile::new().expect("file");
        fs::write(file.path(), table).expect("written");
        assert!(each_mount(file.path()).expect("open").eq(found.iter().cloned()));
        assert_eq!(found[1].source, Path::new(OsStr::from_bytes(b"\xff")));
        assert_eq!(found[2].dir, Path::new(OsStr::from_bytes(b"/\xff")));
        assert_eq!(found[2].kind, "tmpfs");
        assert!(found[3].is_volume() && !found[1].is_volume());
        assert_eq!((found[3].device, found[3].dir.as_path()), ((7, 8), Path::new("/a b")));
        assert_eq!(found[3].device_number(), rustix::fs::makedev(7, 8));
        assert_eq!((found[3].user(), found[1].user()), (Some(7), None));
        assert_eq!((found[3].group(), found[1].group()), (Some(8), None));
        assert!(found[3].is_of(&[0, 7]) && !found[3].is_of(&[0]) && !found[1].is_of(&[0]));
        let option = |name| found[4].option(name);
        assert_eq!(option("upperdir").expect("it has one"), Path::new("/u, "));
        assert_eq!(option("data").expect("it has one"), Path::new("journal"));
        assert_eq!([option("upper"), option("x"), option("rw")], [None, None, None]);
    }
}
