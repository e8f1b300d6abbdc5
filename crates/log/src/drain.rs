//! The flush worker's work: from the chunks to the log files.
//!
//! 1. Read what is durable and not drained yet, record by record; a record that is none stops the
//!    stream for good.
//! 2. Write it to the log file, many records at once; one sync for all of them.
//! 3. Move `drained`, then give back the chunks below it.
//!
//! On ordinary memory the same, with what is not durable yet: a drain is then also a sync, and
//! cheaper than the group log for a lot of bytes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::lane::Lane;
use crate::record::HEADER_BYTES;
use crate::scan::{Bytes, Records};
use crate::service::Service;
use crate::shared::{Client, claim};
use crate::{LogError, Lsn, Result};

/// Bytes of records that are written at once, at least; one more record fits.
const BATCH_BYTES: usize = 4 << 20;

/// How long to wait for another drainer before looking whether it lives.
const DRAINER_WAIT: Duration = Duration::from_millis(1);

impl Service {
    /// Brings all that was appended to the log files, and gives the chunks back.
    pub(crate) fn drain(&self, lane: &Lane) -> Result<()> {
        lane.check()?;
        while !self.claim_drainer(lane) {
            // Another process drains, or another thread of ours: what it brings home is ours too.
            std::thread::sleep(DRAINER_WAIT);
            lane.check()?;
        }
        let drained = self.drain_claimed(lane);
        if let Err(e) = &drained
            && !is_disk_full(e)
        {
            lane.abort(e);
        }
        lane.words.drainer().store(0, Ordering::Release);
        drained
    }

    /// Whether this caller is now the one who takes bytes out of the lane, until it stores 0.
    pub(crate) fn claim_drainer(&self, lane: &Lane) -> bool {
        match claim(lane.words.drainer(), self.host.client(), |held| self.is_dead(held)) {
            None => false,
            Some(Client::NOBODY) => true,
            Some(_) => {
                // Whoever died may have been giving a chunk back.
                lane.words.suspect().store(1, Ordering::Release);
                true
            }
        }
    }

    fn drain_claimed(&self, lane: &Lane) -> Result<()> {
        lane.pull()?;
        let begin = lane.words.drained().load(Ordering::Acquire);
        let end = lane.words.appended().load(Ordering::Acquire);
        if begin < end {
            let written = copy_records(lane, begin, end)?;
            lane.with_files(|segments| segments.sync())?;
            self.control.drain_count().fetch_add(1, Ordering::Relaxed);
            self.control.drain_bytes().fetch_add(written, Ordering::Relaxed);
            lane.words.synced().fetch_max(end, Ordering::AcqRel);
            lane.words.drained().store(end, Ordering::Release);
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
        let drained = lane.words.drained().load(Ordering::Acquire);
        let chunk_bytes = self.host.settings().chunk_bytes;
        let me = self.host.client().for_a_moment();
        // Not when the lessee died: what it left behind its last record has to be looked at first.
        let has_lease = claim(lane.words.lessee(), me, |_| false).is_some();
        let is_idle = has_lease && lane.words.appended().load(Ordering::Acquire) == drained;
        let mut freed = Ok(());
        for (ordinal, index) in lane.words.chunks() {
            if is_idle || (ordinal + 1) * chunk_bytes <= drained {
                freed = freed.and_then(|()| self.free_chunk(lane, ordinal, index));
            }
        }
        if has_lease {
            lane.words.lessee().store(0, Ordering::Release);
        }
        freed
    }
}

/// Copies the records of [`begin`, `end`) to the log files; how many bytes that were.
fn copy_records(lane: &Lane, begin: u64, end: u64) -> Result<u64> {
    let mut source = Chunks(lane);
    let mut records = Records::new(lane.identity(), &mut source, Lsn(begin), end);
    let mut batch = Vec::new();
    let mut batch_at = begin;
    while records.position().0 < end {
        let position = records.position();
        let Some((_, header, bytes)) = records.next_raw()? else {
            return Err(LogError::Damaged {
                stream: lane.name.to_string(),
                at: position,
                what: "its lane holds no record where one was published".into(),
            });
        };
        debug_assert_eq!(bytes.len(), HEADER_BYTES + header.payload_bytes);
        batch.extend_from_slice(bytes);
        let next = records.position().0;
        batch.resize(usize::try_from(next - batch_at).expect("a batch"), 0);
        if batch.len() >= BATCH_BYTES || next == end {
            lane.with_files(|segments| segments.write(batch_at, &batch))?;
            batch.clear();
            batch_at = next;
        }
    }
    Ok(end - begin)
}

/// A full disk refuses a new file before anything is written: nothing is lost, and later it may work.
fn is_disk_full(error: &LogError) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    match error {
        LogError::Io(e) => {
            e.operation == device::Operation::Open
                && matches!(e.source.kind(), StorageFull | QuotaExceeded)
        }
        _ => false,
    }
}

/// The chunks of a lane, whatever was drained.
struct Chunks<'a>(&'a Lane);

impl Bytes for Chunks<'_> {
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_chunks(at, buf)
    }
}
