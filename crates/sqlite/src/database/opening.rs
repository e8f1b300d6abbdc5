//! Opens a database's log, finds the database's stream in it, or makes one.
//!
//! A database is known by its open file (`host::FileId`), never by a path. `stream::verdict`
//! judges what is there. A database whose log cannot be told is *plain*: this process uses no log
//! for it, and its syncs are real ones from the first commit on.

use std::path::Path;
use std::sync::Arc;

use host::FileId;
use log::Log;
use rustix::fs::{Mode, OFlags};

use crate::abi::ffi::SQLITE_WARNING;
use crate::abi::real::Real;
use crate::database::{Database, Service};
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::format::database_header::DatabaseHeader;
use crate::messages::{tell, tell_of_other_file};
use crate::stream::binding::{Attribute, Binding};
use crate::stream::live::{Contents, holds_records, read_live};
use crate::stream::logs;
use crate::stream::names;
use crate::stream::settings::Settings;
use crate::stream::stamp::Stamp;
use crate::stream::stamped::Stream;
use crate::stream::verdict::{Facts, Place, Verdict, judge, not_there};
use crate::volume::file::is_on_volume;

/// Why a database on some file systems has no log.
const NO_IDENTITY: &str = "its file system does not say which file it is";

/// What was found of a database's log.
pub enum Found {
    /// Its stream.
    Open(Service),
    /// Its stream, which was found by its name: the database's attribute does not name it.
    Unmarked(Service),
    /// It has none.
    Nothing,
    /// Transactions that have to be in the database before it gets another stream.
    Left(Left),
    /// No log may be used, for this reason.
    Plain(String),
}

/// Transactions in a stream that the database will not use any more.
pub struct Left {
    /// The log and the stream.
    pub service: Service,
    /// The directory of the log.
    pub settings: Settings,
    /// What becomes of the stream.
    pub then: Then,
}

/// What becomes of a stream whose transactions were brought into a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It holds nothing any more.
    Close,
    /// It is removed: it belonged to the file that this one is a copy of.
    Remove,
    /// It stays as it is, because it is another file's, too.
    Keep,
}

/// The identity of the open file `main` at `path`.
pub fn file_at(path: &Path, main: &Real) -> Result<FileId, Failure> {
    opened_at(path, main).map(|(file, _)| file)
}

/// The same, with user and group of the file if it belongs to another user. On a file system that
/// another user serves, it is that user's, whatever the file system says. Both are those of one
/// file. After they were read, the path has to lead to `main`.
pub fn opened_at(path: &Path, main: &Real) -> Result<(FileId, Option<(u32, u32)>), Failure> {
    let failed = |e: rustix::io::Errno| {
        let e = std::io::Error::from(e);
        Failure::CannotOpen(format!("{}: {e}", path.display()))
    };
    // A descriptor of this kind has no part in POSIX locks.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    // Another user's server may claim to be a volume, and the file to be any file.
    let server = host::server_of(&found);
    let file = match is_on_volume(path) && server.is_none() {
        true => FileId::on_volume(&found),
        false => FileId::of(&found),
    };
    let (file, stat) = (file.map_err(failed)?, rustix::fs::fstat(&found).map_err(failed)?);
    if main.has_moved() {
        let why = "it was replaced while it was opened";
        return Err(Failure::CannotOpen(format!("{}: {why}", path.display())));
    }
    let (uid, gid) = server.unwrap_or((stat.st_uid, stat.st_gid));
    let is_own = uid == rustix::process::geteuid().as_raw();
    Ok((file, (!is_own).then_some((uid, gid))))
}

