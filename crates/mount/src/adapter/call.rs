//! One request, with what its operation needs.

use ext4::{InodeNo, Volume, VolumeAs};
use fuse::abi::InHeader;
use fuse::{Answer, Body, Reply};
use rustix::io::Errno;

use crate::adapter::failure::Failure;
use crate::adapter::state::Adapter;
use crate::convert;

/// One request on its way through the volume.
pub(super) struct Call<'a, 'b> {
    pub(super) adapter: &'a Adapter,
    pub(super) volume: VolumeAs<&'a Volume>,
    pub(super) header: InHeader,
    pub(super) body: Body<'a>,
    pub(super) reply: &'a mut Reply<'b>,
}

impl Call<'_, '_> {
    /// The inode that the request is about.
    pub(super) fn ino(&self) -> Result<InodeNo, Errno> {
        convert::inode_of(self.header.nodeid)
    }

    /// Runs `work`, which waits for other requests of the kernel. Before [`Failure::Later`] and
    /// `EBUSY` it was not begun: too many threads wait already, or the volume is being closed.
    pub(super) fn wait_for_requests<T>(&self, work: impl FnOnce() -> T) -> Result<T, Failure> {
        let _flush = self.adapter.flushes.begin().ok_or(Errno::BUSY)?;
        self.reply.block_in_place(work).map_err(|answer| match answer {
            Answer::Later => Failure::Later,
            _ => Errno::BUSY.into(),
        })
    }
}
