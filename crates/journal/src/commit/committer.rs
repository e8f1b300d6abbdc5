//! Commit: one durable write for all callers that wait.
//!
//! If no commit is in flight, the caller of [`Committer::sync`] is the *leader* and commits by
//! itself, without a thread switch. Otherwise it waits, or leaves a function with the leader that
//! is called in the end ([`Committer::sync_or_leave`]). A commit that begins after its transaction
//! was closed serves it, or it leads the next commit. Before a commit begins, its leader waits for
//! callers that are about to come back ([`Gathering`]).
//!
//! Phases, each a function: close the running transaction ([`Committer::close`]); bring its data in
//! place home ([`Committer::settle_in_place`]); lay out the record and reserve its space in a
//! region ([`Committer::lay_out`]); write the record ([`Committer::write`]); publish
//! ([`Committer::publish`]). A failure in any of them aborts the journal.
//!
//! An operation may free any number of blocks, so there may be more revokes than a record can hold.
//! Then everything that the journal holds is brought home first, and nothing is left to revoke.
//!
//! Lock: `progress`. It protects whether a commit is in flight, what is committed, and which
//! callers wait. It is taken before `regions`, and held together with `regions` only in
//! [`Committer::checkpoint_all`]. While that function holds it and no commit is in flight, every
//! record that has a place is committed, so the active region may be filled. `memory` belongs to
//! the commit in flight, which takes it before `regions`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::sync::{Condvar, Mutex, MutexGuard};

use super::distribution::{Distribution, Distributions};
use super::gathering::Gathering;
use crate::abort::Wake;
use crate::error::Result;
use crate::faults::{self, Fault};
use crate::observer::WrittenAs;
use crate::options::CheckpointPolicy;
use crate::record::{
    self, Committing, Contents, DataCheck, Encoded, Encoding, Expect, Held, RecordBuf,
};
use crate::ring::{Header, RecordSpan, Regions};
use crate::stats::Counters;
use crate::transaction::{InPlace, InPlaceCount, InPlaceEnd, Parts, Running, Source, WriteOut};
use crate::types::Tid;

/// What the thread that commits calls when a transaction is durable, or when it failed. It holds no
/// lock then. The function must not wait, and must not call the journal.
pub type WhenDurable = Box<dyn FnOnce(Result<()>) + Send>;

/// How a call of [`crate::Journal::sync_or_leave`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    /// It is durable.
    Durable,
    /// The thread that commits calls what was left with it.
    Left,
}

/// Whether a commit is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flight {
    None,
    /// Its transaction is still open: it takes all that was done before now.
    Open,
    /// Its transaction is being closed.
    Closing,
    Closed(Tid),
}

/// Commits transactions, one at a time.
pub(crate) struct Committer {
    parts: Arc<Parts>,
    in_place: Arc<InPlace>,
    /// What all records have in common.
    common: Expect,
    /// Whether payloads are compressed.
    packs: bool,
    memory: Mutex<Memory>,
    progress: Mutex<Progress>,
    /// Signalled when a commit has ended, and by an abort.
    ended: Condvar,
    /// Signalled when as many calls wait as the leader waits for.
    gathered: Condvar,
    distributions: Distributions,
}

/// Memory that the next commit reuses.
struct Memory {
    record_buf: RecordBuf,
    held: Held,
}

struct Progress {
    committed: Tid,
    flight: Flight,
    /// Called when these transactions are durable.
    left: Vec<(Tid, WhenDurable)>,
    /// The latest transaction that a thread waits for. If the commit in flight does not make it
    /// durable, that thread leads the next one.
    awaited: Tid,
    /// The number of `sync` calls that wait for each transaction: the running one and the
    /// committing one.
    waiting: Vec<(Tid, u64)>,
    gathering: Gathering,
    /// The leader waits for so many calls.
    gathered_count: Option<u64>,
}

impl Progress {
    /// Whether a commit makes `tid` durable even if the caller does not wait for it: the one in
    /// flight, or the next one. `tid` is at most the running transaction.
    fn is_served(&self, tid: Tid) -> bool {
        match self.flight {
            Flight::Open => true,
            Flight::Closed(closed) => tid <= closed.max(self.awaited),
            Flight::None | Flight::Closing => false,
        }
    }

