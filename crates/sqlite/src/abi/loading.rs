//! SQLite's call of an extension's entry.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use super::ffi::*;
use super::functions::{SqlFunction, call};
use super::handles::Db;
use super::loaded::loaded;
use super::table::{Api, Entry, Function};
use super::text::Text;

/// A call of an extension's entry, for a connection.
pub struct Loading<'a> {
    api: Api,
    connection: Db,
    /// A place for a message.
    message: Option<&'a mut *mut c_char>,
}

impl<'a> Loading<'a> {
    /// `None`: SQLite is too old.
    ///
    /// # Safety
    /// SQLite's arguments of an extension's entry. The value is used during that call.
    pub unsafe fn new(
        connection: *mut sqlite3,
        message: *mut *mut c_char,
        table: *const c_void,
    ) -> Option<Loading<'a>> {
        // SAFETY: an open connection, a place for a message or null, and SQLite's table.
        unsafe {
            let (connection, message) = (Db::from_ptr(connection)?, message.as_mut());
            Some(Loading { api: Api::from_table(table)?, connection, message })
        }
    }

    /// The call for a connection that is opened after the extension was loaded. SQLite may give it
    /// no table.
    pub fn later(connection: Db, message: Option<&'a mut *mut c_char>) -> Loading<'a> {
        Loading { api: loaded().api, connection, message }
    }

    /// SQLite's functions.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The name of the connection's database. Empty: it is in memory, or not there.
    pub fn database_name(&self) -> Vec<u8> {
        let name = (self.api.functions.db_filename)(self.connection, c"main".into());
        name.map_or(Vec::new(), |name| name.bytes().to_owned())
    }

    /// Sets the message that goes with an error.
    pub fn say(&mut self, text: &CStr) {
        let copy = self.api.copy(text);
        if let Some(message) = &mut self.message {
            **message = copy;
        }
    }

    /// Has SQLite call `entry` for every connection that is opened later.
    pub fn load_later(&self, entry: Entry) -> c_int {
        (self.api.functions.auto_extension)(Some(entry))
    }

    /// Adds a function to the connection, which may have it. Returns SQLite's result code.
    pub fn add<F: SqlFunction>(&self) -> c_int {
        let flags = SQLITE_UTF8 | if F::IS_DIRECT_ONLY { SQLITE_DIRECTONLY } else { 0 };
        let (name, function): (Text<'_>, Function) = (F::NAME.into(), call::<F>);
        let (create, data) = (self.api.functions.create_function_v2, null_mut());
        // SAFETY: the function has no arguments and no data, and stays: the library is never
        // unloaded.
        let rc = unsafe {
            create(self.connection, name, 0, flags, data, Some(function), None, None, None)
        };
        // It has the function already, and a statement runs: `SELECT load_extension(...)` once
        // more.
        if rc == SQLITE_BUSY { SQLITE_OK } else { rc }
    }
}
