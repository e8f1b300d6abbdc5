//! A file of the VFS: ours in front, the file below behind it in the same memory.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering;

use crate::batch::{Connection, Then};
use crate::database::{self, Database};
use crate::failure::{Failure, guard};
use crate::ffi::*;
use crate::frames::wal_index::{HEADERS_BYTES, WalIndex};
use crate::messages::tell;
use crate::real::file::{Real, call};
use crate::vfs::main_file::{
    before, before_journal, connection_of, file_control, lock, truncate, unlock,
};
use crate::vfs::names;
use crate::volume::file::Volume;
use crate::wal::file::Wal;

/// Name of the VFS.
pub const NAME: &CStr = c"onejournal";

/// What SQLite sees.
#[repr(C)]
pub struct File {
    /// The methods.
    pub base: sqlite3_file,
    /// What it is; made in [`begin`], dropped in `close`.
    role: *mut Role,
}

/// What a file is to us.
pub enum Role {
    /// A database.
    Main(Connection),
    /// A rollback journal of the same connection's database, which is closed after this.
    Journal(*mut File),
    /// A database's WAL.
    Wal(Wal),
    /// A database or its WAL on a volume.
    Volume(Volume),
    /// Anything else is passed on.
    Other,
}

/// Where the file below begins: aligned for anything.
pub const OFFSET: usize = size_of::<File>().next_multiple_of(16);

/// The file below.
///
/// # Safety
/// `file` lies in memory of the VFS's `szOsFile` bytes.
pub unsafe fn real_of(file: *mut File) -> *mut sqlite3_file {
    // SAFETY: `szOsFile` is `OFFSET` and what the VFS below needs.
    unsafe { file.cast::<u8>().add(OFFSET).cast() }
}

/// The file below, open.
///
/// # Safety
/// As [`real_of`], and it is open and used by this thread only.
pub unsafe fn real_file(file: *mut File) -> Real {
    // SAFETY: the caller's promise.
    unsafe { Real::new(real_of(file)) }
}

/// Closes the file below if it is open.
///
/// # Safety
/// As [`real_of`]; its methods are set or null.
pub unsafe fn close_real(file: *mut File) {
    // SAFETY: the caller's promise.
    let real = unsafe { real_of(file) };
    // SAFETY: as above.
    if unsafe { !(*real).pMethods.is_null() } {
        // The open failed, and that is what is reported.
        let _ = call!(real, xClose);
    }
}

/// Makes `file` a file of ours.
///
/// # Safety
/// As [`real_of`], and the file below is open.
pub unsafe fn begin(file: *mut File, role: Role) {
    // SAFETY: the caller's promise; the methods' version is that of the file below, so SQLite calls no
    // method which that has not.
    unsafe {
        let version = (*(*real_of(file)).pMethods).iVersion;
        (*file).role = Box::into_raw(Box::new(role));
        (*file).base.pMethods = match version {
            ..=1 => &METHODS[0],
            2 => &METHODS[1],
            _ => &METHODS[2],
        };
    }
}

const fn methods(version: c_int) -> sqlite3_io_methods {
    sqlite3_io_methods {
        iVersion: version,
        xClose: Some(close),
        xRead: Some(read),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        xFileSize: Some(file_size),
        xLock: Some(lock),
        xUnlock: Some(unlock),
        xCheckReservedLock: Some(check_reserved_lock),
        xFileControl: Some(file_control),
        xSectorSize: Some(sector_size),
        xDeviceCharacteristics: Some(device_characteristics),
        xShmMap: Some(shm_map),
        xShmLock: Some(shm_lock),
        xShmBarrier: Some(shm_barrier),
        xShmUnmap: Some(shm_unmap),
        xFetch: Some(fetch),
        xUnfetch: Some(unfetch),
    }
}

static METHODS: [sqlite3_io_methods; 3] = [methods(1), methods(2), methods(3)];

/// The role of an open file.
///
/// # Safety
/// SQLite's pointer to an open file, in a call of one of its methods: SQLite calls them one at a time.
pub unsafe fn role<'a>(file: *mut sqlite3_file) -> &'a mut Role {
    // SAFETY: set in `begin`, dropped in `close` only.
    unsafe { &mut *(*file.cast::<File>()).role }
}

