//! A stream of a log that this process serves.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::sync::RwLock;

use super::membership::{Binding, Membership};
use crate::backend::{Ends, StreamBackend};
use crate::engine::writer::{ChunkAllocator, Writer};
use crate::error::{LogError, Result};
use crate::stat::StreamStat;
use crate::stream_name::StreamName;
use crate::types::{Lsn, READ_BYTES, RecordBatch};
use crate::words::STREAM_HEADER_BYTES;

/// A stream of a log that this process serves.
pub(super) struct EmbeddedStream {
    membership: Arc<Membership>,
    name: StreamName,
    binding: Arc<RwLock<Binding>>,
}

impl EmbeddedStream {
    /// The stream `name`, which is bound.
    pub(super) fn of(
        membership: Arc<Membership>,
        name: StreamName,
        binding: Arc<RwLock<Binding>>,
    ) -> Arc<dyn StreamBackend> {
        Arc::new(EmbeddedStream { membership, name, binding })
    }

    #[inline]
    fn run<T>(&self, operation: impl Fn(&Binding) -> Result<T>) -> Result<T> {
        self.membership.run_bound(&self.binding, operation)
    }
}

impl StreamBackend for EmbeddedStream {
    fn name(&self) -> &StreamName {
        &self.name
    }

    fn acquire(&self) -> Result<()> {
        self.run(|bound| {
            bound.service.with_writer(&bound.lane, |_, _| Ok(()))?;
            bound.is_interrupted.store(false, Ordering::Relaxed);
            Ok(())
        })
    }

    fn release(&self) {
        {
            let bound = self.binding.read();
            bound.is_interrupted.store(false, Ordering::Relaxed);
            if !bound.has_left {
                return bound.service.release(&bound.lane);
            }
        }
        self.binding.write().had_lease = false;
    }

    fn append_batch(&self, payloads: &[&[u8]]) -> Result<Lsn> {
        self.run(|bound| {
            if bound.is_interrupted.load(Ordering::Relaxed) {
                return Err(LogError::Busy(self.name.to_string()));
            }
            let append = |writer: &mut Writer, allocator: &dyn ChunkAllocator| {
                writer.append_batch(allocator, payloads)
            };
            bound.service.with_writer(&bound.lane, append)
        })
    }

    fn sync(&self, lsn: Lsn) -> Result<()> {
        self.run(|bound| bound.service.sync(&bound.lane, lsn))
    }

    fn flush(&self) -> Result<()> {
        self.run(|bound| bound.service.drain(&bound.lane))
    }

    fn begin_reading(&self, lsn: Lsn) -> Result<RecordBatch> {
        self.run(|bound| bound.lane.check_position(lsn))?;
        Ok(RecordBatch::empty_at(lsn))
    }

    fn read_records(&self, lsn: Lsn) -> Result<RecordBatch> {
        self.run(|bound| bound.lane.read_records(lsn, READ_BYTES))
    }

    fn head(&self) -> Lsn {
        Lsn(self.binding.read().lane.words.head())
    }

    fn end(&self) -> Lsn {
        Lsn(self.binding.read().lane.durable())
    }

    fn appended(&self) -> Lsn {
        let bound = self.binding.read();
        // If a client's claim cannot be taken over, the next append or sync reports it.
        let _ = bound.lane.pull();
        Lsn(bound.lane.words.appended())
    }

    fn known_ends(&self) -> Ends {
        let Some(bound) = self.binding.try_read() else { return Ends::default() };
        let lane = &bound.lane;
        let (head, durable) = (Lsn(lane.words.head()), Lsn(lane.durable()));
        Ends { head, durable, appended: Lsn(lane.words.appended()) }
    }

    fn truncate_before(&self, lsn: Lsn) -> Result<()> {
        self.run(|bound| bound.service.truncate_before(&bound.lane, lsn))
    }

    fn header(&self) -> Result<[u8; STREAM_HEADER_BYTES]> {
        self.run(|bound| {
            let header = bound.lane.words.header();
            bound.lane.words.check()?;
            Ok(header)
        })
    }

    fn set_header(&self, header: &[u8; STREAM_HEADER_BYTES]) {
        // If new memory was made since the lessee's append, the header belongs there. The memory
        // may be gone again: then the next user takes the stream for one after a restart.
        let _ = self.run(|bound| {
            // A caller that lost its lease must not change what the next lessee has left.
            if !bound.is_interrupted.load(Ordering::Relaxed) {
                bound.lane.words.set_header(header);
            }
            Ok(())
        });
    }

    fn stat(&self) -> Result<StreamStat> {
        self.run(|bound| bound.lane.stat())
    }
}
