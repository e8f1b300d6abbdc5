//! Finds the database that a journal or a WAL belongs to, by its name.
//!
//! SQLite passes names to `xOpen` that are stored together: those of a database, its rollback
//! journal and its WAL. `sqlite3_filename_database` leads from each of them to the database's name.
//! A VFS over this one may pass names on, or make its own with `sqlite3_create_filename`. With
//! names of its own `sqlite3_database_file_object` would follow a wild pointer. So it is called
//! only for names that SQLite's pager made:
//!
//! | the name of the journal or WAL leads to | its owner |
//! |---|---|
//! | the name of an open database of ours, made by the pager, and SQLite's file is ours | [`Owner::Direct`]: no VFS is between SQLite and us |
//! | such a name, but SQLite's file is another VFS's, or the pager did not make the name | [`Owner::Below`]: another VFS passes on what SQLite does |
//! | another name | [`Owner::Unknown`]: another VFS opens files as it likes (multiplex) |
//!
//! The pager stores a pointer to itself before its names. Its own memory comes before that pointer,
//! with the file in it. The memory before a name of `sqlite3_create_filename` may not be readable,
//! so it is read through the kernel, which answers with an error. A SQLite with another layout
//! would be taken for [`Owner::Below`]. That is safe: its WAL is synced as without the extension.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::fs::File as SystemFile;
use std::os::unix::fs::FileExt;

use device::sync::Mutex;

use crate::real::loaded::loaded;
use crate::vfs::file::File;

/// The database that a journal or WAL belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The owner is this database, which SQLite itself uses.
    Direct(*mut File),
    /// The owner is this database, which another VFS uses.
    Below(*mut File),
    /// The owner is no known database.
    Unknown,
}

/// The address of a database's file, and what is known of its name.
#[derive(Clone, Copy)]
struct Main {
    file: usize,
    is_of_pager: bool,
}

/// Open databases by the address of their name. A forked process has a copy of its parent's table,
/// but never passes names of the parent to it.
static MAINS: Mutex<Option<HashMap<usize, Main>>> = Mutex::new(None);

/// Bytes before a name that the pager made: some zeros, and before them the pointer.
const PREFIX_BYTES: usize = 4;
/// Upper bound for the bytes of the pager's memory before its names.
const PAGER_BYTES_MAX: usize = 64 << 10;

/// Records that the database with this name is open in `file`.
pub fn opened(name: *const c_char, file: *mut File) {
    let main = Main { file: file.addr(), is_of_pager: is_of_pager(name, file) };
    // The addresses become pointers again in `owner_of`.
    let _ = file.expose_provenance();
    MAINS.lock().get_or_insert_default().insert(name.addr(), main);
}

/// Records that `file` is closed.
pub fn closed(file: *mut File) {
    if let Some(mains) = &mut *MAINS.lock() {
        mains.retain(|_, main| main.file != file.addr());
    }
}

/// The database that the journal or WAL with this name belongs to.
///
/// # Safety
/// The name of a journal or WAL as `xOpen` gets it.
pub unsafe fn owner_of(name: *const c_char) -> Owner {
    // SAFETY: good for every name that `xOpen` gets, also of `sqlite3_create_filename`.
    let database = unsafe { (loaded().api.filename_database)(name) };
    let main = MAINS.lock().as_ref().and_then(|mains| mains.get(&database.addr()).copied());
    let Some(main) = main else { return Owner::Unknown };
    let file: *mut File = std::ptr::with_exposed_provenance_mut(main.file);
    // SAFETY: the name is one of the pager's, if the database's is.
    let is_direct = main.is_of_pager && unsafe { is_top(name, file) };
    if is_direct { Owner::Direct(file) } else { Owner::Below(file) }
}

/// Whether SQLite itself opens the database with this name in `file`. If not, another VFS is
/// between.
pub fn is_direct(name: *const c_char, file: *mut File) -> bool {
    // SAFETY: the pager made the name.
    is_of_pager(name, file) && unsafe { is_top(name, file) }
}

/// Whether `file` is the database file of the pager that made the name.
///
/// # Safety
/// The pager made the name, of a database, a journal or a WAL.
unsafe fn is_top(name: *const c_char, file: *mut File) -> bool {
    // SAFETY: the caller's promise.
    let top = unsafe { (loaded().api.database_file_object)(name) };
    top.addr() == file.addr()
}

/// Whether SQLite derives the names of the journal and the WAL from the database's name. If not,
/// the extension cannot tell which files belong to the database.
///
/// # Safety
/// The name of a database as `xOpen` gets it.
pub unsafe fn has_journals(name: *const c_char) -> bool {
    let api = &loaded().api;
    // SAFETY: the caller's promise; SQLite's names end with a zero.
    let [name, journal, wal] = unsafe {
        [name, (api.filename_journal)(name), (api.filename_wal)(name)].map(|it| {
            match it.is_null() {
                true => &[][..],
                false => CStr::from_ptr(it).to_bytes(),
            }
        })
    };
    journal.strip_prefix(name) == Some(b"-journal") && wal.strip_prefix(name) == Some(b"-wal")
}

/// Whether the pager made the name. If so, a pointer before the name leads to memory that contains
/// the file.
fn is_of_pager(name: *const c_char, file: *mut File) -> bool {
    const POINTER_BYTES: usize = size_of::<usize>();
    let mut before = [0; POINTER_BYTES + PREFIX_BYTES];
    let at = name.addr().saturating_sub(before.len());
    let read = SystemFile::open("/proc/self/mem").and_then(|memory| {
        memory.read_exact_at(&mut before, u64::try_from(at).expect("64 bits at most"))
    });
    let (pointer, zeros) = before.split_at(POINTER_BYTES);
    let pager = usize::from_ne_bytes(pointer.try_into().expect("its size"));
    let is_before =
        |address: usize| address < name.addr() && name.addr() - address < PAGER_BYTES_MAX;
    read.is_ok()
        && zeros == [0; PREFIX_BYTES]
        && is_before(pager)
        && pager < file.addr()
        && is_before(file.addr())
}
