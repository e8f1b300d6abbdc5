//! A file of the VFS below, in the memory that SQLite gave for it.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::control::Control;
use super::ffi::*;
use super::handles::{Below, Db};
use super::loaded::loaded;
use super::text::Name;

/// A file of the VFS below. It may be closed, and its memory may be gone: calls then fail. Only one
/// thread at a time uses it, except for [`Real::tell_connection`].
pub struct Real {
    /// The file's object. Null: its memory is gone.
    file: Cell<*mut sqlite3_file>,
    /// Null: the file has no name, or it was not opened here.
    name: *const c_char,
    /// The first words of the WAL's index, while they are mapped. Null: they are not.
    index: Cell<*const AtomicU32>,
    /// Where SQLite has the connection that uses the file now. Null: SQLite has not told.
    connection: AtomicPtr<Option<Db>>,
}

/// Words of the WAL's index that [`Real::index_words`] can read: both copies of its header.
pub const INDEX_WORDS: usize = 24;

/// Calls a method of a file. If the file is not open or has no such method, the result is the
/// given one.
macro_rules! call {
    ($real:expr, $otherwise:expr, $method:ident $(, $argument:expr)*) => {{
        let real: &Real = $real;
        match real.methods().and_then(|methods| methods.$method) {
            // SAFETY: the file is open, because it has methods. The arguments are of the types and
            // sizes that `sqlite3.h` asks for, at each use.
            Some(method) => unsafe { method(real.file.get() $(, $argument)*) },
            None => $otherwise,
        }
    }};
}

impl Real {
    /// # Safety
    /// `file` is a file's object of the VFS below: open, or with null for its methods. It is used
    /// by one thread at a time. It stays until this is dropped or [`Real::end`]. `name` is the
    /// file's name for as long (promise 4).
    pub(super) unsafe fn new(file: *mut sqlite3_file, name: Option<*const c_char>) -> Real {
        let (index, connection) = (Cell::new(null()), AtomicPtr::default());
        Real { file: Cell::new(file), name: name.unwrap_or(null()), index, connection }
    }

    /// The file's object. `None`: its memory is gone.
    fn object(&self) -> Option<&sqlite3_file> {
        // SAFETY: the object stays until `end`, which makes the pointer null (`new`).
        unsafe { self.file.get().as_ref() }
    }

    /// The methods of the file, if it is open.
    fn methods(&self) -> Option<&sqlite3_io_methods> {
        // SAFETY: null, or the methods of an open file, which stay as long as it is open (`new`).
        unsafe { self.object()?.pMethods.get().as_ref() }
    }

    /// Opens the file through the VFS `below`. Closes it first if it is open. Returns how it was
    /// opened. After an error it is closed.
    pub(super) fn open(&self, below: Below, flags: c_int) -> Result<c_int, c_int> {
        let _ = self.close();
        let (vfs, mut found_flags) = (below.as_ptr(), flags);
        if self.object().is_none() {
            return Err(SQLITE_IOERR);
        }
        // SAFETY: a registered VFS, which has this method. The memory has the size that it asked
        // for, and the file is closed. The name is null or one that SQLite made, and stays until
        // the file's end (`new`).
        let rc = unsafe {
            let open = (*vfs).xOpen.expect("every VFS can open");
            open(vfs, Name::from_ptr(self.name), self.file.get(), flags, Some(&mut found_flags))
        };
        if rc == SQLITE_OK {
            return Ok(found_flags);
        }
        // A VFS that failed may have left a file that has to be closed. Its failure is reported.
        let _ = self.close();
        Err(rc)
    }

    /// Opens the file through the VFS below, as [`Real::open`] does.
    pub fn open_below(&self, flags: c_int) -> Result<c_int, c_int> {
        self.open(loaded().below, flags)
    }

    /// Closes the file if it is open. Returns SQLite's result code.
    fn close(&self) -> c_int {
        let rc = call!(self, SQLITE_OK, xClose);
        self.index.set(null());
        if let Some(object) = self.object() {
            object.pMethods.set(null());
        }
        rc
    }

    /// Closes the file if it is open, for good: its memory is no longer used. Returns SQLite's
    /// result code.
    pub(super) fn end(&self) -> c_int {
        let rc = self.close();
        self.file.set(null_mut());
        self.connection.store(null_mut(), Ordering::Relaxed);
        rc
    }

