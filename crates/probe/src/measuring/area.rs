//! What a measurement writes to: files of its own in a directory, or the beginning of a device.
//!
//! A file has no name (`O_TMPFILE`), or loses it at once. So the kernel removes it when the process
//! ends. On NFS, a hidden file may remain after a crash of the client.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use device::{BlockDevice, DeviceError, DirectIo, Disk, Metered, Operation, Result};
use host::{above_standard, link_to};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::append::append_bytes_max;
use super::flush_count;
use super::holder::Holder;
use super::mark::mark;
use super::noise::Noise;
use super::parallel;
use super::sizes::{SIZE_BYTES_MAX, Sizes};

/// The area is a multiple of this.
pub const AREA_UNIT_BYTES: u64 = SIZE_BYTES_MAX as u64;
/// The smallest area.
pub const AREA_BYTES_MIN: u64 = 4 * AREA_UNIT_BYTES;

/// So much of a file system stays free, in percent.
const LEFT_PERCENT: u64 = 5;
/// But not more than this has to.
const LEFT_BYTES_MAX: u64 = 1 << 30;

/// The most that is appended.
const APPENDED_BYTES_MAX: u64 = 16 << 20;

/// A place to measure at.
pub struct Area {
    pub(crate) disk: Metered<Disk>,
    pub(crate) area_bytes: u64,
    /// Where appends go, through the page cache.
    pub(crate) appended: File,
    pub(crate) appended_bytes: u64,
    holder: Holder,
    is_device: bool,
}

impl Area {
    /// Two files without a name in `dir`. `area_bytes` is rounded down to a multiple of
    /// [`AREA_UNIT_BYTES`] and must be at least [`AREA_BYTES_MIN`]. Nothing is written yet, but the
    /// space is reserved where the file system can do that.
    pub fn in_directory(dir: &Path, area_bytes: u64) -> Result<Area> {
        let area_bytes = checked(area_bytes);
        let appended_bytes = area_bytes.min(APPENDED_BYTES_MAX);
        let failed = |error| DeviceError::new(Operation::Open, 0, 0, error);
        check_room(dir, area_bytes + appended_bytes, area_bytes).map_err(failed)?;
        let make = |len_bytes| unnamed_file(dir).and_then(|file| reserve(file, len_bytes));
        let file = make(area_bytes).map_err(failed)?;
        let appended = File::from(make(appended_bytes).map_err(failed)?);
        set_direct(&file).map_err(|errno| failed(errno.into()))?;
        let holder = Holder::of_directory(dir).map_err(failed)?;
        let disk = Metered::new(Disk::share(dir, file)?);
        Ok(Area { disk, area_bytes, appended, appended_bytes, holder, is_device: false })
    }

    /// The first `area_bytes` of `disk`, rounded down as above and to what the disk has. The disk
    /// must be a block device.
    pub fn on_device(disk: Disk, area_bytes: u64) -> Result<Area> {
        let failed = |error| DeviceError::new(Operation::Open, 0, 0, error);
        let file = disk.file()?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
        // The path may lead to another file than when the caller looked at it.
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            let why = "is no block device; only a block device is overwritten";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        if disk.size_bytes() < AREA_BYTES_MIN {
            let why = format!(
                "is too small: it has {} bytes, and a measurement needs {AREA_BYTES_MIN}",
                disk.size_bytes()
            );
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let area_bytes = checked(area_bytes.min(disk.size_bytes()));
        let appended_bytes = area_bytes.min(APPENDED_BYTES_MAX);
        let appended = reopen_buffered(&file).map_err(failed)?;
        let (holder, disk) = (Holder::of_device(stat.st_rdev), Metered::new(disk));
        Ok(Area { disk, area_bytes, appended, appended_bytes, holder, is_device: true })
    }

    /// The size of the area. Everything in it is overwritten.
    pub fn area_bytes(&self) -> u64 {
        self.area_bytes
    }

    /// What holds its bytes.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Whether writes bypass the page cache.
    pub fn direct_io(&self) -> DirectIo {
        self.disk.inner().direct_io()
    }

    /// What a measurement writes at most, including [`Area::fill`]. The metadata of the file system
    /// come on top.
    pub fn write_bytes_max(&self) -> u64 {
        let ways = Sizes::of_sectors(self.disk.sector_bytes()).writing_way_count();
        let pass_count = 1 + ways + parallel::PASS_COUNT;
        let mark_bytes = mark().len() as u64;
        pass_count * self.area_bytes
            + flush_count::WRITE_BYTES_MAX
            + append_bytes_max(self.appended_bytes)
            + mark_bytes
    }

    /// Writes the mark to a device, durably: what its beginning held is gone. A directory needs
    /// none.
    pub fn leave_mark(&self) -> Result<()> {
        if !self.is_device {
            return Ok(());
        }
        self.disk.write(0, &mark())?;
        self.disk.flush()
    }

    /// Writes the whole area once, so that later writes overwrite existing data. Ends early if it
    /// is interrupted.
    pub fn fill(&self, interrupted: &AtomicBool) -> Result<()> {
        let mut noise = Noise::new(SIZE_BYTES_MAX, 0);
        for offset in (0..self.area_bytes).step_by(SIZE_BYTES_MAX) {
            if interrupted.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.disk.write(offset, noise.next(SIZE_BYTES_MAX))?;
        }
        self.disk.flush()
    }
}

/// The size of the area, rounded down.
fn checked(area_bytes: u64) -> u64 {
    assert!(area_bytes >= AREA_BYTES_MIN, "an area of {area_bytes} bytes is too small");
    area_bytes / AREA_UNIT_BYTES * AREA_UNIT_BYTES
}

/// An error if the file system of `dir` has no room. Some is left to other programs: a share of the
/// file system up to [`LEFT_BYTES_MAX`], and `spare_bytes` at least.
fn check_room(dir: &Path, needed_bytes: u64, spare_bytes: u64) -> io::Result<()> {
    let found = rustix::fs::statvfs(dir)?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    let all_bytes = found.f_blocks.saturating_mul(found.f_frsize);
    let left_bytes = spare_bytes.max(share_bytes(all_bytes));
    // Some file systems report that they have no blocks at all.
    if found.f_blocks == 0 || free_bytes >= needed_bytes.saturating_add(left_bytes) {
        return Ok(());
    }
    let why = format!(
        "{needed_bytes} bytes are needed, {left_bytes} more must stay free for other programs, and \
         its file system has {free_bytes} free"
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, why))
}