/// Reports an error to SQLite's log; its code.
pub fn report(database: &Database, e: &Failure) -> c_int {
    let code = e.code(SQLITE_IOERR_FSYNC);
    tell(code, &format!("{}: {e}", database.path.display()));
    code
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once and does not use it after that.
    let role = unsafe { Box::from_raw((*file.cast::<File>()).role) };
    // SAFETY: open until the end of this function.
    let real = unsafe { real_file(file.cast()) };
    if matches!(&*role, Role::Main(_) | Role::Volume(_)) {
        guard((), || names::closed(file.cast()));
    }
    let settled = match &*role {
        Role::Volume(volume) if volume.is_wal() => settled(|| volume.wal_closed()),
        _ => SQLITE_OK,
    };
    guard((), || {
        match &*role {
            Role::Main(Connection { database, .. }) if database::went(database) => {
                database.background.finish(database);
                // A reader may be the last, behind those whose frames are logged.
                let has_writers = database.has_writers.load(Ordering::Relaxed);
                let left = if has_writers { database.left(real) } else { Ok(()) };
                let left = left.and_then(|()| database.release(real));
                if let Err(e) = left.and_then(|()| database.close_log()) {
                    report(database, &e);
                }
            }
            Role::Journal(main) => {
                // SAFETY: the same connection's database is open, and one of ours.
                if let Some(connection) = unsafe { connection_of(*main) } {
                    connection.close_journal();
                }
            }
            _ => {}
        }
    });
    // SAFETY: as above.
    let rc = call!(unsafe { real_of(file.cast()) }, xClose);
    guard((), || drop(role));
    if settled == SQLITE_OK { rc } else { settled }
}

/// Does something with what is held back for a WAL on a volume; SQLite's code.
fn settled(f: impl FnOnce() -> Result<(), Failure>) -> c_int {
    guard(SQLITE_IOERR, || match f() {
        Ok(()) => SQLITE_OK,
        Err(e) => {
            let code = e.code(SQLITE_IOERR);
            tell(code, &format!("a WAL on a volume: {e}"));
            code
        }
    })
}

/// Writes what is held back before a method of the file does its work.
///
/// # Safety
/// As [`role`].
pub unsafe fn settle(file: *mut sqlite3_file) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { role(file) } {
        Role::Volume(volume) => settled(|| volume.settle()),
        // SAFETY: as above.
        Role::Wal(wal) => unsafe { wal.settle(file) },
        _ => SQLITE_OK,
    }
}

/// Whether `file` is a file of ours: another VFS may be over this one.
///
/// # Safety
/// `file` is an open file of any VFS.
pub unsafe fn is_ours(file: *mut File) -> bool {
    // SAFETY: every file begins with its methods.
    let methods = unsafe { (*file.cast::<sqlite3_file>()).pMethods };
    METHODS.as_ptr_range().contains(&methods)
}

/// The volume that the open database `file` lies on; nothing when the file is none of ours.
///
/// # Safety
/// `file` is an open file of any VFS, used by this thread only.
pub unsafe fn volume_of<'a>(file: *mut File) -> Option<&'a Volume> {
    // SAFETY: the caller's promise.
    match unsafe { role_if_ours(file) } {
        Some(Role::Volume(volume)) => Some(volume),
        _ => None,
    }
}

/// The role of an open file if it is one of this VFS.
///
/// # Safety
/// As [`volume_of`], and no other reference to it is used meanwhile.
pub unsafe fn role_if_ours<'a>(file: *mut File) -> Option<&'a mut Role> {
    // SAFETY: the caller's promise.
    if !unsafe { is_ours(file) } {
        return None;
    }
    // SAFETY: a file with these methods is ours, and open.
    Some(unsafe { role(file.cast()) })
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    let (Ok(start), Ok(len)) = (u64::try_from(offset), usize::try_from(count)) else {
        return SQLITE_IOERR;
    };
    // SAFETY: SQLite passes so many bytes.
    let data = unsafe { std::slice::from_raw_parts(bytes.cast(), len) };
    // SAFETY: SQLite's call of a method.
    let then = unsafe { before(file, SQLITE_IOERR_WRITE, |it, real| it.write(real, start, data)) };
    if let Then::Return(code) = then {
        return code;
    }
    // SAFETY: as above.
    let then = unsafe { before_journal(file, |it| it.write_journal(start, data)) };
    if let Then::Return(code) = then {
        return code;
    }
    // SAFETY: as above.
    let role = unsafe { role(file) };
    if let Role::Volume(volume) = role
        && volume.is_wal()
    {
        return settled(|| volume.write(start, data));
    }
    if let Role::Wal(wal) = role {
        // SAFETY: as above; SQLite's arguments.
        return unsafe { wal.write(file, data, start) };
    }
    // SAFETY: as above.
    call!(unsafe { real_of(file.cast()) }, xWrite, bytes, count, offset)
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite's call of a method.
    if let Role::Wal(wal) = unsafe { role(file) } {
        // SAFETY: as above.
        return unsafe { wal.sync(file) };
    }
    // SAFETY: as above.
    if let Then::Return(code) = unsafe { before(file, SQLITE_IOERR_FSYNC, |it, _| Ok(it.sync())) } {
        return code;
    }
    // SAFETY: as above.
    let settled = unsafe { settle(file) };
    if settled != SQLITE_OK {
        return settled;
    }
    // SAFETY: as above.
    call!(unsafe { real_of(file.cast()) }, xSync, flags)
}

