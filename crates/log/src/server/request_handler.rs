//! The daemon without its socket: the state that answers need, and the work between requests.

use std::collections::HashMap;
use std::sync::Arc;

use device::sync::Mutex;
use host::Account;

use super::access::Made;
use super::limits::Limits;
use crate::Result;
use crate::engine::lane::Lane;
use crate::engine::service::Service;
use crate::words::Abort;

/// Where requests are answered.
pub(crate) struct RequestHandler {
    pub(crate) service: Arc<Service>,
    pub(super) limits: Limits,
    pub(super) made: Made,
    /// How many chunks each user was promised and does not hold yet.
    promised: Mutex<HashMap<Account, usize>>,
}

/// A chunk that was promised to a user, until it is allocated.
pub(super) struct Promise<'a> {
    handler: &'a RequestHandler,
    user: Account,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut promised = self.handler.promised.lock();
        if let Some(count) = promised.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                promised.remove(&self.user);
            }
        }
    }
}

impl RequestHandler {
    /// Takes over the leases of the previous daemon. Call it before the first client is served.
    pub(crate) fn new(service: Arc<Service>, limits: Limits) -> Result<RequestHandler> {
        service.take_over_remotes()?;
        Ok(RequestHandler { service, limits, made: Made::default(), promised: Mutex::default() })
    }

    /// Promises a user one more chunk. `None`: it has `limit` of them already. Chunks that were
    /// promised to its other connections at the same time count, too.
    pub(super) fn promise(&self, user: Account, limit: usize) -> Option<Promise<'_>> {
        let mut promised = self.promised.lock();
        let count = promised.get(&user).copied().unwrap_or(0);
        if limit < usize::MAX && self.user_chunk_count(user) + count >= limit {
            return None;
        }
        promised.insert(user, count + 1);
        Some(Promise { handler: self, user })
    }

    /// Chunks that the user's clients hold.
    fn user_chunk_count(&self, user: Account) -> usize {
        let of_lane = |lane: &Lane| lane.words.remote_uid().map(Account::of);
        let is_theirs = |lane: &&Arc<Lane>| of_lane(lane) == Some(user);
        let lanes = self.service.open_lanes();
        lanes.iter().filter(is_theirs).map(|lane| lane.words.chunks().len()).sum()
    }

    /// Ends the leases of clients that are gone, cuts files that clients made longer, and closes
    /// streams that are not used.
    pub(crate) fn tend(&self) {
        if self.service.host.is_memory_gone() {
            self.end_all_leases();
            return;
        }
        for lane in self.service.open_lanes() {
            if lane.words.remote().is_none() {
                continue;
            }
            // Tried again soon.
            let _ = self.service.hold_to_size(&lane);
            // Held by who is changing the lease just now.
            let Some(_writer) = lane.writer.try_lock() else { continue };
            if lane.is_spoiled() {
                // Not while its client is there, and again if it fails.
                let _ = self.service.recover_spoiled(&lane);
            } else if lane.check().is_ok() && self.service.end_remote(&lane).is_ok() {
                // Latched in the lane and reported to the next lessee.
                let _ = self.service.drain(&lane);
            }
        }
        self.service.forget_idle(self.limits.idle_stream_count);
    }

    /// Tells all clients to append no more, because the next daemon will know no lease. On NVRAM it
    /// finds what a client appends until then, in the chunks.
    fn end_all_leases(&self) {
        for lane in self.service.open_lanes() {
            // Words that this process has not opened yet cannot be opened any more.
            if let Ok(Some(remote)) = lane.remote() {
                remote.tell_aborted(Abort::Lane);
            }
        }
    }

    /// Brings everything that was appended to the log files. Clients keep their leases.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory::TestDirectory;

    #[test]
    fn regression_connections_of_a_user_do_not_pass_its_limit_together() {
        let test_dir = TestDirectory::new();
        let (_, service) = test_dir.join();
        let handler = RequestHandler::new(Arc::new(service), Limits::default()).expect("handler");
        let (user, other) = (Account::own(), Account::UNKNOWN);
        let first = handler.promise(user, 2).expect("one");
        let second = handler.promise(user, 2).expect("two");
        assert!(handler.promise(user, 2).is_none(), "nothing is allocated yet");
        assert!(handler.promise(other, 2).is_some(), "another user");
        assert!(handler.promise(user, usize::MAX).is_some(), "who may have all");
        drop(first);
        let third = handler.promise(user, 2).expect("one was allocated and released");
        drop((second, third));
        assert!(handler.promised.lock().is_empty());
    }
}
