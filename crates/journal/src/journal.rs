//! The journal as its users see it: opening, the calls of the engine, closing, and the background
//! threads.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::BlockDevice;
use device::sync::{Condvar, Mutex};

use crate::commit::{Distribution, Synced, WhenDurable};
use crate::engine::Engine;
use crate::error::{JournalError, Result};
use crate::faults;
use crate::format::REGIONS_OFFSET;
use crate::medium::Space;
use crate::observer::BlockOwner;
use crate::options::Options;
use crate::ring::{FoundHeader, Header, REGION_COUNT_MAX, divide_into_regions};
use crate::stats::Stats;
use crate::transaction::{Handle, InPlaceGuard};
use crate::types::{BlockRef, HomeBlock, Tid};

/// An open journal.
///
/// Dropping it is like a power cut: nothing more is written. [`Journal::close`] brings everything
/// home.
pub struct Journal {
    engine: Arc<Engine>,
    timer: Arc<Timer>,
    threads: Vec<JoinHandle<()>>,
}

/// Aborts a journal.
#[derive(Clone)]
pub struct Aborter(Arc<Engine>);

impl Aborter {
    /// Aborts the journal for the reason `why`: from now on nothing is written or acknowledged.
    pub fn abort(&self, why: &dyn std::fmt::Display) {
        self.0.parts.context.abort.latch(why);
    }
}

impl Journal {
    /// Opens the journal in `space` for the volume `uuid` on `home` and begins a new incarnation.
    ///
    /// If `options` asks for more regions than the space has room for, there are fewer. Everything
    /// that the space holds is given up: call [`crate::recover`] first if it may hold history. A
    /// space that was never a journal is written with zeros once, so that a commit never makes the
    /// layer below allocate.
    pub fn open(
        home: Arc<dyn BlockDevice>,
        space: Space,
        uuid: [u8; 16],
        options: Options,
    ) -> Result<Journal> {
        if !(2..=REGION_COUNT_MAX).contains(&options.region_count) {
            let asked = options.region_count;
            let text =
                format!("{asked} regions of the journal: 2 to {REGION_COUNT_MAX} can be had");
            return Err(JournalError::Option(text));
        }
        let previous = match Header::find(&space, &uuid)? {
            FoundHeader::Ours(header) => Some(header),
            FoundHeader::Refused(_) | FoundHeader::None => None,
        };
        let header = first_header(&space, uuid, &options, previous)?;
        space.write_zeros_from(zeroed_bytes(&space, previous))?;
        let header = header.write_both(&space)?;
        let engine = Arc::new(Engine::new(home, space, options, header));
        let timer = Arc::new(Timer::default());
        let threads = spawn_threads(&engine, &timer);
        Ok(Journal { engine, timer, threads })
    }

    /// A handle that can abort the journal from outside, also while it is being closed.
    pub fn aborter(&self) -> Aborter {
        Aborter(self.engine.clone())
    }

    /// The newest published version of a block. Kept in memory: for metadata.
    pub fn read(&self, block: HomeBlock) -> Result<BlockRef> {
        self.engine.parts.blocks.read(block)
    }

    /// Fills `out` (whole blocks) with the newest published versions of the blocks from `start` on.
    /// Blocks that are not in memory are read in large pieces and not kept. For file data.
    pub fn read_data(&self, start: HomeBlock, out: &mut [u8]) -> Result<()> {
        self.engine.parts.blocks.read_data(start, out)
    }