    /// The number of calls that wait.
    fn waiting_count(&self) -> u64 {
        self.waiting.iter().map(|(_, calls)| calls).sum()
    }

    fn are_gathered(&self) -> bool {
        self.gathered_count.is_some_and(|wanted| self.waiting_count() >= wanted)
    }

    /// Counts a call of `sync` that waits for `tid`.
    fn add_waiting(&mut self, tid: Tid) {
        match self.waiting.iter_mut().find(|(waited_for, _)| *waited_for == tid) {
            Some((_, count)) => *count += 1,
            None => self.waiting.push((tid, 1)),
        }
    }

    /// `tid` and all earlier transactions are durable. Returns how many calls waited for that.
    fn take_waiting(&mut self, tid: Tid) -> u64 {
        let mut count = 0;
        self.waiting.retain(|(waited_for, calls)| {
            let is_later = *waited_for > tid;
            count += if is_later { 0 } else { *calls };
            is_later
        });
        count
    }
}

/// How a commit ended, if it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommitOutcome {
    /// This transaction.
    Committed(Tid),
    /// The running transaction was empty.
    NothingToCommit,
}

/// A transaction that was closed.
struct Closed<'a> {
    transaction: Arc<Committing>,
    /// Its long runs of fresh blocks, which still have to be written.
    fresh: Option<WriteOut<'a>>,
    /// Its buffered data, which still have to be written.
    out: Option<WriteOut<'a>>,
    /// Counts its other data that are being written in place, if there were any.
    in_place: Option<Arc<InPlaceCount>>,
}

impl Committer {
    /// `header` begins the incarnation.
    pub(crate) fn new(
        parts: Arc<Parts>,
        in_place: Arc<InPlace>,
        header: &Header,
        packs: bool,
    ) -> Committer {
        let progress = Progress {
            committed: Tid(header.tail_tid.0 - 1),
            flight: Flight::None,
            left: Vec::new(),
            awaited: Tid(0),
            waiting: Vec::new(),
            gathering: Gathering::default(),
            gathered_count: None,
        };
        let held = Held::new(header.window_blocks);
        Committer {
            parts,
            in_place,
            common: header.expect(),
            packs,
            memory: Mutex::new(Memory { record_buf: RecordBuf::new(), held }),
            progress: Mutex::new(progress),
            ended: Condvar::new(),
            gathered: Condvar::new(),
            distributions: Distributions::new(),
        }
    }

    /// The newest durable transaction. Everything before it is durable, too.
    pub(crate) fn committed(&self) -> Tid {
        self.progress.lock().committed
    }

    /// Latencies of commits in nanoseconds, and syncs served by each.
    pub(crate) fn distributions(&self) -> (Distribution, Distribution) {
        self.distributions.snapshot()
    }

    /// Returns when `tid` and everything before it is durable.
    pub(crate) fn sync(&self, tid: Tid) -> Result<()> {
        let (context, mut is_first_look) = (&self.parts.context, true);
        loop {
            let mut progress = self.progress.lock();
            // `progress` protects both counters of syncs.
            Counters::add_alone(&context.counters.syncs, usize::from(is_first_look));
            loop {
                context.abort.check()?;
                if progress.committed >= tid {
                    let count = usize::from(is_first_look);
                    Counters::add_alone(&context.counters.syncs_without_io, count);
                    return Ok(());
                }
                if is_first_look {
                    self.count_waiting(&mut progress, tid);
                }
                is_first_look = false;
                if progress.flight == Flight::None {
                    break;
                }
                progress.awaited = progress.awaited.max(tid);
                progress = self.ended.wait(progress);
            }
            progress.flight = Flight::Open;
            drop(self.gather(progress));
            match self.lead(tid)? {
                CommitOutcome::NothingToCommit => return Ok(()),
                CommitOutcome::Committed(newest) if newest >= tid => return context.abort.check(),
                CommitOutcome::Committed(_) => {}
            }
        }
    }

