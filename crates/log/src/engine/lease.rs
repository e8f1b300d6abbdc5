//! Leases and chunks for clients of the daemon.
//!
//! A lease begins with a lane that is drained and has no chunk, and with a copy of the words for
//! the client. It ends when the client releases it or its process ends. The daemon then reads the
//! copy for the last time. Bytes that the client stored after its last published record are
//! dropped.

use std::fs::File;
use std::sync::Arc;

use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::faults::{self, Fault};
use crate::{LogError, Result, StreamId};

/// The result of a lease for a client.
pub(crate) struct Grant {
    /// The token that the client has to send.
    pub(crate) token: u64,
    /// Its words, locked.
    pub(crate) words: File,
    /// Where its first record begins.
    pub(crate) position: u64,
}

impl Service {
    /// Gives the stream's lease to a client of user `uid`.
    pub(crate) fn lease_out(&self, lane: &Arc<Lane>, uid: u32) -> Result<Grant> {
        lane.check()?;
        // Held while the lease changes. A daemon writes no stream itself.
        let writer = lane.writer.lock();
        if writer.is_some() {
            return Err(LogError::Busy(lane.name.to_string()));
        }
        self.end_remote(lane)?;
        let before = self.claim_lessee(lane)?;
        let adopted = match self.has_left_something(lane, before) {
            true => self.adopt(lane),
            false => Ok(()),
        };
        lane.words.release_lessee();
        adopted?;
        // No process has the lease, so this frees the last chunk, too.
        self.drain(lane)?;
        self.claim_lessee(lane)?;
        self.grant(lane, uid).inspect_err(|_| {
            lane.words.end_remote();
            lane.words.release_lessee();
        })
    }

    fn grant(&self, lane: &Lane, uid: u32) -> Result<Grant> {
        let words = &lane.words;
        self.refresh_usn(words);
        let serial = self.control.new_lease();
        let token = fastrand::u64(1..);
        words.prepare_remote(token, uid);
        let file = self.host.make_remote_words(lane.identity().stream, serial, words)?;
        words.begin_remote(serial);
        let position = words.appended();
        Ok(Grant { token, words: file, position })
    }

    /// Ends the lease of a client that has ended. An error if the client still lives.
    pub(crate) fn end_remote(&self, lane: &Lane) -> Result<()> {
        let Some(remote) = lane.remote()? else { return Ok(()) };
        if remote.is_alive()? && !faults::is(Fault::LivingLeaseEnded) {
            return Err(LogError::Busy(lane.name.to_string()));
        }
        if !faults::is(Fault::LastWordsNotTaken) {
            lane.pull().inspect_err(|e| lane.abort_after(e))?;
        }
        if faults::is(Fault::DeadClientsChunksFreed) {
            let mut chunks = lane.chunks().into_iter();
            chunks.try_for_each(|(ordinal, index)| self.free_chunk(lane, ordinal, index))?;
        }
        if let Ok(header) = remote.header() {
            lane.words.set_header(&header);
        }
        // Its chunks hold what it may have stored after its end.
        lane.words.set_suspect(true);
        lane.words.end_remote();
        remote.remove();
        // If a dead daemon had it, the next one finds that out.
        let _ = lane.words.release_lessee_of(self.host.client());
        Ok(())
    }

    /// Whether `token` and `uid` belong to the client that has the lease.
    pub(crate) fn has_lease(&self, lane: &Lane, token: u64, uid: u32) -> bool {
        lane.words.is_remote_of(uid) && lane.words.is_token(token)
    }

    /// Allocates a chunk for span `ordinal` to the client that has the lease: the chunk that it
    /// already has for this span, or one for the span after its last.
    pub(crate) fn allocate_for_client(&self, lane: &Lane, ordinal: u64) -> Result<usize> {
        lane.check()?;
        lane.pull().inspect_err(|e| lane.abort_after(e))?;
        if let Some(index) = lane.words.chunk(ordinal) {
            return Ok(index);
        }
        let next = self.next_ordinal(lane);
        if ordinal > next {
            // The daemon before this one freed the chunks between, and died before it could say
            // that the pool is full: the append begins again.
            let pool_bytes = self.host.settings().pool_bytes();
            return Err(LogError::Full { pool_bytes, waited_ms: 0 });
        }
        if ordinal < next {
            let text = format!("stream {}: span {ordinal} instead of {next}", lane.name);
            return Err(LogError::Usage(text));
        }
        self.allocate_or_wait(lane, ordinal)?;
        lane.words.chunk(ordinal).ok_or_else(|| LogError::Busy(lane.name.to_string()))
    }

