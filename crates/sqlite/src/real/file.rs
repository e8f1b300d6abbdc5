//! A file of the VFS below, used through its own methods.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::failure::Failure;
use crate::ffi::*;
use crate::real::loaded::loaded;

/// Calls a method of the file below. If there is no such method, the result is an I/O error.
macro_rules! call {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let file: *mut sqlite3_file = $file;
        // SAFETY: `file` is an open file of the VFS below (who makes a `Real` says so), so it has
        // methods, which live as long as it does, and takes these arguments (`sqlite3.h`).
        unsafe {
            match (*(*file).pMethods).$method {
                Some(method) => method(file $(, $argument)*),
                None => SQLITE_IOERR,
            }
        }
    }};
}
pub(crate) use call;

/// The most bytes of one write. A piece ends at the end of a block.
const WRITE_BYTES_MAX: usize = 31 * BLOCK_BYTES as usize;
const BLOCK_BYTES: u64 = 4096;

/// An open file of the VFS below. The caller of [`Real::new`] guarantees that the file is open
/// while this is used, and that only one thread at a time uses it.
#[derive(Clone, Copy)]
pub struct Real(*mut sqlite3_file);

impl Real {
    /// # Safety
    /// `file` is open as long as this and its copies are used.
    pub unsafe fn new(file: *mut sqlite3_file) -> Real {
        Real(file)
    }

    /// Reads the bytes at `at`, at most 1 GiB at once. Bytes beyond the end of the file are zeros.
    /// Returns how many of the bytes are in the file.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        let count = c_int::try_from(buf.len()).expect("1 GiB at most");
        let to: *mut c_void = buf.as_mut_ptr().cast();
        let rc = call!(self.0, xRead, to, count, offset(at)?);
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
            let count = piece.len() as c_int;
            check(call!(self.0, xWrite, piece.as_ptr().cast(), count, offset(at)?), "writing")?;
            (at, rest) = (at + piece.len() as u64, behind);
        }
        Ok(())
    }

    /// Writes `bytes` at `at` with one call, as SQLite itself made it. Returns SQLite's result
    /// code.
    pub fn write_once(&self, at: u64, bytes: &[u8]) -> c_int {
        let (Ok(count), Ok(offset)) = (c_int::try_from(bytes.len()), i64::try_from(at)) else {
            return SQLITE_IOERR;
        };
        call!(self.0, xWrite, bytes.as_ptr().cast(), count, offset)
    }

    /// Makes the file durable.
    pub fn sync(&self) -> Result<(), Failure> {
        check(call!(self.0, xSync, SQLITE_SYNC_FULL), "syncing")
    }

    /// The file's size in bytes.
    pub fn size(&self) -> Result<u64, Failure> {
        let mut size = 0;
        check(call!(self.0, xFileSize, &mut size), "asking for the size of")?;
        Ok(u64::try_from(size).unwrap_or(0))
    }

    /// Makes the file `size` bytes long.
    pub fn truncate(&self, size: u64) -> Result<(), Failure> {
        check(call!(self.0, xTruncate, offset(size)?), "truncating")
    }

    /// Announces the file's coming size, for a file that grows in chunks. An error is ignored, as
    /// in SQLite itself, because the later write reports it.
    pub fn hint_size(&self, bytes: i64) {
        let mut bytes = bytes;
        let argument: *mut i64 = &mut bytes;
        let _ = call!(self.0, xFileControl, SQLITE_FCNTL_SIZE_HINT, argument.cast());
    }

    /// Whether the file's path leads to another file now. Also true if that cannot be found out.
    pub fn has_moved(&self) -> bool {
        let mut has_moved: c_int = 1;
        let argument: *mut c_int = &mut has_moved;
        let rc = call!(self.0, xFileControl, SQLITE_FCNTL_HAS_MOVED, argument.cast());
        rc != SQLITE_OK || has_moved != 0
    }

    /// Takes or releases locks of the WAL's index. Returns SQLite's result code.
    pub fn change_index_locks(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        call!(self.0, xShmLock, offset, count, flags)
    }

    /// Runs `f` so that no lock of the WAL's index waits, which locks may do in a SQLite with
    /// `SQLITE_ENABLE_SETLK_TIMEOUT`. Another one does not know the control.
    pub fn without_waiting<T>(&self, f: impl FnOnce() -> T) -> T {
        let mut timeout_ms: c_int = 0;
        let argument: *mut c_int = &mut timeout_ms;
        // The control exchanges the two values.
        let exchange = || call!(self.0, xFileControl, SQLITE_FCNTL_LOCK_TIMEOUT, argument.cast());
        let is_known = exchange() == SQLITE_OK;
        let done = f();
        if is_known {
            let _ = exchange();
        }
        done
    }

    /// Upgrades SQLite's shared lock to its exclusive lock. `false`: another connection has a lock.
    pub fn lock_exclusive_too(&self) -> Result<bool, Failure> {
        let rc = call!(self.0, xLock, SQLITE_LOCK_EXCLUSIVE);
        if rc & 0xff == SQLITE_BUSY {
            return Ok(false);
        }
        check(rc, "locking").map(|()| true)
    }

    /// Downgrades the lock to the shared lock.
    pub fn unlock_to_shared(&self) -> Result<(), Failure> {
        check(call!(self.0, xUnlock, SQLITE_LOCK_SHARED), "unlocking")
    }

    /// Takes the exclusive lock of the database. `false`: another connection has a lock.
    pub fn lock_exclusive(&self) -> Result<bool, Failure> {
        for level in [SQLITE_LOCK_SHARED, SQLITE_LOCK_EXCLUSIVE] {
            let rc = call!(self.0, xLock, level);
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
        check(call!(self.0, xUnlock, SQLITE_LOCK_NONE), "unlocking")
    }
}

