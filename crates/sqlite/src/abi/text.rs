//! Strings of C, as types that keep what SQLite promises of them. A function that takes one can be
//! called without a proof.

use std::ffi::{CStr, OsStr, c_char};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// A string that ends with a zero and stays for `'a`. In C it is a pointer that is not null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Text<'a>(NonNull<c_char>, PhantomData<&'a CStr>);

impl<'a> Text<'a> {
    /// The bytes before the zero.
    pub fn bytes(self) -> &'a [u8] {
        // SAFETY: it is made of a `CStr`, or comes from SQLite as a string (promise 3).
        unsafe { CStr::from_ptr(self.0.as_ptr()) }.to_bytes()
    }

    /// The string as a path.
    pub fn path(self) -> &'a Path {
        Path::new(OsStr::from_bytes(self.bytes()))
    }

    pub(super) fn owned(self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    pub(super) fn as_ptr(self) -> *const c_char {
        self.0.as_ptr()
    }
}

impl<'a> From<&'a CStr> for Text<'a> {
    fn from(text: &'a CStr) -> Text<'a> {
        Text(NonNull::from(text).cast(), PhantomData)
    }
}

/// A file's name as `xOpen` gets it (promise 4). SQLite stores the names of a database, its
/// rollback journal and its WAL together, with the parameters of the URI.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Name<'a>(Text<'a>);

impl<'a> Name<'a> {
    /// `None`: the file has no name.
    ///
    /// # Safety
    /// `name` is null, or a name that SQLite made and that stays for `'a`.
    pub(super) unsafe fn from_ptr(name: *const c_char) -> Option<Name<'a>> {
        NonNull::new(name.cast_mut()).map(|name| Name(Text(name, PhantomData)))
    }

    /// The file's path.
    pub(super) fn path(self) -> &'a Path {
        self.0.path()
    }

    pub(super) fn as_ptr(self) -> *const c_char {
        self.0.as_ptr()
    }
}
