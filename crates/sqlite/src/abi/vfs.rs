//! The extension's VFS as SQLite calls it, and the safe trait that it calls.
//!
//! `xOpen` and `xDelete` are the trait's. All other methods are passed on.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::rc::Rc;
use std::sync::OnceLock;

use super::ffi::*;
use super::file::{self, File, Prepared, file_of};
use super::guard::guard;
use super::handles::Below;
use super::loaded::{Loaded, NAME, load, loaded};
use super::owner::{self, Owner};
use super::real::Real;
use super::table::Api;
use super::text::{Name, Text};

/// The extension's VFS. An error is SQLite's result code.
pub trait Vfs: Sync {
    /// Opens a file. After an error the file below is closed.
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn File>, c_int>;

    /// Removes a file. Returns SQLite's result code.
    fn delete(&self, name: Text<'_>, sync: c_int) -> c_int;
}

/// A file that is being opened.
pub struct Opening<'a> {
    prepared: Prepared,
    name: Option<Name<'a>>,
    flags: c_int,
    found_flags: Cell<c_int>,
}

impl Opening<'_> {
    /// How SQLite opens it: some of `SQLITE_OPEN_`.
    pub fn flags(&self) -> c_int {
        self.flags
    }

    /// Opens the file below. Returns how it was opened.
    pub fn open_below(&self) -> Result<c_int, c_int> {
        let found_flags = self.real().open_below(self.flags)?;
        self.found_flags.set(found_flags);
        Ok(found_flags)
    }

    /// The file below.
    pub fn real(&self) -> &Rc<Real> {
        self.prepared.real()
    }

    /// Its path, if it has a name.
    pub fn path(&self) -> Option<&Path> {
        self.name.map(Name::path)
    }

    /// Its name, if it is a database.
    fn main(&self) -> Option<Name<'_>> {
        self.name.filter(|_| self.flags & SQLITE_OPEN_MAIN_DB != 0)
    }

    /// A parameter of its URI, if it is a database.
    pub fn parameter(&self, key: &str) -> Option<String> {
        self.main()?.parameter(key)
    }

    /// The names of its parameters, if it is a database.
    pub fn parameter_names(&self) -> Vec<String> {
        self.main().map_or(Vec::new(), Name::parameter_names)
    }

    /// Whether it is a database, and SQLite derives the names of its journals from its name. If
    /// not, the extension cannot tell which files belong to it.
    pub fn has_journals(&self) -> bool {
        self.main().is_some_and(Name::has_journals)
    }

    /// Whether SQLite itself opens this database. If not, another VFS is between.
    pub fn is_direct(&self) -> bool {
        self.main().is_some_and(|name| owner::is_direct(name, self.prepared.address()))
    }

    /// The database that it is a journal or the WAL of.
    pub fn owner(&self) -> Owner<&dyn File> {
        let file = |address| {
            // SAFETY: a database of ours that is open. Its connection opens this file, so this
            // thread uses both, and closes no file meanwhile.
            unsafe { file_of(std::ptr::with_exposed_provenance_mut(address)) }
        };
        match self.name.map_or(Owner::Unknown, owner::owner_of) {
            Owner::Direct(address) => file(address).map_or(Owner::Unknown, Owner::Direct),
            Owner::Below(address) => file(address).map_or(Owner::Unknown, Owner::Below),
            Owner::Unknown => Owner::Unknown,
        }
    }
}

static VFS: OnceLock<&'static dyn Vfs> = OnceLock::new();

/// Registers the VFS and fixes what `facts` says, once in a process. Returns SQLite's result code.
pub fn register(api: Api, vfs: &'static dyn Vfs, facts: impl FnOnce(&Api) -> Facts) -> c_int {
    let Some(below) = api.find_vfs(None) else { return SQLITE_ERROR };
    let Facts { knows_batches, begins_syncing } = facts(&api);
    if !load(Loaded { api, below, knows_batches, begins_syncing }) {
        return SQLITE_OK;
    }
    let _ = VFS.set(vfs);
    api.register_vfs(Below::new(Box::leak(Box::new(table(below)))), false)
}

/// What is known of this SQLite.
#[derive(Clone, Copy)]
pub struct Facts {
    /// Whether it was built to write without a journal.
    pub knows_batches: bool,
    /// Whether its connections sync before a program sets `synchronous`.
    pub begins_syncing: bool,
}

