//! The flush worker's work: from the chunks to the log files.
//!
//! 1. Read what is durable and not drained yet, record by record; a record that is none stops the
//!    stream for good.
//! 2. Write it to the log file, many records at once; one sync for all of them.
//! 3. Move `drained`, then give back the chunks below it.
//!
//! On ordinary memory the same, with what is not durable yet: a drain is then also a sync, and
//! cheaper than the group log for a lot of bytes.

use std::time::Duration;

use device::sync::MutexGuard;

use crate::faults::{self, Fault};
use crate::lane::Lane;
use crate::patience::Patience;
use crate::scan::{Bytes, Records};
use crate::service::Service;
use crate::words::DrainerClaim;
use crate::{LogError, Lsn, Result};

/// How long to wait for another drainer before looking whether it lives.
const DRAINER_WAIT: Duration = Duration::from_millis(1);

/// Who takes bytes out of a lane, until it is dropped.
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
        // Of a thread that panics the word stays: whoever claims it next puts the lane in order first.
        if !std::thread::panicking() {
            self.claim.release();
        }
    }
}

impl Service {
    /// Brings all that was appended to the log files, and gives the chunks back.
    pub(crate) fn drain(&self, lane: &Lane) -> Result<()> {
        lane.check()?;
        // What another process or another thread of ours brings home meanwhile is ours too.
        let drainer = self.wait_for_drainer(lane)?;
        lane.check()?;
        self.drain_claimed(lane, &drainer).inspect_err(|e| lane.abort_after(e))
    }

    /// Makes this caller the one who takes bytes out of the lane, if nobody is.
    ///
    /// The word is shared with whoever writes the lane. That a thread of this process drains is known here,
    /// so a word that says so while none does means nothing: nobody can make this process wait for
    /// itself.
    pub(crate) fn claim_drainer<'a>(&self, lane: &'a Lane) -> Option<Drainer<'a>> {
        let alone = lane.draining.try_lock()?;
        let me = self.host.client();
        let claim = lane.words.claim_drainer(me, |held| held == me || self.is_dead(held))?;
        Some(Drainer { claim, _alone: alone })
    }

    /// How long to wait for another who shows no progress: it may be syncing as much as the pool holds, to a disk
    /// that takes a mebibyte a second.
    pub(crate) fn patience(&self) -> Duration {
        let pool_bytes = self.host.settings().pool_bytes();
        self.full_wait + Duration::from_micros(pool_bytes.saturating_mul(1_000_000) >> 20)
    }

    /// Waits until nobody else takes bytes out of the lane; an error when whoever does that does not go on.
    pub(crate) fn wait_for_drainer<'a>(&self, lane: &'a Lane) -> Result<Drainer<'a>> {
        let progress = || self.control.drain_bytes();
        let mut patience = Patience::new(self.patience(), progress());
        loop {
            if let Some(drainer) = self.claim_drainer(lane) {
                return Ok(drainer);
            }
            let who = lane.words.drainer();
            lane.words.check()?;
            patience.check(progress(), who, &format!("drain stream {}", lane.name))?;
            std::thread::sleep(DRAINER_WAIT);
        }
    }

    fn drain_claimed(&self, lane: &Lane, drainer: &Drainer<'_>) -> Result<()> {
        lane.pull()?;
        let begin = lane.words.drained();
        let end = lane.words.appended();
        lane.words.check()?;
        if begin < end {
            // Whoever died while it drained may have left a file that this process has not seen.
            lane.look_again();
            let written = copy_records(lane, begin, end)?;
            if !faults::is(Fault::DrainedBeforeSync) {
                lane.with_files(|segments| segments.sync())?;
            }
            self.control.count_drain(written);
            drainer.claim.mark_drained(end);
            if self.host.nvram().is_none() {
                // Somebody may wait for a group commit of the same bytes.
                self.control.advance_epoch();
            }
        }
        self.give_back(lane)
    }

    /// Gives back the chunks that lie below `drained`; the one that is filled just now too, when the
    /// lane has nobody who writes.
    fn give_back(&self, lane: &Lane) -> Result<()> {
        let drained = lane.words.drained();
        let chunk_bytes = self.host.settings().chunk_bytes;
        let me = self.host.client().for_a_moment();
        // A client of the daemon has its lease whoever serves the directory now.
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

/// Copies the records of [`begin`, `end`) to the log files; how many bytes that were.
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

/// The chunks of a lane, whatever was drained.
struct Chunks<'a>(&'a Lane);

impl Bytes for Chunks<'_> {
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_chunks(at, buf)
    }
}
