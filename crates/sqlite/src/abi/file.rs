//! The files of the extension: their objects, their methods as SQLite calls them, and the safe
//! trait that the methods call.
//!
//! ```text
//! SQLite's memory:  | Object | the file below |
//!                      |
//!                      +-> State: the file (`dyn File`), and its `Real`
//! ```

use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::sync::Arc;

use super::control::Control;
use super::ffi::*;
use super::guard::guard;
use super::owner;
use super::real::Real;
use super::text::Name;

/// A file of the extension. A method that is not given passes the call on to the file below. Each
/// returns SQLite's result code, or has it as its error.
///
/// A database, its WAL and its journal may share what they like: one thread at a time uses them
/// (promise 2). What several databases share is behind a lock.
pub trait File: Any {
    /// The file below.
    fn below(&self) -> &Real;

    /// Reads the bytes at `at`. Those after the end of the file are zeros, and then the result is
    /// `SQLITE_IOERR_SHORT_READ`.
    fn read(&self, at: u64, to: &mut [u8]) -> c_int {
        self.below().x_read(at, to)
    }

    /// Writes `bytes` at `at`.
    fn write(&self, at: u64, bytes: &[u8]) -> c_int {
        self.below().x_write(at, bytes)
    }

    /// Makes the file `size` bytes long.
    fn truncate(&self, size: i64) -> c_int {
        self.below().x_truncate(size)
    }

    /// Makes the file durable.
    fn sync(&self, flags: c_int) -> c_int {
        self.below().x_sync(flags)
    }

    /// The file's size in bytes.
    fn size(&self) -> Result<i64, c_int> {
        self.below().x_file_size()
    }

    /// Raises the lock to this level.
    fn lock(&self, level: c_int) -> c_int {
        self.below().x_lock(level)
    }

    /// Lowers the lock to this level.
    fn unlock(&self, level: c_int) -> c_int {
        self.below().x_unlock(level)
    }

    /// Carries out a control. `SQLITE_FCNTL_PDB` is none of them.
    fn control(&self, control: &Control<'_>) -> c_int {
        self.below().x_control(control)
    }

    /// What the medium promises.
    fn characteristics(&self) -> c_int {
        self.below().x_device_characteristics()
    }

    /// Takes or releases locks of the WAL's index.
    fn lock_index(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        self.below().x_shm_lock(offset, count, flags)
    }

    /// Orders accesses to the WAL's index.
    fn order_index(&self) {
        self.below().x_shm_barrier();
    }

    /// Unmaps the WAL's index.
    fn unmap_index(&self, delete: c_int) -> c_int {
        self.below().x_shm_unmap(delete)
    }

    /// Whether a mapping of the file below shows the file's content.
    fn may_be_mapped(&self) -> bool {
        true
    }

    /// What a WAL hook of its connections asks. Called once, when the file was opened.
    fn hook(&self) -> Option<Arc<dyn Hook>> {
        None
    }

    /// Called once, before the file below is closed. An error is reported to SQLite.
    fn close(&self) -> c_int {
        SQLITE_OK
    }
}

/// What a WAL hook asks. SQLite calls the hook without the mutex of a shared cache (promise 2), so
/// any thread may call this while others are in a method of the file.
pub trait Hook: Send + Sync {
    /// SQLite would make a checkpoint now: `frames` frames are in the WAL after a commit, at least
    /// `threshold`. Returns whether the caller makes it. `is_there` says whether the path still
    /// leads to the open database. It waits for the file's methods, so no lock that they take is
    /// held when it is called.
    fn is_checkpoint_due(&self, frames: u32, threshold: u32, is_there: &dyn Fn() -> bool) -> bool;
}

/// The file's object as SQLite sees it. The object of the file below follows.
#[repr(C)]
pub(super) struct Object {
    base: sqlite3_file,
    /// Null before the file is open. Then a box, made in [`Prepared::begin`], taken in [`close`].
    state: *mut State,
}

struct State {
    file: Box<dyn File>,
    real: Rc<Real>,
    /// What a WAL hook may use while another thread is in a method.
    hook: Option<Arc<dyn Hook>>,
    /// Whether the file is known by its name ([`owner`]).
    is_named: bool,
}

/// Offset of the file below in the memory of a file, aligned for anything.
const OFFSET: usize = size_of::<Object>().next_multiple_of(16);

/// The size of a file's memory if the VFS below asks for so many bytes.
pub(super) fn object_bytes(below: c_int) -> c_int {
    OFFSET as c_int + below
}

