//! One stream's lane as a process sees it: its words, its chunks, its log files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Nvram;
use parking_lot::Mutex;

use crate::chunk::parts;
use crate::host::{Host, StreamMeta};
use crate::record::{ALIGN_BYTES, Identity};
use crate::remote::RemoteWords;
use crate::scan::Bytes;
use crate::segments::Segments;
use crate::shared::LaneWords;
use crate::writer::Writer;
use crate::{LogError, Result, StreamName};

/// A stream that is open in this process. Locks, in this order: `writer`, `files`.
pub(crate) struct Lane {
    pub(crate) name: StreamName,
    pub(crate) meta: StreamMeta,
    pub(crate) words: LaneWords,
    /// `None` while this process has no lease.
    pub(crate) writer: Mutex<Option<Writer>>,
    pub(crate) files: Mutex<Files>,
    host: Arc<dyn Host>,
    /// The words of the client that has the lease, as far as this process has opened them.
    remote: Mutex<Option<Arc<RemoteWords>>>,
}

/// The log files, and how far they were drained when they were listed.
pub(crate) struct Files {
    pub(crate) segments: Segments,
    listed_at: u64,
}

impl Lane {
    pub(crate) fn open(host: Arc<dyn Host>, name: StreamName, meta: StreamMeta) -> Result<Lane> {
        let words = LaneWords(host.lane_words(meta.identity().stream)?);
        let limit_bytes = host.settings().segment_bytes;
        let segments = Segments::open(host.store(&name)?, meta.identity(), limit_bytes)?;
        let files = Mutex::new(Files { segments, listed_at: 0 });
        let (writer, remote) = (Mutex::new(None), Mutex::new(None));
        Ok(Lane { name, meta, words, writer, files, host, remote })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.meta.identity()
    }

    /// Behind the last record that is durable, and that readers may see.
    pub(crate) fn durable(&self) -> u64 {
        match self.host.nvram() {
            Some(_) => {
                // A client that spoiled its words ends where it was last believed.
                let _ = self.pull();
                self.words.appended().load(Ordering::Acquire)
            }
            None => self.words.synced().load(Ordering::Acquire),
        }
    }

    /// The memory of the chunk that holds span `ordinal`.
    pub(crate) fn chunk(&self, ordinal: u64) -> Result<Arc<dyn Nvram>> {
        match self.words.chunk(ordinal) {
            Some(index) => self.chunk_memory(index),
            None => {
                let why = format!("stream {}: no chunk holds its span {ordinal}", self.name);
                Err(LogError::Incompatible(why))
            }
        }
    }

    pub(crate) fn chunk_memory(&self, index: usize) -> Result<Arc<dyn Nvram>> {
        if u32::try_from(index).is_ok_and(|index| index >= self.host.settings().chunk_count) {
            let why = format!("stream {}: its lane names chunk {index}", self.name);
            return Err(LogError::Incompatible(why));
        }
        self.host.chunk(index)
    }

    /// Fills `buf` with the bytes at `at` from the chunks.
    pub(crate) fn read_chunks(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let mut rest = &mut *buf;
        let data_bytes = self.host.settings().chunk_bytes;
        for part in parts(at, rest.len(), data_bytes) {
            let (piece, behind) = rest.split_at_mut(part.len_bytes);
            self.chunk(part.ordinal)?.read(part.offset, piece)?;
            rest = behind;
        }
        Ok(())
    }

    /// The log files as they are now: listed again when they were drained since.
    pub(crate) fn with_files<T>(&self, f: impl FnOnce(&mut Segments) -> Result<T>) -> Result<T> {
        let mut files = self.files.lock();
        let drained = self.words.drained().load(Ordering::Acquire);
        if files.listed_at != drained {
            files.segments.reload()?;
            files.listed_at = drained;
        }
        f(&mut files.segments)
    }

    /// The words of the client that has the lease, if one has.
    pub(crate) fn remote(&self) -> Result<Option<Arc<RemoteWords>>> {
        let serial = self.words.remote().load(Ordering::Acquire);
        if serial == 0 {
            return Ok(None);
        }
        let mut remote = self.remote.lock();
        if remote.as_ref().is_none_or(|remote| remote.serial() != serial) {
            *remote = Some(self.host.remote_words(self.identity().stream, serial)?);
        }
        Ok(remote.clone())
    }

