//! The VFS `onejournal`: the VFS below, whose files are wrapped in ours.
//!
//! `xOpen` gives each file its role; `xDelete` makes the removal of a WAL durable and closes the
//! log; all other methods are passed on.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::batch::Connection;
use crate::checkpoint;
use crate::checkpoint::link::Link;
use crate::database::opening::{file_at, opened_at};
use crate::database::{self, Database};
use crate::databases::{enter, find, find_at};
use crate::failure::Failure;
use crate::failure::guard;
use crate::ffi::*;
use crate::messages::{forget, tell};
use crate::real::loaded::{Below, Loaded, is_loaded, load, loaded};
use crate::stream::settings::Settings;
use crate::vfs::file::{self, File, NAME, Role, State};
use crate::vfs::methods::METHODS;
use crate::vfs::names::{self, Owner};
use crate::vfs::parameters;
use crate::vfs::unread_uri;
use crate::volume::file::{Volume, is_on_volume};
use crate::volume::rollback::was_in_memory;
use crate::wal::file::Wal;

/// Makes the registered VFS the default one, which SQLite uses if a program names none.
pub fn make_default(api: Api) -> c_int {
    // SAFETY: the name ends with a zero.
    let vfs = unsafe { (api.vfs_find)(NAME.as_ptr()) };
    if vfs.is_null() {
        return SQLITE_ERROR;
    }
    // SAFETY: registering a registered VFS again only moves it; it is never freed.
    unsafe { (api.vfs_register)(vfs, 1) }
}

