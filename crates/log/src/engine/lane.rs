//! One stream's lane as a process has it open: its words, its chunks, its log files.

use std::sync::Arc;

use device::sync::Mutex;
use device::{FileStore, Nvram};

use crate::engine::writer::Writer;
use crate::error::Refusal;
use crate::format::chunk::parts;
use crate::format::record::Identity;
use crate::format::scan::Bytes;
use crate::format::segments::Segments;
use crate::host::{Host, StreamMeta};
use crate::warnings::OF_STREAMS;
use crate::words::client_copy::RemoteWords;
use crate::words::{Abort, Client, Implausible, LaneWords, Report, after_reads};
use crate::{LogError, Result, StreamName};

/// A stream that is open in this process. Locks, in this order: `writer`, `draining`, `files`.
pub(crate) struct Lane {
    pub(crate) name: StreamName,
    pub(crate) meta: StreamMeta,
    pub(crate) words: LaneWords,
    /// `None` while this process has no lease.
    pub(crate) writer: Mutex<Option<Writer>>,
    pub(crate) files: Mutex<Files>,
    /// The stream's directory. It is not that of a later stream of the same name.
    pub(crate) store: Arc<dyn FileStore>,
    /// Held by the thread of this process that is the lane's drainer.
    pub(crate) draining: Mutex<()>,
    /// The drainer that was last waited for in vain.
    pub(crate) stalled: Mutex<Option<Client>>,
    host: Arc<dyn Host>,
    /// The words of the client that has the lease, as far as this process has opened them.
    remote: Mutex<Option<Arc<RemoteWords>>>,
}

/// The log files, and how far they were drained when they were listed.
pub(crate) struct Files {
    pub(crate) segments: Segments,
    listed_at: u64,
}

/// Stands for how far the log files were drained, if they must be listed at the next use.
const UNLISTED: u64 = u64::MAX;

impl Lane {
    pub(crate) fn open(host: Arc<dyn Host>, name: StreamName, meta: StreamMeta) -> Result<Lane> {
        let lane = Lane::unread(host, name, meta)?;
        lane.files.lock().segments.reload()?;
        Ok(lane)
    }

    /// Opens the lane without reading its log files.
    pub(crate) fn unread(host: Arc<dyn Host>, name: StreamName, meta: StreamMeta) -> Result<Lane> {
        let words = host.lane_words(meta.identity().stream)?;
        let limit_bytes = host.settings().segment_bytes;
        let store = host.store(&name)?;
        let segments = Segments::unread(store.clone(), meta.identity(), limit_bytes);
        let files = Mutex::new(Files { segments, listed_at: UNLISTED });
        let (writer, remote) = (Mutex::new(None), Mutex::new(None));
        let (draining, stalled) = (Mutex::new(()), Mutex::new(None));
        Ok(Lane { name, meta, words, writer, files, store, draining, stalled, host, remote })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.meta.identity()
    }

    /// The end of the last record that is durable. Readers see the records before it.
    pub(crate) fn durable(&self) -> u64 {
        match self.host.nvram() {
            Some(_) => {
                // A client that spoiled its words ends where it was last believed.
                let _ = self.pull();
                self.words.appended()
            }
            None => self.words.synced(),
        }
    }

    /// The memory of the chunk that holds span `ordinal`.
    pub(crate) fn chunk(&self, ordinal: u64) -> Result<Arc<dyn Nvram>> {
        match self.words.chunk(ordinal) {
            Some(index) => self.chunk_memory(index),
            None => Err(self.damaged_memory(format!("no chunk holds its span {ordinal}"))),
        }
    }

    pub(crate) fn chunk_memory(&self, index: usize) -> Result<Arc<dyn Nvram>> {
        if u32::try_from(index).is_ok_and(|index| index >= self.host.settings().chunk_count) {
            return Err(self.damaged_memory(format!("its lane names chunk {index}")));
        }
        if !self.owns(index) {
            return Err(self.damaged_memory(format!("its lane names chunk {index} of another")));
        }
        self.host.chunk(index)
    }

    pub(crate) fn owns(&self, index: usize) -> bool {
        self.host.control().chunk_owner(index) == Some(self.identity().stream)
    }

    /// The spans that are in chunks, by ordinal. The writer can change the table, so entries of
    /// chunks that the stream does not own, and of spans that no stream can have, are left out.
    pub(crate) fn chunks(&self) -> Vec<(u64, usize)> {
        let settings = self.host.settings();
        let mut chunks = self.words.chunks();
        chunks.retain(|&(ordinal, index)| {
            index < settings.chunk_count as usize
                && ordinal < u64::MAX / settings.chunk_bytes
                && self.owns(index)
        });
        chunks
    }

    /// Refuses words that contradict each other. The previous lessee may have left them.
    pub(crate) fn check_words(&self, usn_limit: u64) -> Result<()> {
        match self.words.is_plausible(self.host.settings().pool_bytes(), usn_limit) {
            true => Ok(()),
            false => Err(self.damaged_memory("the words of its lane contradict each other".into())),
        }
    }

