//! Which file an open file is, whatever its name is.
//!
//! | part | what it tells apart |
//! |---|---|
//! | the handle that the kernel makes for a file (name_to_handle_at(2)): the inode's number and its generation | a file and a later file that got its inode |
//! | the time of birth | the same, where a generation is not random |
//! | the type of the file system | files of two file systems |
//!
//! All three stay as they are when the file is renamed, linked, written, given to another user,
//! mounted elsewhere or restarted with its machine. A copy of the file has others. A block-level
//! copy of the whole file system has the same: device and inode number of this moment tell these
//! apart while both are mounted.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, FsWord, StatxFlags};
use rustix::io::Errno;

/// The file systems whose handles still mean the same file after the file system is mounted again.
/// A server of FUSE or NFS may number its files anew, and the kernel numbers those of vfat.
const LASTING: [FsWord; 8] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // ZFS
    0x0102_1994, // tmpfs, for as long as it is mounted
    0x794c_7630, // overlay
];
/// `AT_HANDLE_FID` (Linux 6.5): a handle that only names the file. An overlay gives no other.
const NAME_ONLY: libc::c_int = 0x200;
/// `MAX_HANDLE_SZ`.
const HANDLE_BYTES_MAX: usize = 128;

/// Which file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The same for as long as the file exists: a hash of what the table lists. `None`: its file
    /// system does not say which file it is.
    pub lasting: Option<u128>,
    /// Number of the device that the file is on, while its file system is mounted.
    pub device: u64,
    /// Number of its inode there.
    pub inode: u64,
    /// How many names it has in its file system.
    pub name_count: u64,
}

/// The kernel's `struct file_handle`.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES_MAX],
}

impl FileId {
    /// The identity of an open file; a descriptor that was opened with `O_PATH` is enough.
    ///
    /// # Errors
    /// As fstat(2) and statx(2) have them.
    pub fn of(file: impl AsFd) -> rustix::io::Result<FileId> {
        let file = file.as_fd();
        let found = rustix::fs::fstat(file)?;
        let (device, inode, name_count) = (found.st_dev, found.st_ino, found.st_nlink);
        Ok(FileId { lasting: lasting_of(file, false)?, device, inode, name_count })
    }

    /// The identity of an open file on a OneJournal volume, which numbers its files as ext4 does.
    ///
    /// # Errors
    /// As [`FileId::of`].
    pub fn on_volume(file: impl AsFd) -> rustix::io::Result<FileId> {
        let lasting = lasting_of(file.as_fd(), true)?;
        FileId::of(file).map(|found| FileId { lasting, ..found })
    }
}

/// What of a file's identity outlasts the mount; `None`: nothing. On a volume that is the inode and
/// the time of birth.
fn lasting_of(file: BorrowedFd<'_>, is_volume: bool) -> rustix::io::Result<Option<u128>> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    if !is_volume && !LASTING.contains(&kind) {
        return Ok(None);
    }
    let Some(handle) = handle_of(file) else { return Ok(None) };
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let told = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
    let is_born = told.stx_mask & StatxFlags::BTIME.bits() != 0;
    if is_volume && !is_born {
        return Ok(None);
    }
    let mut hash = Fnv::new();
    hash.add(&u64::try_from(kind).unwrap_or(0).to_le_bytes());
    hash.add(&handle.kind.to_le_bytes());
    hash.add(&handle.handle[..handle.bytes as usize]);
    if is_born {
        hash.add(&told.stx_btime.tv_sec.to_le_bytes());
        hash.add(&told.stx_btime.tv_nsec.to_le_bytes());
    }
    Ok(Some(hash.0))
}

/// The handle of an open file; `None`: there is none, or the kernel does not tell it to this
/// process.
fn handle_of(file: BorrowedFd<'_>) -> Option<Handle> {
    let file = file.as_raw_fd();
    let ask = |flags: libc::c_int| {
        let bytes = HANDLE_BYTES_MAX as u32;
        let mut handle = Handle { bytes, kind: 0, handle: [0; HANDLE_BYTES_MAX] };
        let mut mount: libc::c_int = 0;
        // SAFETY: the path ends with a zero; `handle` has room for the bytes that it says, and
        // `mount` is a number. The kernel keeps no pointer.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file,
                c"".as_ptr(),
                &raw mut handle,
                &raw mut mount,
                libc::AT_EMPTY_PATH | flags,
            )
        };
        let is_whole = done == 0 && handle.bytes as usize <= HANDLE_BYTES_MAX;
        let errno = std::io::Error::last_os_error().raw_os_error();
        if is_whole { Ok(handle) } else { Err(errno) }
    };
    match ask(0) {
        Err(Some(errno)) if errno == Errno::OPNOTSUPP.raw_os_error() => ask(NAME_ONLY).ok(),
        asked => asked.ok(),
    }
}

/// FNV-1a with 128 bits: a name, not a promise against forgers.
struct Fnv(u128);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};

    fn id_at(path: &std::path::Path) -> FileId {
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        FileId::of(file.expect("open")).expect("told")
    }

    #[test]
    fn a_file_stays_itself_and_a_copy_is_another() {
        let home = tempfile::tempdir().expect("directory");
        let [one, two, link] = ["one", "two", "link"].map(|name| home.path().join(name));
        std::fs::write(&one, "content").expect("write");
        let first = id_at(&one);
        assert!(first.lasting.is_some(), "the file system of the tests says it");
        std::fs::copy(&one, &two).expect("copy");
        assert_ne!(id_at(&two).lasting, first.lasting);
        std::fs::rename(&one, &two).expect("rename");
        std::fs::hard_link(&two, &link).expect("link");
        std::fs::write(&two, "other content").expect("write");
        let linked = FileId { name_count: 2, ..first };
        assert_eq!([&two, &link].map(|path| id_at(path)), [linked; 2]);
        // The file system gives the inode's number to the next file.
        for path in [&two, &link] {
            std::fs::remove_file(path).expect("remove");
        }
        for _ in 0..64 {
            std::fs::write(&one, "anew").expect("write");
            assert_ne!(id_at(&one).lasting, first.lasting);
            std::fs::remove_file(&one).expect("remove");
        }
    }

    #[test]
    fn a_file_system_that_numbers_files_as_it_likes_says_nothing() {
        assert_eq!(id_at(std::path::Path::new("/proc/self/status")).lasting, None);
    }

    #[test]
    fn the_hash_is_fnv() {
        let of = |bytes: &[u8]| {
            let mut hash = Fnv::new();
            hash.add(bytes);
            hash.0
        };
        assert_eq!(of(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
