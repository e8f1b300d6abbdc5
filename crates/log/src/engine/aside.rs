//! Syncs of a stream without the group log: by a drain or, if the stream's drainer makes no
//! progress, by putting the records aside, in the stream's quarantine.
//!
//! The quarantine counts as part of the group log, so the records are where recovery looks for
//! them. They stay in the chunks until the stream is drained. Two words of the lane are about it:
//!
//! - `aside_bytes`: where its last whole piece ends. 0: the file has to be read.
//! - `aside_end`: it holds all records from `drained` up to here.
//!
//! Invariants:
//!
//! 1. A process holds the service's lock from when it reads these words until the records count as
//!    synced. `discard_damaged` makes a stream shorter under the same lock. So records that were
//!    given up are not put aside, however long a process is stopped.
//! 2. Each piece begins at `drained` or `aside_end`, whichever is larger. So each record is put
//!    aside once, and the file is removed when all of it is drained.

use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::engine::stall::{is_stall, others_limit};
use crate::error::{LogError, Result};
use crate::format::group::Piece;
use crate::format::quarantine::{self, PIECE_BYTES_MAX};
use crate::types::Lsn;
use crate::words::after_reads;

impl Service {
    /// Makes all that was appended to the lane durable without the group log.
    pub(crate) fn sync_alone(&self, lane: &Lane) -> Result<()> {
        match self.drain_within(lane, others_limit(lane)) {
            Err(e) if is_stall(&e) => self.sync_aside(lane),
            drained => drained,
        }
    }

    /// The same while another process is the lane's drainer.
    pub(crate) fn sync_aside(&self, lane: &Lane) -> Result<()> {
        self.host.locked(&mut || {
            lane.check()?;
            let end = lane.words.appended();
            self.put_aside(lane, end)?;
            lane.check()?;
            lane.words.mark_synced(end);
            Ok(())
        })
    }

    /// Puts the synced records aside that the lane's log files do not have, so that the group log
    /// need not keep them. If the lane is found damaged, puts aside what is before the damage, and
    /// aborts the lane: other streams go on.
    pub(crate) fn put_synced_aside(&self, lane: &Lane) -> Result<()> {
        match self.host.locked(&mut || self.put_aside(lane, lane.words.synced())) {
            Err(e) if e.is_of_one_stream() => {
                lane.abort_after(&e);
                Ok(())
            }
            put => put,
        }
    }

    /// Makes the quarantine of the lane's stream hold all records from `drained` up to `end`,
    /// durably. The caller holds the service's lock.
    fn put_aside(&self, lane: &Lane, end: u64) -> Result<()> {
        let (words, identity) = (&lane.words, lane.identity());
        loop {
            let lsn = words.drained().max(words.aside_end());
            words.check()?;
            if lsn >= end || lane.is_removed() {
                return Ok(());
            }
            let Some(bytes) = copy_undrained(lane, lsn, end)? else { continue };
            let piece = Piece { stream: identity.stream, lsn, bytes };
            self.remove_drained(lane)?;
            let at = words.aside_bytes();
            words.check()?;
            let at = quarantine::append(&*lane.store, identity, &piece, at)?;
            words.set_aside_bytes(at);
            words.set_aside_end(lsn + piece.bytes.len() as u64);
        }
    }

    /// Removes the quarantine if the log files have all its records.
    fn remove_drained(&self, lane: &Lane) -> Result<()> {
        let words = &lane.words;
        if words.aside_bytes() == 0 || words.drained() < words.aside_end() {
            return Ok(());
        }
        words.check()?;
        // A process that dies after the next line leaves a file that the next one reads.
        words.set_aside_bytes(0);
        quarantine::remove(&*lane.store)
    }
}