impl Database {
    /// Opens the log if the database has a stream there already, or, if `may_bind`, makes what is
    /// missing. `main` is an open file of the database. Returns whether the log is open now.
    pub fn open_log(&self, main: &Real, may_bind: bool) -> Result<bool, Failure> {
        let mut state = self.state();
        if state.service.is_some() {
            return Ok(true);
        }
        // Asked with every lock that SQLite takes.
        if self.plain.get().is_some() || !may_bind && !self.is_bound() {
            return Ok(false);
        }
        let found = match self.look_for_log(main)? {
            Found::Nothing if may_bind => self.bind()?,
            found => found,
        };
        match found {
            Found::Open(service) => state.service = Some(service),
            Found::Unmarked(service) => {
                if may_bind {
                    self.mark(&service);
                }
                state.service = Some(service);
            }
            Found::Plain(why) => self.use_no_log(why),
            // A connection that only reads leaves it to the next one that may write.
            Found::Left(left) if may_bind => {
                let log = left.settings.directory.display();
                self.use_no_log(format!(
                    "it has commits in the log {log} that are of another name"
                ));
            }
            Found::Nothing | Found::Left(_) => {}
        }
        Ok(state.service.is_some())
    }

    /// Whether the database's attribute names a stream.
    fn is_bound(&self) -> bool {
        if faults::is(Fault::NamesByPath) {
            return self.settings.exists();
        }
        let attribute = Attribute::read(&self.path);
        matches!(attribute, Attribute::Binding(it) if Some(it.file) == self.file.lasting)
    }

    /// This process uses no log for the database, for this reason.
    pub(crate) fn use_no_log(&self, why: String) {
        let path = self.path.display();
        tell(SQLITE_WARNING, &format!("{path}: no log is used, every commit syncs: {why}"));
        let _ = self.plain.set(why);
    }

    /// Finds the log, and the database's stream in it.
    pub(crate) fn look_for_log(&self, main: &Real) -> Result<Found, Failure> {
        if faults::is(Fault::NamesByPath) {
            return self.by_path();
        }
        if main.has_moved() {
            return Ok(Found::Plain("its path leads to another file now".into()));
        }
        let attribute = Attribute::read(&self.path);
        let Some(file) = self.file.lasting else {
            return self.of_unknown_file(&attribute);
        };
        let log = match self.settings.exists() {
            true => match logs::open_log(&self.settings) {
                Err(e) if e.is_read_only() => return self.on_read_only_medium(main, &attribute),
                Err(e) if e.is_of_memory() => return self.without_memory(&attribute, file, e),
                opened => Some(opened?),
            },
            false if attribute == Attribute::None => return Ok(self.nothing()),
            false => None,
        };
        let is_empty = main.size()? == 0;
        let verdict = self.judge(&attribute, file, log.as_deref(), is_empty)?;
        let left = |log: &Arc<Log>, name: &str, settings: &Settings, then| -> Result<_, Failure> {
            let Some(stream) = log.existing_stream(name)? else { return Ok(self.nothing()) };
            let service = (log.clone(), self.stream(stream, self.stamp()?));
            Ok(Found::Left(Left { service, settings: settings.clone(), then }))
        };
        match (verdict, log) {
            (Verdict::Same(name), Some(log)) => match self.same(&log, &name)? {
                Found::Open(service) if !is_own(&attribute, file) => Ok(Found::Unmarked(service)),
                found => Ok(found),
            },
            (Verdict::CopiedWithLog(name), Some(log)) => {
                left(&log, &name, &self.settings, Then::Remove)
            }
            (Verdict::Elsewhere(binding), _) => {
                let settings = self.log_of(&binding);
                let log = logs::open_log(&settings)?;
                if !is_log_of(&log, &binding) {
                    return Ok(match self.settings.may_discard {
                        true => self.nothing(),
                        false => Found::Plain(not_there(&binding)),
                    });
                }
                left(&log, &binding.stream, &settings, Then::Close)
            }
            (Verdict::LogRemoved(directory), _) => {
                let text = format!(
                    "{}: its log {} was removed. If the database was not closed before, commits \
                     are missing",
                    self.path.display(),
                    directory.display()
                );
                tell(SQLITE_WARNING, &text);
                Ok(self.nothing())
            }
            (Verdict::Unknown(_), _) if self.settings.may_discard => Ok(self.nothing()),
            (Verdict::Unknown(why), _) => Ok(Found::Plain(why)),
            (Verdict::Unbound, Some(log)) => {
                self.tell_of_original(&attribute, &log)?;
                Ok(self.nothing())
            }
            (Verdict::Unbound | Verdict::Same(_) | Verdict::CopiedWithLog(_), _) => {
                Ok(self.nothing())
            }
        }
    }

