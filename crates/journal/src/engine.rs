//! The engine's shared parts, and reading through them.
//!
//! Locks, in the order in which they are taken: `turn`, `running` (the handle lock), `under_way`,
//! `header_writing`, `flushes`, `state`, a cache shard. None of them is held during I/O but
//! `header_writing`, `flushes`, `turn` while its holder waits for commits, and `running` while an operation
//! reads a cold block.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use device::sync::{Condvar, Mutex};
use device::{AlignedBuf, BlockDevice};

use crate::cache::Cache;
use crate::distribution::Distributions;
use crate::flushes::Flushes;
use crate::handle::Handle;
use crate::options::{Broken, Options};
use crate::record::RecordBuf;
use crate::running::Running;
use crate::state::State;
use crate::stats::Counters;
use crate::under_way::UnderWay;
use crate::{BLOCK_BYTES, BlockRef, HomeBlock, JournalError, Medium, Result, Space, Tid, record};

pub(crate) struct Engine {
    pub home: Arc<dyn BlockDevice>,
    pub space: Space,
    pub options: Options,
    pub checksum_seed: u32,
    /// Of this life's records.
    pub step_bytes: usize,
    pub max_transaction_blocks: usize,
    /// Bytes of the largest record.
    max_record_bytes: usize,
    /// Records are packed.
    pub packs: bool,
    pub cache: Cache,
    /// In-place writes that have not ended.
    pub under_way: UnderWay,
    /// Of the home device.
    pub flushes: Arc<Flushes>,
    /// Held from when a header is made until it is durable and in `state`.
    pub header_writing: Mutex<()>,
    /// Of the commit in flight alone.
    pub record_buf: Mutex<RecordBuf>,
    pub running: Mutex<Running>,
    /// Held by an operation that found no room twice, until it does; others let it go first.
    pub turn: Mutex<()>,
    pub state: Mutex<State>,
    /// Signalled when anything in `state` changed that an operation may wait for.
    pub changed: Condvar,
    /// Signalled when the checkpoint thread has something to do.
    pub checkpoint_wanted: Condvar,
    /// Signalled when the threads are to end.
    pub stop_wanted: Condvar,
    pub counters: Counters,
    pub distributions: Distributions,
    /// In-place writes that have completed, and how many of them a flush has covered.
    pub in_place_written: AtomicU64,
    pub in_place_flushed: AtomicU64,
    is_aborted: AtomicBool,
    abort_reason: OnceLock<String>,
}

impl Engine {
    pub(crate) fn new(
        home: Arc<dyn BlockDevice>,
        space: Space,
        options: Options,
        state: State,
    ) -> Result<Engine> {
        let header = state.header;
        let max_record_bytes = record_limit(header.region_bytes);
        let max_transaction_blocks = transaction_limit(max_record_bytes, header.region_count);
        assert!(
            max_transaction_blocks >= TRANSACTION_BLOCKS_MIN,
            "a region holds what a handle may need"
        );
        Ok(Engine {
            checksum_seed: crate::format::record_seed(&header.uuid, header.life),
            step_bytes: header.step_bytes,
            max_transaction_blocks,
            max_record_bytes,
            packs: options.pack && matches!(space.medium(), Medium::Block(_)),
            cache: Cache::new(options.clean_block_limit),
            under_way: UnderWay::default(),
            flushes: space.flushes_of(&home),
            header_writing: Mutex::new(()),
            record_buf: Mutex::new(RecordBuf::new()),
            running: Mutex::new(Running::new(state.committed.next())),
            turn: Mutex::new(()),
            state: Mutex::new(state),
            changed: Condvar::new(),
            checkpoint_wanted: Condvar::new(),
            stop_wanted: Condvar::new(),
            counters: Counters::default(),
            distributions: Distributions::new(),
            in_place_written: AtomicU64::new(0),
            in_place_flushed: AtomicU64::new(0),
            is_aborted: AtomicBool::new(false),
            abort_reason: OnceLock::new(),
            home,
            space,
            options,
        })
    }

    pub(crate) fn is_broken(&self, how: Broken) -> bool {
        self.options.is_broken(how)
    }

    /// Latches the abort: from now on nothing is accepted and nothing is acknowledged.
    pub(crate) fn abort(&self, why: &dyn Display) {
        let _ = self.abort_reason.set(why.to_string());
        self.is_aborted.store(true, Ordering::SeqCst);
        tracing::error!("journal aborted: {why}");
        let _state = self.state.lock();
        self.changed.notify_all();
        self.checkpoint_wanted.notify_all();
    }

    pub(crate) fn check_aborted(&self) -> Result<()> {
        if !self.is_aborted.load(Ordering::SeqCst) {
            return Ok(());
        }
        let reason = self.abort_reason.get().cloned().unwrap_or_default();
        Err(JournalError::Aborted(reason))
    }

    pub(crate) fn abort_reason(&self) -> Option<String> {
        self.abort_reason.get().cloned()
    }

    /// Runs `work`; if it fails, aborts.
    pub(crate) fn or_abort<T>(&self, work: Result<T>) -> Result<T> {
        work.inspect_err(|error| self.abort(error))
    }

