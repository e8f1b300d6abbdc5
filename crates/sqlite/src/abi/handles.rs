//! Pointers to what SQLite owns, as types that keep what it promises of them. A function that takes
//! one can be called without a proof.

use std::ptr::NonNull;

use super::ffi::*;

/// A registered VFS, which stays (promise 5).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Below(NonNull<sqlite3_vfs>);

// SAFETY: any thread may use a registered VFS (promise 5).
unsafe impl Send for Below {}
// SAFETY: several threads may use a VFS at the same time (promise 5). Only SQLite changes it.
unsafe impl Sync for Below {}

impl Below {
    /// For a VFS that is registered next.
    pub(super) fn new(vfs: &'static mut sqlite3_vfs) -> Below {
        Below(vfs.into())
    }

    pub(super) fn as_ptr(self) -> *mut sqlite3_vfs {
        self.0.as_ptr()
    }
}

/// An open connection that this thread uses now.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Db(NonNull<sqlite3>);

impl Db {
    /// For an open connection that this thread uses now, or null.
    pub(super) fn from_ptr(connection: *mut sqlite3) -> Option<Db> {
        NonNull::new(connection).map(Db)
    }
}

/// A call of a function of SQL.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Context(NonNull<sqlite3_context>);