    /// Tells that the database is a copy, if the log has commits of the original that the copy may
    /// lack.
    fn tell_of_original(&self, attribute: &Attribute, log: &Log) -> Result<(), Failure> {
        let Attribute::Binding(binding) = attribute else { return Ok(()) };
        if binding.log == log.uuid() && self.holds_anything(log, &binding.stream)? {
            let text = format!(
                "{}: it is a copy of another file, whose last commits may be only in the log {}, \
                 in the stream {}. To have them in the copy, close the original before copying it",
                self.path.display(),
                self.settings.directory.display(),
                binding.stream
            );
            tell(SQLITE_WARNING, &text);
        }
        Ok(())
    }

    /// The log cannot be opened, because its medium is read-only. A database in WAL mode whose WAL
    /// is gone was closed, and needs no log.
    fn on_read_only_medium(&self, main: &Real, attribute: &Attribute) -> Result<Found, Failure> {
        let header = DatabaseHeader::read(main)?;
        let mut wal = self.path.as_os_str().to_owned();
        wal.push("-wal");
        let is_closed = header.is_some_and(|header| header.is_in_wal_mode)
            && std::fs::metadata(&wal).map_or(0, |found| found.len()) == 0;
        // Without an attribute the log has never had anything of it.
        match is_closed || *attribute == Attribute::None {
            true => Ok(Found::Plain("its log is on a read-only medium".into())),
            false => Err(Failure::CannotOpen(format!(
                "{}: the log {} is on a read-only medium, so it cannot be told whether the \
                 database was closed. Open it once where both can be written, and close it",
                self.path.display(),
                self.settings.directory.display()
            ))),
        }
    }

    /// The log cannot be opened, because there is no place for its shared memory. A database that
    /// the log holds nothing of needs no log.
    fn without_memory(
        &self,
        attribute: &Attribute,
        file: u128,
        why: Failure,
    ) -> Result<Found, Failure> {
        let is_ours = |name: &String| names::is_of(&self.path, file, name);
        let streams = self.settings.stream_names();
        let may_hold = *attribute != Attribute::None
            || streams.map_or(true, |streams| streams.iter().any(is_ours));
        match may_hold {
            true => Err(why),
            false => Ok(Found::Plain(why.to_string())),
        }
    }

    /// There is no stream.
    fn nothing(&self) -> Found {
        match self.file.name_count {
            0..=1 => Found::Nothing,
            _ => Found::Plain("it has several names, and SQLite a WAL for each of them".into()),
        }
    }

    /// On a file system that does not say which file it is, or where the kernel does not tell it to
    /// this process. The attribute may have come with a copy, so the stream that it names may be
    /// another file's: its transactions are brought into the database if they fit, and it stays.
    fn of_unknown_file(&self, attribute: &Attribute) -> Result<Found, Failure> {
        let plain = || Ok(Found::Plain(NO_IDENTITY.into()));
        let Attribute::Binding(binding) = attribute else { return plain() };
        if self.place_of(binding)? != Place::There {
            return plain();
        }
        let settings = self.log_of(binding);
        let log = logs::open_log(&settings)?;
        if !is_log_of(&log, binding) {
            return Ok(Found::Plain(not_there(binding)));
        }
        // The attribute may name any file, and so any stream.
        if !self.is_owners(&log, &binding.stream)? {
            return plain();
        }
        let Some(stream) = log.existing_stream(&binding.stream)? else { return plain() };
        let service = (log, self.stream(stream, self.stamp()?));
        Ok(Found::Left(Left { service, settings, then: Then::Keep }))
    }

    /// The fault: as if a path were the file.
    fn by_path(&self) -> Result<Found, Failure> {
        let log = logs::open_log(&self.settings)?;
        let path = crc32c::crc32c(self.path.as_os_str().as_encoded_bytes());
        let directory = crc32c::crc32c(self.settings.directory.as_os_str().as_encoded_bytes());
        let stream = log.stream(&format!("db-{path:x}-{directory:x}"))?;
        Ok(Found::Open((log, Stream::new(stream, Stamp::default()))))
    }