    /// Opens a handle that may change up to `credit_count` blocks and free any number. Waits while
    /// another handle is open, and for a commit if the running transaction has no room.
    pub fn begin(&self, credit_count: usize) -> Result<Handle<'_>> {
        self.engine.begin(credit_count)
    }

    /// The largest `credit_count` that [`Journal::begin`] accepts: at least 128.
    pub fn max_credit_count(&self) -> usize {
        self.engine.parts.limits.transaction_blocks
    }

    /// The transaction that a handle opened now would join.
    pub fn running_tid(&self) -> Tid {
        self.engine.running_tid()
    }

    /// The newest durable transaction. Everything before it is durable, too.
    pub fn committed_tid(&self) -> Tid {
        self.engine.committer.committed()
    }

    /// Returns when `tid` and everything before it is durable. Without I/O if it already is.
    pub fn sync(&self, tid: Tid) -> Result<()> {
        self.engine.committer.sync(tid)
    }

    /// As [`Journal::sync`], but does not wait for a commit that is under way, or that another
    /// thread waits for: the thread that commits then calls the function that `leave` returns.
    /// `leave` is not called otherwise.
    pub fn sync_or_leave(
        &self,
        tid: Tid,
        leave: impl FnOnce() -> Option<WhenDurable>,
    ) -> Result<Synced> {
        self.engine.committer.sync_or_leave(tid, leave)
    }

    /// Writes whole blocks of data home now; see `docs/developers/decisions/data-in-place.md`.
    pub fn write_in_place(&self, start: HomeBlock, data: &[u8]) -> Result<()> {
        self.engine.in_place.write(start, data)
    }

    /// Whether records have checks of data in place, so that a flush makes data and record durable
    /// together: journal and home are the same device.
    pub fn checks_data(&self) -> bool {
        self.engine.parts.checks.is_possible
    }

    /// Writes whole blocks of data home now, which no file had before the transaction of `guard`.
    /// If journal and home are one device, the record of the transaction holds a checksum of them,
    /// and one flush makes both durable. Panics if the guard is not one for fresh blocks.
    pub fn write_fresh_in_place(
        &self,
        guard: &InPlaceGuard,
        start: HomeBlock,
        data: &[u8],
    ) -> Result<()> {
        self.engine.in_place.write_fresh(guard, start, data)
    }

    /// Writes the buffered data of this owner home, in parallel with other writes. They are durable
    /// after a commit or [`Journal::flush_in_place_of`].
    pub fn write_buffered_of(&self, owner: BlockOwner) -> Result<()> {
        self.engine.in_place.write_buffered(Some(owner))
    }

    /// Makes the data of this owner that were buffered before this call durable, and all data that
    /// were written in place.
    pub fn flush_in_place_of(&self, owner: BlockOwner) -> Result<()> {
        self.engine.in_place.flush(Some(owner))
    }

    /// Makes all in-place data written or buffered so far durable.
    pub fn flush_in_place(&self) -> Result<()> {
        self.engine.in_place.flush(None)
    }

    /// Commits the running transaction and brings everything home. The journal is then empty, but
    /// still open.
    pub fn checkpoint(&self) -> Result<()> {
        self.sync(self.running_tid())?;
        self.engine.committer.checkpoint_all()
    }

    /// What the engine has done.
    pub fn stats(&self) -> Stats {
        self.engine.parts.context.counters.snapshot()
    }

    /// The time that commits took (nanoseconds, from the closing of the transaction until it was
    /// durable), and the number of `sync` calls that each of them served. Calls of the commit
    /// timer, and of a handle that finds no room, count as any other.
    pub fn distributions(&self) -> (Distribution, Distribution) {
        self.engine.committer.distributions()
    }

    /// The reason why the journal is aborted, if it is.
    pub fn abort_reason(&self) -> Option<String> {
        self.engine.parts.context.abort.reason()
    }

    /// The header as it is now.
    pub fn header(&self) -> Header {
        self.engine.parts.ring.lock().header()
    }

    /// Commits, brings everything home, and marks the journal clean.
    pub fn close(mut self) -> Result<()> {
        let engine = self.engine.clone();
        engine.parts.context.abort.check()?;
        engine.committer.sync(self.running_tid())?;
        self.stop_threads();
        engine.committer.checkpoint_all()?;
        engine.parts.home.flush_if_written()?;
        engine.parts.ring.write_clean_header()
    }

    fn stop_threads(&mut self) {
        self.engine.parts.ring.end_checkpoint_thread();
        self.timer.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

/// Refuses a space that is too small for a journal. Writes nothing.
pub fn check_size(space: &Space) -> Result<()> {
    first_header(space, [0; 16], &Options::default(), None).map(drop)
}

/// Writes the first header of an empty journal, *clean*, durably. `space` holds zeros. Without a
/// header, the first opening writes zeros to all of the space again.
pub fn write_empty_header(space: &Space, uuid: [u8; 16], incarnation: u64) -> Result<()> {
    let options = Options { incarnation, ..Options::default() };
    let header = first_header(space, uuid, &options, None)?;
    Header { clean: true, ..header }.write_both(space).map(drop)
}

fn first_header(
    space: &Space,
    uuid: [u8; 16],
    options: &Options,
    previous: Option<Header>,
) -> Result<Header> {
    let room = space.len_bytes().saturating_sub(REGIONS_OFFSET);
    let used = room.min(options.memory.journal_bytes);
    let regions = divide_into_regions(used, options.region_count);
    let Some((region_count, region_bytes)) = regions else {
        return Err(JournalError::TooSmall(format!(
            "it has {} bytes: make it larger",
            space.len_bytes()
        )));
    };
    let header = Header {
        uuid,
        incarnation: options.incarnation,
        sequence: previous.map_or(1, |header| header.sequence + 1),
        clean: false,
        region_count,
        region_bytes,
        tail_region: 0,
        tail_tid: previous.map_or(Tid(1), |header| header.tail_tid.max(Tid(1))),
        reach_offset: 0,
        step_bytes: options.delta_codec.step_bytes(space.step_bytes()),
        layout_checksum: space.layout_checksum(space.len_bytes()),
        space_bytes: space.len_bytes(),
        settled_tid: Tid(0),
        window_blocks: options.window_blocks(),
    };
    Ok(Header { reach_offset: header.reach_for(0, 0), ..header })
}

/// The number of bytes at the start of the space that are known to have been written with zeros.
/// The space may have grown or moved since.
fn zeroed_bytes(space: &Space, previous: Option<Header>) -> u64 {
    let is_in_place = |header: &Header| {
        header.space_bytes <= space.len_bytes()
            && space.layout_checksum(header.space_bytes) == header.layout_checksum
    };
    previous.filter(is_in_place).map_or(0, |header| header.space_bytes)
}

fn spawn_threads(engine: &Arc<Engine>, timer: &Arc<Timer>) -> Vec<JoinHandle<()>> {
    let options = &engine.parts.context.options;
    if !options.background {
        return Vec::new();
    }
    let mut threads = vec![spawn("oj-checkpoint", engine, run_checkpoints)];
    if let Some(interval) = options.commit_interval {
        let timer = timer.clone();
        let run = move |engine: &Engine| run_commit_timer(engine, &timer, interval);
        threads.push(spawn("oj-commit", engine, run));
    }
    threads
}

fn spawn(
    name: &str,
    engine: &Arc<Engine>,
    body: impl FnOnce(&Engine) + Send + 'static,
) -> JoinHandle<()> {
    let engine = engine.clone();
    let builder = std::thread::Builder::new().name(name.into());
    let work = move || {
        // Other threads wait for what only this one does: they are told if it ends by a panic.
        let _awaited = engine.parts.context.abort.awaited(|| ());
        body(&engine);
    };
    builder.spawn(faults::carry(work)).expect("the system can start a thread")
}

/// Brings filled regions home when it is time, until the journal is closed or aborted.
fn run_checkpoints(engine: &Engine) {
    while engine.parts.ring.wait_for_tail() {
        if engine.parts.checkpointer.bring_tail_home().is_err() {
            return;
        }
    }
}

/// Ends the thread of the commit timer. The lock is taken last.
#[derive(Default)]
struct Timer {
    is_stopped: Mutex<bool>,
    stopped: Condvar,
}

impl Timer {
    fn stop(&self) {
        *self.is_stopped.lock() = true;
        self.stopped.notify_all();
    }

    /// Waits for `pause` and returns `true`. Returns `false` if the thread has to end.
    fn pause(&self, pause: Duration) -> bool {
        let deadline = Instant::now() + pause;
        let mut is_stopped = self.is_stopped.lock();
        while !*is_stopped {
            let is_over;
            (is_stopped, is_over) = self.stopped.wait_until(is_stopped, deadline);
            if is_over {
                break;
            }
        }
        !*is_stopped
    }
}

/// Commits the running transaction when it is older than the commit interval.
fn run_commit_timer(engine: &Engine, timer: &Timer, interval: Duration) {
    let mut pause = interval;
    while timer.pause(pause) {
        let running = engine.parts.running.lock();
        let (tid, age) = (running.tid, running.since.map(|since| since.elapsed()));
        drop(running);
        match age {
            Some(age) if age < interval => pause = interval - age,
            Some(_) if engine.committer.sync(tid).is_err() => return,
            _ => pause = interval,
        }
    }
}