    /// Takes over what the client that has the lease has appended; an error when it cannot be.
    pub(crate) fn pull(&self) -> Result<()> {
        let Some(remote) = self.remote()? else { return Ok(()) };
        // In this order: the client's word only grows, so it is not smaller than what was taken
        // over before it was read.
        let known = self.words.appended().load(Ordering::Acquire);
        let claim = remote.claim()?;
        if claim.appended == known {
            return Ok(());
        }
        let chunk_bytes = self.host.settings().chunk_bytes;
        let lent_end = self.words.chunks().last().map_or(0, |(last, _)| (last + 1) * chunk_bytes);
        if claim.appended < known
            || claim.appended > lent_end
            || !claim.appended.is_multiple_of(ALIGN_BYTES as u64)
        {
            let claimed = claim.appended;
            let why = format!("{} says that it ends at {claimed}, after {known}", self.name);
            return Err(LogError::Incompatible(format!("stream {why}")));
        }
        self.words.record_count().store(claim.record_count, Ordering::Relaxed);
        self.words.payload_bytes().store(claim.payload_bytes, Ordering::Relaxed);
        let usn_limit = self.words.usn_limit().load(Ordering::Acquire);
        self.words.last_usn().store(claim.last_usn.min(usn_limit), Ordering::Relaxed);
        self.words.appended().fetch_max(claim.appended, Ordering::AcqRel);
        Ok(())
    }

    /// Refuses a lane that failed.
    pub(crate) fn check(&self) -> Result<()> {
        let why = match self.words.aborted().load(Ordering::Acquire) {
            0 => return Ok(()),
            aborted::IO => "its log files could not be written",
            _ => "its lane did not hold what its writer had published",
        };
        Err(LogError::Aborted(format!("stream {}: {why}", self.name)))
    }

    /// Takes nothing any more from this stream.
    pub(crate) fn abort(&self, error: &LogError) {
        tracing::error!("stream {}: {error}", self.name);
        let why = match error {
            LogError::Damaged { .. } | LogError::Incompatible(_) => aborted::LANE,
            _ => aborted::IO,
        };
        self.words.aborted().store(why, Ordering::Release);
        if let Ok(Some(remote)) = self.remote() {
            remote.tell_aborted(why);
        }
    }

    /// The same, when the lane itself was found wrong.
    pub(crate) fn abort_spoiled(&self) {
        self.words.aborted().store(aborted::LANE, Ordering::Release);
    }

    /// Whether the lane itself was found wrong, which is its writer's doing and nobody else's trouble.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.words.aborted().load(Ordering::Acquire) == aborted::LANE
    }
}

/// Why a lane is aborted.
mod aborted {
    /// The log files could not be written.
    pub(super) const IO: u64 = 1;
    /// The lane does not hold what its words say.
    pub(super) const LANE: u64 = 2;
}

/// The stream's bytes wherever they are: below `drained` in the log files, from there in the chunks.
pub(crate) struct Anywhere<'a>(pub(crate) &'a Lane);

impl Bytes for Anywhere<'_> {
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<()> {
        let Anywhere(lane) = self;
        let drained = lane.words.drained().load(Ordering::Acquire);
        let stored_bytes = drained.saturating_sub(at).min(buf.len() as u64);
        let stored_bytes = usize::try_from(stored_bytes).expect("fits the buffer");
        let (stored, lent) = buf.split_at_mut(stored_bytes);
        if !stored.is_empty() {
            lane.with_files(|segments| segments.read(at, stored))?;
        }
        if lent.is_empty() {
            return Ok(());
        }
        let lent_at = at + stored_bytes as u64;
        let read = lane.read_chunks(lent_at, lent);
        if lane.words.drained().load(Ordering::Acquire) > lent_at {
            // Drained meanwhile: the chunk may have been given back and lent again.
            return self.read(at, buf);
        }
        read
    }
}
