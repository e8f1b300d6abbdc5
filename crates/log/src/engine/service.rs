//! The streams that this process has open. `own_lease` has the leases that it holds, `pool` the
//! chunks that it allocates.
//!
//! # Who may do what
//!
//! Each process that serves the directory may drain any stream and lead any group commit. A word
//! names the process that does it now (`words`). When that process dies, the next one replaces it.
//! An append needs the stream's lease.
//!
//! Locks, in this order: `lanes`, then those of a lane.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;

use crate::engine::lane::Lane;
use crate::engine::wakeup::Wakeup;
use crate::engine::writer::Sizes;
use crate::host::{Host, StreamMeta};
use crate::words::{Client, Control, LaneWords};
use crate::{LogError, Lsn, Result, StreamId, StreamName, clock};

/// USNs are reserved durably for this much time at once: one hour.
pub(crate) const USN_STEP: u64 = 3600 * 1_000_000_000;

/// A service as this process sees it.
pub(crate) struct Service {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) control: Control,
    lanes: Mutex<HashMap<StreamId, Arc<Lane>>>,
    /// The streams of the last listing. It finds streams that are not open in this process.
    listed: Mutex<Vec<(StreamName, StreamMeta)>>,
    /// How long an append waits for a chunk while nothing is drained.
    pub(crate) full_wait: Duration,
    wakeup: Arc<Wakeup>,
}

impl Service {
    /// Takes part in the service of `host`, which `recovery` has made ready.
    pub(crate) fn new(host: Arc<dyn Host>, full_wait: Duration) -> Service {
        clock::read_offset();
        let control = host.control();
        let (lanes, listed) = (Mutex::default(), Mutex::default());
        Service { host, control, lanes, listed, full_wait, wakeup: Arc::default() }
    }

    /// The same, with a flush worker that waits for `wakeup`.
    pub(crate) fn with_wakeup(self, wakeup: Arc<Wakeup>) -> Service {
        Service { wakeup, ..self }
    }

    /// What wakes the flush worker.
    pub(crate) fn wakeup(&self) -> &Arc<Wakeup> {
        &self.wakeup
    }

    pub(crate) fn is_dead(&self, client: Client) -> bool {
        client.plain() != self.host.client() && self.host.is_dead(client.plain())
    }

