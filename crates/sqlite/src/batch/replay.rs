//! The pages that the log has and the database may not: after a restart of the machine, or after a process died while it
//! wrote them.
//!
//! Each page is computed and compared with its CRC before anything is written. Then the file is cut to the
//! fewest pages that it had, the pages are written, and the database is synced; then the log is closed. Cut in the
//! middle and done again that gives the same.

use std::collections::BTreeMap;

use log::{Log, Stream};

use super::front::Front;
use super::record::{Head, Page, pages};
use crate::Failure;
use crate::database::Database;
use crate::faults::{self, Fault};
use crate::note::{Found, Note};
use crate::real::Real;
use crate::recovery::{conflict, page_at, read_live};
use crate::stat::COUNTERS;
use crate::stream::close;

/// The transactions of a period.
pub type Batches = Vec<(Head, Vec<u8>)>;

/// Why they cannot be replayed.
pub(super) enum Refused {
    /// The database is not what they were made for.
    Conflict(String),
    /// Something failed.
    Failed(Failure),
}

impl From<Failure> for Refused {
    fn from(e: Failure) -> Refused {
        Refused::Failed(e)
    }
}

impl Database {
    /// Whether a process died while it wrote a transaction's pages, or a sync of them failed.
    pub(super) fn is_hot(&self) -> Result<bool, Failure> {
        let found = self.with_stream(|stream| {
            self.settle_doubt(stream)?;
            match Note::find(&stream.note()?) {
                Found::Note(note) => Ok(note.is_applying),
                Found::Nothing => Ok(false),
                // Perhaps somebody is writing the note.
                Found::Torn => {
                    let _lease = self.lease(stream)?;
                    is_due(stream)
                }
            }
        })?;
        if faults::is(Fault::SkipsReplay) {
            return Ok(false);
        }
        Ok(found.unwrap_or(false))
    }

    /// Brings them into the database. Under SQLite's exclusive lock.
    pub(super) fn finish_hot(&self, main: Real) -> Result<(), Failure> {
        let done = self.with_log(|log, stream| {
            let _lease = self.lease(stream)?;
            if !is_due(stream)? {
                return Ok(());
            }
            let batches = self.read(stream)?.map(|live| live.batches).unwrap_or_default();
            self.bring_home(log, stream, &batches, main)?;
            close(stream)
        })?;
        done.map_or(Ok(()), Ok)
    }

    /// Brings the transactions into the database, durably; gives them up when that was asked for and they cannot be; sets
    /// them aside when the database is a new one.
    pub fn bring_home(
        &self,
        log: &Log,
        stream: &Stream,
        batches: &Batches,
        main: Real,
    ) -> Result<(), Failure> {
        match replay(batches, main) {
            Ok(()) => COUNTERS.recovery(),
            Err(Refused::Conflict(_)) if self.settings.may_discard => {}
            Err(Refused::Conflict(_)) if self.is_anew(main)? => self.set_aside(log, stream)?,
            Err(Refused::Conflict(what)) => return Err(conflict(&self.path, &what)),
            Err(Refused::Failed(e)) if e.is_damage() && self.settings.may_discard => {}
            Err(Refused::Failed(e)) if e.is_damage() => return Err(self.unreadable(&e)),
            Err(Refused::Failed(e)) => return Err(e),
        }
        Ok(())
    }
}

/// With the lease: whether the database may have transactions of the log in part.
pub(super) fn is_due(stream: &Stream) -> Result<bool, Failure> {
    match Note::find(&stream.note()?) {
        Found::Note(note) => Ok(note.is_applying),
        Found::Nothing => Ok(false),
        Found::Torn => match read_live(stream) {
            // Replay says what becomes of it.
            Err(e) if e.is_damage() => Ok(true),
            read => Ok(read?.is_some_and(|live| !live.batches.is_empty())),
        },
    }
}