fn offset(at: u64) -> Result<i64, Failure> {
    i64::try_from(at).map_err(|_| Failure::Sqlite { code: SQLITE_IOERR, what: "an offset" })
}

fn check(rc: c_int, what: &'static str) -> Result<(), Failure> {
    if rc == SQLITE_OK { Ok(()) } else { Err(Failure::Sqlite { code: rc, what }) }
}

/// A file that this extension opened through the VFS below. It is closed when this is dropped.
pub struct Opened {
    /// Memory for the file's object, aligned for anything.
    memory: Vec<u128>,
    /// The file's name. It has to exist as long as the file is open.
    _name: Name,
}

/// The names of a database, its journal and its WAL, in memory as SQLite lays them out: a VFS may
/// go from one name to the others.
struct Name(*const c_char);

// SAFETY: memory of SQLite's allocator, which any thread may use and free.
unsafe impl Send for Name {}

impl Name {
    fn new(main: &Path) -> Result<Name, Failure> {
        let named =
            |end: &str| CString::new([main.as_os_str().as_bytes(), end.as_bytes()].concat());
        let wrong = |_| Failure::CannotOpen(format!("{} has a zero in it", main.display()));
        let [main, journal, wal] = [
            named("").map_err(wrong)?,
            named("-journal").map_err(wrong)?,
            named("-wal").map_err(wrong)?,
        ];
        let (none, create) = (std::ptr::null(), loaded().api.create_filename);
        // SAFETY: three strings that end with a zero, and no parameters.
        let name = unsafe { create(main.as_ptr(), journal.as_ptr(), wal.as_ptr(), 0, none) };
        match name.is_null() {
            true => Err(Failure::Sqlite { code: SQLITE_NOMEM, what: "naming" }),
            false => Ok(Name(name)),
        }
    }

    fn wal(&self) -> *const c_char {
        // SAFETY: a database's name, made by SQLite.
        unsafe { (loaded().api.filename_wal)(self.0) }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // SAFETY: made by `create_filename`, freed once.
        unsafe { (loaded().api.free_filename)(self.0) }
    }
}

impl Opened {
    /// Opens the WAL of the database at `main`. `None`: there is no WAL.
    ///
    /// # Safety
    /// `vfs` is a registered VFS.
    pub unsafe fn wal(
        vfs: *mut sqlite3_vfs,
        main: &Path,
        is_writable: bool,
    ) -> Result<Option<Opened>, Failure> {
        let mut wal = main.as_os_str().to_owned();
        wal.push("-wal");
        if !Path::new(&wal).exists() {
            return Ok(None);
        }
        let how = if is_writable { SQLITE_OPEN_READWRITE } else { SQLITE_OPEN_READONLY };
        // SAFETY: the caller's promise.
        unsafe { Opened::open(vfs, main, how | SQLITE_OPEN_WAL).map(Some) }
    }

    /// Opens the database at `path` once more, for another thread. It is opened through the VFS
    /// below, which keeps its locks when one of several files of a database is closed. A descriptor
    /// outside of that VFS would lose the locks when it is closed.
    ///
    /// # Safety
    /// As [`Opened::wal`].
    pub unsafe fn main(vfs: *mut sqlite3_vfs, path: &Path) -> Result<Opened, Failure> {
        // SAFETY: the caller's promise.
        unsafe { Opened::open(vfs, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_MAIN_DB) }
    }

    /// # Safety
    /// As [`Opened::wal`].
    unsafe fn open(vfs: *mut sqlite3_vfs, main: &Path, how: c_int) -> Result<Opened, Failure> {
        let name = Name::new(main)?;
        let file_name = if how & SQLITE_OPEN_WAL != 0 { name.wal() } else { name.0 };
        // SAFETY: `vfs` is registered, which SQLite never takes back for the VFS below.
        let size = unsafe { (*vfs).szOsFile };
        let words = usize::try_from(size).unwrap_or(0).div_ceil(16).max(1);
        let mut memory = vec![0_u128; words];
        // SAFETY: the memory has the size the VFS asked for; the name is one of SQLite's and lives
        // as long as the file.
        let rc = unsafe {
            let open = (*vfs).xOpen.expect("every VFS can open");
            let file = memory.as_mut_ptr().cast();
            open(vfs, file_name, file, how, std::ptr::null_mut())
        };
        check(rc, "opening once more")?;
        Ok(Opened { memory, _name: name })
    }

    /// The file.
    pub fn real(&mut self) -> Real {
        Real(self.memory.as_mut_ptr().cast())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Nothing durable depends on it.
        let _ = call!(self.memory.as_mut_ptr().cast(), xClose);
    }
}
