//! Leases and chunks for clients of the daemon.
//!
//! A lease begins with a lane that is drained and holds no chunk, and with words of its own. It ends when its
//! client says so or is gone; then its words are looked at for the last time, and what its client
//! stored behind its last record is nothing.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::broken::{self, Broken};
use crate::lane::Lane;
use crate::service::Service;
use crate::shared::LaneWords;
use crate::{LogError, Result, StreamId};

/// What a client gets.
pub(crate) struct Grant {
    /// What it has to show.
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
        // Held while the lease changes; nobody in a daemon writes a stream itself.
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
        lane.words.lessee().store(0, Ordering::Release);
        adopted?;
        // Nobody has the lease: this gives back the last chunk too.
        self.drain(lane)?;
        self.claim_lessee(lane)?;
        self.grant(lane, uid).inspect_err(|_| {
            lane.words.remote().store(0, Ordering::Release);
            lane.words.lessee().store(0, Ordering::Release);
        })
    }

    fn grant(&self, lane: &Lane, uid: u32) -> Result<Grant> {
        let words = &lane.words;
        self.refresh_usn(words);
        let serial = self.control.lease_count().fetch_add(1, Ordering::AcqRel) + 1;
        let token = fastrand::u64(1..);
        words.remote_token().store(token, Ordering::Release);
        words.remote_uid().store(u64::from(uid), Ordering::Release);
        let file = self.host.make_remote_words(lane.identity().stream, serial, words)?;
        words.remote().store(serial, Ordering::Release);
        let position = words.appended().load(Ordering::Acquire);
        Ok(Grant { token, words: file, position })
    }

    /// Ends the lease of a client that is gone; an error while it is not.
    pub(crate) fn end_remote(&self, lane: &Lane) -> Result<()> {
        let Some(remote) = lane.remote()? else { return Ok(()) };
        if remote.is_alive()? && !broken::is(Broken::LivingLeaseEnded) {
            return Err(LogError::Busy(lane.name.to_string()));
        }
        if !broken::is(Broken::LastWordsNotTaken) {
            lane.pull().inspect_err(|e| lane.abort_after(e))?;
        }
        if broken::is(Broken::DeadClientsChunksFreed) {
            let mut chunks = lane.chunks().into_iter();
            chunks.try_for_each(|(ordinal, index)| self.free_chunk(lane, ordinal, index))?;
        }
        if let Ok(note) = remote.note() {
            lane.words.set_note(&note);
        }
        // Its chunks hold what it may have stored behind its end.
        lane.words.suspect().store(1, Ordering::Release);
        lane.words.remote().store(0, Ordering::Release);
        remote.remove();
        let me = self.host.client().0;
        // Else a dead daemon had it, and whoever comes next finds that out.
        let _ = lane.words.lessee().compare_exchange(me, 0, Ordering::AcqRel, Ordering::Acquire);
        Ok(())
    }

    /// Whether `token` and `uid` are those of the client that has the lease.
    pub(crate) fn has_lease(&self, lane: &Lane, token: u64, uid: u32) -> bool {
        let words = &lane.words;
        words.remote().load(Ordering::Acquire) != 0
            && words.remote_token().load(Ordering::Acquire) == token
            && words.remote_uid().load(Ordering::Acquire) == u64::from(uid)
    }

    /// Lends the client that has the lease a chunk for span `ordinal`: the one that it has for it
    /// already, or one for the span behind its last.
    pub(crate) fn lend_out(&self, lane: &Lane, ordinal: u64) -> Result<usize> {
        lane.check()?;
        lane.pull().inspect_err(|e| lane.abort_after(e))?;
        if let Some(index) = lane.words.chunk(ordinal) {
            return Ok(index);
        }
        let next = self.next_ordinal(lane);
        if ordinal > next {
            // The daemon before this one took back what lies between, and died before it could say that the
            // pool is full: the append begins anew.
            let pool_bytes = self.host.settings().pool_bytes();
            return Err(LogError::Full { pool_bytes, waited_ms: 0 });
        }
        if ordinal < next {
            let text = format!("stream {}: span {ordinal} instead of {next}", lane.name);
            return Err(LogError::Usage(text));
        }
        self.lend_or_wait(lane, ordinal)?;
        lane.words.chunk(ordinal).ok_or_else(|| LogError::Busy(lane.name.to_string()))
    }

    /// Cuts the files that the client has which has the lease, if it made them longer: they take memory that all
    /// need. Nothing is taken of its stream then.
    pub(crate) fn hold_to_size(&self, lane: &Lane) -> Result<()> {
        let Some(remote) = lane.remote()? else { return Ok(()) };
        let mut is_longer = remote.shorten()?;
        for (_, index) in lane.chunks() {
            is_longer |= self.host.shorten_chunk(index)?;
        }
        if is_longer {
            let text = format!("stream {}: its client made its files longer", lane.name);
            lane.abort_after(&LogError::Incompatible(text));
        }
        Ok(())
    }

    /// The span that the stream's next chunk is for.
    pub(crate) fn next_ordinal(&self, lane: &Lane) -> u64 {
        let appended = lane.words.appended().load(Ordering::Acquire);
        let first = appended / self.host.settings().chunk_bytes;
        lane.chunks().last().map_or(first, |(last, _)| first.max(last + 1))
    }

    /// Makes sound what daemons before this one left in the middle of lending: chunks that are taken and in no
    /// table, words of leases that nobody was given or that have ended. Before anybody is served.
    pub(crate) fn take_over_remotes(&self) -> Result<()> {
        let streams = self.host.streams()?;
        for (stream, serial) in self.host.remote_leases()? {
            let is_there = streams.iter().any(|(_, meta)| meta.id == stream.0);
            let words = || self.host.lane_words(stream).map(LaneWords);
            if is_there && words()?.remote().load(Ordering::Acquire) == serial {
                // Open, it is looked after.
                self.lane_if_sound(stream)?;
            } else {
                self.host.remote_words(stream, serial)?.remove();
            }
        }
        for stream in self.owners() {
            let Some(lane) = self.lane_if_sound(stream)? else { continue };
            let _drainer = self.wait_for_drainer(&lane)?;
            self.free_lost_chunks(&lane)?;
        }
        Ok(())
    }

    /// The lane of the stream; `None`: it is of nobody any more, or damaged: its opener will hear it.
    fn lane_if_sound(&self, stream: StreamId) -> Result<Option<Arc<Lane>>> {
        match self.lane_of(stream) {
            Err(LogError::Damaged { .. } | LogError::Incompatible(_)) => Ok(None),
            lane => lane,
        }
    }
}