    /// Begins work that others wait for: when it ends, `end` says so in the state.
    pub(crate) fn awaited(&self, end: fn(&mut State)) -> Awaited<'_> {
        Awaited { engine: self, end }
    }

    pub(crate) fn read(&self, block: HomeBlock) -> Result<BlockRef> {
        loop {
            let ticket = match self.cache.get_or_ticket(block) {
                Ok(version) => return Ok(version),
                Err(ticket) => ticket,
            };
            let mut buf = AlignedBuf::zeroed(BLOCK_BYTES);
            self.read_home(block.offset_bytes(), &mut buf)?;
            let mut version: BlockRef = Arc::new([0; BLOCK_BYTES]);
            Arc::make_mut(&mut version).copy_from_slice(&buf);
            if self.cache.fill(block, version.clone(), ticket) {
                return Ok(version);
            }
        }
    }

    /// Fills `out` (whole blocks) with the newest published versions from `start` on.
    pub(crate) fn read_data(&self, start: HomeBlock, out: &mut [u8]) -> Result<()> {
        assert!(out.len().is_multiple_of(BLOCK_BYTES), "file data is read in whole blocks");
        let mut cold: Option<Range<usize>> = None;
        let block_count = out.len() / BLOCK_BYTES;
        for index in 0..block_count {
            let bytes = index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES;
            match self.cache.get(HomeBlock(start.0 + index as u64)) {
                Some(version) => {
                    self.read_cold(start, cold.take(), out)?;
                    out[bytes].copy_from_slice(version.as_ref());
                }
                None => cold = Some(cold.map_or(bytes.start, |c| c.start)..bytes.end),
            }
        }
        self.read_cold(start, cold, out)
    }

    fn read_cold(
        &self,
        start: HomeBlock,
        bytes: Option<Range<usize>>,
        out: &mut [u8],
    ) -> Result<()> {
        let Some(bytes) = bytes else { return Ok(()) };
        let offset = start.offset_bytes() + bytes.start as u64;
        self.read_home(offset, &mut out[bytes])
    }

    /// A device that has become shorter has lost what was written to it: nothing is accepted any more.
    fn read_home(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.home.read(offset, buf).map_err(|error| {
            let is_shrunk = error.is_shrunk();
            let error = JournalError::from(error);
            if is_shrunk && self.check_aborted().is_ok() {
                self.abort(&error);
            }
            error
        })
    }

    pub(crate) fn begin(&self, credit_count: usize) -> Result<Handle<'_>> {
        if credit_count > self.max_transaction_blocks {
            return Err(JournalError::TooSmall(format!(
                "an operation needs {credit_count} blocks, a transaction holds {}",
                self.max_transaction_blocks
            )));
        }
        let (mut is_again, mut turn) = (false, None);
        loop {
            self.check_aborted()?;
            if turn.is_none() && self.turn.try_lock().is_none() {
                drop(self.turn.lock());
            }
            let running = self.running.lock();
            let block_count = running.blocks.len() + running.ordered.len();
            if block_count + credit_count <= self.max_transaction_blocks
                && self.record_fits(block_count + credit_count, running.revokes.len())
            {
                return Ok(Handle::new(self, running, credit_count));
            }
            let full = running.tid;
            drop(running);
            // Without the turn, small handles could starve a large one.
            if is_again && turn.is_none() {
                turn = Some(self.turn.lock());
            }
            self.sync(full)?;
            is_again = true;
        }
    }

    /// A record of so many blocks and revokes fits into a region, whatever the blocks hold.
    pub(crate) fn record_fits(&self, block_count: usize, revoke_count: usize) -> bool {
        record::max_bytes(block_count, revoke_count) + PADDING_MAX <= self.max_record_bytes
    }

    pub(crate) fn logged_blocks_in(&self, range: &Range<u64>, out: &mut BTreeSet<HomeBlock>) {
        self.state.lock().logged_blocks_in(range, out);
    }

    pub(crate) fn committed_tid(&self) -> Tid {
        self.state.lock().committed
    }
}

/// Work that others wait for. It ends when this is dropped; by a panic too, which aborts the journal.
pub(crate) struct Awaited<'a> {
    engine: &'a Engine,
    end: fn(&mut State),
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.abort(&"one of its threads panicked, which is a bug");
        }
        (self.end)(&mut self.engine.state.lock());
        self.engine.changed.notify_all();
    }
}

/// A record ends at a multiple of the step, a sector at most.
const PADDING_MAX: usize = 4096;

/// Blocks that every transaction can hold: no operation of a volume needs more at once.
const TRANSACTION_BLOCKS_MIN: usize = 128;

/// How `room` bytes are divided into regions: into as many as possible, `most` at most, that each hold a
/// transaction of [`TRANSACTION_BLOCKS_MIN`] blocks. `None`: not even two do.
pub(crate) fn divide_into_regions(room: u64, most: u32) -> Option<(u32, u64)> {
    let divided = |count: u32| (count, room / u64::from(count) / 4096 * 4096);
    (2..=most).rev().map(divided).find(|(count, region_bytes)| {
        transaction_limit(record_limit(*region_bytes), *count) >= TRANSACTION_BLOCKS_MIN
    })
}

/// Bytes of the largest record in a region.
fn record_limit(region_bytes: u64) -> usize {
    usize::try_from(region_bytes).unwrap_or(1 << 30).min(1 << 30)
}

/// How many blocks a transaction may have so that its record fits into one region, with as many revokes as
/// there are blocks in the journal and in a transaction when each is logged whole. Since changes are smaller than
/// blocks there may be more to revoke: [`Engine::begin`] and the commit see to that.
fn transaction_limit(max_record_bytes: usize, region_count: u32) -> usize {
    let revoke_count = max_record_bytes / BLOCK_BYTES * (region_count as usize + 1);
    let fixed = record::max_bytes(0, revoke_count) + PADDING_MAX;
    let per_block = record::max_bytes(1, 0) - record::max_bytes(0, 0);
    // A transaction of 64 MiB is large enough for anything and bounds the buffer it is encoded in.
    (max_record_bytes.saturating_sub(fixed) / per_block).min(16384)
}