    /// As [`Committer::sync`]. If the commit in flight makes `tid` durable, or the next one, for
    /// which a thread waits, the caller need not wait: the thread that commits then calls the
    /// function that `leave` returns.
    pub(crate) fn sync_or_leave(
        &self,
        tid: Tid,
        leave: impl FnOnce() -> Option<WhenDurable>,
    ) -> Result<Synced> {
        let context = &self.parts.context;
        let mut progress = self.progress.lock();
        context.abort.check()?;
        if progress.committed < tid
            && progress.is_served(tid)
            && let Some(when) = leave()
        {
            Counters::add_alone(&context.counters.syncs, 1);
            if faults::is(Fault::LeftToldAtOnce) {
                when(Ok(()));
                return Ok(Synced::Left);
            }
            progress.left.push((tid, when));
            self.count_waiting(&mut progress, tid);
            Counters::add_alone(&context.counters.syncs_left, 1);
            return Ok(Synced::Left);
        }
        drop(progress);
        self.sync(tid).map(|()| Synced::Durable)
    }

    /// Counts a call that waits for `tid`. Wakes the leader if it waits for no more calls.
    fn count_waiting(&self, progress: &mut Progress, tid: Tid) {
        progress.add_waiting(tid);
        if progress.are_gathered() {
            self.gathered.notify_one();
        }
    }

    /// As the leader, waits for calls that are expected soon ([`Gathering`]).
    fn gather<'a>(&'a self, mut progress: MutexGuard<'a, Progress>) -> MutexGuard<'a, Progress> {
        let waiting_count = progress.waiting_count();
        let Some(wait) = progress.gathering.wait(waiting_count, Instant::now()) else {
            return progress;
        };
        progress.gathered_count = Some(wait.call_count);
        let mut is_over = false;
        while !is_over && !progress.are_gathered() {
            (progress, is_over) = self.gathered.wait_until(progress, wait.deadline);
        }
        let all_came = progress.are_gathered();
        progress.gathered_count = None;
        progress.gathering.note_wait(all_came);
        progress
    }

    /// Commits as the leader. The caller asked for `tid`.
    fn lead(&self, tid: Tid) -> Result<CommitOutcome> {
        let abort = &self.parts.context.abort;
        let _in_flight = abort.awaited(|| self.end());
        let outcome = abort.on_failure(self.commit_running())?;
        if outcome == CommitOutcome::NothingToCommit {
            // Nothing will be committed for the calls that wait for it.
            let mut progress = self.progress.lock();
            let count = progress.take_waiting(tid);
            let counter = &self.parts.context.counters.syncs_without_io;
            Counters::add_alone(counter, usize::try_from(count).unwrap_or(usize::MAX));
        }
        Ok(outcome)
    }

    fn end(&self) {
        let mut progress = self.progress.lock();
        let flight = std::mem::replace(&mut progress.flight, Flight::None);
        // A transaction that was not closed was empty.
        let durable = if flight == Flight::Closing { Tid(u64::MAX) } else { progress.committed };
        self.tell(progress, durable);
    }

    /// Tells all that wait until `durable` is durable, or of an abort.
    fn tell(&self, mut progress: MutexGuard<'_, Progress>, durable: Tid) {
        let outcome = self.parts.context.abort.check();
        let is_over = |(tid, _): &mut (Tid, _)| outcome.is_err() || *tid <= durable;
        let over: Vec<_> = progress.left.extract_if(.., is_over).collect();
        let has_leader = |(tid, _): &(Tid, _)| *tid <= progress.awaited;
        assert!(progress.left.iter().all(has_leader), "a thread waits that commits for them");
        self.ended.notify_all();
        drop(progress);
        over.into_iter().for_each(|(_, when)| when(outcome.clone()));
    }

