//! One process's part in a service: the streams it has open, the leases it holds, the chunks it
//! lends itself.
//!
//! # Who may do what
//!
//! Every process that serves the directory may drain any stream and lead any group commit; who does it
//! now stands in a word (`shared`), and is replaced when it dies. Appending needs the stream's lease.
//!
//! Locks, in this order: `lanes`, then those of a lane.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use device::Nvram;
use parking_lot::{Condvar, Mutex};

use crate::chunk::{DATA_OFFSET, Lent, Loan, write_zeros};
use crate::host::{Host, StreamMeta};
use crate::lane::Lane;
use crate::shared::{Client, Control, FREEING, LANE_READY, LaneWords, REPLACING, claim};
use crate::writer::{Lender, Sizes, Writer};
use crate::{LogError, Lsn, Result, StreamId, StreamName, clock};

/// USNs that are made good at once: one hour.
pub(crate) const USN_STEP: u64 = 3600 * 1_000_000_000;

/// A service as this process sees it.
pub(crate) struct Service {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) control: Control,
    lanes: Mutex<HashMap<StreamId, Arc<Lane>>>,
    /// The streams as they were last listed, to find one that is not open here.
    listed: Mutex<Vec<(StreamName, StreamMeta)>>,
    /// How long an append waits for a chunk while nothing is drained.
    pub(crate) full_wait: Duration,
    kick: Kick,
}

/// Wakes the flush worker before its time.
#[derive(Default)]
pub(crate) struct Kick {
    is_kicked: Mutex<bool>,
    changed: Condvar,
}

impl Kick {
    pub(crate) fn kick(&self) {
        *self.is_kicked.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for a kick, `limit` at most.
    pub(crate) fn wait(&self, limit: Duration) {
        let mut is_kicked = self.is_kicked.lock();
        if !*is_kicked {
            self.changed.wait_for(&mut is_kicked, limit);
        }
        *is_kicked = false;
    }
}

/// So many chunks in one lane wake the flush worker.
pub(crate) const LANE_CHUNKS_HIGH: usize = 8;

impl Service {
    /// Joins the service, which `recovery` has made ready.
    pub(crate) fn new(host: Arc<dyn Host>, full_wait: Duration) -> Service {
        let control = Control(host.control());
        let (lanes, listed) = (Mutex::default(), Mutex::default());
        Service { host, control, lanes, listed, full_wait, kick: Kick::default() }
    }

    /// What wakes the flush worker.
    pub(crate) fn kick(&self) -> &Kick {
        &self.kick
    }

    pub(crate) fn is_dead(&self, client: Client) -> bool {
        client.plain() != self.host.client() && self.host.is_dead(client.plain())
    }

    /// The lane of a stream that exists, ready.
    pub(crate) fn lane(&self, name: &StreamName, meta: &StreamMeta) -> Result<Arc<Lane>> {
        let id = StreamId(meta.id);
        if let Some(lane) = self.lanes.lock().get(&id) {
            return Ok(lane.clone());
        }
        let lane = Arc::new(Lane::open(self.host.clone(), name.clone(), meta.clone())?);
        if lane.words.state().load(Ordering::Acquire) != LANE_READY {
            self.host.locked(&mut || self.recover_lane(&lane, &[]))?;
        }
        Ok(self.lanes.lock().entry(id).or_insert(lane).clone())
    }

    /// The lane of stream `id`; `None`: there is no such stream.
    pub(crate) fn lane_of(&self, id: StreamId) -> Result<Option<Arc<Lane>>> {
        if let Some(lane) = self.lanes.lock().get(&id) {
            return Ok(Some(lane.clone()));
        }
        self.lane_where(|found| found == id)
    }

    /// The lane of the stream that has a place now.
    pub(crate) fn lane_at(&self, place: usize) -> Result<Option<Arc<Lane>>> {
        let is_there =
            |lane: &&Arc<Lane>| lane.identity().stream.place() == place && !lane.is_removed();
        if let Some(lane) = self.lanes.lock().values().find(is_there) {
            return Ok(Some(lane.clone()));
        }
        self.lane_where(|found| found.place() == place)
    }

