//! Commits a transaction of pages: its record becomes durable, then its pages are written to the
//! database file. Also begins and releases periods (rules 2 and 3 in `batch`).

use std::path::PathBuf;

use log::{Log, Lsn};

use super::held::HeldPages;
use super::replay::is_due;
use crate::abi::real::Real;
use crate::batch::background;
use crate::counters::COUNTERS;
use crate::database::Database;
use crate::failure::Failure;
use crate::faults::{self, Fault};
use crate::format::database_header::DatabaseHeader;
use crate::format::pages::{Head, Writer};
use crate::stream::doubt::hear_doubt;
use crate::stream::header::{Holds, SharedHeader, StreamHeader};
use crate::stream::lease::{append, append_closed, close, leave, truncate};
use crate::stream::stamped::Stream;

/// The result of a commit.
pub struct Committed {
    /// The size of the database.
    pub bytes: u64,
    /// LSN after the record, if the log holds so much that the database has to be synced.
    pub sync_upto: Option<u64>,
}

/// Why a transaction was not committed as a record.
pub enum CommitError {
    /// The database is unchanged: SQLite may write a journal instead.
    Refused(Failure),
    /// The record is durable, and some pages were written to the database: replay is due.
    Applying(Failure),
}

impl From<Failure> for CommitError {
    fn from(e: Failure) -> CommitError {
        CommitError::Refused(e)
    }
}

impl Database {
    /// Commits the held pages, under SQLite's exclusive lock.
    pub(super) fn commit_batch(
        &self,
        main: &Real,
        held: &HeldPages,
    ) -> Result<Committed, CommitError> {
        let nothing = || Failure::CannotOpen("the database has no log".into());
        self.with_log(|log, stream| Ok(self.commit_to(log, stream, main, held)))?
            .ok_or_else(nothing)?
    }

    fn commit_to(
        &self,
        log: &Log,
        stream: &Stream,
        main: &Real,
        held: &HeldPages,
    ) -> Result<Committed, CommitError> {
        let _lease = self.lease(stream)?;
        let transaction = Transaction::new(main, held)?;
        let shared = self.period(log, stream, main, &transaction)?;
        transaction.extend(main)?;
        let record = transaction.record(main)?;
        let lsn = append(stream, &record)?;
        if !faults::is(Fault::SkipsRecordSync) {
            stream.sync(Lsn(lsn)).map_err(Failure::from)?;
        }
        let database_header_crc = transaction.after.crc;
        let holds = Holds::PagesInPart;
        let shared = StreamHeader { last_lsn: lsn, database_header_crc, holds, ..shared };
        let shared = leave(stream, shared);
        transaction.apply(main).map_err(CommitError::Applying)?;
        let shared = leave(stream, StreamHeader { holds: Holds::Pages, ..shared });
        COUNTERS.transaction(transaction.count(), record.len() as u64);
        // A later truncation frees what this one did not.
        let _ = truncate(stream, &shared);
        let live_bytes = shared.end_lsn - shared.base_lsn;
        let sync_upto = background::is_due(live_bytes).then_some(shared.end_lsn);
        Ok(Committed { bytes: transaction.bytes_after(), sync_upto })
    }

    /// Finds or begins the period of the transaction.
    fn period(
        &self,
        log: &Log,
        stream: &Stream,
        main: &Real,
        transaction: &Transaction<'_>,
    ) -> Result<StreamHeader, Failure> {
        let page_bytes = u32::try_from(transaction.before.page_bytes).expect("64 KiB at most");
        let end_lsn = stream.appended().0;
        if is_due(stream)? {
            return Err(is_in_part());
        }
        match StreamHeader::read(&stream.header()?) {
            SharedHeader::Whole(shared)
                if shared.holds.has_pages()
                    && shared.end_lsn == end_lsn
                    && shared.page_bytes == page_bytes
                    && shared.database_header_crc == transaction.before.crc
                    && !background::is_overdue(end_lsn - shared.base_lsn) =>
            {
                Ok(shared)
            }
            _ => {
                if hear_doubt(log, stream)? {
                    return Err(is_in_part());
                }
                self.make_durable_home(stream, main)?;
                let lsn = append_closed(stream)?;
                let (base_lsn, last_lsn) = (lsn, lsn);
                let database_header_crc = transaction.before.crc;
                let shared = StreamHeader {
                    page_bytes,
                    base_lsn,
                    last_lsn,
                    database_header_crc,
                    holds: Holds::Pages,
                    ..StreamHeader::default()
                };
                Ok(leave(stream, shared))
            }
        }
    }

