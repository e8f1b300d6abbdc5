//! The methods of a file of the VFS, as SQLite calls them (`sqlite3_io_methods`). Each passes the
//! call on to the file below, if its role leaves anything to do.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use crate::batch::{self, Then};
use crate::failure::{Failure, guard};
use crate::faults::{self, Fault};
use crate::ffi::*;
use crate::frames::wal_index::HEADERS_BYTES;
use crate::real::file::call;
use crate::real::loaded::loaded;
use crate::vfs::before::{before, before_journal, on_volume, rolled, settle, settled};
use crate::vfs::file::{
    NAME, Role, State, close_real, connection_of, files_of, index_locks, link, real_file, real_of,
    role, take_state,
};
use crate::vfs::names;
use crate::vfs::wal_hook;
use crate::vfs::wal_reset::Call;
use crate::volume::file::Kind;
use crate::volume::memory::Memory;
use crate::volume::rollback::{Rollback, Step};

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

pub static METHODS: [sqlite3_io_methods; 3] = [methods(1), methods(2), methods(3)];

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once and does not use it after that.
    let State { role, link, .. } = unsafe { take_state(file) };
    // The own connection for checkpoints is closed before the last one of the program.
    guard((), || drop(link));
    // SAFETY: open until the end of this function.
    let real = unsafe { real_file(file.cast()) };
    if matches!(role, Role::Main(_) | Role::Volume(_)) {
        guard((), || names::closed(file.cast()));
    }
    let settled = match &role {
        Role::Volume(volume) => settled(|| volume.closed()),
        _ => SQLITE_OK,
    };
    guard((), || {
        match &role {
            Role::Main(connection) if connection.went() => {
                let database = &connection.database;
                database.finish_sync();
                // A reader may be the last connection, after writers whose frames are logged.
                let has_writers = database.has_writers.load(Ordering::Relaxed);
                let left = if has_writers { database.left(real) } else { Ok(()) };
                let left = left.and_then(|()| database.release(real));
                if let Err(e) = left.and_then(|()| database.close_log()) {
                    database.report(&e);
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
    // SAFETY: as above. A journal may have been in memory, without a file.
    let rc = unsafe { close_real(file.cast()) };
    guard((), || drop(role));
    if settled == SQLITE_OK { rc } else { settled }
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
    if let Role::Volume(volume) = role {
        if volume.kind() != Kind::Main {
            return settled(|| volume.write(start, data));
        }
        if let Then::Return(code) =
            rolled(SQLITE_IOERR_WRITE, || volume.rollback().write(start, data))
        {
            return code;
        }
    }
    if let Role::Wal(wal, main) = role {
        // SAFETY: as above; the database is open while its WAL is, and nothing else refers to its
        // role now.
        let (files, connection) = unsafe { (files_of(*main, file.cast()), connection_of(*main)) };
        let transaction = connection.map_or(0, |connection| connection.wal_transaction_count);
        // SAFETY: as above.
        let index = unsafe { index_locks((*main).cast()) }.index();
        return wal.write(files, transaction, index, start, data);
    }
    // SAFETY: as above.
    call!(unsafe { real_of(file.cast()) }, xWrite, bytes, count, offset)
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite's call of a method.
    if let Role::Wal(wal, main) = unsafe { role(file) } {
        // SAFETY: as above.
        return wal.sync(unsafe { files_of(*main, file.cast()) });
    }
    // SAFETY: as above.
    if let Then::Return(code) = unsafe { before(file, SQLITE_IOERR_FSYNC, |it, _| Ok(it.sync())) } {
        return code;
    }
    // SAFETY: as above.
    let then = unsafe { on_volume(file, SQLITE_IOERR_FSYNC, |_| Ok(()), |it| it.sync()) };
    if let Then::Return(code) = then {
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

/// Passes a call on to the file below.
macro_rules! pass {
    ($name:ident, $method:ident, ($($argument:ident: $type:ty),*)) => {
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $type),*) -> c_int {
            // SAFETY: SQLite's call of a method of an open file.
            call!(unsafe { real_of(file.cast()) }, $method $(, $argument)*)
        }
    };
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, out: *mut i64) -> c_int {
    let held_end = Cell::new(0);
    let in_memory = |memory: &mut Memory| {
        held_end.set(memory.bytes().len() as u64);
        Ok(())
    };
    let in_database = |it: &mut Rollback| {
        held_end.set(it.end());
        Ok(Step::Below)
    };
    // SAFETY: SQLite's call of a method.
    let then = unsafe { on_volume(file, SQLITE_IOERR, in_memory, in_database) };
    if let Then::Below = then {
        // SAFETY: as above.
        let settled = unsafe { settle(file) };
        if settled != SQLITE_OK {
            return settled;
        }
        // SAFETY: as above.
        let rc = call!(unsafe { real_of(file.cast()) }, xFileSize, out);
        if rc != SQLITE_OK {
            return rc;
        }
    }
    let held_end = i64::try_from(held_end.get()).unwrap_or(i64::MAX);
    // SAFETY: SQLite's pointer to a number, which the VFS below has set.
    unsafe {
        *out = match then {
            Then::Below => held_end.max(*out),
            Then::Return(_) => held_end,
        };
    }
    SQLITE_OK
}

pass!(check_reserved_lock, xCheckReservedLock, (out: *mut c_int));
pass!(sector_size, xSectorSize, ());
pass!(unfetch, xUnfetch, (offset: i64, memory: *mut c_void));

unsafe extern "C" fn fetch(
    file: *mut sqlite3_file,
    offset: i64,
    count: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's call of a method.
    if let Role::Volume(volume) = unsafe { role(file) }
        && volume.kind() == Kind::Main
        && guard(true, || volume.rollback().holds_pages())
    {
        // A mapping of the file does not show them. SQLite then reads.
        // SAFETY: SQLite's pointer to a pointer.
        unsafe { *out = std::ptr::null_mut() };
        return SQLITE_OK;
    }
    // SAFETY: as above.
    call!(unsafe { real_of(file.cast()) }, xFetch, offset, count, out)
}

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
    if let (Ok(at), Ok(len)) = (u64::try_from(offset), usize::try_from(count)) {
        // SAFETY: SQLite passes memory for so many bytes.
        let out = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), len) };
        let short = Failure::Sqlite { code: SQLITE_IOERR_SHORT_READ, what: "reading" };
        let out = RefCell::new(out);
        let from_memory = |memory: &mut Memory| match memory.read(at, &mut out.borrow_mut()) {
            true => Ok(()),
            false => Err(short),
        };
        // SAFETY: as above.
        let then = unsafe {
            on_volume(file, SQLITE_IOERR, from_memory, |it| it.read(at, &mut out.borrow_mut()))
        };
        if let Then::Return(code) = then {
            return code;
        }
    }
    // SAFETY: as above.
    let settled = match unsafe { role(file) } {
        Role::Volume(volume) if volume.kind() != Kind::Main => settled(|| volume.settle()),
        // SAFETY: as above.
        Role::Wal(wal, _) => wal.settle(unsafe { real_file(file.cast()) }),
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
    let is_first = region == 0 && usize::try_from(size).is_ok_and(|size| size >= HEADERS_BYTES);
    if rc == SQLITE_OK && is_first {
        // SAFETY: the VFS below has set `out` to a region of that size or to null, which stays
        // mapped until `shm_unmap`.
        unsafe { index_locks(file).mapped(*out) };
    }
    rc
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: SQLite's call of a method.
    unsafe { index_locks(file) }.unmapped();
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
    if flags & SQLITE_SHM_UNLOCK == 0 {
        // SAFETY: SQLite's call of a method.
        let rc = guard(SQLITE_IOERR, || unsafe { wal_hook::before_lock(file, offset) });
        if rc != SQLITE_OK {
            return rc;
        }
    }
    // SAFETY: SQLite's call of a method.
    match unsafe { role(file) } {
        Role::Volume(volume) => {
            let settled = settled(|| volume.lock(is_write_lock));
            // An unlock goes on: other connections wait for the lock, and the frames that could not
            // be written are not committed.
            if settled != SQLITE_OK && flags & SQLITE_SHM_UNLOCK == 0 {
                return settled;
            }
        }
        Role::Main(connection) if is_write_lock && flags & SQLITE_SHM_UNLOCK == 0 => {
            connection.wal_transaction_count += 1;
        }
        _ => {}
    }
    let call = Call { offset, count, flags };
    // SAFETY: as above.
    if call.begins_wal() && unsafe { log_fails(file) } {
        // SQLite then appends to the WAL, as it does while another connection reads it.
        return SQLITE_BUSY;
    }
    // SAFETY: as above.
    let (locks, below) = unsafe { (index_locks(file), real_file(file.cast())) };
    guard(SQLITE_IOERR, || locks.change(below, call))
}

/// Whether the log of the database failed when it was last needed.
///
/// # Safety
/// `file` is an open file of this VFS.
unsafe fn log_fails(file: *mut sqlite3_file) -> bool {
    // SAFETY: the caller's promise.
    let role = unsafe { role(file) };
    let Role::Main(connection) = role else { return false };
    connection.database.log_fails.load(Ordering::Relaxed) && !faults::is(Fault::RestartsWithoutLog)
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: SQLite's call of a method. Commit frames are written when they come; this is for what
    // may be held nevertheless: readers trust the shared memory only after what follows the
    // barrier. An error is told by the next call, since then it stays held.
    let _ = unsafe { settle(file) };
    // SAFETY: SQLite's call of a method of an open file, which has it by its version.
    unsafe {
        let real = real_of(file.cast());
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite's call of a method.
    let then = unsafe { before(file, SQLITE_IOERR, |it, real| it.truncate(real, size)) };
    if let Then::Return(code) = then {
        return code;
    }
    let bytes = u64::try_from(size).unwrap_or(0);
    let in_memory = |memory: &mut Memory| {
        memory.truncate(bytes);
        Ok(())
    };
    // SAFETY: as above.
    let then = unsafe { on_volume(file, SQLITE_IOERR, in_memory, |it| it.truncate(bytes)) };
    if let Then::Return(code) = then {
        return code;
    }
    // SAFETY: as above.
    let settled = unsafe { settle(file) };
    if settled != SQLITE_OK {
        return settled;
    }
    // SAFETY: as above.
    call!(unsafe { real_of(file.cast()) }, xTruncate, size)
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's call of a method.
    if let Some(link) = unsafe { link(file) }.filter(|_| level == SQLITE_LOCK_EXCLUSIVE) {
        guard((), || link.background.rest());
        if link.background.is_broken() {
            // The WAL stays.
            return SQLITE_BUSY;
        }
    }
    // SAFETY: as above.
    let rc = call!(unsafe { real_of(file.cast()) }, xLock, level);
    if rc != SQLITE_OK {
        return rc;
    }
    // SAFETY: as above.
    match unsafe { before(file, SQLITE_IOERR_LOCK, |it, real| it.locked(real, level)) } {
        Then::Return(code) => code,
        Then::Below => SQLITE_OK,
    }
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite's call of a method.
    if let Role::Volume(volume) = unsafe { role(file) } {
        guard((), || volume.rollback().unlocked(level));
    }
    // SAFETY: SQLite's call of a method.
    let rc = call!(unsafe { real_of(file.cast()) }, xUnlock, level);
    // SAFETY: as above.
    if let Role::Main(connection) = unsafe { role(file) } {
        connection.unlocked(level);
    }
    rc
}

unsafe extern "C" fn file_control(
    file: *mut sqlite3_file,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite's call of a method, with the operation's argument.
    guard((), || unsafe { wal_hook::control(file, operation, argument) });
    let unknown = |_: &mut Memory| Err(Failure::Sqlite { code: SQLITE_NOTFOUND, what: "asking" });
    // SAFETY: SQLite's call of a method.
    let then = unsafe {
        on_volume(file, SQLITE_IOERR, unknown, |it| match operation {
            SQLITE_FCNTL_SIZE_HINT => it.grow(),
            SQLITE_FCNTL_SYNC => it.complete(!argument.is_null()).map(|()| Step::Below),
            SQLITE_FCNTL_CHUNK_SIZE | SQLITE_FCNTL_BEGIN_ATOMIC_WRITE => {
                it.stop_offering().map(|()| Step::Below)
            }
            _ => Ok(Step::Below),
        })
    };
    if let Then::Return(code) = then {
        return code;
    }
    // It may change the size of the database.
    if operation == SQLITE_FCNTL_SIZE_HINT {
        // SAFETY: SQLite's call of a method.
        let settled = unsafe { settle(file) };
        if settled != SQLITE_OK {
            return settled;
        }
    }
    // SAFETY: SQLite's call of a method, with the operation's argument.
    let then = unsafe {
        before(file, SQLITE_IOERR, |it, real| batch::control(it, real, operation, argument))
    };
    if let Then::Return(code) = then {
        return code;
    }
    // SAFETY: as above.
    let rc = call!(unsafe { real_of(file.cast()) }, xFileControl, operation, argument);
    if operation == SQLITE_FCNTL_VFSNAME && rc == SQLITE_OK {
        // SAFETY: the argument of this control: a pointer to a text of SQLite's allocator, which
        // `%z` frees.
        unsafe {
            let name: *mut *mut c_char = argument.cast();
            *name = (loaded().api.mprintf)(c"%s/%z".as_ptr(), NAME.as_ptr(), *name);
        }
    }
    rc
}