    fn lane_where(&self, is_it: impl Fn(StreamId) -> bool) -> Result<Option<Arc<Lane>>> {
        let find = |streams: &[(StreamName, StreamMeta)]| {
            streams.iter().find(|(_, meta)| is_it(StreamId(meta.id))).cloned()
        };
        let listed = find(&self.listed.lock());
        // It may have been removed since, and its name or its place be another's.
        let found = match listed {
            Some((name, meta)) if self.host.stream(&name)?.as_ref() == Some(&meta) => {
                Some((name, meta))
            }
            _ => {
                let streams = self.host.streams()?;
                let found = find(&streams);
                *self.listed.lock() = streams;
                found
            }
        };
        found.map(|(name, meta)| self.lane(&name, &meta)).transpose()
    }

    /// Removes the stream `name`, of which `meta` was found.
    pub(crate) fn remove_named(&self, name: &StreamName, meta: Option<StreamMeta>) -> Result<()> {
        let Some(meta) = meta else {
            // Somebody who asks again what a process that died had begun takes this for a success.
            self.host.keep_stream(name)?;
            return Err(LogError::NotFound(format!("there is no stream {name}")));
        };
        self.remove(&self.lane(name, &meta)?)
    }

    /// Removes the stream: from the moment its directory is gone its chunks are nobody's.
    pub(crate) fn remove(&self, lane: &Arc<Lane>) -> Result<()> {
        // Nobody appends, drains or leads with it meanwhile.
        let removed = self.with_writer(lane, |_, _| {
            let _drainer = self.wait_for_drainer(lane)?;
            self.host.remove_stream(&lane.name, &lane.meta)?;
            lane.set_removed();
            let stream = lane.identity().stream;
            self.forget(stream);
            self.host.locked(&mut || self.free_all_chunks(stream))
        });
        self.release(lane);
        removed
    }

    /// Frees what a stream that is no more had of the pool. The caller holds the service's lock.
    fn free_all_chunks(&self, stream: StreamId) -> Result<()> {
        for index in 0..self.host.settings().chunk_count as usize {
            let owner = self.control.chunk_owner(index);
            // Whoever was giving it back already is dead: nobody else does with a stream that is no more.
            if owner.load(Ordering::Acquire) & !FREEING == stream.owner() {
                Loan::end(&*self.host.chunk(index)?)?;
                owner.store(0, Ordering::Release);
                self.control.advance_freed();
            }
        }
        Ok(())
    }

    /// Forgets a lane whose stream another process removed, and frees its chunks if that process died before
    /// it could. Whether it was removed.
    pub(crate) fn forget_removed(&self, stream: StreamId) -> Result<bool> {
        let mut is_removed = false;
        self.host.locked(&mut || {
            is_removed = !self.host.streams()?.iter().any(|(_, meta)| meta.id == stream.0);
            if is_removed {
                self.forget(stream);
                self.free_all_chunks(stream)?;
            }
            Ok(())
        })?;
        Ok(is_removed)
    }

    /// Drains what dead processes left, and forgets the streams that others removed.
    pub(crate) fn sweep(&self) {
        let lanes = self.open_lanes();
        // A stream that was removed takes nothing; nor does one that failed, which stays.
        for lane in lanes.iter().filter(|lane| lane.check().is_err()) {
            // Looked at again next time.
            let _ = self.forget_removed(lane.identity().stream);
        }
        for stream in self.owners() {
            if lanes.iter().any(|lane| lane.identity().stream == stream) {
                continue;
            }
            let lane = match self.lane_of(stream) {
                Ok(Some(lane)) => lane,
                Ok(None) => {
                    let _ = self.forget_removed(stream);
                    continue;
                }
                Err(_) => continue,
            };
            let lessee = Client(lane.words.lessee().load(Ordering::Acquire));
            if lessee == Client::NOBODY || self.is_dead(lessee) {
                let _ = self.drain(&lane);
            }
        }
    }