/// Passes a call on to the file below; `after $before` of this file.
macro_rules! pass {
    ($name:ident, $method:ident, ($($argument:ident: $type:ty),*) $(, after $before:ident)?) => {
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $type),*) -> c_int {
            $(
                // SAFETY: SQLite's call of a method of an open file.
                let before = unsafe { $before(file) };
                if before != SQLITE_OK {
                    return before;
                }
            )?
            // SAFETY: SQLite's call of a method of an open file.
            call!(unsafe { real_of(file.cast()) }, $method $(, $argument)*)
        }
    };
}

pass!(file_size, xFileSize, (out: *mut i64), after settle);
pass!(check_reserved_lock, xCheckReservedLock, (out: *mut c_int));
pass!(sector_size, xSectorSize, ());
pass!(fetch, xFetch, (offset: i64, count: c_int, out: *mut *mut c_void));
pass!(unfetch, xUnfetch, (offset: i64, memory: *mut c_void));

unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    to: *mut c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's call of a method.
    if let Then::Return(code) = unsafe { before(file, SQLITE_IOERR, |it, _| Ok(it.read())) } {
        return code;
    }
    // SAFETY: as above.
    let settled = match unsafe { role(file) } {
        Role::Volume(volume) if volume.is_wal() => settled(|| volume.settle()),
        // SAFETY: as above.
        Role::Wal(wal) => unsafe { wal.settle(file) },
        _ => SQLITE_OK,
    };
    if settled != SQLITE_OK {
        return settled;
    }
    // SAFETY: as above.
    call!(unsafe { real_of(file.cast()) }, xRead, to, count, offset)
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite's call of a method.
    let below = call!(unsafe { real_of(file.cast()) }, xDeviceCharacteristics);
    // SAFETY: as above.
    match unsafe { role(file) } {
        Role::Volume(volume) => volume.characteristics(below),
        Role::Main(connection) => connection.characteristics(below),
        _ => below,
    }
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's call of a method.
    let rc = call!(unsafe { real_of(file.cast()) }, xShmMap, region, size, extend, out);
    let is_front = region == 0 && usize::try_from(size).is_ok_and(|size| size >= HEADERS_BYTES);
    // SAFETY: as above.
    if let Role::Main(connection) = unsafe { role(file) }
        && rc == SQLITE_OK
        && is_front
    {
        // SAFETY: the VFS below has set `out` to a region of that size or to null, which stays mapped until `shm_unmap`.
        connection.wal_index = unsafe { WalIndex::new(*out) };
    }
    rc
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: SQLite's call of a method.
    if let Role::Main(connection) = unsafe { role(file) } {
        connection.wal_index = None;
    }
    // SAFETY: as above.
    call!(unsafe { real_of(file.cast()) }, xShmUnmap, delete)
}

unsafe extern "C" fn shm_lock(
    file: *mut sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    let is_write_lock = offset == WAL_WRITE_LOCK;
    // SAFETY: SQLite's call of a method.
    match unsafe { role(file) } {
        Role::Volume(volume) => {
            let settled = settled(|| volume.lock(is_write_lock));
            // Somebody waits for a lock that is given back; what could not be written has not been committed.
            if settled != SQLITE_OK && flags & SQLITE_SHM_UNLOCK == 0 {
                return settled;
            }
        }
        Role::Main(connection) if is_write_lock && flags & SQLITE_SHM_UNLOCK == 0 => {
            connection.wal_transaction_count += 1;
        }
        _ => {}
    }
    // SAFETY: as above.
    call!(unsafe { real_of(file.cast()) }, xShmLock, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: SQLite's call of a method. Commit frames are written when they come; this is for what may
    // be held nevertheless: readers trust the shared memory only after what follows the barrier. An error
    // is told by the next call, since then it stays held.
    let _ = unsafe { settle(file) };
    // SAFETY: SQLite's call of a method of an open file, which has it by its version.
    unsafe {
        let real = real_of(file.cast());
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}
