//! Finds a database's log when the database is opened, and brings home what is in a stream that the
//! database will not use any more.
//!
//! A database may come to another log (another parameter, another place), or its log may be a copy.
//! Then what the old stream holds is first brought into the files, with the checks of a recovery,
//! and only then the database gets another stream. So at any moment at most one stream counts for a
//! file.

use std::time::{Duration, Instant};

use crate::abi::real::Real;
use crate::database::Database;
use crate::database::opening::{Found, Left, Then};
use crate::failure::Failure;
use crate::stream::binding;
use crate::stream::lease::{self, Lease};
use crate::stream::logs;
use crate::stream::settings::Settings;
use crate::stream::stamped::Stream;

/// How long to wait until no other connection has the database open.
const OTHERS_WAIT: Duration = Duration::from_secs(5);

impl Database {
    /// Finds the database's log and recovers the database. `main` is its open file, on which this
    /// connection has no lock.
    pub fn find_log(&self, main: &Real, is_writable: bool) -> Result<(), Failure> {
        if self.plain.get().is_some() || self.log().is_some() {
            return self.recover(main, is_writable);
        }
        // Brought home, it has no stream; a second look then finds none.
        for _ in 0..3 {
            match self.look_for_log(main)? {
                Found::Open(service) => {
                    self.state().service.get_or_insert(service);
                    return self.recover(main, is_writable);
                }
                Found::Unmarked(service) => {
                    if is_writable {
                        self.mark(&service);
                    }
                    self.state().service.get_or_insert(service);
                    return self.recover(main, is_writable);
                }
                Found::Nothing => return Ok(()),
                Found::Plain(why) => {
                    self.use_no_log(why);
                    return Ok(());
                }
                Found::Left(left) if is_writable => self.come_home(main, left)?,
                // What it holds is in the files. The next connection that may write leaves it.
                Found::Left(left) => return self.check_files(main, &left),
            }
            if self.log().is_some() || self.plain.get().is_some() {
                return Ok(());
            }
        }
        self.use_no_log("its stream changes while it is opened".into());
        Ok(())
    }

    /// An error if the files lack what a stream holds that the database will not use any more.
    fn check_files(&self, main: &Real, left: &Left) -> Result<(), Failure> {
        match self.read(&left.service.1)? {
            Some(live) => self.recover_locked(main, &live, false),
            None => Ok(()),
        }
    }

    /// Brings home what a stream holds that the database will not use any more.
    fn come_home(&self, main: &Real, left: Left) -> Result<(), Failure> {
        let Left { service: (log, stream), settings, then } = left;
        self.lock_alone(main, &settings)?;
        let done = self.bring_files_home(main, &stream, then);
        main.unlock()?;
        done?;
        match then {
            Then::Remove => log.remove_stream(stream.name().as_str())?,
            // The next process of the same name finds what this one brought home.
            Then::Close | Then::Keep => {}
        }
        let is_elsewhere = settings.directory != self.settings.directory;
        if then == Then::Remove || is_elsewhere && then == Then::Close {
            let unbound = binding::unbind(&self.path, &self.file);
            unbound.map_err(|e| self.not_unbound(e))?;
        }
        drop(stream);
        logs::close_log(log, &settings)?;
        if then == Then::Keep {
            match self.bind()? {
                Found::Open(service) => drop(self.state().service.get_or_insert(service)),
                Found::Plain(why) => self.use_no_log(why),
                Found::Unmarked(_) | Found::Nothing | Found::Left(_) => {}
            }
        }
        Ok(())
    }

    /// Takes SQLite's exclusive lock: no other connection has the database open, by any name.
    fn lock_alone(&self, main: &Real, settings: &Settings) -> Result<(), Failure> {
        let begin = Instant::now();
        while !main.lock_exclusive()? {
            if begin.elapsed() >= OTHERS_WAIT {
                return Err(Failure::CannotOpen(format!(
                    "{}: another program has it open with the log {}, or by another path. Name the \
                     same log and path, or end that program",
                    self.path.display(),
                    settings.directory.display()
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn bring_files_home(&self, main: &Real, stream: &Stream, then: Then) -> Result<(), Failure> {
        if let Some(live) = self.read(stream)? {
            self.recover_locked(main, &live, true)?;
        }
        main.sync()?;
        match then {
            Then::Keep => Ok(()),
            Then::Close | Then::Remove => {
                let _lease = Lease::take(stream)?;
                lease::close(stream)
            }
        }
    }

    fn not_unbound(&self, errno: rustix::io::Errno) -> Failure {
        let e = std::io::Error::from(errno);
        Failure::CannotOpen(format!("{}: removing its attribute: {e}", self.path.display()))
    }
}
