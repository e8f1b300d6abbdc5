//! The ring of regions on its medium: the lock of [`Regions`], and the durable headers that change
//! them.
//!
//! Locks, in their order:
//! - `header_writing`: from when a header is made until it is durable and in `regions`, so that
//!   headers become durable in the order of their sequence. Held during the write of a header.
//! - `regions`: everything in [`Regions`]. Never held during I/O or while waiting for another lock,
//!   except a cache shard.
//!
//! `freed` is signalled, with `regions`, when a region was freed, when threads are to free regions
//! themselves, and by an abort. `filled` is signalled when the checkpoint thread may have something
//! to do, or is to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex, MutexGuard};

use super::header::Header;
use super::regions::{RecordSpan, Regions};
use crate::abort::Wake;
use crate::context::Context;
use crate::error::Result;
use crate::faults::{self, Fault};
use crate::format::REGIONS_OFFSET;
use crate::medium::Space;
use crate::stats::Counters;
use crate::types::Tid;

/// When nothing was committed for so long, the checkpoint thread makes room.
const IDLE: Duration = Duration::from_secs(1);

/// The regions of the journal, and the space that they are in.
pub(crate) struct Ring {
    context: Arc<Context>,
    space: Space,
    regions: Mutex<Regions>,
    header_writing: Mutex<()>,
    freed: Condvar,
    filled: Condvar,
    /// Whether the checkpoint thread runs. Otherwise a thread that needs a free region frees one
    /// itself. It is changed before `regions` is taken for the signal, and read with `regions`.
    has_checkpoint_thread: AtomicBool,
    /// Threads that wait for a checkpoint, which then hurries.
    awaiting_count: AtomicUsize,
}

/// A thread waits for a checkpoint until this is dropped.
pub(crate) struct Awaiting<'a>(&'a AtomicUsize);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The right to make the next header.
pub(crate) struct HeaderTurn<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);

impl Ring {
    /// `header` is durable in both slots of `space`.
    pub(crate) fn new(context: Arc<Context>, space: Space, header: Header) -> Ring {
        let has_checkpoint_thread = AtomicBool::new(context.options.background);
        Ring {
            context,
            space,
            regions: Mutex::new(Regions::new(header)),
            header_writing: Mutex::new(()),
            freed: Condvar::new(),
            filled: Condvar::new(),
            has_checkpoint_thread,
            awaiting_count: AtomicUsize::new(0),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock()
    }

    /// Makes a header durable whose reach covers `end_offset`. Called before the first record that
    /// ends there, so that recovery need not look further.
    pub(crate) fn reach(&self, end_offset: u64) -> Result<()> {
        let _writing = self.header_writing.lock();
        let regions = self.lock();
        if regions.is_reached(end_offset) {
            return Ok(());
        }
        let header = regions.header_that_reaches(end_offset);
        drop(regions);
        if !faults::is(Fault::ReachNotWritten) {
            header.write(&self.space)?;
        }
        self.lock().replace_header(header);
        Ok(())
    }

    /// Writes a record to its place, `durably` or so that the next flush makes it durable.
    pub(crate) fn write_record(
        &self,
        place: &RecordSpan,
        bytes: &[u8],
        durably: bool,
    ) -> Result<()> {
        let len_bytes = bytes.len() as u64;
        assert!(place.offset >= REGIONS_OFFSET, "a record is in a region");
        assert!(place.end_offset - place.offset == len_bytes, "a record fills its place");
        if durably && !faults::is(Fault::CommitNotDurable) {
            return self.space.write_durable(place.offset, bytes);
        }
        self.space.write(place.offset, bytes)
    }

    /// Makes durable, in both slots, that the data in place of this transaction and of earlier ones
    /// need no check.
    pub(crate) fn settle(&self, tid: Tid) -> Result<()> {
        let _writing = self.header_writing.lock();
        let header = self.lock().header();
        if header.settled_tid >= tid {
            return Ok(());
        }
        let settled = Header { sequence: header.sequence + 1, settled_tid: tid, ..header };
        let written = settled.write_both(&self.space)?;
        self.lock().replace_header(written);
        Ok(())
    }

    /// The right to make the next header. No other header is made until the caller's is durable.
    pub(crate) fn header_turn(&self) -> HeaderTurn<'_> {
        HeaderTurn(self.header_writing.lock())
    }

