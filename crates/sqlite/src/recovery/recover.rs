//! Recovery after a restart of the machine: what the log holds is written to the database file,
//! before any connection reads it.
//!
//! | the WAL file | what is done |
//! |---|---|
//! | has all logged frames | they are written again and synced; SQLite's own recovery reads them |
//! | is of the log's generation, without all logged frames | roll forward |
//! | is of a generation that the log knows to be stale | roll forward |
//! | anything else, and the database has the logged pages | nothing |
//! | is gone or empty, and the database is as the log has seen it | roll forward |
//! | anything else | conflict |
//!
//! *Roll forward*: the last version of each page is computed and compared with its checksum. Then
//! all pages are written to the database, which is synced. Then the WAL is emptied and synced, and
//! the log is closed. These steps may be interrupted and done again: until the log is closed, it
//! gives the same versions over any mixture of old and new pages, and no connection reads the stale
//! WAL before.
//!
//! A *conflict* is found before anything is written.
//!
//! A program without the extension may have opened the database after a power cut. It copies the
//! frames that the WAL has to the database, and removes the WAL. The database is then as it was
//! after one of the logged transactions, and the rest can be applied. Two things tell it from an
//! older database, and from one that the program changed: the witnesses in the base, and that each
//! logged page is one of the versions that the log knows, all of one moment.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::abi::opened::Opened;
use crate::abi::real::Real;
use crate::counters::{COUNTERS, count};
use crate::database::Database;
use crate::failure::{Conflict, Failure};
use crate::format::base::{Base, Kind};
use crate::format::frames::frames;
use crate::format::page::page_at;
use crate::format::wal::{self, Checksum};
use crate::frames::read::copy_onto_itself;
use crate::frames::scan::Scan;
use crate::frames::witnesses;
use crate::recovery::roll_forward::{Logged, Plan, roll_forward};
use crate::stream::header::SharedHeader;
use crate::stream::lease::{self, Lease};
use crate::stream::live::Live;
use crate::stream::stamped::Stream;

/// How long recovery waits for another process that recovers the database or has it open. After
/// that, opening fails.
const OTHERS_WAIT: Duration = Duration::from_secs(5);

/// The kinds of recovery.
enum Verdict {
    Leave,
    RollForward,
    Conflict(Conflict),
}

