//! Flushing the writes that the kernel holds in its cache.

use ext4::InodeNo;
use fuse::ByteRange;
use rustix::io::Errno;

use crate::adapter::call::Call;
use crate::convert::node_of;

impl Call<'_, '_> {
    /// Returns when everything that programs wrote to the file has reached the volume. `EBUSY`: too
    /// many requests wait for that at a time.
    pub(super) fn flush_held_writes(&self, ino: InodeNo) -> Result<(), Errno> {
        let can_wait = self.adapter.flushes.limit > 0;
        let is_flushed = self.drop_pages(ino, (0, 0));
        if can_wait && !is_flushed { Err(Errno::BUSY) } else { Ok(()) }
    }

    /// Drops these bytes from the kernel's cache, after the kernel has written changed ones back.
    /// `false`: no more threads may wait for that now, and nothing was dropped. In this thread: the
    /// job before it in the notifier's thread may wait for the request that is being served.
    pub(super) fn drop_pages(&self, ino: InodeNo, range: ByteRange) -> bool {
        let Some(notifier) = &self.adapter.notifier else { return false };
        self.adapter.flushes.drop_pages(notifier, node_of(ino), range)
    }
}
