//! The WAL hook of a connection, in the place of SQLite's own one.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::ffi::*;
use super::file::hook_of;
use super::guard::guard;
use super::handles::Db;
use super::loaded::loaded;
use super::real::Real;
use super::text::Text;

/// The hook that was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// None: checkpoints are turned off, and stay so.
    Off,
    /// SQLite's own, which makes checkpoints.
    OfSqlite,
    /// The program's. It is gone.
    OfProgram,
}

/// Has the connection that calls a method of the file ask [`Hook::is_checkpoint_due`] when SQLite
/// would make a checkpoint. `None`: the connection is not known, or SQLite knows no hook.
///
/// [`Hook::is_checkpoint_due`]: super::file::Hook::is_checkpoint_due
pub fn take_over(file: &Real) -> Option<Before> {
    let (api, connection) = (loaded().api.checkpoints?, file.connection()?);
    // SQLite's own hook has the number of frames as its argument.
    let argument = api.set_wal_hook(connection, Some(hook), null_mut());
    Some(match c_int::try_from(argument.addr()) {
        Ok(0) => {
            api.set_wal_hook(connection, None, argument);
            Before::Off
        }
        Ok(_) => {
            api.set_wal_hook(connection, Some(hook), argument);
            Before::OfSqlite
        }
        Err(_) => {
            api.set_wal_hook(connection, None, null_mut());
            Before::OfProgram
        }
    })
}

/// SQLite calls this after a commit of any database of the connection in WAL mode. `threshold` is
/// the number of frames at which SQLite's own hook would make a checkpoint.
extern "C" fn hook(threshold: *mut c_void, connection: Db, name: Text<'_>, frames: c_int) -> c_int {
    guard((), || {
        let numbers = (u32::try_from(frames), u32::try_from(threshold.addr()));
        let (Ok(frames), Ok(threshold)) = numbers else { return };
        let Some(api) = loaded().api.checkpoints.filter(|_| frames >= threshold) else { return };
        let object = api.file_of(connection, name);
        // SAFETY: SQLite's file of an open database, which this connection keeps open during the
        // hook.
        let asked = object.ok().and_then(|object| unsafe { hook_of(object) });
        let is_there = || !api.has_moved(connection, name);
        if asked.is_none_or(|asked| asked.is_checkpoint_due(frames, threshold, &is_there)) {
            let _ = api.make_checkpoint(connection, Some(name), None);
        }
    });
    // As SQLite's own hook: a checkpoint that failed is tried again by a later commit.
    SQLITE_OK
}
