//! A VFS below the extension's that remembers what was made durable, and can say what a power cut
//! leaves: what was synced, and of everything else any sectors.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once};

use rusqlite::ffi::*;

const SECTOR_BYTES: usize = 512;

#[derive(Clone)]
enum Op {
    Create,
    Write(usize, Vec<u8>),
    Truncate(usize),
    Delete,
}

#[derive(Clone, Default)]
struct Model {
    durable: Option<Vec<u8>>,
    pending: Vec<Op>,
}

impl Model {
    fn of(path: &Path) -> Model {
        Model { durable: std::fs::read(path).ok(), pending: Vec::new() }
    }

    fn play(&self, mut survives: impl FnMut() -> bool) -> Option<Vec<u8>> {
        let mut content = self.durable.clone();
        for op in &self.pending {
            match op {
                Op::Create if content.is_none() && survives() => content = Some(Vec::new()),
                Op::Delete if survives() => content = None,
                // The name still leads to the old file; what follows happened to another.
                Op::Delete => break,
                Op::Truncate(size) if survives() => {
                    if let Some(bytes) = &mut content {
                        bytes.resize(*size, 0);
                    }
                }
                Op::Write(offset, data) => {
                    let Some(bytes) = &mut content else { continue };
                    let (mut at, end) = (*offset, offset + data.len());
                    while at < end {
                        let next = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
                        if survives() {
                            if bytes.len() < next {
                                bytes.resize(next, 0);
                            }
                            bytes[at..next].copy_from_slice(&data[at - offset..next - offset]);
                        }
                        at = next;
                    }
                }
                _ => {}
            }
        }
        content
    }

    /// The directory was synced: what it names is durable, and what was deleted is gone.
    fn sync_name(&mut self) {
        if let Some(last) = self.pending.iter().rposition(|op| matches!(op, Op::Delete)) {
            self.durable = None;
            self.pending.drain(..=last);
        }
        if self.durable.is_none() && matches!(self.pending.first(), Some(Op::Create)) {
            self.durable = Some(Vec::new());
            self.pending.remove(0);
        }
    }
}

type Hook = Box<dyn FnMut(&Recorder) + Send>;

/// What is remembered of the files in a directory.
#[derive(Default)]
pub struct Recorder {
    files: BTreeMap<PathBuf, Model>,
    directory: Option<PathBuf>,
    hook: Option<Hook>,
    pub op_count: u64,
    pub sync_count: u64,
    /// Writes come in pieces of so many bytes, when it is set.
    pub piece_bytes: Option<usize>,
    /// The file whose next sync fails: the disk has nothing of what was not durable, and the kernel
    /// forgets it.
    pub failing: Option<PathBuf>,
    /// The file whose next write fails.
    pub refusing: Option<PathBuf>,
    /// What was done to which file, in order.
    pub events: Vec<(String, Event)>,
}

/// What was done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Create,
    Write,
    Truncate,
    Delete,
    Sync,
}

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(|e| e.into_inner())
}

impl Recorder {
    /// Begins to remember what happens in `directory`; `hook` is called before each change.
    pub fn begin(directory: &Path, hook: Hook) {
        let mut new = Recorder { directory: Some(directory.into()), ..Recorder::default() };
        new.hook = Some(hook);
        for entry in std::fs::read_dir(directory).expect("directory") {
            let path = entry.expect("entry").path();
            if path.is_file() && !path.to_string_lossy().ends_with("-shm") {
                new.files.insert(path.clone(), Model::of(&path));
            }
        }
        *recorder() = Some(new);
    }

    /// From now on writes come in pieces.
    pub fn tear(piece_bytes: usize) {
        with(|recorder| recorder.piece_bytes = Some(piece_bytes));
    }

    /// The next sync of `path` fails.
    pub fn fail(path: &Path) {
        with(|recorder| recorder.failing = Some(path.into()));
    }

    /// Whether that is still to come.
    pub fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// The next write to `path` fails.
    pub fn refuse(path: &Path) {
        with(|recorder| recorder.refusing = Some(path.into()));
    }

    /// Ends that.
    pub fn end() -> Recorder {
        recorder().take().expect("begun")
    }

    /// Calls the hook as if a change came.
    pub fn point() {
        if let Some(recorder) = recorder().as_mut() {
            recorder.call();
        }
    }

    fn call(&mut self) {
        self.op_count += 1;
        if let Some(mut hook) = self.hook.take() {
            hook(self);
            self.hook = Some(hook);
        }
    }

    /// Writes into `target` what a power cut now could leave.
    pub fn crash(&self, target: &Path, random: &mut fastrand::Rng) {
        std::fs::create_dir_all(target).expect("directory");
        for (path, model) in &self.files {
            let odds = [0, 10, 50, 90, 100][random.usize(..5)];
            let content = model.play(|| random.u32(..100) < odds);
            if let Some(bytes) = content {
                std::fs::write(target.join(path.file_name().expect("name")), bytes).expect("write");
            }
        }
    }