    /// Lanes that this process has open.
    pub(crate) fn open_lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.lock().values().cloned().collect()
    }

    /// The lane of stream `id`, if this process has it open.
    pub(crate) fn open_lane(&self, id: StreamId) -> Option<Arc<Lane>> {
        self.lanes.lock().get(&id).cloned()
    }

    /// Closes lanes that nothing refers to and that `is_wanted` does not hold back, so that
    /// `keep_count` are left.
    pub(crate) fn retain_lanes(&self, keep_count: usize, is_wanted: impl Fn(&Lane) -> bool) {
        let mut lanes = self.lanes.lock();
        let mut excess = lanes.len().saturating_sub(keep_count);
        lanes.retain(|_, lane| {
            let stays = excess == 0 || Arc::strong_count(lane) > 1 || is_wanted(lane);
            excess -= usize::from(!stays);
            stays
        });
    }

    pub(crate) fn forget(&self, id: StreamId) {
        self.lanes.lock().remove(&id);
    }

    /// Runs `f` with the writer of the stream, whose lease is taken for this process if need be.
    pub(crate) fn with_writer<T>(
        &self,
        lane: &Arc<Lane>,
        f: impl FnOnce(&mut Writer, &dyn Lender) -> Result<T>,
    ) -> Result<T> {
        let mut writer = lane.writer.lock();
        lane.check()?;
        if writer.is_none() {
            *writer = Some(self.lease(lane)?);
        }
        let lender = LaneLender { service: self, lane };
        f(writer.as_mut().expect("leased"), &lender)
    }

    fn lease(&self, lane: &Lane) -> Result<Writer> {
        self.end_remote(lane)?;
        let before = self.claim_lessee(lane)?;
        self.take_over(lane, before).inspect_err(|_| {
            // Whoever takes it next has to look at what this one could not.
            lane.words.suspect().store(1, Ordering::Release);
            lane.words.lessee().store(0, Ordering::Release);
        })
    }

    /// The writer of a lane whose lease was taken from `before`.
    fn take_over(&self, lane: &Lane, before: Client) -> Result<Writer> {
        let words = &lane.words;
        lane.check_words(self.control.usn_limit().load(Ordering::Acquire))?;
        if self.has_left_something(lane, before) {
            self.adopt(lane)?;
        }
        self.refresh_usn(words);
        let position = words.appended().load(Ordering::Acquire);
        let first = position / self.host.settings().chunk_bytes;
        let mut chunks = Vec::new();
        while let Some(index) = words.chunk(first + chunks.len() as u64) {
            let ordinal = first + chunks.len() as u64;
            chunks.push(Lent { ordinal, memory: lane.chunk_memory(index)? });
        }
        let is_nvram = self.host.nvram().is_some();
        let sizes = self.sizes();
        Ok(Writer::new(lane.identity(), words.clone(), sizes, is_nvram, position, chunks))
    }