    fn damaged_memory(&self, what: String) -> LogError {
        LogError::DamagedMemory { stream: self.name.to_string(), what }
    }

    /// Fills `buf` with the chunks' bytes from `at` on.
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

    /// Calls `f` with the log files. Lists them again first if they were drained in the meantime.
    pub(crate) fn with_files<T>(&self, f: impl FnOnce(&mut Segments) -> Result<T>) -> Result<T> {
        let mut files = self.files.lock();
        let drained = self.words.drained();
        if files.listed_at != drained {
            files.segments.reload()?;
            files.listed_at = drained;
        }
        f(&mut files.segments)
    }

    /// Makes the next use list the log files again.
    pub(crate) fn look_again(&self) {
        self.files.lock().listed_at = UNLISTED;
    }

    /// The words of the client that has the lease, if one has.
    pub(crate) fn remote(&self) -> Result<Option<Arc<RemoteWords>>> {
        let Some(serial) = self.words.remote() else { return Ok(None) };
        let mut remote = self.remote.lock();
        if remote.as_ref().is_none_or(|remote| remote.serial() != serial) {
            *remote = Some(self.host.remote_words(self.identity().stream, serial)?);
        }
        Ok(remote.clone())
    }

    /// Takes over what the client that has the lease has appended. An error if its report cannot be
    /// true.
    pub(crate) fn pull(&self) -> Result<()> {
        match self.remote()? {
            Some(remote) => self.pull_from(&remote),
            None => Ok(()),
        }
    }

    /// As [`Lane::pull`], with the words of the client given as `remote`.
    pub(crate) fn pull_from(&self, remote: &RemoteWords) -> Result<()> {
        // In this order: the client's word only grows, so it is not smaller than what was taken
        // over before it was read.
        let known = self.words.appended();
        let report = Report::read(remote);
        if self.words.remote() != Some(remote.serial()) {
            // The lease has ended. The words of its client were taken over when it ended.
            return self.pull();
        }
        let chunk_bytes = self.host.settings().chunk_bytes;
        let taken =
            self.words.take_over_report(known, report?, chunk_bytes, |index| self.owns(index));
        taken.map_err(|Implausible { reported, known }| {
            self.damaged_memory(format!("it says that it ends at {reported}, after {known}"))
        })
    }

    /// Refuses a lane that failed, or whose words are lost.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(abort) = self.words.aborted() else { return self.words.check() };
        let stream = self.name.to_string();
        Err(match abort {
            Abort::Io => Refusal::FilesFailed { stream }.into(),
            Abort::Lane => Refusal::MemoryDamaged { stream }.into(),
            Abort::Removed => LogError::Aborted(format!(
                "stream {stream}: it was removed: open it again, which makes a new one"
            )),
        })
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.words.aborted() == Some(Abort::Removed)
    }

    /// Aborts the lane if a write or a sync failed, or if the lane itself was found wrong. The lane
    /// stays usable after any other error, because nothing has changed and a later attempt may
    /// succeed: the disk was full, or this process had no descriptor left.
    pub(crate) fn abort_after(&self, error: &LogError) {
        use device::Operation::{Flush, Write};
        let why = match error {
            e if e.is_of_one_stream() => Abort::Lane,
            LogError::Io(e) if matches!(e.operation, Write | Flush) => Abort::Io,
            _ => return,
        };
        OF_STREAMS.of_stream(self.meta.uid, format_args!("stream {}: {error}", self.name));
        self.words.abort(why);
        if let Ok(Some(remote)) = self.remote() {
            remote.tell_aborted(why);
        }
    }

    /// Aborts the lane because its words or chunks were found wrong.
    pub(crate) fn abort_spoiled(&self) {
        self.words.abort(Abort::Lane);
    }

    /// Whether the lane's words or chunks were found wrong. Its writer did that. Other streams are
    /// not affected.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.words.aborted() == Some(Abort::Lane)
    }
}

/// Reads the stream's bytes wherever they are: below `drained` in the log files, from there on in
/// the chunks.
pub(crate) struct Anywhere<'a>(pub(crate) &'a Lane);

impl Bytes for Anywhere<'_> {
    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<()> {
        let Anywhere(lane) = self;
        let drained = lane.words.drained();
        let stored_bytes = drained.saturating_sub(at).min(buf.len() as u64);
        let stored_bytes = usize::try_from(stored_bytes).expect("fits the buffer");
        let (stored, allocated) = buf.split_at_mut(stored_bytes);
        if !stored.is_empty() {
            lane.with_files(|segments| segments.read(at, stored))?;
        }
        if allocated.is_empty() {
            return Ok(());
        }
        let chunks_at = at + stored_bytes as u64;
        let read = lane.read_chunks(chunks_at, allocated);
        after_reads(&lane.words);
        if lane.words.drained() > chunks_at {
            // The records were drained after the copy began. The chunk may have been freed and
            // allocated again.
            return self.read(at, buf);
        }
        read
    }
}
