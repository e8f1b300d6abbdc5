//! Syncs of a stream without the group log: by a drain or, if the stream's drainer makes no
//! progress, by putting the records aside, in the stream's quarantine.
//!
//! The quarantine counts as part of the group log, so the records are where recovery looks for
//! them. They stay in the chunks until the stream is drained. Processes write the quarantine under
//! the service's lock. Two words of the lane are about it:
//!
//! - `aside_bytes`: where its last whole piece ends. 0: the file has to be read.
//! - `aside_end`: it holds all records from `drained` up to here.

use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::engine::stall::{is_stall, others_limit};
use crate::error::{LogError, Result};
use crate::faults::{self, Fault};
use crate::format::group::Piece;
use crate::format::quarantine;
use crate::types::Lsn;
use crate::words::after_reads;

impl Service {
    /// Makes the lane durable up to `end` without the group log.
    pub(crate) fn sync_alone(&self, lane: &Lane, end: u64) -> Result<()> {
        match self.drain_within(lane, others_limit(lane)) {
            Err(e) if is_stall(&e) => self.sync_aside(lane, end),
            drained => drained,
        }
    }

    /// Makes the lane durable up to `end` while another process is its drainer.
    pub(crate) fn sync_aside(&self, lane: &Lane, end: u64) -> Result<()> {
        loop {
            lane.check()?;
            let lsn = lane.words.synced();
            if lsn >= end {
                return Ok(());
            }
            if let Some(bytes) = copy_undrained(lane, lsn, end)? {
                self.put_aside(lane, lsn, bytes)?;
                lane.words.mark_synced(end);
            }
        }
    }

    /// Puts the synced records aside that the lane's log files do not have, so that the group log
    /// need not keep them.
    pub(crate) fn put_synced_aside(&self, lane: &Lane) -> Result<()> {
        loop {
            lane.check()?;
            let lsn = lane.words.drained().max(lane.words.aside_end());
            let end = lane.words.synced();
            if lsn >= end {
                return Ok(());
            }
            if let Some(bytes) = copy_undrained(lane, lsn, end)? {
                self.put_aside(lane, lsn, bytes)?;
            }
        }
    }

    /// Adds the records `bytes`, which begin at `lsn`, to the quarantine of the lane's stream,
    /// durably.
    pub(crate) fn put_aside(&self, lane: &Lane, lsn: u64, bytes: Vec<u8>) -> Result<()> {
        if faults::is(Fault::AsideNotWritten) {
            lane.words.raise_aside_end(lsn + bytes.len() as u64);
            return Ok(());
        }
        let (words, identity) = (&lane.words, lane.identity());
        let end = lsn + bytes.len() as u64;
        let piece = Piece { stream: identity.stream, lsn, bytes };
        let store = self.host.store(&lane.name)?;
        self.host.locked(&mut || {
            let at = words.aside_bytes();
            words.check()?;
            let at = quarantine::append(&*store, identity, &piece, at)?;
            words.set_aside_bytes(at);
            if lsn <= words.drained().max(words.aside_end()) {
                words.raise_aside_end(end);
            }
            Ok(())
        })
    }
}

/// The records of [`lsn`, `end`), which are in chunks. `None`: they were drained meanwhile, so that
/// the chunks may be others'.
fn copy_undrained(lane: &Lane, lsn: u64, end: u64) -> Result<Option<Vec<u8>>> {
    let read = copy_whole_records(lane, lsn, end);
    after_reads(&lane.words);
    match lane.words.drained() > lsn || lane.is_removed() {
        true => Ok(None),
        false => read.map(Some),
    }
}