    /// The recovered lane of a stream that exists.
    pub(crate) fn lane(&self, name: &StreamName, meta: &StreamMeta) -> Result<Arc<Lane>> {
        let id = StreamId(meta.id);
        if let Some(lane) = self.lanes.lock().get(&id) {
            return Ok(lane.clone());
        }
        let lane = Arc::new(Lane::open(self.host.clone(), name.clone(), meta.clone())?);
        let is_ready = lane.words.is_ready();
        lane.words.check()?;
        if !is_ready {
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

    /// The lane of the stream that has this index now.
    pub(crate) fn lane_at(&self, index: usize) -> Result<Option<Arc<Lane>>> {
        let is_there =
            |lane: &&Arc<Lane>| lane.identity().stream.index() == index && !lane.is_removed();
        if let Some(lane) = self.lanes.lock().values().find(is_there) {
            return Ok(Some(lane.clone()));
        }
        self.lane_where(|found| found.index() == index)
    }

    fn lane_where(&self, is_it: impl Fn(StreamId) -> bool) -> Result<Option<Arc<Lane>>> {
        let find = |streams: &[(StreamName, StreamMeta)]| {
            streams.iter().find(|(_, meta)| is_it(StreamId(meta.id))).cloned()
        };
        let listed = find(&self.listed.lock());
        // It may have been removed since, and its name or its index be another's.
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

    /// Removes the stream `name`. `meta` is what was found of it.
    pub(crate) fn remove_named(&self, name: &StreamName, meta: Option<StreamMeta>) -> Result<()> {
        let Some(meta) = meta else {
            // A client that asks again after its daemon died takes this for a success.
            self.host.keep_stream(name)?;
            return Err(LogError::NotFound(format!("there is no stream {name}")));
        };
        self.remove(&self.lane(name, &meta)?)
    }

    /// Removes the stream. From the moment its directory is gone, it owns no chunks.
    pub(crate) fn remove(&self, lane: &Arc<Lane>) -> Result<()> {
        // No process appends, drains or leads with it meanwhile.
        let removed = self.with_writer(lane, |_, _| {
            let drainer = self.wait_for_drainer(lane, self.stall_limit())?;
            self.host.remove_stream(&lane.name, &lane.meta)?;
            drainer.mark_removed();
            let stream = lane.identity().stream;
            self.forget(stream);
            self.host.locked(&mut || self.free_all_chunks(stream))
        });
        self.release(lane);
        removed
    }

    /// Closes a lane whose stream another process removed. Frees its chunks if that process died
    /// before it could. Returns whether the stream was removed.
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
        // The check fails for a removed stream, which is forgotten, and a failed one, which stays.
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
            let lessee = lane.words.lessee();
            if lessee == Client::NOBODY || self.is_dead(lessee) {
                let _ = self.drain_if_free(&lane);
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

    /// Closes lanes that nothing refers to until `keep_count` are left. A lane stays open if
    /// `is_wanted` returns true.
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

    pub(crate) fn sizes(&self) -> Sizes {
        let settings = self.host.settings();
        Sizes { chunk_bytes: settings.chunk_bytes, pool_bytes: settings.pool_bytes() }
    }

    /// Writes the present base and limit of USNs to a lane's words.
    pub(crate) fn refresh_usn(&self, words: &LaneWords) {
        words.set_usn_range(self.control.usn_base(), self.control.usn_limit());
    }

    /// Records that the stream's readers need no record before `lsn`.
    pub(crate) fn truncate_before(&self, lane: &Lane, lsn: Lsn) -> Result<()> {
        // After a failed write it is not known which files are whole: none is removed.
        lane.check()?;
        lane.pull()?;
        let end = Lsn(lane.words.appended());
        if lsn > end {
            return Err(LogError::PastEnd { stream: lane.name.to_string(), at: lsn, end });
        }
        let before = lane.words.raise_head(lsn.0);
        if before >= lsn.0 {
            return Ok(());
        }
        let drained = lane.words.drained();
        lane.words.check()?;
        lane.with_files(|segments| segments.truncate_before(lsn.0, drained))
    }

    /// Makes the stream durable up to the record at `lsn` and all before it.
    pub(crate) fn sync(&self, lane: &Arc<Lane>, lsn: Lsn) -> Result<()> {
        lane.check()?;
        lane.pull()?;
        if lane.durable() > lsn.0 {
            return Ok(());
        }
        let appended = lane.words.appended();
        lane.words.check()?;
        if lsn.0 >= appended {
            let text = format!("stream {}: no record at {lsn} was appended", lane.name);
            return Err(LogError::Usage(text));
        }
        self.commit_to(lane, appended)
    }

    /// Reserves the USNs of the next hour durably.
    pub(crate) fn extend_usn(&self) -> Result<()> {
        self.host.locked(&mut || {
            let base = self.control.usn_base();
            let now = clock::usn_at(base, clock::monotonic_ns());
            let limit = self.control.usn_limit();
            self.control.check()?;
            if now + USN_STEP / 2 >= limit {
                let next = now.max(limit).saturating_add(USN_STEP);
                self.host.keep_usn_limit(next)?;
                self.control.set_usn_limit(next);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::writer::{ChunkAllocator, Writer};
    use crate::test_directory::{TestDirectory, make_lane};
    use crate::words::STREAM_COUNT_MAX;

    #[test]
    fn any_number_of_streams_is_made_and_removed() {
        let test_dir = TestDirectory::new();
        let (log, other) = (test_dir.open(), test_dir.open());
        let control = &log.service().control;
        let _first = log.stream("zero").expect("stream");
        control.set_next_stream(STREAM_COUNT_MAX as u64 - 3);
        for number in 0..6 {
            let stream = log.stream("short").expect("stream");
            let its = other.lane("short");
            let lsn = stream.append(b"record").expect("append");
            // The other process leads: it must take the stream that has the index now.
            other.service().sync(&its, lsn).expect("sync");
            let id = log.lane("short").identity().stream;
            assert_ne!(id.index(), 0, "the first stream has it, round {number}");
            log.remove_stream("short").expect("remove");
        }
        assert_eq!(control.next_stream(), STREAM_COUNT_MAX as u64 + 4);
    }

    #[test]
    fn leader_finds_the_stream_that_has_an_index_now_not_an_earlier_one() {
        let test_dir = TestDirectory::new();
        let (log, other) = (test_dir.open(), test_dir.open());
        let control = &log.service().control;
        for round in 0..8 {
            control.set_next_stream(7 + round * STREAM_COUNT_MAX as u64);
            let stream = log.stream("short").expect("stream");
            let its = other.lane("short");
            assert_eq!(log.lane("short").identity().stream.index(), 7);
            let lsn = stream.append(b"record").expect("append");
            // The other process still knows all the earlier ones.
            let found = other.service().lane_at(7).expect("look").expect("a stream");
            assert_eq!(found.identity(), its.identity(), "round {round}");
            other.service().sync(&its, lsn).expect("sync");
            log.remove_stream("short").expect("remove");
        }
    }

    #[test]
    fn a_process_that_released_the_memory_uses_it_no_more() {
        let test_dir = TestDirectory::new();
        let (first, _) = test_dir.join();
        first.release_memory(|| Ok(true)).expect("nobody else is there");
        // It still has its files open, and the next one has its slot.
        let (log, other) = (test_dir.open(), test_dir.open());
        let stream = log.stream("a").expect("stream");
        let lsn = stream.append(b"record").expect("append");
        drop(first);
        other.service().sync(&other.lane("a"), lsn).expect("sync");
        stream.flush().expect("flush");
        assert_eq!(stream.read_from(lsn).expect("reader").count(), 1);
    }

    #[test]
    fn process_that_joins_while_the_last_one_leaves_keeps_the_memory() {
        // Also if it has left again: it may have appended something.
        for stays in [true, false] {
            let test_dir = TestDirectory::new();
            let (first, _) = test_dir.join();
            let mut other = None;
            let come = || {
                let joined = test_dir.join();
                other = stays.then_some(joined);
                Ok(true)
            };
            first.release_memory(come).expect("another one came");
            assert_eq!(test_dir.memory_count(), 1, "stays: {stays}");
            first.release_memory(|| Ok(true)).expect("nobody comes");
            assert_eq!(test_dir.memory_count(), usize::from(stays));
        }
    }

    #[test]
    fn removal_frees_undrained_chunks_without_draining_them() {
        let test_dir = TestDirectory::new();
        let (_, service) = test_dir.join();
        let lane = make_lane(&service, "short");
        let append = |writer: &mut Writer, allocator: &dyn ChunkAllocator| {
            writer.append(allocator, &[1; 50_000])
        };
        service.with_writer(&lane, append).expect("append");
        assert!(service.allocated_count() > 0);
        service.remove_named(&lane.name, Some(lane.meta.clone())).expect("remove");
        let drained = service.control.drain_bytes();
        assert_eq!((service.allocated_count(), drained), (0, 0));
    }

    #[test]
    fn chunks_are_freed_after_a_process_died_while_it_removed_the_stream() {
        let test_dir = TestDirectory::new();
        let (log, other) = (test_dir.open(), test_dir.open());
        let stream = log.stream("half").expect("stream");
        other.stream("half").expect("the same stream");
        stream.append(&[1; 300_000]).expect("append");
        let (lane, service) = (log.lane("half"), log.service());
        let id = lane.identity().stream;
        assert!(!other.service().forget_removed(id).expect("look"), "it is there");
        service.host.remove_stream(&lane.name, &lane.meta).expect("remove");
        assert!(service.allocated_count() > 0);
        assert!(other.service().forget_removed(id).expect("look"));
        assert_eq!(service.allocated_count(), 0);
        assert!(other.service().open_lanes().is_empty());
    }

    #[test]
    fn regression_damaged_stream_does_not_keep_others_from_the_group_log() {
        let test_dir = TestDirectory::new();
        // Without flush workers, which would drain it.
        let ((_, service), (_, other)) = (test_dir.join(), test_dir.join());
        let append = |service: &Service, lane: &Arc<Lane>, len_bytes| {
            let bytes = vec![1; len_bytes];
            let append = |writer: &mut Writer, allocator: &dyn ChunkAllocator| {
                writer.append(allocator, &bytes)
            };
            let lsn = service.with_writer(lane, append).expect("append");
            service.sync(lane, lsn).expect("sync");
        };
        let damaged = make_lane(&service, "damaged");
        append(&service, &damaged, 500);
        service.drain(&damaged).expect("drain");
        append(&service, &damaged, 500);
        let directory = test_dir.path().join("streams/damaged");
        for entry in std::fs::read_dir(&directory).expect("directory") {
            let path = entry.expect("entry").path();
            if path.extension().is_some_and(|end| end == "seg") {
                let file = std::fs::OpenOptions::new().write(true).open(path).expect("open");
                std::os::unix::fs::FileExt::write_all_at(&file, &[7; 64], 0).expect("write");
            }
        }
        // The other process does not have it open, and fills the group log and the pool.
        let sound = make_lane(&other, "sound");
        let rounds = || other.control.group_position().generation;
        let before = rounds();
        for _ in 0..400 {
            append(&other, &sound, 100_000);
        }
        assert!(rounds() > before, "the group log began anew");
        assert!(directory.join("quarantine").exists());
        // Who has it open goes on.
        append(&service, &damaged, 500);
        drop((damaged, sound, service, other));
        test_dir.reboot();
        let log = test_dir.open();
        let sound = log.stream("sound").expect("stream");
        assert_eq!(sound.read_from(sound.head()).expect("reader").count(), 400);
        let error = log.stream("damaged").err().expect("damaged").to_string();
        assert!(error.contains("damaged"), "{error}");
        // The user's decision makes it usable again.
        log.discard_damaged("damaged").expect("given up");
        sound.append(b"again").and_then(|lsn| sound.sync(lsn)).expect("as ever");
    }

    #[test]
    fn regression_a_stream_that_failed_keeps_no_other_from_the_group_log() {
        let test_dir = TestDirectory::new();
        let (_, service) = test_dir.join();
        let lanes = ["failed", "sound"].map(|name| make_lane(&service, name));
        for lane in &lanes {
            let append = |writer: &mut Writer, allocator: &dyn ChunkAllocator| {
                writer.append(allocator, &[1; 500])
            };
            let lsn = service.with_writer(lane, append).expect("append");
            service.sync(lane, lsn).expect("sync");
        }
        lanes[0].abort_after(&refused_write());
        let quarantine = test_dir.path().join("streams/failed/quarantine");
        let put_aside = || {
            service.empty_group().expect("the failed one is quarantined");
            std::fs::metadata(&quarantine).expect("a quarantine").len()
        };
        assert_eq!(put_aside(), put_aside(), "once only");
        drop((lanes, service));
        test_dir.reboot();
        let log = test_dir.open();
        for name in ["failed", "sound"] {
            let stream = log.stream(name).expect("stream");
            assert_eq!(stream.read_from(stream.head()).expect("reader").count(), 1, "{name}");
        }
        assert!(!quarantine.exists());
    }

    /// An error of a disk that refuses a write.
    fn refused_write() -> LogError {
        let source = std::io::Error::other("broken");
        device::DeviceError::new(device::Operation::Write, 0, 512, source).into()
    }

    #[test]
    fn a_stream_whose_files_failed_says_what_brings_all_of_it_back() {
        let test_dir = TestDirectory::new();
        let log = test_dir.open();
        let stream = log.stream("a").expect("stream");
        for number in 0..20u32 {
            stream.append(&number.to_le_bytes()).expect("append");
        }
        log.lane("a").abort_after(&refused_write());
        let error = stream.append(b"x").expect_err("its files failed").to_string();
        assert!(error.contains("run onejournal log discard-damaged"), "{error}");
        drop((stream, log));
        let log = test_dir.open();
        log.discard_damaged("a").expect("the disk is repaired");
        let stream = log.stream("a").expect("stream");
        assert_eq!(stream.read_from(stream.head()).expect("reader").count(), 20);
        stream.append(b"as ever").and_then(|lsn| stream.sync(lsn)).expect("append");
    }

    #[test]
    fn a_group_log_that_failed_says_what_brings_all_of_it_back() {
        let test_dir = TestDirectory::new();
        let log = test_dir.open();
        let stream = log.stream("a").expect("stream");
        let lsn = stream.append(b"synced").expect("append");
        stream.sync(lsn).expect("sync");
        let lsn = stream.append(b"appended").expect("append");
        log.service().control.abort();
        let error = stream.sync(lsn).expect_err("the group log failed").to_string();
        assert!(error.contains("run onejournal log gc"), "{error}");
        drop((stream, log));
        let found = crate::collect_orphans(test_dir.memory(), &[], |_| false).expect("look");
        let [crate::Orphan { outcome: crate::Outcome::BroughtHome(_), .. }] = &*found else {
            panic!("{found:?}");
        };
        let log = test_dir.open();
        let stream = log.stream("a").expect("stream");
        assert_eq!(stream.read_from(stream.head()).expect("reader").count(), 2);
        stream.append(b"as ever").and_then(|lsn| stream.sync(lsn)).expect("append");
    }

    #[test]
    fn a_failed_write_says_that_nothing_synced_is_lost() {
        let error = refused_write().to_string();
        assert!(error.contains("What was synced before is not lost. Repair the disk"), "{error}");
        let read =
            device::DeviceError::new(device::Operation::Read, 0, 512, std::io::Error::other("no"));
        assert!(LogError::from(read).to_string().ends_with(": no"));
    }
}
