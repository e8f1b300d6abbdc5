//! Commit: one durable write for everyone who waits.
//!
//! The caller of [`Engine::sync`] commits by itself when no commit is in flight (it is the
//! *leader*, no thread switch); otherwise it waits and is either served by a commit that began
//! after its transaction closed, or leads the next one.
//!
//! Phases, each a function: close the running transaction; write its ordered data home; reserve
//! space in a region; write the record; publish. A failure in any of them aborts the journal.
//!
//! An operation may free any number of blocks, so there may be more to revoke than a record can
//! hold. Then everything that the journal holds is brought home first: nothing is left to revoke.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::options::Broken;
use crate::record::{self, Contents, Encoded, Encoding};
use crate::running::{InPlaceCount, Running};
use crate::state::{Committing, RegionUse};
use crate::stats::Counters;
use crate::under_way::Source;
use crate::{BlockOwner, Result, Tid, Written, WrittenAs};

impl Engine {
    /// Returns when `tid` and everything before it is durable.
    pub(crate) fn sync(&self, tid: Tid) -> Result<()> {
        let mut is_first_look = true;
        Counters::add(&self.counters.syncs, 1);
        loop {
            let mut state = self.state.lock();
            loop {
                self.check_aborted()?;
                if state.committed >= tid {
                    Counters::add(&self.counters.syncs_without_io, usize::from(is_first_look));
                    return Ok(());
                }
                if is_first_look {
                    state.add_waiting(tid);
                }
                is_first_look = false;
                if !state.commit_in_flight {
                    break;
                }
                state = self.changed.wait(state);
            }
            state.commit_in_flight = true;
            drop(state);
            let in_flight = self.awaited(|state| state.commit_in_flight = false);
            let result = self.or_abort(self.commit_running());
            if matches!(result, Ok(false)) {
                // Nothing will be committed for those who wait for it.
                self.state.lock().take_waiting(tid);
            }
            drop(in_flight);
            if !result? {
                Counters::add(&self.counters.syncs_without_io, 1);
                return Ok(());
            }
        }
    }

    /// Commits the running transaction; `false` if it was empty. One caller at a time.
    fn commit_running(&self) -> Result<bool> {
        let started = Instant::now();
        let Some((transaction, in_place)) = self.close_running()? else {
            self.flush_home_if_written()?;
            return Ok(false);
        };
        if !in_place.wait_for_zero() {
            self.abort(&"a thread panicked while it wrote in place, which is a bug");
        }
        self.flush_home_if_written()?;
        // Data in place that failed must not be followed by the metadata that points to it.
        self.check_aborted()?;
        let no_revokes = BTreeSet::new();
        let drops_revokes = self.is_broken(Broken::RevokesDropped);
        let mut revokes = if drops_revokes { &no_revokes } else { &transaction.revokes };
        if !self.record_fits(transaction.blocks.len(), revokes.len()) {
            self.bring_all_home(self.state.lock())?;
            assert!(self.state.lock().live.is_empty(), "nobody else commits");
            revokes = &no_revokes;
        }
        if self.options.delta_codec.needs_region() {
            let max_bytes = record::max_bytes(transaction.blocks.len(), revokes.len());
            let max_bytes = max_bytes.next_multiple_of(self.step_bytes);
            self.choose_region(max_bytes as u64)?;
        }
        let life = self.state.lock().header.life;
        let mut record_buf = self.record_buf.lock();
        let encoded = record::encode(
            &Contents {
                tid: transaction.tid,
                time_ns: (self.options.now_ns)(),
                blocks: &transaction.blocks,
                revokes,
            },
            &Encoding {
                life,
                checksum_seed: self.checksum_seed,
                step_bytes: self.step_bytes,
                delta_codec: self.options.delta_codec,
                pack: self.packs,
                is_whole_in_region: &|block| {
                    self.is_broken(Broken::XorWithoutBase)
                        || self.state.lock().is_whole_in_active(block)
                },
            },
            &mut record_buf,
        );
        Counters::add(&self.counters.revokes, revokes.len());
        let record_bytes = encoded.bytes.len() as u64;
        self.choose_region(record_bytes)?;
        let offset = self.reserve(record_bytes, transaction.tid)?;
        if self.is_broken(Broken::HomeBeforeCommit) {
            for (block, logged) in &transaction.blocks {
                self.home.write(block.offset_bytes(), logged.version.as_ref())?;
            }
        }
        if self.is_broken(Broken::CommitNotDurable) {
            self.space.write(offset, encoded.bytes)?;
        } else {
            self.space.write_durable(offset, encoded.bytes)?;
        }
        self.publish_commit(&transaction, &encoded, started.elapsed());
        Ok(true)
    }

