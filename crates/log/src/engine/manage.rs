//! Operations on whole streams and on the whole service: salvage, repair, closing, counters.

use std::sync::Arc;

use device::Durability;

use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::format::scan::Records;
use crate::format::segments::Segments;
use crate::host::StreamMeta;
use crate::types::{READ_BYTES, RecordBatch};
use crate::words::Client;
use crate::{LogError, LogStat, Lsn, Record, Result, StreamId, StreamName, StreamStat};

impl Service {
    /// What a synced append survives.
    pub(crate) fn durability(&self) -> Durability {
        let group = self.host.group().map(|device| device.durability());
        self.host.nvram().or(group).unwrap_or(Durability::Process)
    }

    /// Records of the stream's log files, from the one at `from` or the first one on, up to the
    /// first bytes that are not a record: everything that can be read of a damaged stream.
    pub(crate) fn salvage(
        &self,
        name: &StreamName,
        meta: &StreamMeta,
        from: Lsn,
    ) -> Result<RecordBatch> {
        let limit_bytes = self.host.settings().segment_bytes;
        let mut segments = Segments::open(self.host.store(name)?, meta.identity(), limit_bytes)?;
        let first = segments.first().unwrap_or(0).max(segments.kept_head()?);
        let (from, end) = (from.0.max(first), segments.end());
        let mut found = Vec::new();
        let mut bytes = 0;
        let mut records = Records::new(meta.identity(), &mut segments, Lsn(from), end.max(from));
        while bytes < READ_BYTES
            && let Some((lsn, header, payload)) = records.next()?
        {
            bytes += header.record_bytes();
            found.push(Record { lsn, usn: header.usn, payload: payload.to_vec() });
        }
        Ok(RecordBatch { records: found, next: records.position() })
    }

    /// Gives up the damaged part of a stream and everything after it. Returns where the stream ends
    /// now.
    pub(crate) fn discard_damaged(&self, name: &StreamName, meta: &StreamMeta) -> Result<Lsn> {
        let lane = match self.open_lane(StreamId(meta.id)) {
            Some(lane) => lane,
            None => Arc::new(Lane::unread(self.host.clone(), name.clone(), meta.clone())?),
        };
        let writer = lane.writer.lock();
        if writer.is_some() {
            return Err(LogError::Busy(name.to_string()));
        }
        let end = self.as_leader(|| {
            let end = self.alone(&lane, || self.discard_locked(&lane))?;
            // It may hold pieces of what was given up.
            self.empty_group_as_leader()?;
            Ok(end)
        })?;
        drop(writer);
        self.forget(StreamId(meta.id));
        Ok(end)
    }

    /// Runs `f` under the service's lock. This process is the lessee and the drainer meanwhile. An
    /// error if a client has the lane. The caller is the leader.
    fn alone<T>(&self, lane: &Lane, f: impl FnOnce() -> Result<T>) -> Result<T> {
        if lane.remote()?.map_or(Ok(false), |remote| remote.is_alive())? {
            return Err(LogError::Busy(lane.name.to_string()));
        }
        if lane.words.lessee() != self.host.client() {
            self.claim_lessee(lane)?;
        }
        let drainer = self.wait_for_drainer(lane, self.stall_limit());
        let drainer = drainer.inspect_err(|_| lane.words.release_lessee())?;
        let (mut f, mut done) = (Some(f), None);
        let locked = self.host.locked(&mut || {
            done = f.take().map(|f| f());
            Ok(())
        });
        drop(drainer);
        lane.words.release_lessee();
        locked?;
        done.expect("it was run")
    }

    /// Brings the valid records of a spoiled lane to the log files, and frees its chunks. Its
    /// client has ended. The stream is refused until the user discards the rest.
    pub(crate) fn recover_spoiled(&self, lane: &Arc<Lane>) -> Result<()> {
        self.as_leader(|| {
            self.alone(lane, || {
                let recovered = self.recover_whole_records(lane);
                lane.abort_spoiled();
                recovered
            })
        })
    }

