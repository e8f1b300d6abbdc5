//! The WAL hook of a connection whose checkpoints are made in the background, and the calls of a
//! file that set it.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::checkpoint::background::Maker;
use crate::failure::guard;
use crate::ffi::*;
use crate::real::loaded::loaded;
use crate::vfs::file::{File, NAME, is_ours, link, real_file};

/// Runs before a connection takes a lock of the WAL's index. Returns SQLite's result code.
///
/// # Safety
/// SQLite's call of a method of an open file of ours.
pub unsafe fn before_lock(file: *mut sqlite3_file, lock: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let Some(link) = (unsafe { link(file) }) else { return SQLITE_OK };
    match lock {
        WAL_WRITE_LOCK | WAL_CHECKPOINT_LOCK if link.background.is_broken() => SQLITE_IOERR_FSYNC,
        WAL_WRITE_LOCK => {
            // SAFETY: as above.
            unsafe { link.begin_transaction(hook) };
            SQLITE_OK
        }
        WAL_CHECKPOINT_LOCK => {
            // A checkpoint that the program asks for is not busy because of a pass.
            link.background.wait();
            SQLITE_OK
        }
        _ => SQLITE_OK,
    }
}

/// Runs before a control of a file.
///
/// # Safety
/// SQLite's call of a method of an open file of ours: `argument` is what `operation` says.
pub unsafe fn control(file: *mut sqlite3_file, operation: c_int, argument: *mut c_void) {
    // SAFETY: the caller's promise.
    let Some(link) = (unsafe { link(file) }) else { return };
    match operation {
        SQLITE_FCNTL_PDB => link.told(argument),
        SQLITE_FCNTL_PRAGMA => {
            // SAFETY: the argument of this control: a message, a name, and a value or null. Strings
            // end with a zero.
            let [_, name, value] = unsafe { *argument.cast::<[*const c_char; 3]>() };
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(name) };
            if !value.is_null() && name.to_bytes().eq_ignore_ascii_case(b"wal_autocheckpoint") {
                link.pragma_came();
            }
        }
        _ => {}
    }
}

/// SQLite calls this after a commit of any database of the connection in WAL mode. `threshold` is
/// the number of frames at which SQLite's own hook would make a checkpoint.
unsafe extern "C" fn hook(
    threshold: *mut c_void,
    connection: *mut sqlite3,
    name: *const c_char,
    frames: c_int,
) -> c_int {
    let (Ok(frames), Ok(threshold)) = (u32::try_from(frames), u32::try_from(threshold.addr()))
    else {
        return SQLITE_OK;
    };
    if frames >= threshold {
        // SAFETY: SQLite's arguments.
        guard((), || unsafe { is_due(connection, name, frames, threshold) });
    }
    // As SQLite's own hook: a checkpoint that failed is tried again by a later commit.
    SQLITE_OK
}

/// A checkpoint is due.
///
/// # Safety
/// A connection, and the name of one of its databases, in SQLite's call of a hook.
unsafe fn is_due(connection: *mut sqlite3, name: *const c_char, frames: u32, threshold: u32) {
    let Some(api) = loaded().api.checkpoints else { return };
    let mut file: *mut File = std::ptr::null_mut();
    let place: *mut *mut File = &mut file;
    // SAFETY: the caller's promise; the control takes a place for a pointer.
    let rc =
        unsafe { (api.file_control)(connection, name, SQLITE_FCNTL_FILE_POINTER, place.cast()) };
    // SAFETY: SQLite's file of an open database, which this thread alone uses now.
    let maker = match rc == SQLITE_OK && !file.is_null() && unsafe { is_ours(file) } {
        // SAFETY: as above, and it is ours.
        true => unsafe { link(file.cast()) }.map(|link| {
            // SAFETY: as above.
            let is_there = || !unsafe { real_file(file) }.has_moved();
            link.background.committed(frames, threshold, NAME, is_there)
        }),
        false => None,
    };
    if maker != Some(Maker::Background) {
        let none = std::ptr::null_mut();
        // SAFETY: the caller's promise; no counts are wanted.
        let _ = unsafe {
            (api.wal_checkpoint_v2)(connection, name, SQLITE_CHECKPOINT_PASSIVE, none, none)
        };
    }
}
