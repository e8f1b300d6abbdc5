//! The open logs of this process.
//!
//! A log that a process opens and closes again and again, such as a server with a connection for
//! each request, *lingers*: it stays open for a while after its last database was closed. Opening a
//! log and leaving it costs ten times the system calls of a commit, and six syncs. A log that was
//! opened once is closed with its last database, and leaves nothing in shared memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

use device::sync::Mutex;
use log::Log;

use crate::abi::exit::at_exit;
use crate::abi::ffi::SQLITE_WARNING;
use crate::failure::Failure;
use crate::known::Known;
use crate::messages::tell;
use crate::stream::settings::{Settings, options};

/// A log that is opened again so soon after it was closed lingers from then on.
const AGAIN: Duration = Duration::from_secs(10);
/// How long a log lingers.
const LINGER: Duration = Duration::from_secs(10);
/// How often it is looked for logs that have lingered.
const LOOK: Duration = Duration::from_secs(1);

/// The open logs of this process, one for each directory or socket.
static LOGS: Known<PathBuf, Log> = Known::new();
static PAST: Mutex<Past> = Mutex::new(Past { process: 0, closed: None, is_watched: false });

/// The logs whose last database was closed.
struct Past {
    /// A forked process has a copy of its parent's.
    process: u32,
    closed: Option<HashMap<PathBuf, Closed>>,
    /// Whether a thread looks for logs that have lingered.
    is_watched: bool,
}

/// A log whose last database was closed.
struct Closed {
    at: Instant,
    /// Whether it was opened again soon after it had been closed before.
    is_frequent: bool,
    /// It lingers.
    log: Option<Arc<Log>>,
}

/// Runs `f` with what is remembered of this process.
fn with_past<T>(f: impl FnOnce(&mut HashMap<PathBuf, Closed>, &mut bool) -> T) -> T {
    let mut past = PAST.lock();
    let past = &mut *past;
    if past.process != std::process::id() {
        // The parent's logs are the parent's to close.
        std::mem::forget(past.closed.take());
        (past.process, past.is_watched) = (std::process::id(), false);
    }
    f(past.closed.get_or_insert_default(), &mut past.is_watched)
}

/// Opens the log that the settings name. Makes it if there is none.
///
/// A log that only the attribute of a database names is opened for that database alone, because its
/// path and its daemon are not trusted as the ones that a program names.
pub fn open_log(settings: &Settings) -> Result<Arc<Log>, Failure> {
    if settings.is_found() {
        return Ok(Arc::new(Log::open(&settings.directory, &options(settings))?));
    }
    // Also of one that this process has open, for a database of another user perhaps.
    settings.check_owner()?;
    let known = settings.directory.canonicalize().ok();
    let again = known.as_deref().and_then(opened_again);
    if let Some(log) = again.or_else(|| LOGS.find(known.as_deref()?)) {
        return Ok(log);
    }
    // Not under the lock of the open databases. This may take long, and a process that is forked
    // before it ends would hold that lock for ever.
    let log = Arc::new(Log::open(&settings.directory, &options(settings))?);
    let Ok(path) = settings.directory.canonicalize() else { return Ok(log) };
    Ok(LOGS.with(|logs| match logs.get(&path).and_then(Weak::upgrade) {
        // Another thread was faster.
        Some(known) => known,
        None => {
            logs.insert(path, Arc::downgrade(&log));
            log.clone()
        }
    }))
}

/// The log in this directory, if it lingers. Remembers that it was opened again.
fn opened_again(path: &Path) -> Option<Arc<Log>> {
    let log = with_past(|closed, _| {
        let it = closed.get_mut(path)?;
        it.is_frequent = it.at.elapsed() < AGAIN;
        it.log.take()
    })?;
    if log.is_current() {
        return Some(log);
    }
    // What the directory holds now, and the memory, are of another log.
    LOGS.with(|logs| logs.remove(path));
    None
}

/// Gives up a log that was opened with [`open_log`]. The last user of the log in this process
/// closes it, or has it linger. The last process then leaves nothing in shared memory.
pub fn close_log(log: Arc<Log>, settings: &Settings) -> Result<(), Failure> {
    if settings.is_found() {
        return Arc::into_inner(log).map_or(Ok(()), |log| Ok(log.close()?));
    }
    let path = settings.directory.canonicalize().unwrap_or_else(|_| settings.directory.clone());
    let rest = with_past(|closed, is_watched| {
        // This and no other: it is the last user. Another thread may open it from the table
        // meanwhile.
        if Arc::strong_count(&log) > 1 {
            return Some(log);
        }
        let is_frequent = closed.get(&path).is_some_and(|it| it.is_frequent);
        closed.retain(|_, it| it.log.is_some() || it.at.elapsed() < AGAIN);
        let at = Instant::now();
        let lingers = is_frequent && watch(is_watched);
        let (kept, rest) = if lingers { (Some(log), None) } else { (None, Some(log)) };
        closed.insert(path, Closed { at, is_frequent, log: kept });
        rest
    });
    rest.map_or(Ok(()), close)
}

