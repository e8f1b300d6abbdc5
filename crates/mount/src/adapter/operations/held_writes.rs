//! Flushing the writes that the kernel holds in its cache: pages that were changed through a
//! mapping, or with [`crate::Order::Sync`] by any write.

use ext4::{Attr, FileKind, InodeNo};
use fuse::ByteRange;

use crate::adapter::call::Call;
use crate::adapter::failure::Outcome;
use crate::convert::node_of;

impl Call<'_, '_> {
    /// Returns when everything that programs wrote to the file has reached the volume. The request
    /// must not have changed anything: it may have to be served [`Failure::Later`].
    pub(super) fn flush_held_writes(&self, ino: InodeNo) -> Outcome {
        let before = self.adapter.lost_writes.count();
        self.drop_pages(ino, (0, 0))?;
        Ok(self.adapter.lost_writes.since(before)?)
    }

    /// Before something gets a name that a crash must not find without its data.
    pub(super) fn flush_before_naming(&self, file: &Attr) -> Outcome {
        if file.kind == FileKind::Regular { self.flush_held_writes(file.ino) } else { Ok(()) }
    }

    /// Drops these bytes from the kernel's cache, after the kernel has written changed ones back.
    /// After an error nothing was dropped: too many threads wait for that already, or the volume is
    /// being closed. In this thread: the job before it in the notifier's thread may wait for the
    /// request that is being served.
    pub(super) fn drop_pages(&self, ino: InodeNo, range: ByteRange) -> Outcome {
        let Some(notifier) = &self.adapter.notifier else { return Ok(()) };
        self.wait_for_requests(|| notifier.drop_pages_here(node_of(ino), range))
    }
}