/// The whole records of [`lsn`, `end`), which are in chunks, as many as one piece may have. Stops
/// before damage. `None`: they were drained meanwhile, so that the chunks may be others'.
fn copy_undrained(lane: &Lane, lsn: u64, end: u64) -> Result<Option<Vec<u8>>> {
    let read = match copy_whole_records(lane, lsn, end.min(lsn + PIECE_BYTES_MAX)) {
        // It is damage only if the next piece cannot begin there.
        Err(LogError::Damaged { at, .. }) if at.0 > lsn => copy_whole_records(lane, lsn, at.0),
        read => read,
    };
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
    use crate::engine::writer::{ChunkAllocator, Writer};
    use crate::test_directory::{TestDirectory, make_lane};
    use crate::words::Abort;

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
        let quarantine = test_dir.path().join("streams/a/quarantine");
        let len_bytes = || std::fs::metadata(&quarantine).expect("a quarantine").len();
        let first = len_bytes();
        // The process goes on, and is stopped for a second time.
        service.control.release_leader();
        drop(drainer);
        service.drain(&lane).expect("drain");
        append(&service, &lane, &payload(150));
        let _drainer = stopped.claim_drainer(&its).expect("it drains");
        assert!(service.control.claim_leader(stopped.host.client(), |_| false));
        (151..160).for_each(|number| append(&service, &lane, &payload(number)));
        assert!(len_bytes() < first / 2, "what was drained meanwhile was removed");
    }

    #[test]
    fn a_stream_whose_drainer_was_stopped_is_synced() {
        let test_dir = &patient();
        sync_while_the_drainer_is_stopped(test_dir);
        let found = records_after_restart(test_dir, "a");
        assert!(found == (0..160).map(payload).collect::<Vec<_>>(), "{}", found.len());
    }

    /// The group log begins again when a stream has failed, and its drainer was stopped.
    fn begin_round_with_a_failed_stream(test_dir: &TestDirectory) {
        let ((_, service), (_, stopped)) = (test_dir.join(), test_dir.join());
        let [failed, sound] = ["failed", "sound"].map(|name| make_lane(&service, name));
        append(&service, &failed, &payload(0));
        let its = stopped.lane(&failed.name, &failed.meta).expect("lane");
        let _drainer = stopped.claim_drainer(&its).expect("it drains");
        failed.words.abort(Abort::Io);
        service.empty_group().expect("the failed one is put aside");
        append(&service, &sound, &payload(1));
    }

    #[test]
    fn a_failed_stream_whose_drainer_was_stopped_keeps_no_other_from_the_group_log() {
        let test_dir = &patient();
        begin_round_with_a_failed_stream(test_dir);
        assert_eq!(records_after_restart(test_dir, "failed"), [payload(0)]);
    }

    /// Damages the first record in a stream's log files.
    fn damage_first_file(test_dir: &TestDirectory, name: &str) {
        let path = test_dir.path().join(format!("streams/{name}/0000000000000000.seg"));
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("a log file");
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 64], 64).expect("write");
    }

    /// A stream's damaged part is given up while a stopped leader has records of it.
    fn discard_while_the_leader_is_stopped(test_dir: &TestDirectory) {
        let ((_, service), (_, stopped)) = (test_dir.join(), test_dir.join());
        let lane = make_lane(&service, "a");
        append(&service, &lane, &payload(0));
        service.drain(&lane).expect("drain");
        let write = |writer: &mut Writer, allocator: &dyn ChunkAllocator| {
            writer.append(allocator, &payload(1))
        };
        service.with_writer(&lane, write).expect("append");
        service.release(&lane);
        let end = lane.words.appended();
        lane.words.want(end);
        damage_first_file(test_dir, "a");
        // It is stopped after it has read the stream's records.
        let its = stopped.lane(&lane.name, &lane.meta).expect("lane");
        assert!(stopped.control.claim_leader(stopped.host.client(), |_| false));
        let piece = stopped.take_piece(&its).expect("readable").expect("it waits");
        let discarded = service.discard_damaged(&lane.name, &lane.meta);
        discarded.expect_err("the leader may have its records");
        // It goes on.
        stopped.write_entry(&[piece]).expect("write");
        its.words.mark_synced(end);
        stopped.control.release_leader();
        assert_eq!((lane.words.synced(), lane.words.appended()), (end, end), "nothing is given up");
        let given_up = service.discard_damaged(&lane.name, &lane.meta).expect("given up");
        assert_eq!(given_up, Lsn(0));
        let lane = service.lane(&lane.name, &lane.meta).expect("lane");
        append(&service, &lane, &payload(2));
    }

    #[test]
    fn a_stopped_leader_does_not_count_records_that_were_given_up() {
        let mut test_dir = TestDirectory::new();
        test_dir.options.full_wait = Duration::ZERO;
        discard_while_the_leader_is_stopped(&test_dir);
        assert_eq!(records_after_restart(&test_dir, "a"), [payload(2)]);
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