    /// Cuts the files of the client that has the lease, if it made them longer, because they use
    /// memory that all need. After that, nothing is accepted from its stream.
    pub(crate) fn hold_to_size(&self, lane: &Lane) -> Result<()> {
        let Some(remote) = lane.remote()? else { return Ok(()) };
        let mut is_longer = remote.shorten()?;
        is_longer |= self.cut_chunks(lane, &lane.chunks())?;
        if is_longer {
            let text = format!("stream {}: its client made its files longer", lane.name);
            lane.abort_after(&LogError::Incompatible(text));
        }
        Ok(())
    }

    /// Whether any of the chunks, which the lane had a moment ago, was longer. A chunk that was
    /// freed since then may belong to another lane, whose client made it longer.
    fn cut_chunks(&self, lane: &Lane, chunks: &[(u64, usize)]) -> Result<bool> {
        let mut is_longer = false;
        for &(_, index) in chunks {
            is_longer |= self.host.shorten_chunk(index)? && lane.owns(index);
        }
        Ok(is_longer)
    }

    /// The span that the stream's next chunk is for.
    pub(crate) fn next_ordinal(&self, lane: &Lane) -> u64 {
        let appended = lane.words.appended();
        let first = appended / self.host.settings().chunk_bytes;
        lane.chunks().last().map_or(first, |(last, _)| first.max(last + 1))
    }

    /// Repairs what earlier daemons left when they ended during an allocation: chunks that are
    /// taken but in no table, and words of leases that were never given or have ended. Called
    /// before any client is served.
    pub(crate) fn take_over_remotes(&self) -> Result<()> {
        let streams = self.host.streams()?;
        for (stream, serial) in self.host.remote_leases()? {
            let is_there = streams.iter().any(|(_, meta)| meta.id == stream.0);
            let words = || self.host.lane_words(stream);
            if is_there && words()?.remote() == Some(serial) {
                // Open, it is looked after.
                self.lane_if_sound(stream)?;
            } else {
                self.host.remote_words(stream, serial)?.remove();
            }
        }
        for stream in self.owners() {
            let Some(lane) = self.lane_if_sound(stream)? else { continue };
            let _drainer = self.wait_for_drainer(&lane, self.stall_limit())?;
            self.free_lost_chunks(&lane)?;
        }
        Ok(())
    }

    /// The lane of the stream. `None`: the stream is removed or damaged. Its next opener gets the
    /// error.
    fn lane_if_sound(&self, stream: StreamId) -> Result<Option<Arc<Lane>>> {
        match self.lane_of(stream) {
            Err(e) if e.is_of_one_stream() => Ok(None),
            lane => lane,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::test_directory::{TestDirectory, make_lane};
    use crate::words::LaneWords;

    #[test]
    fn words_of_a_lease_that_ended_are_no_contradiction() {
        let test_dir = TestDirectory::new();
        let (_, service) = &test_dir.join();
        let lane = &make_lane(service, "a");
        let first = service.lease_out(lane, 0).expect("lease");
        // A thread that pulls is here when another client gets the lease.
        let its_words = lane.remote().expect("words").expect("leased");
        drop(first.words);
        let second = service.lease_out(lane, 0).expect("lease");
        service.allocate_for_client(lane, 0).expect("chunk");
        second
            .words
            .write_all_at(&64u64.to_ne_bytes(), LaneWords::APPENDED as u64 * 8)
            .expect("append");
        lane.pull().expect("believed");
        lane.pull_from(&its_words).expect("they say nothing any more");
        assert_eq!(lane.words.appended(), 64);
    }

    #[test]
    fn lane_is_not_blamed_for_growth_of_a_chunk_it_no_longer_owns() {
        let test_dir = TestDirectory::new();
        let (_, service) = &test_dir.join();
        let (lane, other) = (&make_lane(service, "a"), &make_lane(service, "b"));
        let grant = service.lease_out(lane, 0).expect("lease");
        let index = service.allocate_for_client(lane, 0).expect("chunk");
        let chunks = lane.chunks();
        assert_eq!(chunks, [(0, index)]);
        drop(grant.words);
        service.end_remote(lane).expect("it is gone");
        service.drain(lane).expect("frees the chunk");
        let _its = service.lease_out(other, 0).expect("lease");
        assert_eq!(service.allocate_for_client(other, 0).expect("chunk"), index);
        let longer = || {
            let file = File::from(service.host.chunk_file(index).expect("file"));
            let len_bytes = file.metadata().expect("length").len();
            file.set_len(len_bytes + 4096).expect("longer");
        };
        longer();
        assert!(!service.cut_chunks(lane, &chunks).expect("cut"));
        longer();
        service.hold_to_size(lane).expect("nothing is its");
        service.hold_to_size(other).expect("cut");
        assert!(lane.check().is_ok() && other.is_spoiled());
    }
}