    /// Writes into `target` what was made durable.
    pub fn keep_durable(&self, target: &Path) {
        std::fs::create_dir_all(target).expect("directory");
        for (path, model) in &self.files {
            if let Some(bytes) = model.play(|| false) {
                std::fs::write(target.join(path.file_name().expect("name")), bytes).expect("write");
            }
        }
    }

    /// The same, when the power takes all that is not durable of the file `lost`, and nothing of
    /// the others.
    pub fn crash_without(&self, target: &Path, lost: &str) {
        std::fs::create_dir_all(target).expect("directory");
        for (path, model) in &self.files {
            let name = path.file_name().expect("name");
            if let Some(bytes) = model.play(|| name != lost) {
                std::fs::write(target.join(name), bytes).expect("write");
            }
        }
    }

    fn change(&mut self, path: &Path, op: Op) {
        if self.directory.as_deref() == path.parent() {
            self.call();
            let event = match op {
                Op::Create => Event::Create,
                Op::Write(..) => Event::Write,
                Op::Truncate(_) => Event::Truncate,
                Op::Delete => Event::Delete,
            };
            self.event(path, event);
            self.files.entry(path.into()).or_default().pending.push(op);
        }
    }

    fn event(&mut self, path: &Path, event: Event) {
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        self.events.push((name, event));
    }

    fn sync_directory(&mut self, path: &Path) {
        if self.directory.as_deref() == Some(path) {
            self.call();
            self.files.values_mut().for_each(Model::sync_name);
        }
    }

    /// Whether a sync fails.
    fn fails(&mut self, path: &Path) -> bool {
        let fails = self.failing.as_deref() == Some(path);
        if fails {
            self.failing = None;
            self.files.entry(path.into()).or_default().pending.clear();
        }
        fails
    }

    /// Whether a write fails.
    fn refuses(&mut self, path: &Path) -> bool {
        self.refusing.take_if(|refusing| refusing == path).is_some()
    }

    fn sync(&mut self, path: &Path) {
        if self.directory.as_deref() == path.parent() {
            self.call();
            self.sync_count += 1;
            self.event(path, Event::Sync);
            let model = self.files.entry(path.into()).or_default();
            model.durable = model.play(|| true);
            model.pending.clear();
        }
    }
}

fn with(f: impl FnOnce(&mut Recorder)) {
    if let Some(recorder) = recorder().as_mut() {
        f(recorder);
    }
}

unsafe extern "C" {
    fn fdatasync(file: c_int) -> c_int;
}

/// Takes the place of the C library's for this program, to see the syncs that go past the VFS:
/// those of directories.
#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(file: c_int) -> c_int {
    if let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{file}")) {
        with(|recorder| match path.is_dir() {
            true => recorder.sync_directory(&path),
            // A journal that is opened by its path.
            false => recorder.sync(&path),
        });
    }
    // What it adds is nothing to a test.
    unsafe { fdatasync(file) }
}

#[repr(C)]
struct File {
    base: sqlite3_file,
    path: *mut PathBuf,
    methods: *mut sqlite3_io_methods,
}

const OFFSET: usize = size_of::<File>().next_multiple_of(16);

unsafe fn real(file: *mut sqlite3_file) -> *mut sqlite3_file {
    unsafe { file.cast::<u8>().add(OFFSET).cast() }
}

unsafe fn path<'a>(file: *mut sqlite3_file) -> Option<&'a PathBuf> {
    unsafe { (*file.cast::<File>()).path.as_ref() }
}

static BELOW: std::sync::atomic::AtomicPtr<sqlite3_vfs> =
    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

fn below() -> *mut sqlite3_vfs {
    BELOW.load(std::sync::atomic::Ordering::SeqCst)
}

/// Makes it the default VFS.
pub fn register() {
    static ONCE: Once = Once::new();
    super::listen_to_errors();
    ONCE.call_once(|| unsafe {
        let unix = sqlite3_vfs_find(std::ptr::null());
        BELOW.store(unix, std::sync::atomic::Ordering::SeqCst);
        let mut vfs = Box::new(std::ptr::read(unix));
        vfs.zName = c"crash".as_ptr();
        vfs.pNext = std::ptr::null_mut();
        vfs.szOsFile += OFFSET as c_int;
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        assert_eq!(sqlite3_vfs_register(Box::into_raw(vfs), 1), SQLITE_OK);
    });
}

