//! The name of the volume, as `e2label` shows it.

use crate::op::superblock_of;
use crate::source::Source;
use crate::volume::Volume;
use crate::{Error, Result};

impl Volume {
    /// The volume's label: up to 16 bytes, none of which is 0.
    pub fn label(&self) -> Result<Vec<u8>> {
        let name = superblock_of(&*self.super_bytes()?).s_volume_name;
        Ok(name.into_iter().take_while(|byte| *byte != 0).collect())
    }

    /// Sets the label, durably, in the first superblock (the copies keep the old one). `InvalidArgument` if it is too long.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        let mut name = [0; 16];
        name.get_mut(..label.len()).ok_or(Error::InvalidArgument)?.copy_from_slice(label);
        self.with_op(1, |op| op.change_superblock(|superblock| superblock.s_volume_name = name))?;
        self.sync()
    }
}