    /// Frees the tail region, of which everything is durable at home. `header` is
    /// [`Regions::header_without_tail`], made in this turn.
    pub(crate) fn free_tail(&self, turn: HeaderTurn<'_>, header: Header) -> Result<()> {
        // In both slots before a block may be reused without a revoke: losing one to damage never
        // brings the region back.
        let header = if faults::is(Fault::TailInOneSlot) {
            header.write(&self.space).map(|()| header)?
        } else {
            header.write_both(&self.space)?
        };
        Counters::add(&self.context.counters.checkpoints, 1);
        self.lock().free_tail(header);
        drop(turn);
        Ok(())
    }

    /// Writes the header that ends this incarnation to both slots. Everything is home.
    pub(crate) fn write_clean_header(&self) -> Result<()> {
        let header = self.lock().header();
        assert!(self.lock().has_no_records(), "a journal is clean when everything is home");
        let clean = Header { clean: true, sequence: header.sequence + 1, ..header };
        clean.write_both(&self.space)?;
        Ok(())
    }

    /// Wakes the checkpoint thread, because a region was filled or entered.
    pub(crate) fn ask_for_checkpoint(&self) {
        self.filled.notify_one();
    }

    /// Whether the checkpoint thread frees regions. The caller holds the lock.
    pub(crate) fn has_checkpoint_thread(&self) -> bool {
        self.has_checkpoint_thread.load(Ordering::SeqCst)
    }

    /// The caller waits for a checkpoint, until it drops what is returned.
    pub(crate) fn await_checkpoint(&self) -> Awaiting<'_> {
        self.awaiting_count.fetch_add(1, Ordering::SeqCst);
        Awaiting(&self.awaiting_count)
    }

    /// Whether a thread waits for a checkpoint.
    pub(crate) fn is_checkpoint_awaited(&self) -> bool {
        self.awaiting_count.load(Ordering::SeqCst) > 0
    }

    /// Waits until a region may have been freed, or the journal was aborted, or the checkpoint
    /// thread has ended.
    pub(crate) fn wait<'a>(&self, regions: MutexGuard<'a, Regions>) -> MutexGuard<'a, Regions> {
        self.freed.wait(regions)
    }

    /// For the checkpoint thread: returns when the tail is to be brought home (`true`) or the
    /// thread is to end. By [`crate::CheckpointPolicy::Late`] a filled region waits as long as it
    /// can, and when nothing was committed for some time, room is made for a burst.
    pub(crate) fn wait_for_tail(&self) -> bool {
        let options = &self.context.options;
        let mut regions = self.lock();
        while self.has_checkpoint_thread() {
            if regions.filled_tail().is_none() {
                regions = self.filled.wait(regions);
                continue;
            }
            if regions.is_checkpoint_due(options.checkpoint, options.memory.dirty_blocks) {
                return true;
            }
            if !regions.is_half_filled() {
                regions = self.filled.wait(regions);
                continue;
            }
            let head = regions.head();
            let is_over;
            (regions, is_over) = self.filled.wait_for(regions, IDLE);
            if is_over && regions.head() == head {
                return true;
            }
        }
        false
    }

    /// Tells the checkpoint thread to end. From now on other threads free regions themselves.
    pub(crate) fn end_checkpoint_thread(&self) {
        self.has_checkpoint_thread.store(false, Ordering::SeqCst);
        self.wake_all();
    }

    /// A checkpoint has ended.
    pub(crate) fn signal_freed(&self) {
        let _regions = self.lock();
        self.freed.notify_all();
    }
}

impl Wake for Ring {
    fn wake_all(&self) {
        let _regions = self.lock();
        self.freed.notify_all();
        self.filled.notify_all();
    }
}
