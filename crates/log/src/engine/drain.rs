//! A drain: brings records from the chunks to the log files.
//!
//! 1. Read the records that are durable and not drained, one after the other. Bytes that are no
//!    record abort the stream.
//! 2. Write them to the log file, many records at a time, with one sync for all of them.
//! 3. Move `drained`, then free the chunks below it.
//!
//! Where lanes are ordinary memory, a drain also takes records that are not durable yet. It is then
//! a sync too, and for many bytes a cheaper one than the group log.

use std::time::Duration;

use device::sync::MutexGuard;

use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::engine::stall::StallTimeout;
use crate::faults::{self, Fault};
use crate::format::scan::{Bytes, Records};
use crate::words::DrainerClaim;
use crate::{LogError, Lsn, Result};

/// How long to wait for another drainer before checking whether it lives.
const DRAINER_WAIT: Duration = Duration::from_millis(1);

/// The right to take bytes out of a lane, until it is dropped.
pub(crate) struct Drainer<'a> {
    claim: DrainerClaim,
    _alone: MutexGuard<'a, ()>,
}

impl Drainer<'_> {
    /// Says that the stream was removed; see [`DrainerClaim::mark_removed`].
    pub(crate) fn mark_removed(&self) {
        self.claim.mark_removed();
    }
}

impl Drop for Drainer<'_> {
    fn drop(&mut self) {
        // A thread that panics keeps the word. The next drainer puts the lane in order first.
        if !std::thread::panicking() {
            self.claim.release();
        }
    }
}

impl Service {
    /// Brings everything that was appended to the log files, and frees the chunks.
    pub(crate) fn drain(&self, lane: &Lane) -> Result<()> {
        self.drain_within(lane, self.stall_limit())
    }

    /// The same. Waits at most `limit` for another process that drains and makes no progress.
    pub(crate) fn drain_within(&self, lane: &Lane, limit: Duration) -> Result<()> {
        lane.check()?;
        // Another process, or another thread of this one, may bring records home at the same time.
        // They are drained for this caller, too.
        let drainer = self.wait_for_drainer(lane, limit)?;
        lane.check()?;
        self.drain_claimed(lane, &drainer).inspect_err(|e| lane.abort_after(e))
    }

    /// Drains the lane unless another thread or process does so now.
    pub(crate) fn drain_if_free(&self, lane: &Lane) -> Result<()> {
        lane.check()?;
        let Some(drainer) = self.claim_drainer(lane) else { return Ok(()) };
        lane.check()?;
        self.drain_claimed(lane, &drainer).inspect_err(|e| lane.abort_after(e))
    }

    /// Makes the caller the drainer of the lane, if it has none.
    ///
    /// The lane's writer can write the word, too. This process knows which of its threads drain. So
    /// if the word names this process and none of them drains, the word is ignored, and the writer
    /// cannot make this process wait for itself.
    pub(crate) fn claim_drainer<'a>(&self, lane: &'a Lane) -> Option<Drainer<'a>> {
        let alone = lane.draining.try_lock()?;
        let me = self.host.client();
        let claim = lane.words.claim_drainer(me, |held| held == me || self.is_dead(held))?;
        Some(Drainer { claim, _alone: alone })
    }

    /// How long to wait for another process that makes no progress. That process may be syncing a
    /// whole pool to a disk that writes one mebibyte a second.
    pub(crate) fn stall_limit(&self) -> Duration {
        let pool_bytes = self.host.settings().pool_bytes();
        self.full_wait + Duration::from_micros(pool_bytes.saturating_mul(1_000_000) >> 20)
    }

    /// Waits until this process is the drainer. An error if the present drainer makes no progress
    /// for `limit`.
    pub(crate) fn wait_for_drainer<'a>(
        &self,
        lane: &'a Lane,
        limit: Duration,
    ) -> Result<Drainer<'a>> {
        let progress = || lane.words.drained();
        let mut stall = StallTimeout::new(limit, progress());
        loop {
            if let Some(drainer) = self.claim_drainer(lane) {
                *lane.stalled.lock() = None;
                return Ok(drainer);
            }
            let who = lane.words.drainer();
            lane.words.check()?;
            let waited = stall.check(progress(), who, &format!("drain stream {}", lane.name));
            waited.inspect_err(|_| *lane.stalled.lock() = Some(who))?;
            std::thread::sleep(DRAINER_WAIT);
        }
    }

    fn drain_claimed(&self, lane: &Lane, drainer: &Drainer<'_>) -> Result<()> {
        lane.pull()?;
        let begin = lane.words.drained();
        let end = lane.words.appended();
        lane.words.check()?;
        if begin < end {
            // A drainer that died may have made a file that this process has not seen.
            lane.look_again();
            let written = copy_records(lane, begin, end)?;
            if !faults::is(Fault::DrainedBeforeSync) {
                lane.with_files(|segments| segments.sync())?;
            }
            self.control.count_drain(written);
            self.control.raise_highest_usn(lane.words.last_usn());
            drainer.claim.mark_drained(end);
            if self.host.nvram().is_none() {
                // A stream may wait for a group commit of the same bytes.
                self.control.advance_epoch();
            }
        }
        self.free_drained(lane)
    }

    /// Frees the chunks below `drained`. If the lane has no writer, frees the last chunk, too.
    fn free_drained(&self, lane: &Lane) -> Result<()> {
        let drained = lane.words.drained();
        let chunk_bytes = self.host.settings().chunk_bytes;
        let me = self.host.client().for_a_moment();
        // A client of the daemon keeps its lease when another process serves the directory.
        let is_remote = lane.words.remote().is_some();
        let take = || lane.words.claim_lessee(me, |held| self.is_dead(held));
        let before = if is_remote { None } else { take() };
        let has_lease = before.is_some();
        if before.is_some_and(|before| self.has_left_something(lane, before)) {
            self.tidy(lane).inspect_err(|_| lane.words.release_lessee())?;
        }
        let is_idle = has_lease && lane.words.appended() == drained;
        let mut freed = Ok(());
        for (ordinal, index) in lane.chunks() {
            let is_drained = (ordinal + 1) * chunk_bytes <= drained
                || (faults::is(Fault::ChunkGivenBackEarly) && ordinal * chunk_bytes < drained);
            if is_idle || is_drained {
                freed = freed.and_then(|()| self.free_chunk(lane, ordinal, index));
            }
        }
        if has_lease {
            lane.words.release_lessee();
        }
        freed
    }
}

/// Copies the records of [`begin`, `end`) to the log files. Returns how many bytes that were.
fn copy_records(lane: &Lane, begin: u64, end: u64) -> Result<u64> {
    let mut source = Chunks(lane);
    let mut records = Records::new(lane.identity(), &mut source, Lsn(begin), end);
    while records.position().0 < end {
        let position = records.position();
        let Some((at, bytes)) = records.next_run()? else {
            return Err(LogError::Damaged {
                stream: lane.name.to_string(),
                at: position,
                what: "its lane holds no record where one was published".into(),
            });
        };
        lane.with_files(|segments| segments.write(at.0, bytes))?;
    }
    Ok(end - begin)
}

/// Reads the chunks of a lane, also below `drained`.
struct Chunks<'a>(&'a Lane);

impl Bytes for Chunks<'_> {
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_chunks(at, buf)
    }
}