impl Database {
    /// Recovers the database if that is due. `main` is its open file. This connection has no lock
    /// on it.
    pub fn recover(&self, main: &Real, is_writable: bool) -> Result<(), Failure> {
        let done = self.with_stream(|stream| {
            let begin = Instant::now();
            while lease::find_header(stream)? == SharedHeader::Unset {
                let is_last = begin.elapsed() >= OTHERS_WAIT;
                if self.try_recover(stream, main, is_writable, is_last)? {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        })?;
        done.map_or(Ok(()), Ok)
    }

    /// Whether recovery is done. `false`: another connection has the database open, and this is not
    /// the last attempt.
    fn try_recover(
        &self,
        stream: &Stream,
        main: &Real,
        is_writable: bool,
        is_last: bool,
    ) -> Result<bool, Failure> {
        let Some(live) = self.read(stream)? else {
            return self.settle(stream).map(|()| true);
        };
        let is_locked = is_writable && main.lock_exclusive()?;
        if lease::find_header(stream)? != SharedHeader::Unset {
            // The connection that had it locked has recovered it.
            return if is_locked { main.unlock().map(|()| true) } else { Ok(true) };
        }
        if !is_locked && is_writable && !is_last {
            return Ok(false);
        }
        let recovered =
            self.recover_locked(main, &live, is_locked).and_then(|()| match is_locked {
                true => self.settle(stream),
                false => Ok(()),
            });
        if is_locked {
            main.unlock()?;
        }
        recovered.map(|()| true)
    }

    /// Brings what the log holds into the files, durably, with SQLite's exclusive lock. Without the
    /// lock (`may_write` is false) it is an error if the files lack anything.
    pub(super) fn recover_locked(
        &self,
        main: &Real,
        live: &Live,
        may_write: bool,
    ) -> Result<(), Failure> {
        if !live.batches.is_empty() {
            return match may_write {
                true => self.bring_home(&live.batches, main),
                false => Err(self.not_home()),
            };
        }
        let wal = Opened::wal(self.below, &self.path, may_write)?;
        let wal = wal.as_ref().map(Opened::real);
        let logged = logged_frames(live)?;
        let scan = match wal {
            Some(wal) => Scan::read(wal)?,
            None => None,
        };
        let held = wal.zip(scan.as_ref());
        match judge(live, &logged, held, main)? {
            Verdict::Leave if may_write => write_logged(live, &logged, held)?,
            Verdict::Leave => {}
            Verdict::RollForward if !may_write => return Err(self.not_home()),
            Verdict::RollForward => {
                roll_forward(live, &logged, held, main)?;
                count(&COUNTERS.recoveries);
            }
            Verdict::Conflict(_) if self.settings.may_discard && may_write => {}
            Verdict::Conflict(conflict) => return Err(self.conflict(conflict)),
        }
        match wal {
            // The rest of it may be in the page cache only.
            Some(wal) if may_write => wal.sync(),
            _ => Ok(()),
        }
    }

    /// Records that the log holds nothing for the database.
    fn settle(&self, stream: &Stream) -> Result<(), Failure> {
        let _lease = Lease::take(stream)?;
        match lease::find_header(stream)? {
            SharedHeader::Unset => lease::close(stream),
            SharedHeader::Torn | SharedHeader::Whole(_) => Ok(()),
        }
    }
}

/// All logged frames, in order, without a gap.
fn logged_frames(live: &Live) -> Result<Vec<Logged<'_>>, Failure> {
    let mut logged: Vec<Logged<'_>> = Vec::new();
    for (head, bytes) in &live.frames {
        if logged.last().is_some_and(|(last, _)| last + 1 != head.first) {
            return Err(Failure::Damaged(format!("the log lacks frames before {}", head.first)));
        }
        logged.extend((head.first..).zip(frames(head, bytes)?));
    }
    Ok(logged)
}

/// Writes the logged frames of the WAL once more. An earlier recovery may have failed in the sync
/// after this. The kernel reported that once, and since then treats the frames as written.
fn write_logged(
    live: &Live,
    logged: &[Logged<'_>],
    held: Option<(&Real, &Scan)>,
) -> Result<(), Failure> {
    match (held, logged.first()) {
        (Some((wal, scan)), Some((first, _))) if scan.header.salts == live.base.salts => {
            let at = |number| scan.header.frame_at(number);
            copy_onto_itself(wal, at(*first)..at(scan.valid() + 1))
        }
        _ => Ok(()),
    }
}

/// A conflict.
fn conflict(what: impl Into<String>) -> Result<Verdict, Failure> {
    Ok(Verdict::Conflict(Conflict(what.into())))
}

fn judge(
    live: &Live,
    logged: &[Logged<'_>],
    held: Option<(&Real, &Scan)>,
    main: &Real,
) -> Result<Verdict, Failure> {
    let base = &live.base;
    match held {
        Some((wal, scan)) if scan.header.salts == base.salts => {
            judge_same(live, logged, (wal, scan), main)
        }
        Some((_, scan)) if base.stale.iter().any(|stale| stale.salts == scan.header.salts) => {
            let known = base.stale.iter().find(|stale| stale.salts == scan.header.salts);
            if known.is_some_and(|stale| scan.committed() > stale.frames) {
                return conflict(
                    "its WAL is of an earlier generation, and frames were added to it",
                );
            }
            if live.frames.first().is_some_and(|(head, _)| head.first != 1) {
                return conflict("its WAL lost what had been synced");
            }
            judge_pages(live, logged, None, main)
        }
        _ if logged.is_empty() => Ok(Verdict::Leave),
        _ if is_settled(base, logged, main)? => Ok(Verdict::Leave),
        Some(_) => conflict("its WAL belongs to a generation that is not in the log"),
        None => judge_copied(live, logged, main),
    }
}

/// Whether a database without a WAL is as it was at a moment that the log has seen, because a
/// program without the extension copied the WAL to it.
fn judge_copied(live: &Live, logged: &[Logged<'_>], main: &Real) -> Result<Verdict, Failure> {
    let base = &live.base;
    let is_logged = |page| logged.iter().any(|(_, frame)| frame.page == page);
    if !witnesses::are_there(&base.witnesses, base.page_bytes, main, is_logged)? {
        return conflict("its WAL is gone or empty, and it lacks frames that had been synced");
    }
    if !is_of_one_moment(base, logged, main)? {
        return conflict("its WAL is gone or empty, and its pages are of no moment in the log");
    }
    judge_pages(live, logged, None, main)
}

/// Whether the logged pages in the database are those after one of the logged frames, or before all
/// of them.
fn is_of_one_moment(base: &Base, logged: &[Logged<'_>], main: &Real) -> Result<bool, Failure> {
    let mut pages: BTreeMap<u32, Vec<&Logged<'_>>> = BTreeMap::new();
    for frame in logged {
        pages.entry(frame.1.page).or_default().push(frame);
    }
    // The moments that may be, as ranges of frame numbers.
    let mut moments: Vec<Range<u32>> = std::iter::once(0..u32::MAX).collect();
    let mut page = vec![0; base.page_bytes];
    for (number, frames) in pages {
        let read = main.read(page_at(number, base.page_bytes), &mut page)?;
        let until = |index: usize| frames.get(index).map_or(u32::MAX, |(number, _)| *number);
        let held = frames.iter().enumerate().filter(|(_, (_, frame))| frame.holds(&page));
        let mut of_page: Vec<Range<u32>> =
            held.map(|(index, (number, _))| *number..until(index + 1)).collect();
        let first = &frames[0].1;
        if first.is_based_on(&page) || first.has_no_base() && read == 0 {
            of_page.push(0..until(0));
        }
        let of_both = |a: &Range<u32>, b: &Range<u32>| a.start.max(b.start)..a.end.min(b.end);
        let both = moments.iter().flat_map(|a| of_page.iter().map(move |b| of_both(a, b)));
        moments = both.filter(|range| !range.is_empty()).collect();
    }
    Ok(!moments.is_empty())
}

/// Whether the WAL has the generation that the log knows.
fn judge_same(
    live: &Live,
    logged: &[Logged<'_>],
    (wal, scan): (&Real, &Scan),
    main: &Real,
) -> Result<Verdict, Failure> {
    let base = &live.base;
    let is_kept = |upto: u32, sum: Checksum| scan.valid() >= upto && scan.checksum(upto) == sum;
    let before = live.frames.first().map(|(head, _)| (head.first - 1, head.checksum));
    let is_durable_there = base.kind != Kind::Durable || is_kept(base.frames, base.checksum);
    if !is_durable_there || before.is_some_and(|(upto, sum)| !is_kept(upto, sum)) {
        return conflict("its WAL lost or changed what had been synced");
    }
    let Some((last, _)) = logged.last() else { return Ok(Verdict::Leave) };
    for (number, frame) in logged.iter().take_while(|(number, _)| *number <= scan.committed()) {
        // A checksum is over the page, and over all frames before it.
        let found = &scan.frames[*number as usize - 1];
        let is_same = found.page == frame.page
            && found.commit_pages == frame.commit_pages
            && found.checksum == frame.checksum;
        if !is_same {
            let text = format!("frame {number} of its WAL differs from the logged frame");
            return conflict(text);
        }
    }
    if scan.valid() >= *last {
        return Ok(Verdict::Leave);
    }
    judge_pages(live, logged, Some((wal, scan)), main)
}

/// Whether the log's frames can be of this database.
fn judge_pages(
    live: &Live,
    logged: &[Logged<'_>],
    held: Option<(&Real, &Scan)>,
    main: &Real,
) -> Result<Verdict, Failure> {
    let mut header = [0; 100];
    let count = main.read(0, &mut header)?;
    if let Some(page_bytes) = wal::database_page_bytes(&header[..count])
        && page_bytes != live.base.page_bytes
    {
        return conflict("its page size is not the logged one");
    }
    let newest =
        live.frames.last().map_or(live.base.change_counter, |(head, _)| head.change_counter);
    let counter = wal::change_counter(&header);
    let since = |counter: u32| counter.wrapping_sub(live.base.change_counter);
    let is_known = match live.base.kind {
        // The database may have been written since the generation began, and not be durable yet.
        Kind::Durable => newest.wrapping_sub(counter) <= u32::MAX / 2,
        Kind::Begin | Kind::Closed => since(counter) <= since(newest),
    };
    if !is_known {
        return conflict("its change counter is outside the range in the log");
    }
    let plan = Plan::new(live, logged, held.map(|(_, scan)| scan));
    for (page, steps) in &plan.pages {
        let version = steps.version(*page, &plan, logged, held, main)?;
        if steps.last(logged).is_some_and(|frame| !frame.holds(&version)) {
            return conflict(format!("page {page} differs from every version in the log"));
        }
    }
    Ok(Verdict::RollForward)
}

/// Whether the database holds the last versions of all logged pages.
fn is_settled(base: &Base, logged: &[Logged<'_>], main: &Real) -> Result<bool, Failure> {
    let mut last = BTreeMap::new();
    for (_, frame) in logged {
        last.insert(frame.page, frame);
        if frame.commit_pages > 0 {
            last.split_off(&frame.commit_pages.saturating_add(1));
        }
    }
    let mut page = vec![0; base.page_bytes];
    for (number, frame) in last {
        main.read(page_at(number, base.page_bytes), &mut page)?;
        if !frame.holds(&page) {
            return Ok(false);
        }
    }
    Ok(true)
}