/// Copies the records of [`begin`, `end`) and verifies them. A record ends at `end`.
pub(crate) fn copy_whole_records(lane: &Lane, begin: u64, end: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(end - begin).expect("bounded")];
    lane.read_chunks(begin, &mut bytes)?;
    let mut at = begin;
    while at < end {
        let offset = usize::try_from(at - begin).expect("in the buffer");
        let Some(header) = lane.identity().whole(Lsn(at), &bytes[offset..]) else {
            return Err(LogError::Damaged {
                stream: lane.name.to_string(),
                at: Lsn(at),
                what: "its lane holds no record where one was published".into(),
            });
        };
        at += header.record_bytes() as u64;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::test_directory::{TestDirectory, make_lane};

    /// A directory whose users wait for a stopped process for ever.
    fn patient() -> TestDirectory {
        let mut test_dir = TestDirectory::new();
        test_dir.options.full_wait = Duration::from_secs(100_000);
        (test_dir.options.pool_bytes, test_dir.options.group_bytes) = (4 << 20, 1 << 20);
        test_dir
    }

    fn append(service: &Service, lane: &Arc<Lane>, bytes: &[u8]) {
        let appended =
            service.with_writer(lane, |writer, allocator| writer.append(allocator, bytes));
        let synced = service.sync(lane, appended.expect("append"));
        synced.expect("sync");
        service.release(lane);
    }

    fn payload(number: u8) -> Vec<u8> {
        vec![number; 15_000]
    }

    /// The records of a stream after a restart of the machine.
    fn records_after_restart(test_dir: &TestDirectory, name: &str) -> Vec<Vec<u8>> {
        test_dir.reboot();
        let log = test_dir.open();
        let stream = log.stream(name).expect("stream");
        let reader = stream.read_from(stream.head()).expect("reader");
        reader.map(|record| record.expect("record").payload).collect()
    }

    fn sync_while_the_drainer_is_stopped(test_dir: &TestDirectory) {
        let ((_, service), (_, stopped)) = (test_dir.join(), test_dir.join());
        let lane = make_lane(&service, "a");
        append(&service, &lane, &payload(0));
        let its = stopped.lane(&lane.name, &lane.meta).expect("lane");
        let drainer = stopped.claim_drainer(&its).expect("it drains");
        // Through the group log, in which new rounds begin.
        (1..100).for_each(|number| append(&service, &lane, &payload(number)));
        // And without it.
        assert!(service.control.claim_leader(stopped.host.client(), |_| false));
        (100..150).for_each(|number| append(&service, &lane, &payload(number)));
        assert_eq!(lane.words.drained(), 0, "nothing was drained");
        // The process goes on, and is stopped for a second time.
        service.control.release_leader();
        drop(drainer);
        service.drain(&lane).expect("drain");
        append(&service, &lane, &payload(150));
        let _drainer = stopped.claim_drainer(&its).expect("it drains");
        assert!(service.control.claim_leader(stopped.host.client(), |_| false));
        (151..160).for_each(|number| append(&service, &lane, &payload(number)));
    }

    #[test]
    fn a_stream_whose_drainer_was_stopped_is_synced() {
        let test_dir = &patient();
        sync_while_the_drainer_is_stopped(test_dir);
        let found = records_after_restart(test_dir, "a");
        assert!(found == (0..160).map(payload).collect::<Vec<_>>(), "{}", found.len());
    }

    /// The records of the first process's streams when the second one is stopped while it leads.
    fn sync_while_the_leader_is_stopped(test_dir: &TestDirectory) {
        let ((_, service), (_, stopped)) = (test_dir.join(), test_dir.join());
        let [lane, other] = ["a", "b"].map(|name| make_lane(&service, name));
        assert!(service.control.claim_leader(stopped.host.client(), |_| false));
        append(&service, &lane, &payload(0));
        let lead = service.control.lead_number().expect("it leads still");
        assert!(service.control.is_stalled_lead(lead), "the next one need not find that out");
        append(&service, &other, &payload(1));
        service.control.release_leader();
        append(&service, &lane, &payload(2));
        assert_eq!(service.control.group_count(), 1, "the last one, in the group log");
    }

    #[test]
    fn a_stopped_leader_is_not_waited_for() {
        let test_dir = &patient();
        sync_while_the_leader_is_stopped(test_dir);
        assert_eq!(records_after_restart(test_dir, "a"), [payload(0), payload(2)]);
    }
}