    /// Commits the running transaction. Called by one thread at a time.
    fn commit_running(&self) -> Result<CommitOutcome> {
        let started = Instant::now();
        let Some(Closed { transaction, fresh, out, in_place }) = self.close() else {
            self.parts.home.flush_if_written()?;
            return Ok(CommitOutcome::NothingToCommit);
        };
        self.in_place.write_out(fresh)?;
        let checks = self.settle_in_place(&transaction, out, in_place.as_deref())?;
        let Memory { record_buf, held } = &mut *self.memory.lock();
        held.forget(&transaction.new_owners);
        let (encoded, place) = self.lay_out(&transaction, &checks, record_buf, held)?;
        self.write(&transaction, &checks, &place, &encoded)?;
        held.stay_in(place.region_tid);
        self.publish(&transaction, &encoded, started.elapsed());
        let tid = transaction.tid;
        self.keep_spare_blocks(transaction);
        Ok(CommitOutcome::Committed(tid))
    }

    /// A commit does not wait for an open handle in order to keep memory.
    fn keep_spare_blocks(&self, transaction: Arc<Committing>) {
        let transaction = Arc::into_inner(transaction);
        if let (Some(transaction), Some(mut running)) = (transaction, self.parts.running.try_lock())
        {
            running.spare_blocks.keep_bases(transaction);
        }
    }

