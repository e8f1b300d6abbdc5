//! The name of the volume, as `e2label` shows it.

use crate::facts::Source;
use crate::layout::superblock::SuperBlock;
use crate::memory::Mounted;
use crate::{Error, Result};

impl Mounted {
    /// [`Volume::label`](crate::Volume::label).
    pub(crate) fn label(&self) -> Result<Vec<u8>> {
        let name = SuperBlock::of_block(&*self.super_bytes()?).s_volume_name;
        Ok(name.into_iter().take_while(|byte| *byte != 0).collect())
    }

    /// [`Volume::set_label`](crate::Volume::set_label).
    pub(crate) fn set_label(&self, label: &[u8]) -> Result<()> {
        let mut name = [0; 16];
        name.get_mut(..label.len()).ok_or(Error::InvalidArgument)?.copy_from_slice(label);
        self.as_root()
            .with_op(1, |op| op.change_superblock(|superblock| superblock.s_volume_name = name))?;
        self.sync()
    }
}