    /// Makes the lane end after its last whole record.
    fn recover_whole_records(&self, lane: &Arc<Lane>) -> Result<()> {
        let words = &lane.words;
        if let Some(remote) = lane.remote()? {
            // What it claims is what was not believed; the chunks are looked at instead.
            words.end_remote();
            remote.remove();
        }
        words.mark_unrecovered();
        self.recover_discarding(lane)
    }

    fn discard_locked(&self, lane: &Arc<Lane>) -> Result<Lsn> {
        lane.files.lock().segments.give_up_damaged()?;
        self.recover_whole_records(lane)?;
        let words = &lane.words;
        let appended = words.appended();
        lane.with_files(|segments| {
            let first = segments.first().unwrap_or(appended).max(segments.kept_head()?);
            let mut records = Records::new(lane.identity(), segments, Lsn(first), appended);
            records.skip_all()?;
            let end = records.position();
            if end.0 < appended {
                segments.cut(end.0)?;
                words.reset_end(end.0);
            }
            Ok(end)
        })
    }

    /// Releases all leases of this process, and drains its open streams. Returns the first error,
    /// if any.
    pub(crate) fn bring_own_home(&self) -> Result<()> {
        let mut home = Ok(());
        for lane in self.open_lanes() {
            self.release(&lane);
            let lessee = lane.words.lessee();
            let is_ours = lessee == Client::NOBODY || self.is_dead(lessee);
            // One that failed has told so.
            if is_ours && lane.check().is_ok() {
                home = home.and(self.drain(&lane));
            }
        }
        home
    }

    /// Closes all streams; false if some are in use.
    pub(crate) fn forget_all(&self) -> bool {
        self.retain_lanes(0, |_| false);
        self.open_lanes().is_empty()
    }

    /// Brings home what dead processes left, if no other process uses the service. Returns whether
    /// the memory is empty now.
    pub(crate) fn retire(&self) -> Result<bool> {
        self.sweep();
        if self.allocated_count() > 0 || !self.host.remote_leases()?.is_empty() {
            return Ok(false);
        }
        self.empty_group()?;
        Ok(true)
    }

    /// Closes unused streams until `keep_count` are open.
    pub(crate) fn forget_idle(&self, keep_count: usize) {
        self.retain_lanes(keep_count, |lane| {
            let words = &lane.words;
            words.remote().is_some()
                || words.lessee() != Client::NOBODY
                || words.appended() != words.drained()
        });
    }

    /// Counters of the service.
    pub(crate) fn stat(&self) -> LogStat {
        let control = &self.control;
        let settings = self.host.settings();
        LogStat {
            durability: self.durability().name(),
            is_nvram: self.host.nvram().is_some(),
            pool_bytes: settings.pool_bytes(),
            chunk_bytes: settings.chunk_bytes,
            lent_bytes: self.allocated_count() as u64 * settings.chunk_bytes,
            pool_wait_count: control.wait_count(),
            pool_wait_ns: control.wait_ns(),
            group_commit_count: control.group_count(),
            group_member_count: control.group_members(),
            group_bytes: control.group_bytes(),
            drain_count: control.drain_count(),
            drain_bytes: control.drain_bytes(),
            is_aborted: control.is_aborted(),
        }
    }
}

impl Lane {
    /// Counters of the stream.
    pub(crate) fn stat(&self) -> Result<StreamStat> {
        let words = &self.words;
        let (durable, totals) = (self.durable(), words.totals());
        Ok(StreamStat {
            name: self.name.to_string(),
            head: words.head(),
            drained: words.drained(),
            durable,
            appended: words.appended(),
            record_count: totals.record_count,
            payload_bytes: totals.payload_bytes,
            file_bytes: self.with_files(|segments| Ok(segments.file_bytes()))?,
            is_aborted: self.check().is_err(),
        })
    }
}
