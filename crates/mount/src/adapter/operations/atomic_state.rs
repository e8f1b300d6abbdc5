//! What operations ask of the atomic writes of the mount.

use device::sync::RwLockReadGuard;
use ext4::InodeNo;
use rustix::io::Errno;

use crate::adapter::atomic::writes::{AtomicSizes, Table};
use crate::adapter::call::Call;

impl<'a> Call<'a, '_> {
    /// To be asked for before attributes are read.
    pub(super) fn atomic_sizes(&self) -> AtomicSizes<'a> {
        AtomicSizes::of(self.adapter.atomic.as_ref())
    }

    /// Until the result is dropped, the file has no atomic write. `EBUSY`: it has one.
    pub(super) fn without_atomic_write(
        &self,
        ino: InodeNo,
    ) -> Result<Option<RwLockReadGuard<'a, Table>>, Errno> {
        self.adapter.atomic.as_ref().map(|atomic| atomic.without_atomic_write(ino)).transpose()
    }
}