/// Makes the registered VFS the default one, which SQLite uses if a program names none.
pub fn make_default(api: &Api) -> c_int {
    api.find_vfs(Some(NAME)).map_or(SQLITE_ERROR, |vfs| api.register_vfs(vfs, true))
}

/// Removes a file through the VFS below. Returns SQLite's result code.
pub fn delete_below(name: Text<'_>, sync: c_int) -> c_int {
    let below = loaded().below.as_ptr();
    // SAFETY: a method of the registered VFS below, with a string.
    unsafe { ((*below).xDelete.expect("every VFS can delete"))(below, name, sync) }
}

fn vfs() -> &'static dyn Vfs {
    *VFS.get().expect("it is set before the VFS is registered")
}

unsafe extern "C" fn open(
    _vfs: *mut sqlite3_vfs,
    name: Option<Name<'_>>,
    object: *mut sqlite3_file,
    flags: c_int,
    out_flags: Option<&mut c_int>,
) -> c_int {
    // SAFETY: SQLite's arguments. After an error the file is ended below.
    let prepared = unsafe { Prepared::new(object, name) };
    let opening = Opening { prepared, name, flags, found_flags: Cell::new(flags) };
    let file = match guard(Err(SQLITE_CANTOPEN), || vfs().open(&opening)) {
        Ok(file) => file,
        Err(code) => {
            let _ = opening.real().end();
            return code;
        }
    };
    if let Some(out_flags) = out_flags {
        *out_flags = opening.found_flags.get();
    }
    let main = name.filter(|_| opening.main().is_some());
    opening.prepared.begin(file, main);
    SQLITE_OK
}

extern "C" fn delete(_vfs: *mut sqlite3_vfs, name: Text<'_>, sync: c_int) -> c_int {
    guard(SQLITE_IOERR, || vfs().delete(name, sync))
}

/// Makes methods that pass a call on to the VFS below without a change, and the VFS of them.
macro_rules! pass {
    ($($name:ident = $method:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?,
       $otherwise:expr;)*) => {
        $(
            unsafe extern "C" fn $name(
                _vfs: *mut sqlite3_vfs,
                $($argument: $type),*
            ) $(-> $result)? {
                let below = loaded().below.as_ptr();
                // SAFETY: a method of the registered VFS below, with SQLite's own arguments.
                unsafe {
                    match (*below).$method {
                        Some(method) => method(below, $($argument),*),
                        None => $otherwise,
                    }
                }
            }
        )*

        /// The VFS, for SQLite.
        fn table(below: Below) -> sqlite3_vfs {
            let numbers = below.numbers();
            sqlite3_vfs {
                iVersion: numbers.version.min(3),
                szOsFile: file::object_bytes(numbers.object_bytes),
                mxPathname: numbers.path_bytes,
                pNext: std::ptr::null_mut(),
                zName: NAME.as_ptr(),
                pAppData: std::ptr::null_mut(),
                xOpen: Some(open),
                xDelete: Some(delete),
                $($method: Some($name),)*
            }
        }
    };
}

pass! {
    access = xAccess(name: *const c_char, flags: c_int, out: *mut c_int) -> c_int, SQLITE_IOERR;
    full_pathname = xFullPathname(
        name: *const c_char, count: c_int, out: *mut c_char
    ) -> c_int, SQLITE_CANTOPEN;
    dl_open = xDlOpen(name: *const c_char) -> *mut c_void, std::ptr::null_mut();
    dl_error = xDlError(count: c_int, out: *mut c_char), ();
    dl_sym = xDlSym(handle: *mut c_void, name: *const c_char) -> Option<DlSym>, None;
    dl_close = xDlClose(handle: *mut c_void), ();
    randomness = xRandomness(count: c_int, out: *mut c_char) -> c_int, 0;
    sleep = xSleep(microseconds: c_int) -> c_int, 0;
    current_time = xCurrentTime(out: *mut f64) -> c_int, SQLITE_ERROR;
    get_last_error = xGetLastError(count: c_int, out: *mut c_char) -> c_int, 0;
    current_time_int64 = xCurrentTimeInt64(out: *mut i64) -> c_int, SQLITE_ERROR;
    set_system_call = xSetSystemCall(
        name: *const c_char, call: Option<Syscall>
    ) -> c_int, SQLITE_NOTFOUND;
    get_system_call = xGetSystemCall(name: *const c_char) -> Option<Syscall>, None;
    next_system_call = xNextSystemCall(name: *const c_char) -> *const c_char, std::ptr::null();
}
