//! The entry points of the extension: SQLite calls one of them when it loads the library.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::abi::ffi::*;
use crate::abi::guard::guard;
use crate::abi::handles::Db;
use crate::abi::loaded::is_of_another_sqlite;
use crate::abi::loading::Loading;
use crate::abi::vfs::make_default;
use crate::functions;
use crate::vfs::open as vfs;
use crate::vfs::unread_uri;

/// Makes an entry point that SQLite finds by its name.
macro_rules! entry {
    ($(#[$about:meta])* $name:ident: $load:expr) => {
        $(#[$about])*
        ///
        /// # Safety
        /// SQLite's arguments of an extension's entry.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            connection: *mut sqlite3,
            message: *mut *mut c_char,
            table: *const c_void,
        ) -> c_int {
            guard(SQLITE_ERROR, || {
                // SAFETY: SQLite's arguments, during its call.
                let loading = unsafe { Loading::new(connection, message, table) };
                loading.map_or(SQLITE_ERROR, $load)
            })
        }
    };
}

entry!(
    /// The entry that SQLite calls when it loads the extension.
    sqlite3_onejournal_init: load
);
entry!(
    /// The same, under the name that SQLite looks for first.
    sqlite3_extension_init: load
);
entry!(
    /// As [`sqlite3_onejournal_init`], and makes the VFS the default one of the process: databases
    /// that are opened from then on without naming a VFS use it. `SELECT
    /// load_extension('./libonejournal_sqlite', 'sqlite3_onejournal_default_init')` calls it.
    sqlite3_onejournal_default_init: load_as_default
);

/// SQLite calls this for every connection that is opened.
extern "C" fn came(
    connection: Db,
    message: Option<&mut *mut c_char>,
    _table: *const c_void,
) -> c_int {
    guard(SQLITE_ERROR, || {
        let mut loading = Loading::later(connection, message);
        match refuse_unread_uri(&mut loading) {
            SQLITE_OK => functions::add_to(&loading),
            rc => rc,
        }
    })
}

/// Loads the extension into a connection. Returns SQLite's result code.
fn load(mut loading: Loading<'_>) -> c_int {
    if is_of_another_sqlite(loading.api()) {
        loading.say(ANOTHER_SQLITE);
        return SQLITE_ERROR;
    }
    let rc = refuse_unread_uri(&mut loading);
    if rc != SQLITE_OK {
        return rc;
    }
    let rc = vfs::register(*loading.api());
    if rc != SQLITE_OK {
        return rc;
    }
    match (loading.load_later(came), functions::add_to(&loading)) {
        (SQLITE_OK, SQLITE_OK) => SQLITE_OK_LOAD_PERMANENTLY,
        (SQLITE_OK, rc) | (rc, _) => rc,
    }
}

/// The same, and makes the VFS the default one.
fn load_as_default(loading: Loading<'_>) -> c_int {
    let api = *loading.api();
    match load(loading) {
        SQLITE_OK_LOAD_PERMANENTLY => match make_default(&api) {
            SQLITE_OK => SQLITE_OK_LOAD_PERMANENTLY,
            rc => rc,
        },
        rc => rc,
    }
}

/// The message for a second copy of SQLite in the process.
const ANOTHER_SQLITE: &CStr = c"onejournal: another copy of SQLite in this process has loaded the \
    extension already, and it serves one copy only: open all databases with vfs=onejournal through \
    that copy (in Python: through sqlite3 or through apsw, not both)";

/// Refuses a connection to a file whose name is a URI that asks for the extension. Returns SQLite's
/// result code.
fn refuse_unread_uri(loading: &mut Loading<'_>) -> c_int {
    let name = loading.database_name();
    if !unread_uri::asks_for_us(&name) {
        return SQLITE_OK;
    }
    let refusal = unread_uri::refusal(Path::new(OsStr::from_bytes(&name)));
    let code = refusal.code(SQLITE_CANTOPEN);
    let text = CString::new(format!("onejournal: {refusal}")).expect("a name without zeros");
    loading.api().log(code, &text);
    loading.say(&text);
    code
}