    /// Rule 2: makes the present database and the end of its journals durable.
    fn make_durable_home(&self, stream: &Stream, main: &Real) -> Result<(), Failure> {
        if faults::is(Fault::SkipsPeriodSync) {
            return Ok(());
        }
        self.sync_home(stream, main)?;
        let directory = self.path.parent().unwrap_or(std::path::Path::new("/"));
        for path in [&self.journal_path(), directory] {
            match std::fs::File::open(path).and_then(|file| file.sync_all()) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    let text = format!("syncing {}: {e}", path.display());
                    return Err(Failure::CannotOpen(text));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The path of its rollback journal.
    fn journal_path(&self) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push("-journal");
        PathBuf::from(path)
    }

    /// Ends the period, if there is one. The database is then durable without the log.
    pub fn release(&self, main: &Real) -> Result<(), Failure> {
        let released = self.with_log(|log, stream| {
            // Only a holder of SQLite's locks ends a period, so this needs no lease.
            let header = StreamHeader::read(&stream.header()?);
            if matches!(header, SharedHeader::Whole(shared) if !shared.holds.has_pages()) {
                return Ok(());
            }
            let _lease = self.lease(stream)?;
            // The next connection that gets SQLite's lock finds that and replays.
            if is_due(stream)? || hear_doubt(log, stream)? {
                return Err(is_in_part());
            }
            let header = StreamHeader::read(&stream.header()?);
            if !matches!(header, SharedHeader::Whole(shared) if shared.holds.has_pages()) {
                return Ok(());
            }
            if faults::is(Fault::SkipsRelease) {
                return Ok(());
            }
            self.sync_home(stream, main)?;
            close(stream)
        })?;
        released.map_or(Ok(()), Ok)
    }
}

fn is_in_part() -> Failure {
    Failure::Damaged("the database has transactions of the log in part".into())
}

/// A transaction's pages, and the database before and after it.
struct Transaction<'a> {
    held: &'a HeldPages,
    before: DatabaseHeader,
    after: DatabaseHeader,
    head: Head,
    /// The present size of the file in bytes.
    file_bytes: u64,
}

impl Transaction<'_> {
    fn new<'h>(main: &Real, held: &'h HeldPages) -> Result<Transaction<'h>, Failure> {
        let odd = || Failure::CannotOpen("a transaction that is not one of pages".into());
        let before = DatabaseHeader::read(main)?.ok_or_else(odd)?;
        let after = match held.first() {
            Some(page) => DatabaseHeader::parse(page).ok_or_else(odd)?,
            None => before,
        };
        let file_bytes = main.size()?;
        let pages_before = before.pages_in(file_bytes);
        let last = held.pages().next_back().map(|(page, _)| page);
        let pages_after = after.page_count().or(last).ok_or_else(odd)?;
        let is_whole = last.is_some_and(|last| last <= pages_after)
            && (pages_after <= pages_before || last == Some(pages_after));
        // SQLite writes more pages after such a commit, if it changes the page size.
        let is_same_size = [before.page_bytes, after.page_bytes] == [held.page_bytes(); 2];
        if !is_whole || !is_same_size {
            return Err(odd());
        }
        let head = Head {
            page_bytes: before.page_bytes,
            counter_before: before.change_counter,
            counter_after: after.change_counter,
            pages_before,
            pages_after,
        };
        Ok(Transaction { held, before, after, head, file_bytes })
    }

    fn count(&self) -> u64 {
        self.held.pages().count() as u64
    }

    fn at(&self, page: u32) -> u64 {
        u64::from(page - 1) * self.head.page_bytes as u64
    }

    fn bytes_before(&self) -> u64 {
        u64::from(self.head.pages_before) * self.head.page_bytes as u64
    }

    fn bytes_after(&self) -> u64 {
        u64::from(self.head.pages_after) * self.head.page_bytes as u64
    }

    /// Writes the pages beyond the end of the database, where SQLite does not read. A full disk is
    /// noticed here, before the record.
    fn extend(&self, main: &Real) -> Result<(), Failure> {
        if self.head.pages_after <= self.head.pages_before {
            return Ok(());
        }
        let extended = self.write_new_pages(main);
        if extended.is_err() {
            // It says no more than that it is full.
            let _ = main.truncate(self.bytes_before());
        }
        extended
    }

    fn write_new_pages(&self, main: &Real) -> Result<(), Failure> {
        if self.file_bytes > self.bytes_before() {
            main.truncate(self.bytes_before())?;
            self.blank(main)?;
        }
        if let Some(bytes) = self.held.size_hint {
            main.hint_size(bytes);
        }
        self.write(main, |page| page > self.head.pages_before)
    }

    /// Zeroes the new pages that the transaction does not write, because replay takes them as
    /// zeros. A file that grows in chunks (`SQLITE_FCNTL_CHUNK_SIZE`) is cut at the end of a chunk,
    /// and has old pages up to there.
    fn blank(&self, main: &Real) -> Result<(), Failure> {
        let end = main.size()?.min(self.bytes_after());
        let zeros = vec![0; self.head.page_bytes];
        let new = self.head.pages_before + 1..=self.head.pages_after;
        for page in new.take_while(|page| self.at(*page) < end) {
            if !self.held.has(page) {
                main.write(self.at(page), &zeros)?;
            }
        }
        Ok(())
    }

    /// Writes the other pages.
    fn apply(&self, main: &Real) -> Result<(), Failure> {
        self.write(main, |page| page <= self.head.pages_before)
    }

    /// Writes pages. Adjacent pages are one write.
    fn write(&self, main: &Real, which: impl Fn(u32) -> bool) -> Result<(), Failure> {
        let (mut begin, mut run) = (0, Vec::new());
        for (page, bytes) in self.held.pages().filter(|(page, _)| which(*page)) {
            if !run.is_empty() && begin + run.len() as u64 != self.at(page) {
                main.write(begin, &run)?;
                run.clear();
            }
            if run.is_empty() {
                begin = self.at(page);
            }
            run.extend_from_slice(bytes);
        }
        main.write(begin, &run)
    }

    fn record(&self, main: &Real) -> Result<Vec<u8>, Failure> {
        let mut writer = Writer::new(&self.head);
        let mut base = vec![0; self.head.page_bytes];
        for (page, bytes) in self.held.pages() {
            let is_there = page <= self.head.pages_before;
            if is_there {
                main.read(self.at(page), &mut base)?;
            }
            writer.push(page, is_there.then_some(&base[..]), bytes);
        }
        Ok(writer.finish())
    }
}