    /// The version of its methods. 1: it is not open.
    pub(super) fn version(&self) -> c_int {
        self.methods().map_or(1, |methods| methods.iVersion)
    }
}

/// The methods of the VFS below. Each returns SQLite's result code, or has it as its error. If the
/// file is not open, that is `SQLITE_IOERR`.
impl Real {
    /// Reads the bytes at `at`.
    pub fn x_read(&self, at: u64, to: &mut [u8]) -> c_int {
        let (Ok(count), Ok(at)) = (c_int::try_from(to.len()), i64::try_from(at)) else {
            return SQLITE_IOERR;
        };
        call!(self, SQLITE_IOERR, xRead, to.as_mut_ptr().cast(), count, at)
    }

    /// Writes `bytes` at `at`.
    pub fn x_write(&self, at: u64, bytes: &[u8]) -> c_int {
        let (Ok(count), Ok(at)) = (c_int::try_from(bytes.len()), i64::try_from(at)) else {
            return SQLITE_IOERR;
        };
        call!(self, SQLITE_IOERR, xWrite, bytes.as_ptr().cast(), count, at)
    }

    /// Makes the file `size` bytes long.
    pub fn x_truncate(&self, size: i64) -> c_int {
        call!(self, SQLITE_IOERR, xTruncate, size)
    }

    /// Makes the file durable.
    pub fn x_sync(&self, flags: c_int) -> c_int {
        call!(self, SQLITE_IOERR, xSync, flags)
    }

    /// The file's size in bytes.
    pub fn x_file_size(&self) -> Result<i64, c_int> {
        let mut size = 0;
        match call!(self, SQLITE_IOERR, xFileSize, &mut size) {
            SQLITE_OK => Ok(size),
            code => Err(code),
        }
    }

    /// Takes the lock of this level.
    pub fn x_lock(&self, level: c_int) -> c_int {
        call!(self, SQLITE_IOERR, xLock, level)
    }

    /// Lowers the lock to this level.
    pub fn x_unlock(&self, level: c_int) -> c_int {
        call!(self, SQLITE_IOERR, xUnlock, level)
    }

    /// Returns the result code, and whether a connection has the lock for writing.
    pub(super) fn x_check_reserved_lock(&self) -> (c_int, c_int) {
        let mut is_reserved = 0;
        (call!(self, SQLITE_IOERR, xCheckReservedLock, &mut is_reserved), is_reserved)
    }

    /// Passes a control on.
    pub fn x_control(&self, control: &Control<'_>) -> c_int {
        call!(self, SQLITE_IOERR, xFileControl, control.operation(), control.argument())
    }

    /// A control whose argument is a number that the VFS below reads, and may write.
    fn control_number<T>(&self, operation: c_int, number: &mut T) -> c_int {
        let argument: *mut T = number;
        call!(self, SQLITE_IOERR, xFileControl, operation, argument.cast())
    }

    /// Announces the file's coming size.
    pub fn x_size_hint(&self, bytes: i64) -> c_int {
        self.control_number::<i64>(SQLITE_FCNTL_SIZE_HINT, &mut { bytes })
    }

    /// Whether the file's path leads to another file now. Also true if that cannot be found out.
    pub fn has_moved(&self) -> bool {
        let mut has_moved = 1;
        let rc = self.control_number::<c_int>(SQLITE_FCNTL_HAS_MOVED, &mut has_moved);
        rc != SQLITE_OK || has_moved != 0
    }

    /// Sets how long locks of the WAL's index wait, which they do in a SQLite with
    /// `SQLITE_ENABLE_SETLK_TIMEOUT`. Returns how long it was. `None`: SQLite was built without.
    pub fn exchange_lock_timeout(&self, timeout_ms: c_int) -> Option<c_int> {
        let mut exchanged = timeout_ms;
        let rc = self.control_number::<c_int>(SQLITE_FCNTL_LOCK_TIMEOUT, &mut exchanged);
        (rc == SQLITE_OK).then_some(exchanged)
    }

    pub(super) fn x_sector_size(&self) -> c_int {
        call!(self, 0, xSectorSize)
    }

    /// What the medium promises: `SQLITE_IOCAP_`.
    pub fn x_device_characteristics(&self) -> c_int {
        call!(self, 0, xDeviceCharacteristics)
    }

    /// Takes or releases locks of the WAL's index.
    pub fn x_shm_lock(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        call!(self, SQLITE_IOERR, xShmLock, offset, count, flags)
    }