/// A file's memory, prepared for both objects. Neither file is open.
pub(super) struct Prepared {
    object: *mut sqlite3_file,
    real: Rc<Real>,
}

impl Prepared {
    /// # Safety
    /// `object` and `name` are the arguments of the extension's `xOpen`. A file is begun of this,
    /// or [`Real::end`] is called before `xOpen` returns.
    pub(super) unsafe fn new(object: *mut sqlite3_file, name: Option<Name<'_>>) -> Prepared {
        let closed = || sqlite3_file { pMethods: Cell::new(null()) };
        // SAFETY: SQLite gives `object_bytes` of memory (promise 1), which has room for both
        // objects. It is the file's until `close`, which ends the `Real`, or until `xOpen` fails.
        let real = unsafe {
            object.cast::<Object>().write(Object { base: closed(), state: null_mut() });
            let below = object.cast::<u8>().add(OFFSET).cast::<sqlite3_file>();
            below.write(closed());
            Real::new(below, name.map(Name::as_ptr))
        };
        Prepared { object, real: Rc::new(real) }
    }

    pub(super) fn address(&self) -> usize {
        self.object.addr()
    }

    /// The file below.
    pub(super) fn real(&self) -> &Rc<Real> {
        &self.real
    }

    /// Makes it a file of the extension. `main` is the name of a database, which its journals lead
    /// to.
    pub(super) fn begin(self, file: Box<dyn File>, main: Option<Name<'_>>) {
        let Prepared { object, real } = self;
        // SQLite calls no method that the file below has not.
        let methods = match real.version() {
            ..=1 => &METHODS[0],
            2 => &METHODS[1],
            _ => &METHODS[2],
        };
        let (hook, is_named) = (guard(None, || file.hook()), main.is_some());
        let state = Box::into_raw(Box::new(State { file, real, hook, is_named }));
        // SAFETY: `new` made the object, in memory that stays the file's (promise 1).
        unsafe {
            object
                .cast::<Object>()
                .write(Object { base: sqlite3_file { pMethods: Cell::new(methods) }, state })
        };
        if let Some(name) = main {
            // `Opening::owner` makes a pointer of it again.
            let address = object.expose_provenance();
            guard((), || owner::opened(name, address));
        }
    }
}

/// The state behind an open file's object. `None`: it is not one of the extension's.
///
/// # Safety
/// `object` is an open file of any VFS.
unsafe fn state_of(object: *mut sqlite3_file) -> Option<*const State> {
    // SAFETY: every open file begins with its methods. Only `begin` makes objects with these, and
    // they have a state until `close`.
    unsafe {
        let is_ours = METHODS.as_ptr_range().contains(&(*object).pMethods.get());
        is_ours.then(|| (*object.cast::<Object>()).state.cast_const())
    }
}

/// The file behind an open file's object. `None`: it is not one of the extension's.
///
/// # Safety
/// `object` is an open file of any VFS. This thread uses it, and it stays open as long as the
/// result is used.
pub(super) unsafe fn file_of<'a>(object: *mut sqlite3_file) -> Option<&'a dyn File> {
    // SAFETY: the caller's promise. The state stays as long as the file is open.
    unsafe { state_of(object).map(|state| &*(*state).file) }
}

/// What a WAL hook asks. `None`: the file is not one of the extension's, or has nothing for it.
///
/// # Safety
/// `object` is an open file of any VFS, and stays open as long as the result is used. Other threads
/// may use it.
pub(super) unsafe fn hook_of<'a>(object: *mut sqlite3_file) -> Option<&'a dyn Hook> {
    // SAFETY: as in `file_of`. The field is never changed, and any thread may use what it has.
    unsafe { (*state_of(object)?).hook.as_deref() }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes an open file once (promise 1), so `begin` made its state, and no
    // other method of it runs or will.
    let state = unsafe { Box::from_raw((*file.cast::<Object>()).state) };
    if state.is_named {
        guard((), || owner::closed(file.addr()));
    }
    let rc = guard(SQLITE_IOERR, || state.file.close());
    let closed = guard(SQLITE_IOERR, || state.real.end());
    guard((), || drop(state));
    if rc == SQLITE_OK { closed } else { rc }
}

