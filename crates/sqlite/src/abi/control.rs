//! A control that SQLite passes to a file (`xFileControl`), with the argument that belongs to it.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;

use super::ffi::*;
use super::handles::Db;
use super::loaded::{NAME, loaded};
use super::text::Text;

/// A control, during the call of `xFileControl`.
pub struct Control<'a> {
    operation: c_int,
    argument: *mut c_void,
    during: PhantomData<&'a mut c_void>,
}

/// A PRAGMA that a connection was asked to run.
pub struct Pragma<'a> {
    /// Its name as the program wrote it.
    pub name: &'a [u8],
    /// `None`: the PRAGMA asks, and sets nothing.
    pub value: Option<&'a [u8]>,
}

impl<'a> Control<'a> {
    /// Both are arguments of `xFileControl`. The value is used during that call.
    pub(super) fn new(operation: c_int, argument: *mut c_void) -> Control<'a> {
        Control { operation, argument, during: PhantomData }
    }

    pub(super) fn argument(&self) -> *mut c_void {
        self.argument
    }

    /// The argument of `operation`, which has the type `T`. `None`: another one is asked.
    fn of<T: Copy>(&self, operation: c_int) -> Option<&'a Cell<T>> {
        if self.operation != operation {
            return None;
        }
        // SAFETY: SQLite's argument has the type that belongs to the control, here and at the
        // calls of this function, and stays during the call of `xFileControl` (promise 3).
        unsafe { self.argument.cast::<Cell<T>>().as_ref() }
    }

    /// What is asked: one of `SQLITE_FCNTL_`.
    pub fn operation(&self) -> c_int {
        self.operation
    }

    /// Whether it has an argument.
    pub fn has_argument(&self) -> bool {
        !self.argument.is_null()
    }

    /// The size in bytes that `SQLITE_FCNTL_SIZE_HINT` announces.
    pub fn size_hint(&self) -> Option<i64> {
        self.of::<i64>(SQLITE_FCNTL_SIZE_HINT).map(Cell::get)
    }

    /// The PRAGMA of `SQLITE_FCNTL_PRAGMA`.
    pub fn pragma(&self) -> Option<Pragma<'a>> {
        let [_, name, value] = self.of::<[Option<Text<'a>>; 3]>(SQLITE_FCNTL_PRAGMA)?.get();
        Some(Pragma { name: name.map_or(&[], Text::bytes), value: value.map(Text::bytes) })
    }

    /// Sets the message of a PRAGMA that is refused.
    pub fn refuse_pragma(&self, why: &CStr) {
        // The argument begins with a place for a message, which SQLite frees.
        if let Some(message) = self.of::<*mut c_char>(SQLITE_FCNTL_PRAGMA) {
            message.set(loaded().api.copy(why));
        }
    }

    /// The place of the connection that `SQLITE_FCNTL_PDB` tells.
    pub(super) fn place_of_connection(&self) -> Option<*const Option<Db>> {
        self.of::<Option<Db>>(SQLITE_FCNTL_PDB).map(|place| place.as_ptr().cast_const())
    }

    /// Puts the extension's name before that of the VFS below, which `SQLITE_FCNTL_VFSNAME` has
    /// brought.
    pub(super) fn add_name(&self) {
        if let Some(place) = self.of::<*mut c_char>(SQLITE_FCNTL_VFSNAME) {
            place.set(loaded().api.join(NAME, place.get()));
        }
    }
}