unsafe extern "C" fn open(
    _vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    unsafe {
        (*file).pMethods = std::ptr::null();
        let path = (!name.is_null())
            .then(|| PathBuf::from(CStr::from_ptr(name).to_string_lossy().into_owned()));
        let is_new = path.as_ref().is_some_and(|path| !path.exists());
        let rc = ((*below()).xOpen.unwrap())(below(), name, real(file), flags, out);
        if rc != SQLITE_OK {
            return rc;
        }
        if let Some(path) = &path
            && is_new
        {
            with(|recorder| recorder.change(path, Op::Create));
        }
        let theirs = (*real(file)).pMethods;
        let mut methods = Box::new(std::ptr::read(theirs));
        methods.xClose = Some(close);
        methods.xRead = Some(read);
        methods.xWrite = Some(write);
        methods.xTruncate = Some(truncate);
        methods.xSync = Some(sync);
        methods.xFileSize = Some(file_size);
        methods.xLock = Some(lock);
        methods.xUnlock = Some(unlock);
        methods.xCheckReservedLock = Some(check_reserved_lock);
        methods.xFileControl = Some(file_control);
        methods.xSectorSize = Some(sector_size);
        methods.xDeviceCharacteristics = Some(device_characteristics);
        methods.xShmMap = Some(shm_map);
        methods.xShmLock = Some(shm_lock);
        methods.xShmBarrier = Some(shm_barrier);
        methods.xShmUnmap = Some(shm_unmap);
        methods.xFetch = Some(fetch);
        methods.xUnfetch = Some(unfetch);
        let ours = file.cast::<File>();
        (*ours).path = path.map_or(std::ptr::null_mut(), |path| Box::into_raw(Box::new(path)));
        (*ours).methods = Box::into_raw(methods);
        (*file).pMethods = (*ours).methods;
        rc
    }
}

unsafe extern "C" fn delete(_vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    unsafe {
        let path = PathBuf::from(CStr::from_ptr(name).to_string_lossy().into_owned());
        with(|recorder| recorder.change(&path, Op::Delete));
        let rc = ((*below()).xDelete.unwrap())(below(), name, sync);
        if rc == SQLITE_OK && sync != 0 {
            with(|recorder| recorder.sync(&path));
        }
        rc
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    unsafe {
        let rc = ((*(*real(file)).pMethods).xClose.unwrap())(real(file));
        let ours = file.cast::<File>();
        if !(*ours).path.is_null() {
            drop(Box::from_raw((*ours).path));
        }
        drop(Box::from_raw((*ours).methods));
        rc
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    unsafe {
        if let Some(path) = path(file)
            && recorder().as_mut().is_some_and(|recorder| recorder.refuses(path))
        {
            return SQLITE_IOERR_WRITE;
        }
        let data = std::slice::from_raw_parts(bytes.cast::<u8>(), count as usize);
        let pieces = recorder().as_ref().and_then(|recorder| recorder.piece_bytes);
        let write = (*(*real(file)).pMethods).xWrite.unwrap();
        let mut at = offset;
        for piece in data.chunks(pieces.unwrap_or(data.len()).max(1)) {
            if let Some(path) = path(file) {
                with(|recorder| recorder.change(path, Op::Write(at as usize, piece.to_vec())));
            }
            let rc = write(real(file), piece.as_ptr().cast(), piece.len() as c_int, at);
            if rc != SQLITE_OK {
                return rc;
            }
            at += piece.len() as i64;
        }
        SQLITE_OK
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    unsafe {
        if let Some(path) = path(file) {
            with(|recorder| recorder.change(path, Op::Truncate(size as usize)));
        }
        ((*(*real(file)).pMethods).xTruncate.unwrap())(real(file), size)
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    unsafe {
        if let Some(path) = path(file) {
            if recorder().as_mut().is_some_and(|recorder| recorder.fails(path)) {
                return SQLITE_IOERR_FSYNC;
            }
            with(|recorder| recorder.sync(path));
        }
        // The model knows; the disk need not.
        let _ = flags;
        SQLITE_OK
    }
}

macro_rules! pass {
    ($name:ident, $method:ident, ($($a:ident: $t:ty),*) -> $r:ty) => {
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($a: $t),*) -> $r {
            unsafe { ((*(*real(file)).pMethods).$method.unwrap())(real(file), $($a),*) }
        }
    };
}
pass!(read, xRead, (to: *mut c_void, count: c_int, offset: i64) -> c_int);
pass!(file_size, xFileSize, (out: *mut i64) -> c_int);
pass!(lock, xLock, (level: c_int) -> c_int);
pass!(unlock, xUnlock, (level: c_int) -> c_int);
pass!(check_reserved_lock, xCheckReservedLock, (out: *mut c_int) -> c_int);
pass!(file_control, xFileControl, (op: c_int, argument: *mut c_void) -> c_int);
pass!(sector_size, xSectorSize, () -> c_int);
pass!(device_characteristics, xDeviceCharacteristics, () -> c_int);
pass!(shm_map, xShmMap, (n: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) -> c_int);
pass!(shm_lock, xShmLock, (offset: c_int, count: c_int, flags: c_int) -> c_int);
pass!(shm_barrier, xShmBarrier, () -> ());
pass!(shm_unmap, xShmUnmap, (delete: c_int) -> c_int);
pass!(fetch, xFetch, (offset: i64, count: c_int, out: *mut *mut c_void) -> c_int);
pass!(unfetch, xUnfetch, (offset: i64, memory: *mut c_void) -> c_int);