    /// Takes the lease; who had it.
    pub(crate) fn claim_lessee(&self, lane: &Lane) -> Result<Client> {
        let lessee = lane.words.lessee();
        let mut busy_since = None;
        loop {
            let claimed = claim(lessee, self.host.client(), |held| self.is_dead(held));
            if let Some(before) = claimed {
                return Ok(before);
            }
            let held = Client(lessee.load(Ordering::Acquire));
            let is_brief = held == Client::NOBODY || held.is_for_a_moment();
            let waited = busy_since.get_or_insert_with(Instant::now).elapsed();
            if !is_brief || waited >= self.full_wait {
                return Err(LogError::Busy(lane.name.to_string()));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let settings = self.host.settings();
        Sizes { chunk_bytes: settings.chunk_bytes, pool_bytes: settings.pool_bytes() }
    }

    /// Tells a lane the base and the limit of USNs.
    pub(crate) fn refresh_usn(&self, words: &LaneWords) {
        let base = self.control.usn_base().load(Ordering::Acquire);
        words.usn_base().store(base, Ordering::Release);
        let limit = self.control.usn_limit().load(Ordering::Acquire);
        words.usn_limit().store(limit, Ordering::Release);
    }

    /// Whether `before`, who had the lease, or a drainer died in the middle of something.
    pub(crate) fn has_left_something(&self, lane: &Lane, before: Client) -> bool {
        before != Client::NOBODY || lane.words.suspect().load(Ordering::Acquire) != 0
    }

    /// Takes over the lane of somebody who died.
    pub(crate) fn adopt(&self, lane: &Lane) -> Result<()> {
        let _drainer = self.wait_for_drainer(lane)?;
        self.tidy(lane)
    }

    /// What a dead writer stored behind its last published record was not acknowledged, and becomes zeros
    /// again; a chunk that was being lent or given back becomes free. The caller has the lease and
    /// is the drainer.
    pub(crate) fn tidy(&self, lane: &Lane) -> Result<()> {
        // Kept until all is done: who does it may die too, or fail.
        lane.words.suspect().store(1, Ordering::Release);
        self.free_lost_chunks(lane)?;
        self.zero_behind_end(lane)?;
        lane.words.suspect().store(0, Ordering::Release);
        Ok(())
    }

    fn zero_behind_end(&self, lane: &Lane) -> Result<()> {
        let chunk_bytes = self.host.settings().chunk_bytes;
        let appended = lane.words.appended().load(Ordering::Acquire);
        for (ordinal, index) in lane.chunks() {
            let begin = appended.saturating_sub(ordinal * chunk_bytes).min(chunk_bytes);
            write_zeros(&*lane.chunk_memory(index)?, DATA_OFFSET + begin)?;
        }
        Ok(())
    }

    /// Frees the chunks that the stream owns and its table does not name. Only while nobody lends or
    /// gives back.
    pub(crate) fn free_lost_chunks(&self, lane: &Lane) -> Result<()> {
        let chunks = lane.chunks();
        for index in 0..self.host.settings().chunk_count as usize {
            let word = self.control.chunk_owner(index).load(Ordering::Acquire);
            let named = chunks.iter().find(|(_, named)| *named == index);
            match named {
                // It was being given back.
                Some((ordinal, _)) if word & FREEING != 0 => lane.words.clear_chunk(*ordinal),
                Some(_) => continue,
                None if word & !FREEING == lane.owner() => {}
                None => continue,
            }
            self.end_loan(lane, index)?;
        }
        Ok(())
    }

    /// Frees a chunk of the lane that its table does not name.
    fn end_loan(&self, lane: &Lane, index: usize) -> Result<()> {
        Loan::end(&*lane.chunk_memory(index)?)?;
        self.control.chunk_owner(index).store(0, Ordering::Release);
        self.control.advance_freed();
        Ok(())
    }

    /// Gives the stream's lease back, if this process has it.
    pub(crate) fn release(&self, lane: &Lane) {
        let mut writer = lane.writer.lock();
        if writer.take().is_some() {
            let me = self.host.client().0;
            let given =
                lane.words.lessee().compare_exchange(me, 0, Ordering::AcqRel, Ordering::Acquire);
            debug_assert!(given.is_ok(), "the lease was ours, not {given:?}");
        }
    }

    /// Says that the records before `lsn` are not wanted any more.
    pub(crate) fn truncate_before(&self, lane: &Lane, lsn: Lsn) -> Result<()> {
        // After a failed write nobody knows which files are whole: none is removed.
        lane.check()?;
        lane.pull()?;
        let end = Lsn(lane.words.appended().load(Ordering::Acquire));
        if lsn > end {
            let text = format!("stream {}: {lsn} lies behind its end, {end}", lane.name);
            return Err(LogError::Usage(text));
        }
        let before = lane.words.head().fetch_max(lsn.0, Ordering::AcqRel);
        if before >= lsn.0 {
            return Ok(());
        }
        let drained = lane.words.drained().load(Ordering::Acquire);
        lane.with_files(|segments| segments.truncate_before(lsn.0, drained))
    }

    /// Makes the stream durable up to the record at `lsn` and all before it.
    pub(crate) fn sync(&self, lane: &Arc<Lane>, lsn: Lsn) -> Result<()> {
        lane.check()?;
        lane.pull()?;
        if lane.durable() > lsn.0 {
            return Ok(());
        }
        let appended = lane.words.appended().load(Ordering::Acquire);
        if lsn.0 >= appended {
            let text = format!("stream {}: no record at {lsn} was appended", lane.name);
            return Err(LogError::Usage(text));
        }
        self.commit_to(lane, appended)
    }

    /// Lends a chunk for span `ordinal` of the stream. When there is none, those that hold nothing yet
    /// go back: see [`Lender::lend`].
    pub(crate) fn lend(&self, lane: &Lane, ordinal: u64) -> Result<Lent> {
        self.lend_or_wait(lane, ordinal).inspect_err(|_| self.take_back_unused(lane))
    }

    /// Frees what was lent for an append that then found no chunk more. Only while the stream's writer waits
    /// for that: else it may have stored what is not known here yet.
    pub(crate) fn take_back_unused(&self, lane: &Lane) {
        let appended = lane.words.appended().load(Ordering::Acquire);
        let last = appended / self.host.settings().chunk_bytes;
        for (ordinal, index) in lane.chunks().into_iter().filter(|(ordinal, _)| *ordinal > last) {
            if let Err(e) = self.free_chunk(lane, ordinal, index) {
                lane.abort(&e);
            }
        }
    }

    pub(crate) fn lend_or_wait(&self, lane: &Lane, ordinal: u64) -> Result<Lent> {
        let begin = Instant::now();
        let mut has_waited = false;
        loop {
            let freed = self.control.freed();
            if let Some(index) = self.take_free_chunk(lane) {
                let memory = self.begin_loan(lane, ordinal, index).inspect_err(|_| {
                    self.control.chunk_owner(index).store(0, Ordering::Release);
                    self.control.advance_freed();
                })?;
                if ordinal.is_multiple_of(LANE_CHUNKS_HIGH as u64) {
                    self.kick.kick();
                }
                if has_waited {
                    let waited_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    self.control.wait_ns().fetch_add(waited_ns, Ordering::Relaxed);
                }
                return Ok(Lent { ordinal, memory });
            }
            if !has_waited {
                self.control.wait_count().fetch_add(1, Ordering::Relaxed);
                has_waited = true;
            }
            if begin.elapsed() >= self.full_wait {
                return Err(LogError::Full {
                    pool_bytes: self.host.settings().pool_bytes(),
                    waited_ms: u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX),
                });
            }
            if !self.reclaim(lane)? {
                self.control.wait_freed(freed, Duration::from_millis(20));
            }
        }
    }

    /// Makes a chunk that was taken the lane's.
    fn begin_loan(&self, lane: &Lane, ordinal: u64, index: usize) -> Result<Arc<dyn Nvram>> {
        let holder = lane.words.remote().load(Ordering::Acquire);
        self.renew_chunk(index, holder)?;
        let memory = lane.chunk_memory(index)?;
        let appended = lane.words.appended().load(Ordering::Acquire);
        let first = appended.max(ordinal.saturating_mul(self.host.settings().chunk_bytes));
        lane.identity().loan(ordinal, first).write(&*memory)?;
        lane.words.set_chunk(ordinal, index);
        Ok(memory)
    }

    /// Makes sure that nobody but `holder` (see `Control::chunk_holder`) sees the chunk's new life in a mapping of
    /// its old one.
    fn renew_chunk(&self, index: usize, holder: u64) -> Result<()> {
        let word = self.control.chunk_holder(index);
        if word.load(Ordering::Acquire) == holder {
            return Ok(());
        }
        // Who dies in the middle leaves a file whose name may be gone after a power cut: it is nobody's.
        word.store(REPLACING, Ordering::Release);
        self.host.replace_chunk(index)?;
        word.store(holder, Ordering::Release);
        Ok(())
    }

    /// Takes a free chunk; rather one that the lessee had before, which need not be made anew.
    fn take_free_chunk(&self, lane: &Lane) -> Option<usize> {
        let owner = lane.owner();
        let holder = lane.words.remote().load(Ordering::Acquire);
        let count = self.host.settings().chunk_count as usize;
        let take = |index: &usize| {
            let word = self.control.chunk_owner(*index);
            word.load(Ordering::Relaxed) == 0
                && word.compare_exchange(0, owner, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let is_held =
            |index: &usize| self.control.chunk_holder(*index).load(Ordering::Relaxed) == holder;
        (0..count).filter(is_held).find(take).or_else(|| (0..count).find(take))
    }

    /// Drains the stream itself and, if that frees nothing, every other that holds chunks. Whether any
    /// chunk became free.
    fn reclaim(&self, lane: &Lane) -> Result<bool> {
        let before = self.control.freed();
        self.drain(lane)?;
        if self.control.freed() != before {
            return Ok(true);
        }
        for stream in self.owners() {
            if stream != lane.identity().stream
                && let Some(other) = self.lane_of(stream)?
            {
                // Its failure is its own: it is latched there and reported to its writer.
                let _ = self.drain(&other);
            }
        }
        Ok(self.control.freed() != before)
    }

    /// Streams that hold chunks.
    pub(crate) fn owners(&self) -> Vec<StreamId> {
        let count = self.host.settings().chunk_count as usize;
        let owner = |index| {
            let word = self.control.chunk_owner(index).load(Ordering::Acquire) & !FREEING;
            word.checked_sub(1)
        };
        let mut owners: Vec<u64> = (0..count).filter_map(owner).collect();
        owners.sort_unstable();
        owners.dedup();
        owners.into_iter().filter_map(|id| u32::try_from(id).ok()).map(StreamId).collect()
    }

    /// Chunks that are lent.
    pub(crate) fn lent_count(&self) -> usize {
        let count = self.host.settings().chunk_count as usize;
        let is_lent = |&index: &usize| self.control.chunk_owner(index).load(Ordering::Relaxed) != 0;
        (0..count).filter(is_lent).count()
    }

    /// Gives a chunk back to the pool, and takes it out of the lane's table before others may have it. Once
    /// only, whatever the table says.
    pub(crate) fn free_chunk(&self, lane: &Lane, ordinal: u64, index: usize) -> Result<()> {
        let owner = self.control.chunk_owner(index);
        let (ours, freeing) = (lane.owner(), lane.owner() | FREEING);
        if owner.compare_exchange(ours, freeing, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Ok(());
        }
        Loan::end(&*self.host.chunk(index)?)?;
        lane.words.clear_chunk(ordinal);
        owner.store(0, Ordering::Release);
        self.control.advance_freed();
        Ok(())
    }

    /// Makes the USNs of the next hour good.
    pub(crate) fn extend_usn(&self) -> Result<()> {
        self.host.locked(&mut || {
            let base = self.control.usn_base().load(Ordering::Acquire);
            let now = base.wrapping_add(clock::monotonic_ns());
            let limit = self.control.usn_limit().load(Ordering::Acquire);
            if now + USN_STEP / 2 >= limit {
                let next = now.max(limit) + USN_STEP;
                self.host.keep_usn_limit(next)?;
                self.control.usn_limit().store(next, Ordering::Release);
            }
            Ok(())
        })
    }
}

/// What a writer of this process borrows from.
struct LaneLender<'a> {
    service: &'a Service,
    lane: &'a Lane,
}

impl Lender for LaneLender<'_> {
    fn lend(&self, ordinal: u64) -> Result<Lent> {
        self.service.lend(self.lane, ordinal)
    }

    fn extend_usn(&self) -> Result<()> {
        self.service.extend_usn()?;
        self.service.refresh_usn(&self.lane.words);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::STREAM_COUNT_MAX;
    use crate::{Log, Options};

    struct Place {
        root: tempfile::TempDir,
        _memory: tempfile::TempDir,
        options: Options,
    }

    impl Place {
        fn new() -> Place {
            let root = tempfile::tempdir().expect("directory");
            let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
            let options = Options {
                memory: memory.path().to_owned(),
                pool_bytes: 1 << 20,
                ..Options::default()
            };
            Place { root, _memory: memory, options }
        }

        fn open(&self) -> Log {
            Log::open(self.root.path().join("log"), &self.options).expect("open")
        }
    }

    #[test]
    fn any_number_of_streams_is_made_and_removed() {
        let place = Place::new();
        let (log, other) = (place.open(), place.open());
        let control = &log.service().control;
        let _first = log.stream("zero").expect("stream");
        control.next_stream().store(STREAM_COUNT_MAX as u64 - 3, Ordering::Release);
        for number in 0..6 {
            let stream = log.stream("short").expect("stream");
            let its = other.stream("short").expect("the same stream");
            let lsn = stream.append(b"record").expect("append");
            // The other process leads: it must take the stream that has the place now.
            other.service().sync(its.lane(), lsn).expect("sync");
            let id = stream.lane().identity().stream;
            assert_ne!(id.place(), 0, "the first stream has it, round {number}");
            log.remove_stream("short").expect("remove");
        }
        assert_eq!(control.next_stream().load(Ordering::Acquire), STREAM_COUNT_MAX as u64 + 4);
    }

    #[test]
    fn who_leads_is_not_misled_by_streams_that_had_the_place_before() {
        let place = Place::new();
        let (log, other) = (place.open(), place.open());
        let control = &log.service().control;
        for round in 0..8 {
            control.next_stream().store(7 + round * STREAM_COUNT_MAX as u64, Ordering::Release);
            let stream = log.stream("short").expect("stream");
            let its = other.stream("short").expect("the same stream");
            assert_eq!(stream.lane().identity().stream.place(), 7);
            let lsn = stream.append(b"record").expect("append");
            // The other process still knows all the earlier ones.
            let found = other.service().lane_at(7).expect("look").expect("a stream");
            assert_eq!(found.identity(), its.lane().identity(), "round {round}");
            other.service().sync(its.lane(), lsn).expect("sync");
            log.remove_stream("short").expect("remove");
        }
    }

    #[test]
    fn what_was_not_drained_of_a_removed_stream_is_not_drained() {
        let Place { root, options, .. } = &Place::new();
        let place = crate::place::Place::join(&root.path().join("log"), options, None, |place| {
            crate::recovery::recover_service(&Service::new(place, options.full_wait))
        });
        // Without the flush worker, which drains when it likes.
        let service = Service::new(place.expect("join"), options.full_wait);
        let name = "short".parse().expect("a name");
        let meta = StreamMeta { id: 0, salt: 1, uid: 0, gid: 0, mode: 0o600, quota_bytes: 0 };
        let meta = service.host.create_stream(&name, &meta).expect("made");
        let lane = service.lane(&name, &meta).expect("lane");
        let append = |writer: &mut Writer, lender: &dyn Lender| writer.append(lender, &[1; 50_000]);
        service.with_writer(&lane, append).expect("append");
        assert!(service.lent_count() > 0);
        service.remove_named(&name, Some(meta)).expect("remove");
        let drained = service.control.drain_bytes().load(Ordering::Relaxed);
        assert_eq!((service.lent_count(), drained), (0, 0));
    }

    #[test]
    fn chunks_of_whoever_died_while_removing_are_freed() {
        let place = Place::new();
        let (log, other) = (place.open(), place.open());
        let stream = log.stream("half").expect("stream");
        other.stream("half").expect("the same stream");
        stream.append(&[1; 300_000]).expect("append");
        let (id, service) = (stream.lane().identity().stream, log.service());
        assert!(!other.service().forget_removed(id).expect("look"), "it is there");
        service.host.remove_stream(stream.name(), &stream.lane().meta).expect("remove");
        assert!(service.lent_count() > 0);
        assert!(other.service().forget_removed(id).expect("look"));
        assert_eq!(service.lent_count(), 0);
        assert!(other.service().open_lanes().is_empty());
    }
}
