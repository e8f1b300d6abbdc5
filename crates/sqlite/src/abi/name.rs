//! The names of SQLite's files, and names that the extension makes for its own files.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;

use super::loaded::loaded;
use super::text::Name;

impl Name<'_> {
    /// A parameter of a database's URI.
    pub(super) fn parameter(self, key: &str) -> Option<String> {
        let key = CString::new(key).expect("a constant");
        let value = (loaded().api.functions.uri_parameter)(self, key.as_c_str().into());
        value.map(|value| value.owned())
    }

    /// The names of a database's parameters.
    pub(super) fn parameter_names(self) -> Vec<String> {
        let key = loaded().api.functions.uri_key;
        (0..).map_while(|index| key(self, index)).map(|key| key.owned()).collect()
    }

    /// Whether SQLite derives the names of the journal and the WAL from the database's name. If
    /// not, the extension cannot tell which files belong to the database.
    pub(super) fn has_journals(self) -> bool {
        let functions = &loaded().api.functions;
        let bytes = |name: Name<'_>| name.path().as_os_str().as_bytes().to_owned();
        let name = bytes(self);
        let ends_with = |other: Option<Name<'_>>, end: &[u8]| {
            other.map(bytes).unwrap_or_default().strip_prefix(&*name) == Some(end)
        };
        ends_with((functions.filename_journal)(self), b"-journal")
            && ends_with((functions.filename_wal)(self), b"-wal")
    }
}

/// The names of a database, its journal and its WAL, made by the extension. They are in memory as
/// SQLite lays them out: a VFS may go from one name to the others.
pub(super) struct OwnName(Name<'static>);

// SAFETY: memory of SQLite's allocator, which any thread may use and free (promise 6).
unsafe impl Send for OwnName {}

impl OwnName {
    /// The names of the database at `main`. `None`: there is no memory.
    pub(super) fn new(main: &CStr) -> Option<OwnName> {
        let [journal, wal] = [&b"-journal"[..], b"-wal"].map(|end| {
            CString::new([main.to_bytes(), end].concat()).expect("neither part has a zero")
        });
        let (create, journal, wal) =
            (loaded().api.functions.create_filename, journal.as_c_str(), wal.as_c_str());
        // SAFETY: three strings, and no parameters. The name stays until it is freed in `drop`.
        unsafe { create(main.into(), journal.into(), wal.into(), 0, null()) }.map(OwnName)
    }

    /// The name of the database, or of its WAL.
    pub(super) fn name(&self, is_wal: bool) -> Option<Name<'_>> {
        if is_wal { (loaded().api.functions.filename_wal)(self.0) } else { Some(self.0) }
    }
}

impl Drop for OwnName {
    fn drop(&mut self) {
        // SAFETY: made by `create_filename`, and freed only here.
        unsafe { (loaded().api.functions.free_filename)(self.0) }
    }
}