    /// Orders accesses to the WAL's index.
    pub fn x_shm_barrier(&self) {
        call!(self, (), xShmBarrier);
    }

    /// Maps a region of the WAL's index. Returns the result code, and where the region is. It may
    /// be there although the code is an error: `SQLITE_READONLY`.
    pub(super) fn x_shm_map(
        &self,
        region: c_int,
        size: c_int,
        extend: c_int,
    ) -> (c_int, *mut c_void) {
        const BYTES: usize = size_of::<[u32; INDEX_WORDS]>();
        let mut place = null_mut();
        let rc = call!(self, SQLITE_IOERR, xShmMap, region, size, extend, &mut place);
        let has_words = region == 0 && usize::try_from(size).is_ok_and(|size| size >= BYTES);
        if rc == SQLITE_OK && has_words {
            let words = place.cast_const().cast::<AtomicU32>();
            self.index.set(if words.is_aligned() { words } else { null() });
        }
        (rc, place)
    }

    /// Unmaps the WAL's index.
    pub fn x_shm_unmap(&self, delete: c_int) -> c_int {
        self.index.set(null());
        call!(self, SQLITE_IOERR, xShmUnmap, delete)
    }

    /// `N` words of the WAL's index from the word `at` on, if it is mapped. SQLite changes them in
    /// other processes and threads.
    pub fn index_words<const N: usize>(&self, at: usize) -> Option<[u32; N]> {
        assert!(at + N <= INDEX_WORDS, "only these words are known to be mapped");
        // SAFETY: the VFS below mapped a region of so many words (`x_shm_map`), aligned for them.
        // It stays until `x_shm_unmap` or `close`, which make the pointer null. SQLite changes
        // them with plain stores of words.
        let words = unsafe { self.index.get().cast::<[AtomicU32; INDEX_WORDS]>().as_ref() }?;
        Some(std::array::from_fn(|index| words[at + index].load(Ordering::Relaxed)))
    }

    /// Returns the result code, and where a part of the file is mapped.
    pub(super) fn x_fetch(&self, at: i64, count: c_int) -> (c_int, *mut c_void) {
        let mut place = null_mut();
        (call!(self, SQLITE_IOERR, xFetch, at, count, &mut place), place)
    }

    /// Gives back `memory` of `x_fetch` with the same place.
    pub(super) fn x_unfetch(&self, at: i64, memory: *mut c_void) -> c_int {
        call!(self, SQLITE_IOERR, xUnfetch, at, memory)
    }
}

/// The connection that uses the file.
impl Real {
    /// SQLite tells where it has the connection (`SQLITE_FCNTL_PDB`). The file below is told, too.
    ///
    /// With a shared cache another thread may use the file meanwhile (promise 2). It stays open, so
    /// nothing changes the fields that lead to its methods.
    pub(super) fn tell_connection(&self, place: *const Option<Db>, control: &Control<'_>) -> c_int {
        // All connections that share a cache tell the same place.
        self.connection.store(place.cast_mut(), Ordering::Release);
        self.x_control(control)
    }

    /// The connection that calls a method of the file. `None`: SQLite has not told it.
    pub(super) fn connection(&self) -> Option<Db> {
        // SAFETY: SQLite told the address of a field of the object that owns the file, so the field
        // stays until the file is closed, and then `end` makes the pointer null. The field has the
        // connection that calls, and changes only under the mutex that the caller has.
        *unsafe { self.connection.load(Ordering::Acquire).as_ref() }?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A WAL or a journal may be told of its database for longer than SQLite keeps that.
    #[test]
    fn calls_fail_before_the_file_is_open_and_after_its_end() {
        let mut memory = [0_u128; 8];
        // SAFETY: memory for an object without methods, which stays until the end of the test.
        let real = unsafe { Real::new(memory.as_mut_ptr().cast(), None) };
        for _ in 0..2 {
            let mut bytes = [7; 4];
            assert_eq!(real.x_read(0, &mut bytes), SQLITE_IOERR);
            assert_eq!((real.x_write(0, &bytes), bytes), (SQLITE_IOERR, [7; 4]));
            assert_eq!((real.x_file_size(), real.version()), (Err(SQLITE_IOERR), 1));
            assert!(real.has_moved() && real.index_words::<1>(0).is_none());
            assert!(real.exchange_lock_timeout(0).is_none() && real.connection().is_none());
            assert_eq!(real.end(), SQLITE_OK);
        }
    }
}
