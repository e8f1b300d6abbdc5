//! The daemon without its socket: what answers requests, and what is looked after between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Limits;
use super::access::Made;
use crate::Result;
use crate::service::Service;

/// Where requests are answered.
pub(crate) struct Desk {
    pub(crate) service: Arc<Service>,
    pub(super) limits: Limits,
    pub(super) made: Made,
}

impl Desk {
    /// Takes over what the daemon before left. Before anybody is served.
    pub(crate) fn new(service: Arc<Service>, limits: Limits) -> Result<Desk> {
        service.take_over_remotes()?;
        Ok(Desk { service, limits, made: Made::default() })
    }

    /// Ends the leases of clients that are gone, takes back what others took too much, and closes streams that nobody uses.
    pub(crate) fn tend(&self) {
        for lane in self.service.open_lanes() {
            if lane.words.remote().load(Ordering::Acquire) == 0 {
                continue;
            }
            // Tried again soon.
            let _ = self.service.hold_to_size(&lane);
            // Held by who is changing the lease just now.
            let Some(_writer) = lane.writer.try_lock() else { continue };
            if lane.is_spoiled() {
                // Not while its client is there, and again if it fails.
                let _ = self.service.settle_spoiled(&lane);
            } else if lane.check().is_ok() && self.service.end_remote(&lane).is_ok() {
                // Latched in the lane and reported to whoever takes the lease next.
                let _ = self.service.drain(&lane);
            }
        }
        self.service.forget_idle(self.limits.idle_stream_count);
    }

    /// Brings all that was appended to the log files. Clients keep their leases.
    pub(crate) fn bring_home(&self) -> Result<()> {
        let mut drained = Ok(());
        for stream in self.service.owners() {
            if let Ok(Some(lane)) = self.service.lane_of(stream)
                && lane.check().is_ok()
                && let Err(e) = self.service.drain(&lane)
                && !lane.is_spoiled()
            {
                drained = Err(e);
            }
        }
        drained
    }

    pub(super) fn pool_chunk_count(&self) -> usize {
        self.service.host.settings().chunk_count as usize
    }
}
