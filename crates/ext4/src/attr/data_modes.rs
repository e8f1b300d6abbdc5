//! Reading and setting the data mode of a file or directory.

use crate::data_mode::{DataMode, parse_declared};
use crate::inode::read_inode;
use crate::memory::Mounted;
use crate::xattr::{XattrName, atomic_attribute, atomic_volume_attribute, mode_attribute};
use crate::{Error, InodeNo, Result};

impl Mounted {
    /// [`Volume::data_mode_of`](crate::Volume::data_mode_of).
    pub(crate) fn data_mode_of(&self, ino: InodeNo) -> Result<DataMode> {
        self.mode_in(&read_inode(self, ino)?, &self.in_core(ino))
    }

    /// Brings home what the journal holds, before the mode of an inode changes. The caller holds
    /// the inode's content lock.
    pub(super) fn leave_mode(&self) -> Result<()> {
        Ok(self.journal.checkpoint()?)
    }
}

/// Refuses a value that makes no sense of an attribute of this project, and an attribute that only
/// the volume itself sets.
pub(super) fn check_value(name: &XattrName, value: &[u8]) -> Result<()> {
    let names_mode = || std::str::from_utf8(value).ok().and_then(DataMode::from_name).is_some();
    match name {
        name if *name == mode_attribute() && !names_mode() => Err(Error::InvalidArgument),
        name if *name == atomic_attribute() && parse_declared(value).is_none() => {
            Err(Error::InvalidArgument)
        }
        name => check_ours(name),
    }
}

/// Refuses the attribute that only the volume itself sets and removes.
pub(super) fn check_ours(name: &XattrName) -> Result<()> {
    if *name == atomic_volume_attribute() { Err(Error::NotPermitted) } else { Ok(()) }
}