/// Makes SQLite's methods. Each finds the file, turns the arguments into safe ones, calls the file
/// and keeps a panic from SQLite.
macro_rules! methods {
    ($(
        $method:ident = $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?,
        $otherwise:expr => |$state:ident| $body:expr;
    )*) => {
        $(
            unsafe extern "C" fn $name(
                file: *mut sqlite3_file,
                $($argument: $type,)*
            ) $(-> $result)? {
                // SAFETY: SQLite calls a method of an open file (promise 1), one of ours by its
                // methods. So `begin` made its state, which stays until `close`. References to it
                // are shared ones only.
                let $state = unsafe { &*(*file.cast::<Object>()).state };
                guard($otherwise, || $body)
            }
        )*

        const fn methods(version: c_int) -> sqlite3_io_methods {
            sqlite3_io_methods {
                iVersion: version,
                xClose: Some(close),
                $($method: Some($name),)*
            }
        }
    };
}

methods! {
    xRead = read(to: *mut c_void, count: c_int, at: i64) -> c_int, SQLITE_IOERR => |it| {
        let (Ok(at), Ok(count)) = (u64::try_from(at), usize::try_from(count)) else {
            return SQLITE_IOERR;
        };
        // SAFETY: SQLite's buffer has so many bytes, and only this call uses it (promise 3).
        it.file.read(at, unsafe { std::slice::from_raw_parts_mut(to.cast(), count) })
    };
    xWrite = write(bytes: *const c_void, count: c_int, at: i64) -> c_int, SQLITE_IOERR => |it| {
        let (Ok(at), Ok(count)) = (u64::try_from(at), usize::try_from(count)) else {
            return SQLITE_IOERR;
        };
        // SAFETY: SQLite passes so many bytes, and does not change them meanwhile (promise 3).
        it.file.write(at, unsafe { std::slice::from_raw_parts(bytes.cast(), count) })
    };
    xTruncate = truncate(size: i64) -> c_int, SQLITE_IOERR => |it| it.file.truncate(size);
    xSync = sync(flags: c_int) -> c_int, SQLITE_IOERR_FSYNC => |it| it.file.sync(flags);
    xFileSize = file_size(out: &mut i64) -> c_int, SQLITE_IOERR => |it| {
        match it.file.size() {
            Ok(size) => {
                *out = size;
                SQLITE_OK
            }
            Err(code) => code,
        }
    };
    xLock = lock(level: c_int) -> c_int, SQLITE_IOERR_LOCK => |it| it.file.lock(level);
    xUnlock = unlock(level: c_int) -> c_int, SQLITE_IOERR => |it| it.file.unlock(level);
    xCheckReservedLock = check_reserved_lock(out: &mut c_int) -> c_int, SQLITE_IOERR => |it| {
        let rc;
        (rc, *out) = it.real.x_check_reserved_lock();
        rc
    };
    xFileControl = file_control(
        operation: c_int,
        argument: *mut c_void
    ) -> c_int, SQLITE_IOERR => |it| {
        let control = Control::new(operation, argument);
        if let Some(place) = control.place_of_connection() {
            // Another thread may be in a method of the file (promise 2).
            return it.real.tell_connection(place, &control);
        }
        let rc = it.file.control(&control);
        if rc == SQLITE_OK {
            control.add_name();
        }
        rc
    };
    xSectorSize = sector_size() -> c_int, 0 => |it| it.real.x_sector_size();
    xDeviceCharacteristics = characteristics() -> c_int, 0 => |it| it.file.characteristics();
    xShmMap = map_index(
        region: c_int,
        size: c_int,
        extend: c_int,
        out: &mut *mut c_void
    ) -> c_int, SQLITE_IOERR => |it| {
        let rc;
        (rc, *out) = it.real.x_shm_map(region, size, extend);
        rc
    };
    xShmLock = lock_index(
        offset: c_int,
        count: c_int,
        flags: c_int
    ) -> c_int, SQLITE_IOERR => |it| {
        it.file.lock_index(offset, count, flags)
    };
    xShmBarrier = order_index(), () => |it| it.file.order_index();
    xShmUnmap = unmap_index(delete: c_int) -> c_int, SQLITE_IOERR => |it| {
        it.file.unmap_index(delete)
    };
    xFetch = fetch(at: i64, count: c_int, out: &mut *mut c_void) -> c_int, SQLITE_IOERR => |it| {
        let rc;
        (rc, *out) = match it.file.may_be_mapped() {
            true => it.real.x_fetch(at, count),
            // SQLite then reads.
            false => (SQLITE_OK, null_mut()),
        };
        rc
    };
    xUnfetch = unfetch(at: i64, memory: *mut c_void) -> c_int, SQLITE_IOERR => |it| {
        it.real.x_unfetch(at, memory)
    };
}

/// The method tables, for versions 1, 2 and 3.
static METHODS: [sqlite3_io_methods; 3] = [methods(1), methods(2), methods(3)];