/// Closes the log, if this is its last user and its directory was not removed.
fn close(log: Arc<Log>) -> Result<(), Failure> {
    match Arc::into_inner(log) {
        Some(log) if log.is_current() => Ok(log.close()?),
        Some(_) | None => Ok(()),
    }
}

/// Sees to it that logs are closed when they have lingered, and at the end of the process. `false`:
/// no thread can be started.
fn watch(is_watched: &mut bool) -> bool {
    static AT_EXIT: Once = Once::new();
    if !*is_watched {
        let builder = std::thread::Builder::new().name("onejournal-logs".into());
        *is_watched = builder.spawn(close_when_due).is_ok();
    }
    AT_EXIT.call_once(|| {
        AT_EXIT_OF.store(std::process::id(), Ordering::Relaxed);
        at_exit(close_at_exit);
    });
    *is_watched
}

/// The process that closes its logs at its end.
static AT_EXIT_OF: AtomicU32 = AtomicU32::new(0);

/// In a forked process the locks may be as another thread of the parent left them.
extern "C" fn close_at_exit() {
    if AT_EXIT_OF.load(Ordering::Relaxed) == std::process::id() {
        close_all(Duration::ZERO);
    }
}

/// A thread that ends with the last log that lingers.
fn close_when_due() {
    while close_all(LINGER) {
        std::thread::sleep(LOOK);
    }
}

/// Closes the logs that have lingered so long. Returns whether others go on.
fn close_all(linger: Duration) -> bool {
    let (due, goes_on) = with_past(|closed, is_watched| {
        let is_due = |it: &&mut Closed| it.at.elapsed() >= linger;
        let due: Vec<Arc<Log>> =
            closed.values_mut().filter(is_due).filter_map(|it| it.log.take()).collect();
        *is_watched = closed.values().any(|it| it.log.is_some());
        (due, *is_watched)
    });
    for log in due {
        if let Err(e) = close(log) {
            tell(SQLITE_WARNING, &format!("closing a log: {e}"));
        }
    }
    goes_on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_opening_a_log_does_not_delay_another() {
        let home = tempfile::tempdir_in("/dev/shm").expect("directory");
        let of = |name: &str| {
            let path = home.path().join(name);
            std::fs::create_dir(&path).expect("directory");
            let path = path.display().to_string();
            let find = |name: &str| ["log", "memory"].contains(&name).then(|| path.clone());
            Settings::new(Path::new("/a/app.db"), find).expect("good")
        };
        let (slow, other) = (of("slow"), of("other"));
        let lock = std::fs::File::create(home.path().join("slow/lock")).expect("file");
        let flock = |how| rustix::fs::flock(&lock, how).expect("lock");
        flock(rustix::fs::FlockOperation::LockExclusive);
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| open_log(&slow).map(drop));
            drop(open_log(&other).expect("it is nobody's"));
            assert!(!opening.is_finished(), "somebody has its lock");
            flock(rustix::fs::FlockOperation::Unlock);
            opening.join().expect("no panic").expect("open");
        });
    }

    fn settings(home: &Path) -> Settings {
        let directory = home.display().to_string();
        let find = |name: &str| match name {
            "log" => Some(format!("{directory}/log")),
            "memory" => Some(format!("{directory}/memory")),
            _ => None,
        };
        Settings::new(&home.join("a.db"), find).expect("good")
    }

    #[test]
    fn a_log_that_is_opened_again_and_again_stays_open() {
        onejournal_testing::own_process!();
        let home = tempfile::tempdir_in("/dev/shm").expect("directory");
        let settings = settings(home.path());
        let has_memory =
            || std::fs::read_dir(home.path().join("memory")).is_ok_and(|it| it.count() > 0);
        for (nth, stays) in [false, true, true].into_iter().enumerate() {
            let log = open_log(&settings).expect("open");
            assert!(has_memory());
            close_log(log, &settings).expect("closed");
            assert_eq!(has_memory(), stays, "{nth}");
        }
        // Its memory was removed, as a restart of the machine does.
        let old = open_log(&settings).expect("open");
        let uuid = old.uuid().to_owned();
        close_log(old, &settings).expect("closed");
        onejournal_testing::lose_memory(&home.path().join("memory"));
        let new = open_log(&settings).expect("open");
        assert_eq!(new.uuid(), uuid);
        new.stream("s").expect("stream").append(b"record").expect("appended");
        close_log(new, &settings).expect("closed");
        assert!(has_memory());
        close_at_exit();
        assert!(!has_memory());
    }
}
