//! One request, with what its operation needs.

use ext4::{InodeNo, Volume};
use fuse::abi::InHeader;
use fuse::{Body, Reply};
use rustix::io::Errno;

use crate::adapter::state::Adapter;
use crate::convert;

/// One request on its way through the volume.
pub(super) struct Call<'a, 'b> {
    pub(super) adapter: &'a Adapter,
    pub(super) volume: &'a Volume,
    pub(super) header: InHeader,
    pub(super) body: Body<'a>,
    pub(super) reply: &'a mut Reply<'b>,
}

impl Call<'_, '_> {
    /// The inode that the request is about.
    pub(super) fn ino(&self) -> Result<InodeNo, Errno> {
        convert::inode_of(self.header.nodeid)
    }
}
