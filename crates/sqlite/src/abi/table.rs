//! SQLite's functions, from the table that an extension's entry gets.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::ffi::*;
use super::handles::{Below, Context, Db};
use super::text::{Name, Text};

/// The entry point of an extension: a connection, the place for a message, and SQLite's table.
pub type Entry = c_fn!((Db, Option<&mut *mut c_char>, *const c_void) -> c_int);
/// A function of SQL: the call, the number of arguments, and the arguments.
pub type Function = c_fn!((Context, c_int, *mut *mut sqlite3_value));
/// A WAL hook: its argument, the connection, the database's name, and the frames in the WAL.
pub type WalHook = c_fn!((*mut c_void, Db, Text<'_>, c_int) -> c_int);
pub type Destructor = c_fn!((*mut c_void));
type Row = c_fn!((*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int);

/// Declares functions, by their index in `sqlite3_api_routines`.
macro_rules! functions {
    (
        $(#[$about:meta])*
        $name:ident { $($(#[$doc:meta])* $field:ident = $index:literal: $type:ty,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub struct $name { $($(#[$doc])* pub(super) $field: $type,)* }

        impl $name {
            /// The functions. `None`: this SQLite was built without one of them.
            ///
            /// # Safety
            /// `table` is SQLite's, of a release that has these indexes.
            unsafe fn from_table(table: *const *const c_void) -> Option<$name> {
                Some($name {
                    $($field: {
                        // SAFETY: the caller promises that the table reaches to this index. It
                        // holds a function of the type of the field (promise 6), or null, which
                        // is `None`.
                        unsafe {
                            let function = *table.add($index);
                            std::mem::transmute::<*const c_void, Option<$type>>(function)
                        }?
                    },)*
                })
            }
        }
    };
}

functions!(
    /// In every release that can load extensions.
    Release { libversion_number = 67: extern "C" fn() -> c_int, }
);

// A function whose arguments say all that it needs is safe to call.
functions!(
    /// The functions that are called in any case.
    Functions {
        mprintf = 69: c_fn!((*const c_char, ...) -> *mut c_char),
        result_text = 85: c_fn!((Context, *const c_char, c_int, Option<Destructor>)),
        vfs_find = 141: extern "C" fn(Option<Text<'_>>) -> Option<Below>,
        vfs_register = 142: extern "C" fn(Below, c_int) -> c_int,
        create_function_v2 = 162: c_fn!((
            Db,
            Text<'_>,
            c_int,
            c_int,
            *mut c_void,
            Option<Function>,
            Option<Function>,
            Option<c_fn!((Context))>,
            Option<Destructor>,
        ) -> c_int),
        log = 167: c_fn!((c_int, *const c_char, ...)),
        /// The result stays until the database is closed. The caller copies it at once.
        db_filename = 180: for<'a> extern "C" fn(Db, Text<'a>) -> Option<Text<'a>>,
        uri_parameter = 189: for<'a> extern "C" fn(Name<'a>, Text<'_>) -> Option<Text<'a>>,
        auto_extension = 192: extern "C" fn(Option<Entry>) -> c_int,
        uri_key = 245: extern "C" fn(Name<'_>, c_int) -> Option<Text<'_>>,
        filename_database = 246: extern "C" fn(Name<'_>) -> *const c_char,
        filename_journal = 247: extern "C" fn(Name<'_>) -> Option<Name<'_>>,
        filename_wal = 248: extern "C" fn(Name<'_>) -> Option<Name<'_>>,
        create_filename = 249: c_fn!((
            Text<'_>,
            Text<'_>,
            Text<'_>,
            c_int,
            *const *const c_char,
        ) -> Option<Name<'static>>),
        free_filename = 250: c_fn!((Name<'_>)),
        /// For names that the pager has made (`owner`).
        database_file_object = 251: c_fn!((Name<'_>) -> *mut sqlite3_file),
    }
);

functions!(
    /// SQLite may be compiled without it.
    Options { compileoption_used = 161: extern "C" fn(Text<'_>) -> c_int, }
);

functions!(
    /// The functions for checkpoints. SQLite may be compiled without a WAL.
    Checkpoints {
        close = 16: c_fn!((Option<Db>) -> c_int),
        exec = 55: c_fn!((
            Db,
            Text<'_>,
            Option<Row>,
            *mut c_void,
            Option<&mut *mut c_char>,
        ) -> c_int),
        file_control = 127: c_fn!((Db, Text<'_>, c_int, *mut c_void) -> c_int),
        open_v2 = 135: extern "C" fn(Text<'_>, &mut Option<Db>, c_int, Option<Text<'_>>) -> c_int,
        db_config = 163: c_fn!((Db, c_int, ...) -> c_int),
        /// Null: SQLite does not let threads share this connection.
        db_mutex = 164: extern "C" fn(Db) -> *mut c_void,
        wal_hook = 175: c_fn!((Db, Option<WalHook>, *mut c_void) -> *mut c_void),
        wal_checkpoint_v2 = 191: extern "C" fn(
            Db,
            Option<Text<'_>>,
            c_int,
            Option<&mut c_int>,
            Option<&mut c_int>,
        ) -> c_int,
    }
);

/// The first release with `sqlite3_database_file_object`.
const VERSION_MIN: c_int = 3_032_000;

/// The functions of SQLite that are called.
#[derive(Clone, Copy)]
pub struct Api {
    pub(super) functions: Functions,
    pub(super) checkpoints: Option<Checkpoints>,
    options: Option<Options>,
}

impl Api {
    /// The functions in the table that SQLite gives to an extension's entry. `None`: the release is
    /// older than [`VERSION_MIN`], or the table lacks a function.
    ///
    /// # Safety
    /// `table` is null or the third argument of an extension's entry, as SQLite passed it.
    pub unsafe fn from_table(table: *const c_void) -> Option<Api> {
        let table = table.cast::<*const c_void>();
        if table.is_null() {
            return None;
        }
        // SAFETY: SQLite's table, by the caller's promise. Every release has the index of the
        // first one. A release that is new enough has all indexes up to that of
        // `database_file_object`, which is the last one here (the table is only ever extended).
        unsafe {
            let release = Release::from_table(table)?;
            if (release.libversion_number)() < VERSION_MIN {
                return None;
            }
            Some(Api {
                functions: Functions::from_table(table)?,
                checkpoints: Checkpoints::from_table(table),
                options: Options::from_table(table),
            })
        }
    }

    /// Whether SQLite was built with this option (`PRAGMA compile_options`). `false` if it does not
    /// say.
    pub fn was_built_with(&self, option: &CStr) -> bool {
        self.options.is_some_and(|it| (it.compileoption_used)(option.into()) != 0)
    }

    /// The registered VFS of this name, or SQLite's default one. `None`: there is none.
    pub(super) fn find_vfs(&self, name: Option<&CStr>) -> Option<Below> {
        (self.functions.vfs_find)(name.map(Text::from))
    }

    /// Registers a VFS. One that is registered only moves. Returns SQLite's result code.
    pub(super) fn register_vfs(&self, vfs: Below, is_default: bool) -> c_int {
        (self.functions.vfs_register)(vfs, c_int::from(is_default))
    }

    /// Writes to SQLite's error log.
    pub fn log(&self, code: c_int, text: &CStr) {
        // SAFETY: the format takes one string, which ends with a zero.
        unsafe { (self.functions.log)(code, c"%s".as_ptr(), text.as_ptr()) };
    }

    /// A copy of the text in SQLite's memory, or null. The caller passes it to a part of SQLite
    /// that frees it.
    pub(super) fn copy(&self, text: &CStr) -> *mut c_char {
        // SAFETY: the format takes one string, which ends with a zero.
        unsafe { (self.functions.mprintf)(c"%s".as_ptr(), text.as_ptr()) }
    }

    /// The two texts with a stroke between them. `other` is one of [`Api::copy`], and is freed.
    pub(super) fn join(&self, text: &CStr, other: *mut c_char) -> *mut c_char {
        // SAFETY: the format takes a string, and one of SQLite's allocator or null, which `%z`
        // frees.
        unsafe { (self.functions.mprintf)(c"%s/%z".as_ptr(), text.as_ptr(), other) }
    }

    /// Whether both are of one copy of SQLite.
    pub(super) fn is_same(&self, other: &Api) -> bool {
        let [one, other] = [self, other].map(|api| api.functions.vfs_register as *const ());
        one.addr() == other.addr()
    }
}
