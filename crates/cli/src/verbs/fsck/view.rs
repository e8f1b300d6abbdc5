//! A view of a volume for e2fsck. It reads the volume. Its writes go to a temporary file, until it
//! is known that all of them can be applied.
//!
//! What e2fsck changes depends on what the volume holds, which may be anything. So the file takes
//! at most half of the room that its file system has when the view is made. Beyond that, writes
//! fail, and nothing of the repair may be applied.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::{AlignedBuf, BlockDevice, DeviceError, Durability, Operation};
use mount::OneFile;
use rustix::io::Errno;

use crate::error::{CliError, Result};

const BLOCK: u64 = 4096;

/// The volume together with what was written to the view.
pub struct View {
    volume: Arc<dyn BlockDevice>,
    size_bytes: u64,
    /// The changed blocks, in the order in which they were first changed. The file has no name.
    aside: File,
    /// Most blocks in it.
    block_limit: u64,
    /// Whether a write failed, because there is no more room.
    is_full: AtomicBool,
    /// The place of each changed block in that file, in blocks.
    changed: Mutex<BTreeMap<u64, u64>>,
}

impl View {
    /// A view without changes. `dir` holds the file of changes, which is removed with this value.
    pub fn new(volume: Arc<dyn BlockDevice>, dir: &TemporaryDir) -> io::Result<View> {
        let path = dir.0.join("changes");
        let aside = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(path)?;
        let room = rustix::fs::fstatvfs(&aside)?;
        let block_limit = room.f_bavail.saturating_mul(room.f_frsize) / 2 / BLOCK;
        let size_bytes = volume.size_bytes() / BLOCK * BLOCK;
        let is_full = AtomicBool::new(false);
        Ok(View { volume, size_bytes, aside, block_limit, is_full, changed: Mutex::default() })
    }

    /// If a write failed because there is no more room: how much there was, in bytes.
    pub fn exceeded(&self) -> Option<u64> {
        self.is_full.load(Ordering::Relaxed).then_some(self.block_limit * BLOCK)
    }

    /// The numbers of the blocks that were written.
    pub fn changed(&self) -> BTreeSet<u64> {
        self.lock_changed().keys().copied().collect()
    }

    fn lock_changed(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole blocks around a span: their offset, their present bytes, and the place of the span
    /// in them.
    fn around(&self, offset: u64, len_bytes: usize) -> io::Result<(u64, AlignedBuf, usize)> {
        let start = offset / BLOCK * BLOCK;
        let end = (offset + len_bytes as u64).next_multiple_of(BLOCK);
        let count = usize::try_from(end - start).map_err(io::Error::other)?;
        let mut blocks = AlignedBuf::zeroed(count);
        self.volume.read(start, &mut blocks).map_err(|error| error.source)?;
        for (block, slot) in self.lock_changed().range(start / BLOCK..end / BLOCK) {
            let at = usize::try_from(block * BLOCK - start).map_err(io::Error::other)?;
            self.aside.read_exact_at(&mut blocks[at..at + BLOCK as usize], slot * BLOCK)?;
        }
        let within = usize::try_from(offset - start).map_err(io::Error::other)?;
        Ok((start, blocks, within))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (_, blocks, at) = self.around(offset, buf.len())?;
        buf.copy_from_slice(&blocks[at..at + buf.len()]);
        Ok(())
    }

    /// A block counts as changed only if it differs from the volume's block.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (start, mut blocks, at) = self.around(offset, data.len())?;
        let before = blocks.to_vec();
        blocks[at..at + data.len()].copy_from_slice(data);
        let pairs = blocks.chunks(BLOCK as usize).zip(before.chunks(BLOCK as usize));
        for (number, (new, old)) in (start / BLOCK..).zip(pairs) {
            if new != old {
                let mut changed = self.lock_changed();
                let next = changed.len() as u64;
                let slot = changed.get(&number).copied().unwrap_or(next);
                let kept = match slot < self.block_limit {
                    true => self.aside.write_all_at(new, slot * BLOCK),
                    false => Err(Errno::NOSPC.into()),
                };
                kept.inspect_err(|_| self.is_full.store(true, Ordering::Relaxed))?;
                changed.insert(number, slot);
            }
        }
        Ok(())
    }
}

