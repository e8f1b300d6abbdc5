//! Bringing a file home from the kernel's cache before it becomes immutable.
//!
//! Pages that were changed through a mapping, or with `writeback_cache` by any write, would be refused
//! when they are written back later, and lost. Having pages dropped writes the changed ones back.
//!
//! Who waits for that keeps a thread from answering requests, and the kernel needs one for these
//! pages: so fewer may wait than there are threads for any queue of requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use ext4::InodeNo;
use fuse::ByteRange;
use rustix::io::Errno;

use super::Call;
use crate::convert::node_of;

/// How many wait.
#[derive(Default)]
pub(super) struct Settling {
    /// 0: nobody can.
    pub(super) limit: usize,
    count: AtomicUsize,
}

impl Call<'_, '_> {
    /// Returns when everything that programs wrote to the file has reached the volume. `EBUSY`: too
    /// many ask for that at a time.
    pub(super) fn settle_pages(&self, ino: InodeNo) -> Result<(), Errno> {
        let can_wait = self.adapter.settling.limit > 0;
        let is_settled = self.drop_pages(ino, (0, 0));
        if can_wait && !is_settled { Err(Errno::BUSY) } else { Ok(()) }
    }

    /// Has these bytes dropped from the kernel's cache, after what was changed there is written back. `false`: nobody
    /// may wait for that now, and it was not asked for. In this thread: what the notifier has to do first may
    /// wait for the request that is being served.
    pub(super) fn drop_pages(&self, ino: InodeNo, range: ByteRange) -> bool {
        let settling = &self.adapter.settling;
        let Some(notifier) = &self.adapter.notifier else { return false };
        let enter = |count: usize| (count < settling.limit).then_some(count + 1);
        let order = Ordering::SeqCst;
        if settling.count.fetch_update(order, order, enter).is_err() {
            return false;
        }
        notifier.drop_pages_here(node_of(ino), range);
        settling.count.fetch_sub(1, order);
        true
    }
}
