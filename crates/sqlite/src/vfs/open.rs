//! The VFS `onejournal`: the VFS below, whose files are wrapped in ours.
//!
//! [`Vfs::open`] finds out which file each is; [`Vfs::delete`] makes the removal of a WAL durable
//! and closes the log.

use std::any::Any;
use std::ffi::{CStr, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::ffi::*;
use crate::abi::file::File;
use crate::abi::guard::guard;
use crate::abi::loaded::is_loaded;
use crate::abi::owner::Owner;
use crate::abi::table::Api;
use crate::abi::text::Text;
use crate::abi::vfs::{self, Facts, Opening, Vfs, delete_below};
use crate::batch::{Access, Connection};
use crate::checkpoint;
use crate::checkpoint::link::Link;
use crate::database;
use crate::database::Database;
use crate::database::opening::{file_at, opened_at};
use crate::databases::{enter, find, find_at};
use crate::failure::Failure;
use crate::messages::{forget, tell};
use crate::stream::settings::Settings;
use crate::vfs::files::journal::Journal;
use crate::vfs::files::log::{Log, Main};
use crate::vfs::files::plain::Plain;
use crate::vfs::files::volume::{JournalOnVolume, MainOnVolume, WalOnVolume};
use crate::vfs::files::wal::Wal;
use crate::vfs::parameters;
use crate::vfs::unread_uri;
use crate::volume::file::{Volume, is_on_volume};
use crate::volume::rollback::was_in_memory;

/// A file, or SQLite's result code.
type Opened = Result<Box<dyn File>, c_int>;

/// Registers the VFS, once in a process. Returns SQLite's result code.
pub fn register(api: Api) -> c_int {
    if is_loaded() {
        return SQLITE_OK;
    }
    vfs::register(api, &Onejournal, |api| Facts {
        knows_batches: api.was_built_with(c"ENABLE_BATCH_ATOMIC_WRITE"),
        begins_syncing: !is_off_by_default(|option| api.was_built_with(option)),
    })
}

/// Whether a SQLite with these options (`PRAGMA compile_options`) begins with `synchronous=OFF`.
/// SQLite takes the lowest three bits of a number. Values of other forms are unknown here, and
/// taken for OFF.
fn is_off_by_default(used: impl Fn(&CStr) -> bool) -> bool {
    let on = [c"DEFAULT_SYNCHRONOUS=1", c"DEFAULT_SYNCHRONOUS=2", c"DEFAULT_SYNCHRONOUS=3"];
    used(c"DEFAULT_SYNCHRONOUS") && !on.into_iter().any(used)
}

/// The extension's VFS.
struct Onejournal;

impl Vfs for Onejournal {
    fn open(&self, opening: &Opening<'_>) -> Opened {
        if is_main(opening) && !checkpoint::is_opening() {
            forget();
            guard(Err(SQLITE_CANTOPEN), || refuse_unread_uri(opening))?;
        }
        if let Some(journal) = guard(None, || journal_in_memory(opening)) {
            return Ok(Box::new(journal));
        }
        let found_flags = opening.open_below()?;
        let is_writable = found_flags & SQLITE_OPEN_READWRITE != 0;
        guard(Err(SQLITE_IOERR), || match (opening.path(), opening.flags()) {
            (Some(path), flags) if flags & SQLITE_OPEN_MAIN_DB != 0 => {
                open_main(opening, path, is_writable)
            }
            (Some(path), flags) if flags & SQLITE_OPEN_WAL != 0 => {
                open_wal(opening, path, is_writable)
            }
            (Some(path), flags) if flags & SQLITE_OPEN_MAIN_JOURNAL != 0 => {
                open_journal(opening, path, is_writable)
            }
            _ => plain(opening),
        })
    }

    fn delete(&self, name: Text<'_>, sync: c_int) -> c_int {
        let find = |suffix: &[u8]| {
            let main = name.bytes().strip_suffix(suffix)?;
            find_at(Path::new(OsStr::from_bytes(main)))
        };
        let database = guard(None, || find(b"-wal").filter(|it| it.logs_wal()));
        let removing = Failure::Sqlite { code: SQLITE_IOERR, what: "removing" };
        let is_in_memory = match guard(Err(removing), || was_in_memory(name.path())) {
            Ok(is_in_memory) => is_in_memory,
            Err(e) => return e.code(SQLITE_IOERR),
        };
        let has_batches = |database: Arc<Database>| database.has_batches.load(Ordering::Relaxed);
        // A journal that comes back would undo what follows it in the log.
        let is_rare = guard(false, || find(b"-journal").is_some_and(has_batches));
        // The removal of a WAL is made durable, because the log forgets it next and its content on
        // the disk may be an old one.
        let sync = if database.is_some() || is_rare { 1 } else { sync };
        let rc = delete_below(name, sync);
        // An empty one of another program may have been there.
        if is_in_memory && rc == SQLITE_IOERR_DELETE_NOENT {
            return SQLITE_OK;
        }
        if rc == SQLITE_OK
            && let Some(database) = database
        {
            return guard(SQLITE_IOERR, || forget_wal(&database));
        }
        rc
    }
}

/// The WAL was removed.
fn forget_wal(database: &Database) -> c_int {
    if let Err(e) = database.wal_removed() {
        let path = database.path.display();
        tell(SQLITE_WARNING, &format!("closing the log of {path}: {e}"));
    }
    SQLITE_OK
}

fn is_main(opening: &Opening<'_>) -> bool {
    opening.flags() & SQLITE_OPEN_MAIN_DB != 0
}

/// Reports an error of opening a file. Returns its code.
fn report(e: Failure) -> c_int {
    let code = e.code(SQLITE_CANTOPEN);
    tell(code, &e.to_string());
    code
}

/// Refuses a database whose name is a URI.
fn refuse_unread_uri(opening: &Opening<'_>) -> Result<(), c_int> {
    match opening.path() {
        Some(path) if unread_uri::is_one(path.as_os_str().as_bytes()) => {
            Err(report(unread_uri::refusal(path)))
        }
        _ => Ok(()),
    }
}

fn plain(opening: &Opening<'_>) -> Opened {
    Ok(Box::new(Plain(opening.real().clone())))
}

/// The rollback journal that SQLite opens for a transaction, if it may be in memory. Any journal
/// that exists is none to roll back: SQLite looked when it took the shared lock, and has the lock
/// for writing now.
fn journal_in_memory(opening: &Opening<'_>) -> Option<JournalOnVolume> {
    const WANTED: c_int = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    let flags = opening.flags();
    let path = opening.path().filter(|_| flags & WANTED == WANTED)?;
    let Owner::Direct(main) = opening.owner() else { return None };
    let volume = file_of::<MainOnVolume>(main)?.volume.clone();
    let below = opening.real().clone();
    let open = {
        let below = below.clone();
        move || match below.open_below(flags) {
            Ok(_) => Ok(below.clone()),
            Err(code) => Err(Failure::Sqlite { code, what: "opening" }),
        }
    };
    let is_in_memory = volume.open_journal_in_memory(path.to_owned(), Box::new(open));
    is_in_memory.then_some(JournalOnVolume { below, volume })
}

/// The file, if it is one of this kind.
fn file_of<F: File>(file: &dyn File) -> Option<&F> {
    let file: &dyn Any = file;
    file.downcast_ref()
}

/// The link of a database whose checkpoints are made in the background.
fn link_of(opening: &Opening<'_>, path: &Path, is_writable: bool) -> Result<Option<Link>, c_int> {
    if checkpoint::is_opening() {
        return Ok(None);
    }
    let value = opening.parameter("checkpoint");
    let is_wanted = parameters::is_in_background(value.as_deref()).map_err(report)?;
    // With another VFS over this one, an own connection would not see what that VFS makes of the
    // bytes.
    let is_fit = is_writable && opening.is_direct();
    Ok((is_wanted && is_fit).then(|| Link::new(path)))
}

/// A database.
fn open_main(opening: &Opening<'_>, path: &Path, is_writable: bool) -> Opened {
    let link = link_of(opening, path, is_writable)?;
    let below = opening.real();
    if checkpoint::is_opening()
        && let Some(database) = find(&file_at(path, below).map_err(report)?)
    {
        return Ok(Box::new(Log::new(below.clone(), Connection::new(database, Access::Own), link)));
    }
    let settings = settings_of(opening, path).map_err(report)?;
    if !settings.is_named() && !settings.exists() && is_on_volume(path) {
        let volume = Volume::new(path, below.clone(), is_writable);
        return Ok(Box::new(MainOnVolume::new(below.clone(), volume, link)));
    }
    let connection = connect(opening, path, settings, is_writable).map_err(report)?;
    Ok(Box::new(Log::new(below.clone(), connection, link)))
}

/// Where the log of a database is.
fn settings_of(opening: &Opening<'_>, path: &Path) -> Result<Settings, Failure> {
    // Another VFS over this one has parameters of its own.
    if opening.is_direct() {
        parameters::check(opening.parameter_names())?;
    }
    Settings::new(path, |key| opening.parameter(key))
}

/// Finds the log of a database, and recovers the database if that is due.
fn connect(
    opening: &Opening<'_>,
    path: &Path,
    mut settings: Settings,
    is_writable: bool,
) -> Result<Connection, Failure> {
    let (id, owner) = opened_at(path, opening.real())?;
    settings.owner = owner;
    let database = enter(path.to_owned(), id, settings)?;
    if let Err(e) = database.find_log(opening.real(), is_writable) {
        database::went(&database);
        return Err(e);
    }
    database.has_writers.fetch_or(is_writable, Ordering::Relaxed);
    Ok(Connection::new(database, Access::new(is_writable, opening.has_journals())))
}

/// The rollback journal of a database.
fn open_journal(opening: &Opening<'_>, path: &Path, is_writable: bool) -> Opened {
    let (owner, below) = (opening.owner(), opening.real().clone());
    let (Owner::Direct(file) | Owner::Below(file)) = owner else { return plain(opening) };
    if !is_writable {
        return plain(opening);
    }
    if let (Owner::Direct(_), Some(main)) = (&owner, file_of::<MainOnVolume>(file)) {
        let is_held = main.volume.open_journal(path, below.clone()).map_err(report)?;
        let volume = main.volume.clone();
        return if is_held {
            Ok(Box::new(JournalOnVolume { below, volume }))
        } else {
            plain(opening)
        };
    }
    match file_of::<Log>(file) {
        Some(Log(main)) => Ok(Box::new(Journal::new(below, main.clone()).map_err(report)?)),
        None => plain(opening),
    }
}

/// The WAL of a database.
fn open_wal(opening: &Opening<'_>, path: &Path, is_writable: bool) -> Opened {
    // Another VFS may change SQLite's frames or write them twice. Such a WAL is synced as without
    // the extension.
    let Owner::Direct(file) = opening.owner() else { return plain(opening) };
    let below = opening.real().clone();
    if let Some(main) = file_of::<MainOnVolume>(file) {
        let volume = main.volume.clone();
        let promise = volume.open_wal(path, below.clone(), is_writable);
        return Ok(Box::new(WalOnVolume { below, volume, promise }));
    }
    let Some(Log(main)) = file_of::<Log>(file) else { return plain(opening) };
    if is_writable {
        end_period(main).map_err(report)?;
    }
    Ok(Box::new(Wal::new(below, main.clone())))
}

/// Before the database is used in WAL mode.
fn end_period(main: &Rc<Main>) -> Result<(), Failure> {
    let database = main.connection.borrow().database.clone();
    database.open_log(&main.below, true)?;
    database.release(&main.below)
}

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