    fn judge(
        &self,
        attribute: &Attribute,
        file: u128,
        log: Option<&Log>,
        is_empty: bool,
    ) -> Result<Verdict, Failure> {
        let (mut named, mut copied) = (Vec::new(), Vec::new());
        let copied_from = log.map_or(&[][..], Log::copied_from);
        let is_owners = match (log, attribute) {
            (Some(log), Attribute::Binding(it)) if copied_from.contains(&it.log) => {
                self.is_owners(log, &it.stream)?
            }
            _ => false,
        };
        if let (false, Some(log)) = (is_own(attribute, file), log) {
            let all = log.stream_names()?;
            let all = all.iter().map(|name| name.as_str()).filter(|name| names::is_of_file(name));
            let ending = names::ending(log.uuid(), file);
            for name in all {
                let is_copied =
                    |from: &String| name.starts_with(&names::beginning(&self.path, from));
                if name.ends_with(&ending) {
                    named.push(name.to_owned());
                    // A copy of a database is not empty, and one that the log has records of is
                    // not.
                } else if !is_empty
                    && copied_from.iter().any(is_copied)
                    && self.is_owners(log, name)?
                    && self.holds_anything(log, name)?
                {
                    copied.push(name.to_owned());
                }
            }
        }
        // A damaged one is there, too.
        let has_stream =
            |name: &str| log.is_some_and(|log| !matches!(log.existing_stream(name), Ok(None)));
        Ok(judge(&Facts {
            attribute,
            file,
            log: log.map_or("", Log::uuid),
            copied_from,
            named: &named,
            copied: &copied,
            is_owners,
            has_stream: &has_stream,
            place: match attribute {
                Attribute::Binding(it)
                    if it.file == file && log.is_none_or(|log| log.uuid() != it.log) =>
                {
                    self.place_of(it)?
                }
                _ => Place::Nowhere,
            },
        }))
    }

    /// The settings for the log that an attribute names.
    fn log_of(&self, binding: &Binding) -> Settings {
        self.settings.elsewhere(&binding.directory, &self.path)
    }

    /// Whether a stream belongs to the owner of the database.
    fn is_owners(&self, log: &Log, name: &str) -> Result<bool, Failure> {
        let own = || rustix::process::geteuid().as_raw();
        let owner = self.settings.owner.map_or_else(own, |(uid, _)| uid);
        Ok(log.stream_owner(name)? == Some(owner))
    }

    /// Where the log of a binding is.
    fn place_of(&self, binding: &Binding) -> Result<Place, Failure> {
        let there = self.log_of(binding);
        if there.is_socket() {
            let is_there = there.is_there().map_err(|e| Failure::CannotOpen(e.to_string()))?;
            return Ok(if is_there { Place::There } else { Place::Nowhere });
        }
        match there.uuid() {
            Ok(uuid) if uuid == binding.log => return Ok(Place::There),
            Err(e) if e.is_denied() => return Ok(Place::Closed),
            Err(e) if e.is_of_system() => return Err(e),
            Ok(_) | Err(_) => {}
        }
        let is_beside = binding.directory == Settings::beside(&self.path);
        Ok(match is_beside && !there.exists() {
            true => Place::RemovedBeside,
            false => Place::Nowhere,
        })
    }

    pub(crate) fn stamp(&self) -> Result<Stamp, Failure> {
        Stamp::of(&self.path, &self.file)
    }

    /// A stream of a log, for this database.
    fn stream(&self, stream: log::Stream, stamp: Stamp) -> Stream {
        Stream::new(stream, stamp).of_user(self.settings.owner.is_some())
    }

    /// Whether a stream has transactions that its database may lack, also after a restart of the
    /// machine.
    fn holds_anything(&self, log: &Log, name: &str) -> Result<bool, Failure> {
        let Some(stream) = log.existing_stream(name)? else { return Ok(false) };
        let stream = self.stream(stream, Stamp::default());
        Ok(holds_records(&stream)? || !matches!(read_live(&stream)?, Contents::Nothing))
    }

