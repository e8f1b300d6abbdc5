//! Leaving shared memory that was removed, and what is taken over from it.
//!
//! Processes that use a service go on with new memory when all of them have left the old one. The
//! service is recovered in it as after a restart of the machine: from the log files, the group log
//! and the NVRAM. So a process first brings to the log files what it has mapped. Bytes of a lane
//! that only another process has mapped cannot be read, because their names are gone. Then the lane
//! is synced instead, which the group log makes possible for the newest bytes.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::error::{LogError, Result};
use crate::warnings::OF_STREAMS;
use crate::words::{Client, STREAM_HEADER_BYTES};

/// How often, and how long in between, a process tries to get the lease of a lane whose header it
/// takes over. Another process holds it for microseconds.
const ATTEMPT_COUNT: usize = 100;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(10);

const NO_HEADER: [u8; STREAM_HEADER_BYTES] = [0; STREAM_HEADER_BYTES];

/// Whether a file was not found.
pub(crate) fn is_missing(error: &LogError) -> bool {
    matches!(error, LogError::System { source, .. } if source.kind() == ErrorKind::NotFound)
}

impl Service {
    /// Makes durable what this process has. An error if that failed for another reason than that a
    /// file of the memory is missing. The process may continue then.
    pub(crate) fn bring_home_or_sync(&self) -> Result<()> {
        for lane in self.open_lanes() {
            let lessee = lane.words.lessee();
            let is_own = lessee == Client::NOBODY || lessee.plain() == self.host.client();
            let is_ours = is_own || self.is_dead(lessee);
            // A lane that failed has said so.
            if !is_ours || lane.check().is_err() {
                continue;
            }
            match self.drain(&lane) {
                Err(e) if is_missing(&e) => self.sync_what_is_left(&lane)?,
                drained => drained?,
            }
        }
        Ok(())
    }

    /// Releases all leases of this process.
    pub(crate) fn release_all(&self) {
        self.open_lanes().iter().for_each(|lane| self.release(lane));
    }

    /// Syncs a lane that cannot be drained.
    fn sync_what_is_left(&self, lane: &Arc<Lane>) -> Result<()> {
        let end = lane.words.appended();
        if self.host.nvram().is_some() || lane.words.synced() >= end {
            return Ok(());
        }
        match self.commit_to(lane, end) {
            Err(e) if is_missing(&e) => {
                let text = format_args!(
                    "stream {}: its shared memory was removed, with records that were appended and \
                     not synced: {e}",
                    lane.name
                );
                OF_STREAMS.of_stream(lane.meta.uid, text);
                Ok(())
            }
            synced => synced,
        }
    }

    /// Gives the lane the stream header of `old`, the same stream's lane in memory that no process
    /// uses any more. Without it, zeros would say that the machine was restarted. Does nothing if
    /// the stream was used since, or does not end where it ended.
    pub(crate) fn take_over_header(&self, lane: &Arc<Lane>, old: &Lane) -> Result<()> {
        let header = old.words.header();
        let is_due = || {
            header != NO_HEADER
                && lane.words.header() == NO_HEADER
                && lane.words.appended() == old.words.appended()
        };
        old.words.check()?;
        for _ in 0..ATTEMPT_COUNT {
            if !is_due() {
                return Ok(());
            }
            let taken = self.with_writer(lane, |_, _| {
                if is_due() {
                    lane.words.set_header(&header);
                }
                Ok(())
            });
            match taken {
                Err(LogError::Busy(_)) => std::thread::sleep(ATTEMPT_PAUSE),
                taken => {
                    self.release(lane);
                    return taken;
                }
            }
        }
        Ok(())
    }
}
