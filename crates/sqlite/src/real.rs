//! A file of the VFS below, as the operations use it: an error is a [`Failure`].

use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::abi::ffi::*;
use crate::abi::handles::Below;
use crate::abi::opened::Opened;
use crate::abi::real::Real;
use crate::failure::Failure;

/// The most bytes of one write. A piece ends at the end of a block.
const WRITE_BYTES_MAX: usize = 31 * BLOCK_BYTES as usize;
const BLOCK_BYTES: u64 = 4096;

impl Real {
    /// Reads the bytes at `at`, at most 1 GiB at once. Bytes beyond the end of the file are zeros.
    /// Returns how many of the bytes are in the file.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        let rc = self.x_read(at, buf);
        if rc == SQLITE_IOERR_SHORT_READ {
            let there = usize::try_from(self.size()?.saturating_sub(at)).unwrap_or(usize::MAX);
            let there = there.min(buf.len());
            buf[there..].fill(0);
            return Ok(there);
        }
        check(rc, "reading")?;
        Ok(buf.len())
    }

    /// Writes `bytes` at `at` in pieces that are small enough for SQLite's own VFS. That VFS keeps
    /// only 17 bits of a count, and reports a longer write as a full disk.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let piece_bytes = WRITE_BYTES_MAX - (at % BLOCK_BYTES) as usize;
            let (piece, behind) = rest.split_at(piece_bytes.min(rest.len()));
            check(self.x_write(at, piece), "writing")?;
            (at, rest) = (at + piece.len() as u64, behind);
        }
        Ok(())
    }

    /// Makes the file durable.
    pub fn sync(&self) -> Result<(), Failure> {
        check(self.x_sync(SQLITE_SYNC_FULL), "syncing")
    }

    /// The file's size in bytes.
    pub fn size(&self) -> Result<u64, Failure> {
        let size = self.x_file_size();
        let size = size.map_err(|code| Failure::Sqlite { code, what: "asking for the size of" })?;
        Ok(u64::try_from(size).unwrap_or(0))
    }

    /// Makes the file `size` bytes long.
    pub fn truncate(&self, size: u64) -> Result<(), Failure> {
        let wrong = |_| Failure::Sqlite { code: SQLITE_IOERR, what: "an offset" };
        check(self.x_truncate(i64::try_from(size).map_err(wrong)?), "truncating")
    }

    /// Announces the file's coming size, for a file that grows in chunks. An error is ignored, as
    /// in SQLite itself, because the later write reports it.
    pub fn hint_size(&self, bytes: i64) {
        let _ = self.x_size_hint(bytes);
    }

    /// Upgrades SQLite's shared lock to its exclusive lock. `false`: another connection has a lock.
    pub fn lock_exclusive_too(&self) -> Result<bool, Failure> {
        let rc = self.x_lock(SQLITE_LOCK_EXCLUSIVE);
        if rc & 0xff == SQLITE_BUSY {
            return Ok(false);
        }
        check(rc, "locking").map(|()| true)
    }

    /// Downgrades the lock to the shared lock.
    pub fn unlock_to_shared(&self) -> Result<(), Failure> {
        check(self.x_unlock(SQLITE_LOCK_SHARED), "unlocking")
    }

    /// Takes the exclusive lock of the database. `false`: another connection has a lock.
    pub fn lock_exclusive(&self) -> Result<bool, Failure> {
        for level in [SQLITE_LOCK_SHARED, SQLITE_LOCK_EXCLUSIVE] {
            let rc = self.x_lock(level);
            if rc & 0xff == SQLITE_BUSY {
                self.unlock()?;
                return Ok(false);
            }
            check(rc, "locking")?;
        }
        Ok(true)
    }

    /// Releases the lock.
    pub fn unlock(&self) -> Result<(), Failure> {
        check(self.x_unlock(SQLITE_LOCK_NONE), "unlocking")
    }
}

impl Opened {
    /// Opens the WAL of the database at `main`. `None`: there is no WAL.
    pub fn wal(below: Below, main: &Path, is_writable: bool) -> Result<Option<Opened>, Failure> {
        let mut wal = main.as_os_str().to_owned();
        wal.push("-wal");
        if !Path::new(&wal).exists() {
            return Ok(None);
        }
        let how = if is_writable { SQLITE_OPEN_READWRITE } else { SQLITE_OPEN_READONLY };
        open(below, main, how | SQLITE_OPEN_WAL).map(Some)
    }

    /// Opens the database at `path` once more, for another thread. It is opened through the VFS
    /// below, which keeps its locks when one of several files of a database is closed. A descriptor
    /// outside of that VFS would lose the locks when it is closed.
    pub fn main(below: Below, path: &Path) -> Result<Opened, Failure> {
        open(below, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_MAIN_DB)
    }
}

fn open(below: Below, main: &Path, flags: c_int) -> Result<Opened, Failure> {
    let wrong = |_| Failure::CannotOpen(format!("{} has a zero in it", main.display()));
    let name = CString::new(main.as_os_str().as_bytes()).map_err(wrong)?;
    let opened = Opened::open(below, &name, flags);
    opened.map_err(|code| Failure::Sqlite { code, what: "opening once more" })
}

fn check(rc: c_int, what: &'static str) -> Result<(), Failure> {
    if rc == SQLITE_OK { Ok(()) } else { Err(Failure::Sqlite { code: rc, what }) }
}
