//! What operations ask of the atomic writes of the mount.

use device::sync::RwLockReadGuard;
use ext4::InodeNo;
use rustix::io::Errno;

use crate::adapter::atomic::writes::{Table, Unsettled};
use crate::adapter::call::Call;

impl<'a> Call<'a, '_> {
    /// To be asked for before attributes are read.
    pub(super) fn unsettled(&self) -> Unsettled<'a> {
        Unsettled::of(self.adapter.atomic.as_ref())
    }

    /// Until the result is dropped, the file has no atomic write. `EBUSY`: it has one.
    pub(super) fn settled(
        &self,
        ino: InodeNo,
    ) -> Result<Option<RwLockReadGuard<'a, Table>>, Errno> {
        self.adapter.atomic.as_ref().map(|atomic| atomic.settled(ino)).transpose()
    }
}