    /// Phase 1: takes the running transaction, if it is not empty, and starts the next one.
    fn close(&self) -> Option<Closed<'_>> {
        self.progress.lock().flight = Flight::Closing;
        let mut running = self.parts.running.lock();
        if running.is_empty() {
            return None;
        }
        let next = Running::after(&mut running);
        self.parts.checks.close(running.tid);
        let mut closed = std::mem::replace(&mut *running, next);
        let fresh = self.in_place.take_fresh_runs(&mut closed);
        let transaction = Arc::new(Committing {
            tid: closed.tid,
            blocks: closed.blocks,
            revokes: closed.revokes,
            new_owners: closed.new_owners,
        });
        self.parts.ring.lock().begin_commit(transaction.clone());
        let out = self.in_place.take_out(closed.ordered, Source::Buffered, None);
        drop(running);
        self.progress.lock().flight = Flight::Closed(transaction.tid);
        Some(Closed { transaction, fresh, out, in_place: closed.in_place })
    }

    /// Phase 2: returns when the transaction's data in place are home and flushed, because a record
    /// must not become durable before the data that it refers to. Or, if it returns checks of them
    /// for the record, when they are home: the flush of the record is theirs, too.
    fn settle_in_place(
        &self,
        transaction: &Committing,
        out: Option<WriteOut<'_>>,
        in_place: Option<&InPlaceCount>,
    ) -> Result<Vec<DataCheck>> {
        let is_buffered = out.is_some();
        let abort = &self.parts.context.abort;
        self.in_place.write_out(out)?;
        if in_place.is_some_and(|writes| writes.wait_for_zero() == InPlaceEnd::OneIsLost) {
            abort.latch(&"a thread panicked while it wrote in place, which is a bug");
        }
        if is_buffered {
            self.parts.checks.add_unchecked(transaction.tid);
        }
        let checks = self.parts.checks.decide(transaction.tid, &transaction.blocks);
        if checks.is_none() {
            self.parts.home.flush_if_written()?;
        }
        abort.check()?;
        Ok(checks.unwrap_or_default())
    }

    /// Phase 3: encodes the record and reserves its place in the active region, within the header's
    /// reach.
    fn lay_out<'a>(
        &self,
        transaction: &Committing,
        checks: &[DataCheck],
        record_buf: &'a mut RecordBuf,
        held: &mut Held,
    ) -> Result<(Encoded<'a>, RecordSpan)> {
        let Parts { context, limits, ring, .. } = &*self.parts;
        let no_revokes = BTreeSet::new();
        let revokes =
            if self.must_revoke(transaction)? { &transaction.revokes } else { &no_revokes };
        let (block_count, revoke_count) = (transaction.blocks.len(), revokes.len());
        assert!(limits.record_fits(block_count, revoke_count), "a record fits into a region");
        let contents = Contents {
            tid: transaction.tid,
            time_ns: (context.options.now_ns)(),
            blocks: &transaction.blocks,
            revokes,
            checks,
        };
        Counters::add_alone(&context.counters.revokes, revokes.len());
        let mut regions = self.encode(&contents, record_buf, held)?;
        let encoded = record_buf.encoded();
        let place = regions.reserve(encoded.bytes.len() as u64);
        drop(regions);
        if !place.is_reached {
            ring.reach(place.end_offset)?;
        }
        Ok((encoded, place))
    }

    /// Encodes the record. Returns, with the regions locked, when the active region has room for
    /// it. A record that copies from a region is encoded again if it has to leave that region.
    fn encode(
        &self,
        contents: &Contents<'_>,
        record_buf: &mut RecordBuf,
        held: &mut Held,
    ) -> Result<MutexGuard<'_, Regions>> {
        let (ring, common) = (&self.parts.ring, &self.common);
        let delta_codec = self.parts.context.options.delta_codec;
        let max_bytes = record::max_bytes(contents.blocks.len(), contents.revokes.len());
        let mut room_bytes = delta_codec.room_bytes(max_bytes.next_multiple_of(common.step_bytes));
        loop {
            // Only this commit leaves the active region, and only in `choose_region`.
            let region = self.choose_region(room_bytes as u64)?.first_tid_of_active();
            let has_no_sources = held.enter(region);
            let encoding = Encoding {
                incarnation: common.incarnation,
                checksum_seed: common.checksum_seed,
                step_bytes: common.step_bytes,
                delta_codec,
                pack: self.packs,
                is_whole_in_region: &|block| ring.lock().is_whole_in_active(block),
            };
            record::encode(contents, &encoding, held, record_buf);
            room_bytes = record_buf.encoded().bytes.len();
            let regions = self.choose_region(room_bytes as u64)?;
            if has_no_sources || regions.first_tid_of_active() == region {
                return Ok(regions);
            }
        }
    }

    /// Whether the record contains the transaction's revokes. If they do not fit into it, brings
    /// everything home instead.
    fn must_revoke(&self, transaction: &Committing) -> Result<bool> {
        let Parts { limits, ring, checkpointer, .. } = &*self.parts;
        if faults::is(Fault::RevokesDropped) {
            return Ok(false);
        }
        if limits.record_fits(transaction.blocks.len(), transaction.revokes.len()) {
            return Ok(true);
        }
        ring.lock().close_active();
        checkpointer.bring_filled_home()?;
        assert!(ring.lock().has_no_records(), "no other thread commits");
        Ok(false)
    }

    /// Phase 4: the record becomes durable, together with the data that it has checks of.
    fn write(
        &self,
        transaction: &Committing,
        checks: &[DataCheck],
        place: &RecordSpan,
        encoded: &Encoded<'_>,
    ) -> Result<()> {
        if faults::is(Fault::HomeBeforeCommit) {
            for (block, logged) in &transaction.blocks {
                self.parts.home.write(*block, logged.version.as_ref())?;
            }
        }
        let claimed = record::claimed_tid(encoded.bytes);
        assert!(claimed == Some(transaction.tid), "the record is that of the transaction");
        if checks.is_empty() || faults::is(Fault::CommitNotDurable) {
            return self.parts.ring.write_record(place, encoded.bytes, true);
        }
        let Parts { home, ring, .. } = &*self.parts;
        home.flush_after(|| ring.write_record(place, encoded.bytes, false))
    }

    /// Phase 5: the transaction is committed. Its callers return when the commit ends.
    fn publish(&self, transaction: &Committing, encoded: &Encoded<'_>, took: Duration) {
        let Parts { context, ring, .. } = &*self.parts;
        Counters::add_alone(&context.counters.commits, 1);
        Counters::add_alone(&context.counters.journal_bytes, encoded.bytes.len());
        context.counters.add_by_form(encoded.changes);
        Counters::add_alone(&context.counters.logged_blocks, transaction.blocks.len());
        let logged = transaction.blocks.values().zip(encoded.changes);
        context.observe(logged.map(|(logged, (form, len_bytes))| {
            (logged.owner, WrittenAs::Logged { form: *form }, *len_bytes as u64)
        }));
        self.parts.checks.note_committed(transaction.tid);
        let cancelled = ring.lock().end_commit(encoded.changes);
        Counters::add_alone(&context.counters.cancelled_blocks, cancelled);
        // The regions come first: a thread that finds the transaction committed must find its
        // records there.
        let mut progress = self.progress.lock();
        assert!(progress.committed.next() == transaction.tid, "transactions commit in their order");
        progress.committed = transaction.tid;
        // The commit serves at least its leader. The leader is no longer counted as waiting if an
        // earlier leader found the transaction empty.
        let sync_count = progress.take_waiting(transaction.tid).max(1);
        let counts = (sync_count, progress.waiting_count());
        progress.gathering.note_commit(counts, took, Instant::now());
        self.distributions.add_commit(took, sync_count);
    }

    /// Returns, with the regions locked, when the active region has room for a record, and memory
    /// for the transaction's blocks. If the active region has no room, that is the next one, as
    /// soon as it is free.
    fn choose_region(&self, record_bytes: u64) -> Result<MutexGuard<'_, Regions>> {
        let limit = self.parts.context.options.memory.dirty_blocks;
        // With nothing left to bring home there is room: a transaction is smaller than the limit.
        let has_memory =
            |regions: &Regions| !regions.exceeds(limit) || regions.filled_tail().is_none();
        let regions = self.parts.ring.lock();
        if regions.must_leave_active(record_bytes, limit) {
            self.leave_active(regions)?;
        } else if has_memory(&regions) {
            return Ok(regions);
        } else {
            drop(regions);
        }
        self.wait_until(has_memory)
    }

    /// Fills the active region, and enters the next one as soon as it is free.
    fn leave_active(&self, mut regions: MutexGuard<'_, Regions>) -> Result<()> {
        let Parts { context, ring, checkpointer, .. } = &*self.parts;
        regions.close_active();
        let left = regions.active();
        ring.ask_for_checkpoint();
        let is_early = context.options.checkpoint == CheckpointPolicy::Early;
        let brings_home = is_early && !ring.has_checkpoint_thread();
        drop(regions);
        if brings_home {
            checkpointer.bring_filled_home()?;
        }
        let mut regions = self.wait_until(Regions::is_next_free)?;
        regions.enter_next(left);
        ring.ask_for_checkpoint();
        Ok(())
    }

    /// Returns, with the regions locked, when they are as asked for. If a checkpoint has to bring
    /// that about, this is a stall.
    fn wait_until(&self, is_met: impl Fn(&Regions) -> bool) -> Result<MutexGuard<'_, Regions>> {
        let Parts { context, ring, checkpointer, .. } = &*self.parts;
        let mut stalled = None;
        let regions = loop {
            // Looked at under the lock, or the notification of an abort could be missed.
            let regions = ring.lock();
            context.abort.check()?;
            if is_met(&regions) {
                break regions;
            }
            if stalled.is_none() {
                Counters::add(&context.counters.stalls, 1);
                stalled = Some((Instant::now(), ring.await_checkpoint()));
            }
            if ring.has_checkpoint_thread() {
                ring.ask_for_checkpoint();
                drop(ring.wait(regions));
            } else {
                drop(regions);
                checkpointer.bring_tail_home()?;
            }
        };
        if let Some((since, _)) = stalled {
            let stall_ns = usize::try_from(since.elapsed().as_nanos()).unwrap_or(usize::MAX);
            Counters::add(&context.counters.stall_ns, stall_ns);
        }
        Ok(regions)
    }

    /// Closes the active region, however full it is, and brings everything home. Waits for the
    /// commit in flight first, whose record has a place in the active region and is not committed.
    pub(crate) fn checkpoint_all(&self) -> Result<()> {
        let Parts { context, ring, checkpointer, .. } = &*self.parts;
        let mut progress = self.progress.lock();
        while progress.flight != Flight::None {
            progress = self.ended.wait(progress);
        }
        // A commit that failed has left its place.
        context.abort.check()?;
        ring.lock().close_active();
        drop(progress);
        checkpointer.bring_filled_home()
    }
}

impl Wake for Committer {
    fn wake_all(&self) {
        self.tell(self.progress.lock(), Tid(0));
    }
}
