//! Replays the transactions of a period into the database file: after a restart of the machine, or
//! after a process died while it wrote the pages.
//!
//! Each page is computed and compared with its CRC before anything is written. Then the file is cut
//! to the smallest size that it had in the period, the pages are written, the database is synced,
//! and the log is closed. A replay that was interrupted and done again has the same result.

use std::collections::BTreeMap;

use crate::abi::real::Real;
use crate::counters::{COUNTERS, count};
use crate::database::Database;
use crate::failure::{Conflict, Damage, Failure};
use crate::faults::{self, Fault};
use crate::format::database_header::DatabaseHeader;
use crate::format::page::page_at;
use crate::format::pages::{Batches, Head, Page, pages};
use crate::stream::header::{Holds, SharedHeader, StreamHeader};
use crate::stream::lease::close;
use crate::stream::live::{Contents, read_live};
use crate::stream::stamped::Stream;

/// The result of a replay.
#[must_use]
pub(super) enum Replayed {
    /// The database durably holds the transactions.
    Done,
    /// The database is not the one that they were made for.
    Conflict(Conflict),
    /// They cannot be read, or do not follow each other.
    Damaged(Damage),
}

impl Database {
    /// Whether a process died while it wrote a transaction's pages, or a sync of them failed.
    pub(super) fn is_hot(&self) -> Result<bool, Failure> {
        let found = self.with_stream(|stream| {
            self.settle_doubt(stream)?;
            match StreamHeader::read(&stream.header()?) {
                SharedHeader::Whole(shared) => Ok(shared.holds == Holds::PagesInPart),
                SharedHeader::Unset => Ok(false),
                // Perhaps a process is writing the header now.
                SharedHeader::Torn => {
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

    /// Replays the transactions into the database, under SQLite's exclusive lock.
    pub(super) fn finish_hot(&self, main: &Real) -> Result<(), Failure> {
        let done = self.with_stream(|stream| {
            let _lease = self.lease(stream)?;
            if !is_due(stream)? {
                return Ok(());
            }
            let batches = self.read(stream)?.map(|live| live.batches).unwrap_or_default();
            self.bring_home(&batches, main)?;
            close(stream)
        })?;
        done.map_or(Ok(()), Ok)
    }

    /// Replays the transactions into the database, durably. If that is impossible, gives them up if
    /// the user asked for it.
    pub fn bring_home(&self, batches: &Batches, main: &Real) -> Result<(), Failure> {
        match replay(batches, main)? {
            Replayed::Done => count(&COUNTERS.recoveries),
            Replayed::Conflict(_) | Replayed::Damaged(_) if self.settings.may_discard => {}
            Replayed::Conflict(conflict) => return Err(self.conflict(conflict)),
            Replayed::Damaged(damage) => return Err(self.unreadable(&damage)),
        }
        Ok(())
    }
}

/// Whether the database may have only a part of a transaction of the log. The caller has the lease.
pub(super) fn is_due(stream: &Stream) -> Result<bool, Failure> {
    match StreamHeader::read(&stream.header()?) {
        SharedHeader::Whole(shared) => Ok(shared.holds == Holds::PagesInPart),
        SharedHeader::Unset => Ok(false),
        SharedHeader::Torn => Ok(match read_live(stream)? {
            Contents::Live(live) => !live.batches.is_empty(),
            Contents::Nothing => false,
            // Replay says what becomes of it.
            Contents::Damaged(_) => true,
        }),
    }
}

/// Replays the transactions into the database, durably.
pub(super) fn replay(batches: &Batches, main: &Real) -> Result<Replayed, Failure> {
    match replay_pages(batches, main) {
        Ok(None) => Ok(Replayed::Done),
        Ok(Some(conflict)) => Ok(Replayed::Conflict(conflict)),
        Err(e) => e.damage().map(Replayed::Damaged),
    }
}

/// As [`replay`]; damage is an error. A conflict is found before anything is written.
fn replay_pages(batches: &Batches, main: &Real) -> Result<Option<Conflict>, Failure> {
    let (Some((first, _)), Some((last, _))) = (batches.first(), batches.last()) else {
        return Ok(None);
    };
    let page_bytes = first.page_bytes;
    let is_chain = |pair: &[(Head, Vec<u8>)]| {
        pair[0].0.counter_after == pair[1].0.counter_before && pair[1].0.page_bytes == page_bytes
    };
    if !batches.windows(2).all(is_chain) {
        let text = "the log's transactions do not follow each other";
        return Err(Failure::Damaged(text.into()));
    }
    if let Some(conflict) = check_database_header(first, last, main)? {
        return Ok(Some(conflict));
    }
    let batches: Vec<(Head, Vec<Page<'_>>)> = batches
        .iter()
        .map(|(head, bytes)| Ok((*head, pages(bytes)?)))
        .collect::<Result<_, Failure>>()?;
    let plan = Plan::new(&batches);
    for (page, steps) in &plan.pages {
        let version = steps.version(*page, page_bytes, main)?;
        if steps.crc() != Some(crc32c::crc32c(&version)) {
            let text = format!("page {page} differs from every version in the log");
            return Ok(Some(Conflict(text)));
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
    if main.size()? != bytes(last.pages_after) {
        main.truncate(bytes(last.pages_after))?;
    }
    main.sync().map(|()| None)
}

/// How the database's header differs from those of the period, if it differs.
fn check_database_header(
    first: &Head,
    last: &Head,
    main: &Real,
) -> Result<Option<Conflict>, Failure> {
    let Some(header) = DatabaseHeader::read(main)? else {
        return Ok(Some(Conflict("it is no database".into())));
    };
    if header.page_bytes != first.page_bytes {
        return Ok(Some(Conflict("its page size is not the logged one".into())));
    }
    let since = |counter: u32| counter.wrapping_sub(first.counter_before);
    if since(header.change_counter) > since(last.counter_after) {
        return Ok(Some(Conflict("its change counter is outside the range in the log".into())));
    }
    Ok(None)
}

/// How the last version of each page is made.
struct Plan<'a> {
    pages: BTreeMap<u32, Steps<'a>>,
    fewest_pages: u32,
}

/// From the page in the database, or from zeros, by applying these.
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
        let last = batches.last().map_or(0, |(head, _)| head.pages_after);
        plan.pages.split_off(&last.saturating_add(1));
        plan.fewest_pages = plan.fewest_pages.min(last);
        plan
    }
}

impl Steps<'_> {
    fn crc(&self) -> Option<u32> {
        self.pages.last().map(|page| page.crc)
    }

    fn version(&self, page: u32, page_bytes: usize, main: &Real) -> Result<Vec<u8>, Failure> {
        let mut version = vec![0; page_bytes];
        if !self.is_from_zeros {
            main.read(page_at(page, page_bytes), &mut version)?;
        }
        for step in &self.pages {
            crate::format::page::apply(step.form, step.bytes, &mut version)?;
        }
        Ok(version)
    }
}