/// Brings the transactions into the database, durably.
pub(super) fn replay(batches: &Batches, main: Real) -> Result<(), Refused> {
    let (Some((first, _)), Some((last, _))) = (batches.first(), batches.last()) else {
        return Ok(());
    };
    let page_bytes = first.page_bytes;
    let is_chain = |pair: &[(Head, Vec<u8>)]| {
        pair[0].0.counter_behind == pair[1].0.counter_before && pair[1].0.page_bytes == page_bytes
    };
    if !batches.windows(2).all(is_chain) {
        let text = "the log's transactions do not follow each other";
        return Err(Failure::Damaged(text.into()).into());
    }
    check_front(first, last, main)?;
    let batches: Vec<(Head, Vec<Page<'_>>)> = batches
        .iter()
        .map(|(head, bytes)| Ok((*head, pages(bytes)?)))
        .collect::<Result<_, Failure>>()?;
    let plan = Plan::new(&batches);
    for (page, steps) in &plan.pages {
        let version = steps.version(*page, page_bytes, main)?;
        if steps.crc() != Some(crc32c::crc32c(&version)) {
            return Err(Refused::Conflict(format!(
                "page {page} differs from every version in the log"
            )));
        }
    }
    let bytes = |pages: u32| u64::from(pages) * page_bytes as u64;
    if main.size()? > bytes(plan.fewest_pages) {
        main.truncate(bytes(plan.fewest_pages))?;
    }
    for (page, steps) in &plan.pages {
        let version = steps.version(*page, page_bytes, main)?;
        main.write(page_at(*page, page_bytes), &version)?;
    }
    if main.size()? != bytes(last.pages_behind) {
        main.truncate(bytes(last.pages_behind))?;
    }
    Ok(main.sync()?)
}

/// Whether the database's header is one of the period's.
fn check_front(first: &Head, last: &Head, main: Real) -> Result<(), Refused> {
    let Some(front) = Front::read(main)? else {
        return Err(Refused::Conflict("it is no database".into()));
    };
    if front.page_bytes != first.page_bytes {
        return Err(Refused::Conflict("its page size is not the logged one".into()));
    }
    let since = |counter: u32| counter.wrapping_sub(first.counter_before);
    if since(front.change_counter) > since(last.counter_behind) {
        return Err(Refused::Conflict("its change counter is outside the range in the log".into()));
    }
    Ok(())
}

/// How each page comes to its last version.
struct Plan<'a> {
    pages: BTreeMap<u32, Steps<'a>>,
    fewest_pages: u32,
}

/// From the database or from zeros, by these.
#[derive(Default)]
struct Steps<'a> {
    is_from_zeros: bool,
    pages: Vec<&'a Page<'a>>,
}

impl<'a> Plan<'a> {
    fn new(batches: &'a [(Head, Vec<Page<'a>>)]) -> Plan<'a> {
        let mut plan = Plan { pages: BTreeMap::new(), fewest_pages: u32::MAX };
        for (head, pages) in batches {
            plan.fewest_pages = plan.fewest_pages.min(head.pages_before);
            plan.pages.split_off(&head.pages_before.saturating_add(1));
            for page in pages {
                let is_from_zeros = page.number > plan.fewest_pages;
                let new = || Steps { is_from_zeros, pages: Vec::new() };
                plan.pages.entry(page.number).or_insert_with(new).pages.push(page);
            }
        }
        let last = batches.last().map_or(0, |(head, _)| head.pages_behind);
        plan.pages.split_off(&last.saturating_add(1));
        plan.fewest_pages = plan.fewest_pages.min(last);
        plan
    }
}

impl Steps<'_> {
    fn crc(&self) -> Option<u32> {
        self.pages.last().map(|page| page.crc)
    }

    fn version(&self, page: u32, page_bytes: usize, main: Real) -> Result<Vec<u8>, Failure> {
        let mut version = vec![0; page_bytes];
        if !self.is_from_zeros {
            main.read(page_at(page, page_bytes), &mut version)?;
        }
        for step in &self.pages {
            crate::page::apply(step.form, step.bytes, &mut version)?;
        }
        Ok(version)
    }
}
