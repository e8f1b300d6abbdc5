//! What more than one operation needs of pages in the kernel's cache.

use ext4::InodeNo;
use fuse::ByteRange;
use rustix::io::Errno;

use crate::adapter::call::Call;
use crate::convert::node_of;

impl Call<'_, '_> {
    /// Returns when everything that programs wrote to the file has reached the volume. `EBUSY`: too
    /// many requests wait for that at a time.
    pub(super) fn settle_pages(&self, ino: InodeNo) -> Result<(), Errno> {
        let can_wait = self.adapter.settling.limit > 0;
        let is_settled = self.drop_pages(ino, (0, 0));
        if can_wait && !is_settled { Err(Errno::BUSY) } else { Ok(()) }
    }

    /// Drops these bytes from the kernel's cache, after the kernel has written changed ones back.
    /// `false`: no more threads may wait for that now, and nothing was dropped. In this thread: the
    /// job before it in the notifier's thread may wait for the request that is being served.
    pub(super) fn drop_pages(&self, ino: InodeNo, range: ByteRange) -> bool {
        let Some(notifier) = &self.adapter.notifier else { return false };
        self.adapter.settling.drop_pages(notifier, node_of(ino), range)
    }
}