    /// Takes the running transaction, starts the next one, and writes the buffered ordered data
    /// of the one that was taken.
    fn close_running(&self) -> Result<Option<(Arc<Committing>, Arc<InPlaceCount>)>> {
        let mut running = self.running.lock();
        if running.is_empty() {
            return Ok(None);
        }
        let next = Running::new(running.tid.next());
        let closed = std::mem::replace(&mut *running, next);
        let transaction = Arc::new(Committing {
            tid: closed.tid,
            blocks: closed.blocks,
            revokes: closed.revokes,
        });
        self.state.lock().committing = Some(transaction.clone());
        let out = self.take_out(closed.ordered, Source::Buffered, None);
        drop(running);
        self.write_out(out)?;
        Ok(Some((transaction, closed.in_place)))
    }

    /// Returns when the active region has room for a record: the one that was active, or the next
    /// one, once free.
    fn choose_region(&self, record_bytes: u64) -> Result<()> {
        let mut state = self.state.lock();
        let active = state.active;
        let region_bytes = state.header.region_bytes;
        assert!(record_bytes <= region_bytes, "a transaction is bounded by the region");
        let must_free = state.dirty_block_count >= self.options.dirty_block_limit;
        let is_full = state.region(active).usage == RegionUse::Filled
            || state.region(active).head_bytes + record_bytes > region_bytes;
        if is_full || (must_free && state.region(active).head_bytes > 0) {
            state.region(active).usage = RegionUse::Filled;
            self.checkpoint_wanted.notify_one();
            drop(state);
            self.wait_for_next_region()?;
            state = self.state.lock();
            state.active = state.next_region(active);
        }
        Ok(())
    }

    /// The place of a record: in the active region, behind the last one. The header reaches it.
    fn reserve(&self, record_bytes: u64, tid: Tid) -> Result<u64> {
        let mut state = self.state.lock();
        let active = state.active;
        let region = state.region(active);
        if region.usage == RegionUse::Free {
            region.usage = RegionUse::Active;
            region.first_tid = tid;
        }
        let head_bytes = region.head_bytes;
        region.head_bytes += record_bytes;
        let offset = state.header.region_offset(active) + head_bytes;
        if !state.is_reached(offset + record_bytes) {
            drop(state);
            self.reach(offset + record_bytes)?;
        }
        Ok(offset)
    }

    /// Makes the header say durably that records go as far as `end_offset`: before the first that does, so that
    /// recovery need not look behind it.
    fn reach(&self, end_offset: u64) -> Result<()> {
        let _writing = self.header_writing.lock();
        let state = self.state.lock();
        if state.is_reached(end_offset) {
            return Ok(());
        }
        let header = state.header_that_reaches(end_offset);
        drop(state);
        if !self.is_broken(Broken::ReachNotWritten) {
            header.write(&self.space)?;
        }
        self.state.lock().header = header;
        Ok(())
    }

    /// Returns when the region after the active one is free: a stall, if it is not.
    fn wait_for_next_region(&self) -> Result<()> {
        let started = Instant::now();
        let mut has_stalled = false;
        loop {
            // Looked at under the lock, or the notification of an abort could be missed.
            let mut state = self.state.lock();
            self.check_aborted()?;
            let next = state.next_region(state.active);
            if state.region(next).usage == RegionUse::Free {
                break;
            }
            if !has_stalled {
                Counters::add(&self.counters.stalls, 1);
                has_stalled = true;
            }
            if self.options.background && !state.stopping {
                drop(self.changed.wait(state));
            } else {
                drop(state);
                self.checkpoint_tail()?;
            }
        }
        if has_stalled {
            let stall_ns = usize::try_from(started.elapsed().as_nanos()).unwrap_or(usize::MAX);
            Counters::add(&self.counters.stall_ns, stall_ns);
        }
        Ok(())
    }

    fn publish_commit(&self, transaction: &Committing, encoded: &Encoded<'_>, took: Duration) {
        Counters::add(&self.counters.commits, 1);
        Counters::add(&self.counters.journal_bytes, encoded.bytes.len());
        self.counters.add_by_form(encoded.changes);
        Counters::add(&self.counters.logged_blocks, transaction.blocks.len());
        let logged = transaction.blocks.values().zip(encoded.changes);
        self.observe(logged.map(|(logged, (form, len_bytes))| {
            (logged.owner, WrittenAs::Logged { form: *form }, *len_bytes as u64)
        }));
        let mut state = self.state.lock();
        let cancelled = state.note_committed(transaction, encoded.changes);
        state.committing = None;
        Counters::add(&self.counters.cancelled_blocks, cancelled);
        // A commit has a caller, even if its transaction was empty when that one first looked.
        self.distributions.note_commit(took, state.take_waiting(transaction.tid).max(1));
        self.changed.notify_all();
    }
    /// Tells the observer what was written for owners.
    pub(crate) fn observe(&self, all: impl Iterator<Item = (BlockOwner, WrittenAs, u64)>) {
        let Some(observer) = &self.options.observer else { return };
        let owned = all.filter(|(owner, ..)| *owner != BlockOwner::NOBODY);
        let written: Vec<Written> =
            owned.map(|(owner, how, len_bytes)| Written { owner, how, len_bytes }).collect();
        if !written.is_empty() {
            observer.written(&written);
        }
    }
}
