//! The object of a file of the VFS, and its role. Our object comes first, then, in the same memory,
//! that of the file below.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

use crate::batch::Connection;
use crate::checkpoint::link::Link;
use crate::ffi::*;
use crate::frames::read::Files;
use crate::real::file::{Real, call};
use crate::vfs::wal_reset::IndexLocks;
use crate::volume::file::Volume;
use crate::wal::file::Wal;

/// Name of the VFS.
pub const NAME: &CStr = c"onejournal";

/// The file object as SQLite sees it.
#[repr(C)]
pub struct File {
    /// The methods.
    pub base: sqlite3_file,
    /// Made in [`begin`], taken in [`take_state`].
    state: *mut State,
}

/// What the extension keeps of a file.
pub struct State {
    pub role: Role,
    /// For a database whose checkpoints are made in the background.
    pub link: Option<Link>,
    /// For a database in WAL mode.
    pub index_locks: IndexLocks,
}

impl From<Role> for State {
    fn from(role: Role) -> State {
        State { role, link: None, index_locks: IndexLocks::default() }
    }
}

/// The role of a file for the extension.
pub enum Role {
    /// A database.
    Main(Connection),
    /// A rollback journal of the same connection's database, which is closed after this.
    Journal(*mut File),
    /// A database's WAL, with the same connection's database. SQLite closes the database after the
    /// WAL.
    Wal(Wal, *mut File),
    /// A database, its WAL, or its rollback journal, on a volume.
    Volume(Volume),
    /// Any other file. Calls are passed on.
    Other,
}

/// The method tables of the extension's files, for versions 1, 2 and 3. They are made for the first
/// such file.
static METHODS: OnceLock<&'static [sqlite3_io_methods; 3]> = OnceLock::new();

/// Offset of the file below in the file object, aligned for anything.
pub const OFFSET: usize = size_of::<File>().next_multiple_of(16);

/// The file below.
///
/// # Safety
/// `file` points to memory of the VFS's `szOsFile` bytes.
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

/// Closes the file below if it is open. Returns SQLite's result code.
///
/// # Safety
/// As [`real_of`]; its methods are set or null.
pub unsafe fn close_real(file: *mut File) -> c_int {
    // SAFETY: the caller's promise.
    let real = unsafe { real_of(file) };
    // SAFETY: as above.
    if unsafe { (*real).pMethods.is_null() } {
        return SQLITE_OK;
    }
    let rc = call!(real, xClose);
    // SAFETY: as above.
    unsafe { (*real).pMethods = std::ptr::null() };
    rc
}

/// Makes `file` one of the extension's files.
///
/// # Safety
/// As [`real_of`], and the file below is open, or the role is a journal in memory and it has no
/// methods.
pub unsafe fn begin(file: *mut File, state: State, methods: &'static [sqlite3_io_methods; 3]) {
    let methods = METHODS.get_or_init(|| methods);
    // SAFETY: the caller's promise; the methods' version is that of the file below, so SQLite calls
    // no method which that has not.
    unsafe {
        let below = (*real_of(file)).pMethods;
        let version = if below.is_null() { 1 } else { (*below).iVersion };
        (*file).state = Box::into_raw(Box::new(state));
        (*file).base.pMethods = match version {
            ..=1 => &methods[0],
            2 => &methods[1],
            _ => &methods[2],
        };
    }
}

/// The role of an open file.
///
/// # Safety
/// SQLite's pointer to an open file, in a call of one of its methods: SQLite calls them one at a
/// time.
pub unsafe fn role<'a>(file: *mut sqlite3_file) -> &'a mut Role {
    // SAFETY: set in `begin`, taken in `take_state` only.
    unsafe { &mut (*(*file.cast::<File>()).state).role }
}

/// The link of an open file.
///
/// # Safety
/// As [`role`].
pub unsafe fn link<'a>(file: *mut sqlite3_file) -> Option<&'a mut Link> {
    // SAFETY: set in `begin`, taken in `take_state` only.
    unsafe { (*(*file.cast::<File>()).state).link.as_mut() }
}

/// The locks of the WAL's index of an open database.
///
/// # Safety
/// As [`role`].
pub unsafe fn index_locks<'a>(file: *mut sqlite3_file) -> &'a mut IndexLocks {
    // SAFETY: set in `begin`, taken in `take_state` only.
    unsafe { &mut (*(*file.cast::<File>()).state).index_locks }
}

/// Takes the state of a file that is closed.
///
/// # Safety
/// SQLite's pointer to an open file, which is not used as a file of ours after this.
pub unsafe fn take_state(file: *mut sqlite3_file) -> State {
    // SAFETY: set in `begin`, taken once.
    *unsafe { Box::from_raw((*file.cast::<File>()).state) }
}

/// Whether `file` is one of the extension's files. It need not be, because another VFS may be above
/// this one.
///
/// # Safety
/// `file` is an open file of any VFS.
pub unsafe fn is_ours(file: *mut File) -> bool {
    // SAFETY: every file begins with its methods.
    let methods = unsafe { (*file.cast::<sqlite3_file>()).pMethods };
    METHODS.get().is_some_and(|ours| ours.as_ptr_range().contains(&methods))
}

/// The volume that the open database `file` is on. `None` also if the file is not one of ours.
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

/// The connection that the open database `file` belongs to. `None` if the file is not one of the
/// extension's.
///
/// # Safety
/// `file` is an open file of any VFS, used by this thread only, and no other reference to it is
/// used meanwhile.
pub unsafe fn connection_of<'a>(file: *mut File) -> Option<&'a mut Connection> {
    // SAFETY: the caller's promise.
    match unsafe { role_if_ours(file) } {
        Some(Role::Main(connection)) => Some(connection),
        _ => None,
    }
}

/// The files of a connection: the WAL `wal`, and its database `main`.
///
/// # Safety
/// SQLite's call of a method of the WAL `wal`, whose database `main` is.
pub unsafe fn files_of(main: *mut File, wal: *mut File) -> Files {
    // SAFETY: the database is open while its WAL is, and used by the same thread as that.
    unsafe { Files { main: real_file(main), wal: real_file(wal) } }
}
