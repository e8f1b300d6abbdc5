//! What a client of the daemon reports of its lane, and what of that is believed.
//!
//! A client may write any value into any word of its copy at any time, also between two reads of
//! this module. So each word is read a bounded number of times, and what was read is judged, never
//! the word itself. `hostile_test` holds this module against arbitrary words.

use super::lane::{LaneWords, Totals};
use super::limits::RECORD_ALIGN_BYTES;
use super::memory::fence_after_copy;
use crate::Result;

/// How often a word is read until it has the same value twice.
pub(super) const READS_MAX: usize = 16;

/// A client's copy of the words, read one word at a time.
pub(crate) trait ClientWords {
    /// A word by its index. An error if the client made the copy shorter.
    fn word(&self, index: usize) -> Result<u64>;
}

/// What a client reports of its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) appended: u64,
    pub(crate) totals: Totals,
}

/// A report that cannot be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Implausible {
    /// The end that the client reports.
    pub(crate) reported: u64,
    /// The end that was believed before.
    pub(crate) known: u64,
}

impl Report {
    /// Reads what the client reports now.
    pub(crate) fn read(words: &impl ClientWords) -> Result<Report> {
        let appended = steady(words, LaneWords::APPENDED)?;
        let totals = Totals {
            record_count: words.word(LaneWords::RECORD_COUNT)?,
            payload_bytes: words.word(LaneWords::PAYLOAD_BYTES)?,
            last_usn: words.word(LaneWords::LAST_USN)?,
        };
        // What the client stored before it published is read after this.
        fence_after_copy();
        Ok(Report { appended, totals })
    }
}

/// Reads a word until it has the same value twice. The kernel may copy a word while the client
/// changes it, and the copy is then a mixture of two values. Two equal copies are no mixture.
fn steady(words: &impl ClientWords, index: usize) -> Result<u64> {
    let mut seen = words.word(index)?;
    for _ in 0..READS_MAX {
        let again = words.word(index)?;
        if again == seen {
            break;
        }
        seen = again;
    }
    Ok(seen)
}

impl LaneWords {
    /// Takes over a report if it can be true. `known` is the end that was believed before the
    /// report was read, and `owns` says whether a chunk is the stream's.
    ///
    /// The end can be one if it is not before `known`, is the end of a record, and is inside a
    /// chunk that the stream has. Chunks are allocated one after the other: a stream that has the
    /// last one has all that are not drained.
    pub(crate) fn take_over_report(
        &self,
        known: u64,
        report: Report,
        chunk_bytes: u64,
        owns: impl Fn(usize) -> bool,
    ) -> std::result::Result<(), Implausible> {
        let reported = report.appended;
        if reported == known {
            return Ok(());
        }
        let last = reported.saturating_sub(1) / chunk_bytes;
        let is_plausible = reported >= known
            && reported.is_multiple_of(RECORD_ALIGN_BYTES)
            && self.chunk(last).is_some_and(owns);
        if !is_plausible {
            // Another thread may have taken it over, and drained it, since it was read.
            return match known <= reported && self.appended() >= reported {
                true => Ok(()),
                false => Err(Implausible { reported, known }),
            };
        }
        let last_usn = report.totals.last_usn.min(self.usn_limit());
        self.take_over(reported, Totals { last_usn, ..report.totals });
        Ok(())
    }

    /// Whether the words agree with each other, so that a writer may continue from them. The
    /// previous lessee may have left anything in them.
    pub(crate) fn is_plausible(&self, pool_bytes: u64, usn_limit: u64) -> bool {
        let (drained, appended) = (self.drained(), self.appended());
        let undrained_bytes = appended.checked_sub(drained);
        undrained_bytes.is_some_and(|bytes| bytes <= pool_bytes)
            && appended < u64::MAX / 2
            && self.synced() <= appended
            && self.last_usn() < usn_limit.max(1)
    }
}