/// The share of a file system of this size that is left to other programs.
fn share_bytes(all_bytes: u64) -> u64 {
    (all_bytes / 100 * LEFT_PERCENT).min(LEFT_BYTES_MAX)
}

/// A new file in `dir` that has no name.
fn unnamed_file(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let open = || rustix::fs::open(dir, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR);
    match above_standard(open) {
        // The file system does not know O_TMPFILE, or the kernel does not.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => short_named_file(dir),
        opened => Ok(opened?),
    }
}

/// The same where a file needs a name: the name is removed at once.
fn short_named_file(dir: &Path) -> io::Result<OwnedFd> {
    let directory =
        rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let name = PathBuf::from(format!(".onejournal-probe-{:016x}", fastrand::u64(..)));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR);
    let file = above_standard(open)?;
    rustix::fs::unlinkat(&directory, &name, AtFlags::empty())?;
    Ok(file)
}

/// Gives the file its length, and its space if the file system can reserve that.
fn reserve(file: OwnedFd, len_bytes: u64) -> io::Result<OwnedFd> {
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len_bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            rustix::fs::ftruncate(&file, len_bytes)?;
        }
        reserved => reserved?,
    }
    Ok(file)
}

/// Makes the file's I/O direct, unless its file system refuses that.
fn set_direct(file: &OwnedFd) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    match rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT) {
        Err(Errno::INVAL) => Ok(()),
        set => set,
    }
}

/// An open block device once more, with the page cache.
fn reopen_buffered(device: &File) -> io::Result<File> {
    // By its descriptor: the path may lead to another device by now.
    let path = link_to(device);
    let open = || File::options().read(true).write(true).open(path).map(OwnedFd::from);
    above_standard(open).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA_BYTES: u64 = AREA_BYTES_MIN;

    fn names(dir: &Path) -> usize {
        std::fs::read_dir(dir).expect("read").count()
    }

    #[test]
    fn the_files_have_no_name() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let area = Area::in_directory(dir.path(), AREA_BYTES + 5).expect("files");
        assert_eq!((names(dir.path()), area.area_bytes()), (0, AREA_BYTES));
        area.fill(&AtomicBool::new(false)).expect("there is room");
        let counters = area.disk.counters();
        assert_eq!((counters.write_bytes, counters.flush_count), (AREA_BYTES, 1));
        assert!(area.write_bytes_max() > AREA_BYTES);
        let named = short_named_file(dir.path()).expect("a file");
        assert_eq!(names(dir.path()), 0);
        reserve(named, 4096).expect("there is room");
    }

    #[test]
    fn a_file_is_never_overwritten() {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file");
        std::fs::write(file.path(), vec![7; 8 << 20]).expect("written");
        let disk = Disk::open(file.path(), host::Access::ReadWrite).expect("a file can be a disk");
        let error = Area::on_device(disk, AREA_BYTES).err().expect("it is a file");
        assert!(error.source.to_string().contains("no block device"), "{error}");
        let content = std::fs::read(file.path()).expect("read");
        assert!(content.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn an_interrupted_fill_writes_nothing() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let area = Area::in_directory(dir.path(), AREA_BYTES).expect("files");
        area.fill(&AtomicBool::new(true)).expect("nothing to do");
        assert_eq!(area.disk.counters().write_bytes, 0);
    }

    #[test]
    fn a_full_file_system_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let error = Area::in_directory(dir.path(), 1 << 50).err().expect("no disk is so large");
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn some_room_is_left_to_other_programs() {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let found = rustix::fs::statvfs(dir.path()).expect("statvfs");
        let free_bytes = found.f_bavail * found.f_frsize;
        check_room(dir.path(), 4096, 4096).expect("there is room");
        // Half of what is free would fit, but not twice.
        let error = check_room(dir.path(), free_bytes / 2, free_bytes).expect_err("none is left");
        assert!(error.to_string().contains("must stay free"), "{error}");
        let share = share_bytes(found.f_blocks * found.f_frsize);
        check_room(dir.path(), free_bytes.saturating_sub(share / 2), 0).expect_err("half of it");
        assert_eq!(share_bytes(10 << 30), (10 << 30) / 100 * 5);
        assert_eq!(share_bytes(10 << 40), 1 << 30);
    }

    #[test]
    fn a_file_system_in_memory_survives_nothing() {
        if !onejournal_testing::has_shm() {
            return;
        }
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let area = Area::in_directory(dir.path(), AREA_BYTES).expect("files");
        assert_eq!(area.holder().durability, Some(device::Durability::Process));
    }
}
