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
use std::fs::File as SystemFile;
use std::os::unix::fs::FileExt;

use device::sync::Mutex;

use super::loaded::loaded;
use super::text::Name;

/// The database that a journal or WAL belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner<F> {
    /// The owner is this database, which SQLite itself uses.
    Direct(F),
    /// The owner is this database, which another VFS uses.
    Below(F),
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

/// Records that the database with this name is open in the file at this address.
pub(super) fn opened(name: Name<'_>, file: usize) {
    let main = Main { file, is_of_pager: is_of_pager(name, file) };
    MAINS.lock().get_or_insert_default().insert(name.as_ptr().addr(), main);
}

/// Records that the file at this address is closed.
pub(super) fn closed(file: usize) {
    if let Some(mains) = &mut *MAINS.lock() {
        mains.retain(|_, main| main.file != file);
    }
}

/// The address of the database that the journal or WAL with this name belongs to. The database is
/// open.
pub(super) fn owner_of(name: Name<'_>) -> Owner<usize> {
    let database = (loaded().api.functions.filename_database)(name).addr();
    let main = MAINS.lock().as_ref().and_then(|mains| mains.get(&database).copied());
    let Some(main) = main else { return Owner::Unknown };
    // The pager made this name, if it made the database's.
    if is_top(name, main) { Owner::Direct(main.file) } else { Owner::Below(main.file) }
}

/// Whether SQLite itself opens the database with this name in the file at this address. If not,
/// another VFS is between.
pub(super) fn is_direct(name: Name<'_>, file: usize) -> bool {
    is_top(name, Main { file, is_of_pager: is_of_pager(name, file) })
}

/// Whether the pager made the name, and the database is its database file.
fn is_top(name: Name<'_>, main: Main) -> bool {
    // SAFETY: the pager made the name. So its address is before its names, and it has the file.
    let top = || unsafe { (loaded().api.functions.database_file_object)(name) };
    main.is_of_pager && top().addr() == main.file
}

/// Whether the pager made the name. If so, a pointer before the name leads to memory that contains
/// the file.
fn is_of_pager(name: Name<'_>, file: usize) -> bool {
    const POINTER_BYTES: usize = size_of::<usize>();
    let name = name.as_ptr().addr();
    let mut before = [0; POINTER_BYTES + PREFIX_BYTES];
    let at = name.saturating_sub(before.len());
    let read = SystemFile::open("/proc/self/mem").and_then(|memory| {
        memory.read_exact_at(&mut before, u64::try_from(at).expect("64 bits at most"))
    });
    let (pointer, zeros) = before.split_at(POINTER_BYTES);
    let pager = usize::from_ne_bytes(pointer.try_into().expect("its size"));
    let is_before = |address: usize| address < name && name - address < PAGER_BYTES_MAX;
    read.is_ok()
        && zeros == [0; PREFIX_BYTES]
        && is_before(pager)
        && pager < file
        && is_before(file)
}