/// The view as e2fsck uses it: a file.
pub struct ViewFile(pub Arc<View>);

impl OneFile for ViewFile {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> std::result::Result<(), Errno> {
        self.0.read_at(offset, buf).map_err(errno)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> std::result::Result<(), Errno> {
        self.0.write_at(offset, data).map_err(errno)
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The view as the volume's driver uses it: a device that is not written to.
impl BlockDevice for View {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn sector_bytes(&self) -> usize {
        self.volume.sector_bytes()
    }

    fn durability(&self) -> Durability {
        Durability::Process
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.size_bytes) {
            let source = Errno::INVAL.into();
            return Err(DeviceError::new(Operation::Read, offset, buf.len(), source));
        }
        let len_bytes = buf.len();
        let result = self.read_at(offset, buf);
        result.map_err(|source| DeviceError::new(Operation::Read, offset, len_bytes, source))
    }

    fn write(&self, offset: u64, data: &[u8]) -> device::Result<()> {
        Err(DeviceError::new(Operation::Write, offset, data.len(), Errno::ROFS.into()))
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> device::Result<()> {
        self.write(offset, data)
    }

    fn flush(&self) -> device::Result<()> {
        Ok(())
    }
}

/// A temporary directory that is removed with this value.
pub struct TemporaryDir(pub PathBuf);

impl TemporaryDir {
    pub fn new() -> Result<TemporaryDir> {
        TemporaryDir::within(&std::env::temp_dir())
    }

    /// Its name is random: every user may make directories there, and must not take all names.
    fn within(parent: &Path) -> Result<TemporaryDir> {
        let path = parent.join(format!("onejournal-fsck-{:016x}", fastrand::u64(..)));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| CliError::at(&path, error))?;
        Ok(TemporaryDir(path))
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0); // If it stays, it is empty.
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use device::MemoryDevice;

    use super::*;

    #[test]
    fn regression_changes_take_no_more_than_their_part_of_the_room() {
        let parent = tempfile::tempdir().unwrap();
        let dir = TemporaryDir::within(parent.path()).unwrap();
        let volume: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(64 << 10, 4096));
        let mut view = View::new(volume, &dir).unwrap();
        assert!(view.block_limit > 0 && view.exceeded().is_none());
        view.block_limit = 2;
        let write = |number: u64, byte: u8| view.write_at(number * BLOCK, &[byte; BLOCK as usize]);
        assert!(write(0, 1).is_ok() && write(7, 1).is_ok() && write(0, 2).is_ok());
        assert!(view.exceeded().is_none());
        let refused = write(1, 1).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOSPC));
        // e2fsck may go on after an error.
        assert!(write(7, 2).is_ok());
        assert_eq!(view.exceeded(), Some(2 * BLOCK));
        assert_eq!(view.changed(), BTreeSet::from([0, 7]));
        assert_eq!(view.aside.metadata().unwrap().len(), 2 * BLOCK);
    }

    #[test]
    fn regression_no_user_can_take_all_names_of_a_temporary_directory() {
        let parent = tempfile::tempdir().unwrap();
        for number in 0..1000 {
            let name = format!("onejournal-fsck-{}-{number}", std::process::id());
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        let one = TemporaryDir::within(parent.path()).unwrap();
        let other = TemporaryDir::within(parent.path()).unwrap();
        assert_ne!(one.0, other.0);
        let mode = std::fs::metadata(&one.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let path = one.0.clone();
        drop(one);
        assert!(!path.exists() && other.0.exists());
    }
}