    /// The stream `name` of this log, which is the database's.
    fn same(&self, log: &Arc<Log>, name: &str) -> Result<Found, Failure> {
        let Some(stream) = log.existing_stream(name)? else { return Ok(self.nothing()) };
        let stamp = self.stamp()?;
        let service = (log.clone(), self.stream(stream, stamp));
        let left = Stamp::read(&service.1.header()?);
        let is_here = left.is_same_file(&stamp) && left.is_same_place(&stamp);
        let is_alone = is_here && self.file.name_count <= 1 || faults::is(Fault::TrustsStamps);
        if !is_alone && self.holds_anything(log, name)? {
            let then = if left.is_same_file(&stamp) { Then::Close } else { Then::Keep };
            return Ok(Found::Left(Left { service, settings: self.settings.clone(), then }));
        }
        if let Found::Plain(why) = self.nothing() {
            return Ok(Found::Plain(why));
        }
        Ok(Found::Open(service))
    }

    /// Makes the log if there is none, and a stream for the database. Both are durable, and so is
    /// the attribute of the database, before this returns.
    pub(crate) fn bind(&self) -> Result<Found, Failure> {
        let Some(file) = self.file.lasting else { return Ok(Found::Plain(NO_IDENTITY.into())) };
        match self.bind_file(file) {
            Err(e) if e.is_of_memory() => Ok(Found::Plain(e.to_string())),
            bound => bound,
        }
    }

    fn bind_file(&self, file: u128) -> Result<Found, Failure> {
        let log = logs::open_log(&self.settings)?;
        let name = self.new_name(&log, file)?;
        let stream = self.stream(log.stream(&name)?, self.stamp()?);
        match self.write_attribute(file, &log, &stream) {
            Ok(()) => Ok(Found::Open((log, stream))),
            Err(why) => Ok(Found::Plain(format!("its attribute cannot be written: {why}"))),
        }
    }

    fn write_attribute(&self, file: u128, log: &Log, stream: &Stream) -> std::io::Result<()> {
        let binding = Binding {
            log: log.uuid().to_owned(),
            file,
            stream: stream.name().as_str().to_owned(),
            directory: self.settings.directory.clone(),
        };
        Ok(binding.write(&self.path, &self.file)?)
    }

    /// Writes the attribute of a database again whose stream was found by its name. A tool may have
    /// removed it.
    pub(crate) fn mark(&self, (log, stream): &Service) {
        let Some(file) = self.file.lasting else { return };
        if let Err(why) = self.write_attribute(file, log, stream) {
            // The name finds the stream the next time, too.
            let path = self.path.display();
            tell(SQLITE_WARNING, &format!("{path}: its attribute cannot be written: {why}"));
        }
    }

    /// A name that no stream has. Tells of streams that hold transactions of another file, which
    /// had the name of this one.
    fn new_name(&self, log: &Log, file: u128) -> Result<String, Failure> {
        let logs = log.copied_from().iter().map(String::as_str).chain([log.uuid()]);
        let beginnings: Vec<String> = logs.map(|log| names::beginning(&self.path, log)).collect();
        let is_other = |name: &&str| {
            beginnings.iter().any(|it| name.starts_with(it)) && names::is_of_file(name)
        };
        let first = names::of_file(&self.path, log.uuid(), file);
        let all = log.stream_names()?;
        for other in all.iter().map(|name| name.as_str()).filter(is_other) {
            if other != first && self.holds_anything(log, other)? {
                tell_of_other_file(&self.path, &self.settings.directory, other);
            }
        }
        match all.iter().any(|name| name.as_str() == first) {
            false => Ok(first),
            // That is of a block-level copy of this file's file system.
            true => Ok(names::of_file(&self.path, log.uuid(), file ^ u128::from(self.file.device))),
        }
    }
}

/// Whether it is the log that an attribute names, or a copy of it. A daemon may serve another one
/// at the same socket.
fn is_log_of(log: &Log, binding: &Binding) -> bool {
    log.uuid() == binding.log || log.copied_from().contains(&binding.log)
}

/// Whether the attribute was written for this file.
fn is_own(attribute: &Attribute, file: u128) -> bool {
    matches!(attribute, Attribute::Binding(it) if it.file == file)
}