/// Registers the VFS, once in a process.
pub fn register(api: Api) -> c_int {
    if is_loaded() {
        return SQLITE_OK;
    }
    // SAFETY: null asks for the default VFS.
    let below = Below(unsafe { (api.vfs_find)(std::ptr::null()) });
    if below.0.is_null() {
        return SQLITE_ERROR;
    }
    let knows_batches = api.compileoption_used.is_some_and(|used| {
        // SAFETY: the name ends with a zero.
        unsafe { used(c"ENABLE_BATCH_ATOMIC_WRITE".as_ptr()) != 0 }
    });
    let begins_syncing = !is_off_by_default(|option| {
        // SAFETY: the name ends with a zero.
        api.compileoption_used.is_some_and(|used| unsafe { used(option.as_ptr()) != 0 })
    });
    if !load(Loaded { api, below, knows_batches, begins_syncing }) {
        return SQLITE_OK;
    }
    // SAFETY: a registered VFS may be read.
    let (version, size, path_bytes) =
        unsafe { ((*below.0).iVersion, (*below.0).szOsFile, (*below.0).mxPathname) };
    let vfs = Box::new(sqlite3_vfs {
        iVersion: version.min(3),
        szOsFile: file::OFFSET as c_int + size,
        mxPathname: path_bytes,
        pNext: std::ptr::null_mut(),
        zName: NAME.as_ptr(),
        pAppData: std::ptr::null_mut(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(dl_open),
        xDlError: Some(dl_error),
        xDlSym: Some(dl_sym),
        xDlClose: Some(dl_close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(get_last_error),
        xCurrentTimeInt64: Some(current_time_int64),
        xSetSystemCall: Some(set_system_call),
        xGetSystemCall: Some(get_system_call),
        xNextSystemCall: Some(next_system_call),
    });
    // SAFETY: it is leaked, so it lives as long as it is registered: for good.
    unsafe { (api.vfs_register)(Box::into_raw(vfs), 0) }
}

/// Whether a SQLite with these options (`PRAGMA compile_options`) begins with `synchronous=OFF`.
/// SQLite takes the lowest three bits of a number. Values of other forms are unknown here, and
/// taken for OFF.
fn is_off_by_default(used: impl Fn(&CStr) -> bool) -> bool {
    let on = [c"DEFAULT_SYNCHRONOUS=1", c"DEFAULT_SYNCHRONOUS=2", c"DEFAULT_SYNCHRONOUS=3"];
    used(c"DEFAULT_SYNCHRONOUS") && !on.into_iter().any(used)
}

/// # Safety
/// `name` ends with a zero.
unsafe fn path_of(name: *const c_char) -> PathBuf {
    // SAFETY: the caller's promise.
    PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

/// # Safety
/// `name` is the name of a database as SQLite passes it to `xOpen`.
unsafe fn parameter(name: *const c_char, key: &str) -> Option<String> {
    let key = CString::new(key).expect("a constant");
    // SAFETY: the caller's promise is what `sqlite3_uri_parameter` needs.
    let value = unsafe { (loaded().api.uri_parameter)(name, key.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: SQLite's strings end with a zero.
    Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
}

/// The names of a database's parameters.
///
/// # Safety
/// As [`parameter`].
unsafe fn parameter_names(name: *const c_char) -> Vec<String> {
    let names = (0..).map_while(|index| {
        // SAFETY: the caller's promise is what `sqlite3_uri_key` needs, which returns null after
        // the last one.
        let key = unsafe { (loaded().api.uri_key)(name, index) };
        // SAFETY: SQLite's strings end with a zero.
        (!key.is_null()).then(|| unsafe { CStr::from_ptr(key) }.to_string_lossy().into_owned())
    });
    names.collect()
}

unsafe extern "C" fn open(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let file = file.cast::<File>();
    // SAFETY: SQLite gives `szOsFile` bytes of memory.
    unsafe { (*file).base.pMethods = std::ptr::null() };
    if flags & SQLITE_OPEN_MAIN_DB != 0 && !checkpoint::is_opening() {
        forget();
        // SAFETY: SQLite's name of a database, or null.
        let rc = guard(SQLITE_CANTOPEN, || unsafe { refuse_unread_uri(name) });
        if rc != SQLITE_OK {
            return rc;
        }
    }
    // SAFETY: the memory is ours.
    unsafe { (*file::real_of(file)).pMethods = std::ptr::null() };
    let mut found_flags = flags;
    // SAFETY: the name is SQLite's, and the file below is not open.
    if let Some(journal) = guard(None, || unsafe { journal_in_memory(name, file, flags) }) {
        if !out_flags.is_null() {
            // SAFETY: SQLite's pointer to a number.
            unsafe { *out_flags = flags };
        }
        // SAFETY: as above.
        unsafe { file::begin(file, Role::Volume(journal).into(), &METHODS) };
        return SQLITE_OK;
    }
    // SAFETY: as above.
    let rc = unsafe { open_below(name, file, flags, &mut found_flags) };
    if rc != SQLITE_OK {
        return rc;
    }
    if !out_flags.is_null() {
        // SAFETY: SQLite's pointer to a number.
        unsafe { *out_flags = found_flags };
    }
    // SAFETY: the name is SQLite's, and the file below is open.
    let state = guard(Err(SQLITE_IOERR), || unsafe {
        let link = link_of(name, file, flags, found_flags)?;
        let role = role_of(name, file, flags, found_flags)?;
        Ok(State { link, ..State::from(role) })
    });
    match state {
        Ok(state) => {
            // SAFETY: the memory is ours, the file below is open.
            unsafe { file::begin(file, state, &METHODS) };
            if flags & SQLITE_OPEN_MAIN_DB != 0 && !name.is_null() {
                guard((), || names::opened(name, file));
            }
            SQLITE_OK
        }
        Err(code) => {
            // SAFETY: the file below is open, and SQLite has not got it.
            let _ = unsafe { file::close_real(file) };
            code
        }
    }
}

/// Refuses a database whose name is a URI. Returns SQLite's result code.
///
/// # Safety
/// `name` is null or ends with a zero.
unsafe fn refuse_unread_uri(name: *const c_char) -> c_int {
    if name.is_null() {
        return SQLITE_OK;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { path_of(name) };
    if !unread_uri::is_one(path.as_os_str().as_bytes()) {
        return SQLITE_OK;
    }
    let refusal = unread_uri::refusal(&path);
    let code = refusal.code(SQLITE_CANTOPEN);
    tell(code, &refusal.to_string());
    code
}

/// Opens the file below. Returns SQLite's result code. After a failure it is not open.
///
/// # Safety
/// `name` is a name or null as SQLite passes it to `xOpen`, `file` has SQLite's memory for it, and
/// the file below is not open.
unsafe fn open_below(
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    found_flags: &mut c_int,
) -> c_int {
    let below = loaded().below.0;
    // SAFETY: the file below is in the same memory, with room for what its VFS asked for; the name
    // is passed on as it came.
    let rc = unsafe {
        let open = (*below).xOpen.expect("every VFS can open");
        open(below, name, file::real_of(file), flags, found_flags)
    };
    if rc != SQLITE_OK {
        // A VFS that failed may have left a file that has to be closed. Its failure is reported.
        // SAFETY: the caller's promise.
        let _ = unsafe { file::close_real(file) };
    }
    rc
}

/// The rollback journal that SQLite opens for a transaction, if it may be in memory. Any journal
/// that exists is none to roll back: SQLite looked when it took the shared lock, and has the lock
/// for writing now.
///
/// # Safety
/// As [`open_below`].
unsafe fn journal_in_memory(name: *const c_char, file: *mut File, flags: c_int) -> Option<Volume> {
    const WANTED: c_int = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    if name.is_null() || flags & WANTED != WANTED {
        return None;
    }
    // SAFETY: the name of a journal, by the flag.
    let Owner::Direct(main) = (unsafe { names::owner_of(name) }) else { return None };
    // SAFETY: the same connection's database is open.
    let on_volume = unsafe { file::volume_of(main) }?;
    // SAFETY: as above.
    let path = unsafe { path_of(name) };
    let open = move || {
        let mut found_flags = flags;
        // SAFETY: called while the journal is open, so the memory is SQLite's for it; the pager
        // keeps its name as long as the database is open. After a failure the file below is closed
        // again.
        let code = unsafe {
            let _ = file::close_real(file);
            open_below(name, file, flags, &mut found_flags)
        };
        match code {
            // SAFETY: it is open until `close`, which takes this away again first.
            SQLITE_OK => Ok(unsafe { file::real_file(file) }),
            code => Err(Failure::Sqlite { code, what: "opening" }),
        }
    };
    on_volume.journal_in_memory(path, Box::new(open))
}

/// The link of a database whose checkpoints are made in the background.
///
/// # Safety
/// As [`role_of`].
unsafe fn link_of(
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    found_flags: c_int,
) -> Result<Option<Link>, c_int> {
    if name.is_null() || flags & SQLITE_OPEN_MAIN_DB == 0 || checkpoint::is_opening() {
        return Ok(None);
    }
    // SAFETY: the name of a database, by the flag.
    let value = unsafe { parameter(name, "checkpoint") };
    let is_wanted = parameters::is_in_background(value.as_deref()).map_err(|e| {
        tell(e.code(SQLITE_CANTOPEN), &e.to_string());
        e.code(SQLITE_CANTOPEN)
    })?;
    // With another VFS over this one, an own connection would not see what that VFS makes of the
    // bytes.
    let is_fit = found_flags & SQLITE_OPEN_READWRITE != 0 && names::is_direct(name, file);
    // SAFETY: the name of a database, by the flag.
    Ok((is_wanted && is_fit).then(|| Link::new(&unsafe { path_of(name) })))
}

/// The role of a file for the extension.
///
/// # Safety
/// `name` is a name or null as SQLite passes it to `xOpen`, `file` a file whose file below is open.
unsafe fn role_of(
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    found_flags: c_int,
) -> Result<Role, c_int> {
    let report = |e: &Failure| {
        let code = e.code(SQLITE_CANTOPEN);
        tell(code, &e.to_string());
        code
    };
    let kinds = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL;
    if name.is_null() || flags & kinds == 0 {
        return Ok(Role::Other);
    }
    let is_writable = found_flags & SQLITE_OPEN_READWRITE != 0;
    // SAFETY: the caller's promise.
    let path = unsafe { path_of(name) };
    if flags & SQLITE_OPEN_MAIN_DB != 0 && checkpoint::is_opening() {
        // SAFETY: it is open, and this thread opens it.
        let file = file_at(&path, unsafe { file::real_file(file) }).map_err(|e| report(&e))?;
        if let Some(database) = find(&file) {
            return Ok(Role::Main(Connection::own(database)));
        }
    }
    if flags & SQLITE_OPEN_MAIN_DB != 0 {
        // SAFETY: the name of a database, by the flag.
        let find = |key: &str| unsafe { parameter(name, key) };
        let settings = match names::is_direct(name, file) {
            // SAFETY: as above.
            true => parameters::check(unsafe { parameter_names(name) }),
            // The VFS over this one has parameters of its own.
            false => Ok(()),
        }
        .and_then(|()| Settings::new(&path, find));
        let mut settings = settings.map_err(|e| report(&e))?;
        if !settings.is_named && !settings.exists() && is_on_volume(&path) {
            // SAFETY: it is open, and this thread opens it.
            let real = unsafe { file::real_file(file) };
            return Ok(Role::Volume(Volume::main(&path, real, is_writable)));
        }
        // SAFETY: it is open, and this thread opens it.
        let real = unsafe { file::real_file(file) };
        let (id, owner) = opened_at(&path, real).map_err(|e| report(&e))?;
        settings.owner = owner;
        let database = enter(path, id, settings).map_err(|e| report(&e))?;
        return match database.find_log(real, is_writable) {
            Ok(()) => {
                database.has_writers.fetch_or(is_writable, Ordering::Relaxed);
                // SAFETY: the name of a database, by the flag.
                let has_journals = unsafe { names::has_journals(name) };
                Ok(Role::Main(Connection::new(database, is_writable, has_journals)))
            }
            Err(e) => {
                database::went(&database);
                Err(report(&e))
            }
        };
    }
    // SAFETY: the name of a WAL or journal as SQLite passes it to `xOpen`.
    let owner = unsafe { names::owner_of(name) };
    let (Owner::Direct(main) | Owner::Below(main)) = owner else { return Ok(Role::Other) };
    let is_direct = owner == Owner::Direct(main);
    // SAFETY: the same connection's database is open.
    if let Some(on_volume) = unsafe { file::volume_of(main) }.filter(|_| is_direct) {
        return match flags & SQLITE_OPEN_WAL {
            0 if is_writable => {
                // SAFETY: it is open until `close`, which takes this away again first.
                let journal = unsafe { file::real_file(file) };
                let journal = on_volume.journal(&path, journal);
                journal.map(|journal| journal.map_or(Role::Other, Role::Volume))
            }
            0 => Ok(Role::Other),
            _ => {
                // SAFETY: it is open until `close`, which takes this away again first.
                let wal = unsafe { file::real_file(file) };
                Ok(Role::Volume(on_volume.wal(&path, wal, is_writable)))
            }
        }
        .map_err(|e| report(&e));
    }
    if flags & SQLITE_OPEN_WAL == 0 {
        // SAFETY: as above; no other reference to it exists in this call.
        return Ok(match unsafe { file::connection_of(main) } {
            Some(connection) if is_writable => {
                // SAFETY: it is open until `close`, which takes this away again.
                let journal = unsafe { file::real_file(file) };
                connection.open_journal(journal).map_err(|e| report(&e))?;
                Role::Journal(main)
            }
            _ => Role::Other,
        });
    }
    // Another VFS may change SQLite's frames or write them twice. Such a WAL is synced as without
    // the extension.
    if !is_direct {
        return Ok(Role::Other);
    }
    // SAFETY: the same connection's database is open, and no other reference to it is used in this
    // call.
    let connection = unsafe { file::connection_of(main) };
    let Some(database) = connection.map(|it| it.database.clone()) else {
        return Ok(Role::Other);
    };
    if is_writable {
        // SAFETY: the same connection's database is open.
        let real = unsafe { file::real_file(main) };
        let opened = database.open_log(real, true).and_then(|_| database.release(real));
        opened.map_err(|e| report(&e))?;
    }
    Ok(Role::Wal(Wal::new(database), main))
}

unsafe extern "C" fn delete(_vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    let below = loaded().below.0;
    let find = |suffix: &[u8]| {
        // SAFETY: SQLite's names end with a zero.
        let path = unsafe { path_of(name) };
        let main = path.as_os_str().as_bytes().strip_suffix(suffix)?;
        find_at(Path::new(OsStr::from_bytes(main)))
    };
    let database = guard(None, || find(b"-wal").filter(|it| it.logs_wal()));
    let in_memory = guard(Err(Failure::Sqlite { code: SQLITE_IOERR, what: "removing" }), || {
        // SAFETY: SQLite's names end with a zero.
        was_in_memory(&unsafe { path_of(name) })
    });
    let is_in_memory = match in_memory {
        Ok(is_in_memory) => is_in_memory,
        Err(e) => return e.code(SQLITE_IOERR),
    };
    let has_batches = |database: Arc<Database>| database.has_batches.load(Ordering::Relaxed);
    // A journal that comes back would undo what follows it in the log.
    let is_rare = guard(false, || find(b"-journal").is_some_and(has_batches));
    let sync = if database.is_some() || is_rare { 1 } else { sync };
    // SAFETY: passed on as it came. The removal of a WAL is made durable, because the log forgets
    // it next and its content on the disk may be an old one.
    let rc = unsafe { ((*below).xDelete.expect("every VFS can delete"))(below, name, sync) };
    // An empty one of another program may have been there.
    if is_in_memory && rc == SQLITE_IOERR_DELETE_NOENT {
        return SQLITE_OK;
    }
    if rc == SQLITE_OK
        && let Some(database) = database
    {
        return guard(SQLITE_IOERR, || match database.wal_removed() {
            Ok(()) => SQLITE_OK,
            Err(e) => {
                tell(
                    SQLITE_WARNING,
                    &format!("closing the log of {}: {e}", database.path.display()),
                );
                SQLITE_OK
            }
        });
    }
    rc
}

/// Passes a call on to the VFS below without a change.
macro_rules! pass {
    ($name:ident, $method:ident, ($($argument:ident: $type:ty),*) -> $result:ty, $default:expr) => {
        unsafe extern "C" fn $name(_vfs: *mut sqlite3_vfs, $($argument: $type),*) -> $result {
            let below = loaded().below.0;
            // SAFETY: a method of the registered VFS below, with SQLite's own arguments.
            unsafe {
                match (*below).$method {
                    Some(method) => method(below, $($argument),*),
                    None => $default,
                }
            }
        }
    };
}

pass!(access, xAccess, (name: *const c_char, flags: c_int, out: *mut c_int) -> c_int, SQLITE_IOERR);
pass!(
    full_pathname,
    xFullPathname,
    (name: *const c_char, count: c_int, out: *mut c_char) -> c_int,
    SQLITE_CANTOPEN
);
pass!(dl_open, xDlOpen, (name: *const c_char) -> *mut c_void, std::ptr::null_mut());
pass!(dl_error, xDlError, (count: c_int, out: *mut c_char) -> (), ());
pass!(dl_sym, xDlSym, (handle: *mut c_void, name: *const c_char) -> Option<DlSym>, None);
pass!(dl_close, xDlClose, (handle: *mut c_void) -> (), ());
pass!(randomness, xRandomness, (count: c_int, out: *mut c_char) -> c_int, 0);
pass!(sleep, xSleep, (microseconds: c_int) -> c_int, 0);
pass!(current_time, xCurrentTime, (out: *mut f64) -> c_int, SQLITE_ERROR);
pass!(get_last_error, xGetLastError, (count: c_int, out: *mut c_char) -> c_int, 0);
pass!(current_time_int64, xCurrentTimeInt64, (out: *mut i64) -> c_int, SQLITE_ERROR);
pass!(
    set_system_call,
    xSetSystemCall,
    (name: *const c_char, call: Option<Syscall>) -> c_int,
    SQLITE_NOTFOUND
);
pass!(get_system_call, xGetSystemCall, (name: *const c_char) -> Option<Syscall>, None);
pass!(next_system_call, xNextSystemCall, (name: *const c_char) -> *const c_char, std::ptr::null());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlite_that_was_built_to_be_off() {
        // As `sqlite3_compileoption_used`: a name that goes on with no letter, digit or underscore
        // is it.
        let is_off = |built: &[&str]| {
            is_off_by_default(|option| {
                let option = option.to_str().expect("text");
                let is_it = |built: &&str| {
                    let rest = built.strip_prefix(option);
                    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
                };
                built.iter().any(is_it)
            })
        };
        assert!(is_off(&["DEFAULT_SYNCHRONOUS=0", "DEFAULT_WAL_SYNCHRONOUS=2"]));
        assert!(is_off(&["DEFAULT_SYNCHRONOUS=OFF"]) && is_off(&["DEFAULT_SYNCHRONOUS=8"]));
        for level in ["DEFAULT_SYNCHRONOUS=1", "DEFAULT_SYNCHRONOUS=2", "DEFAULT_SYNCHRONOUS=3"] {
            assert!(!is_off(&[level, "DEFAULT_WAL_SYNCHRONOUS=0"]), "{level}");
        }
        assert!(!is_off(&[]) && !is_off(&["DEFAULT_WAL_SYNCHRONOUS=0"]));
    }
}
