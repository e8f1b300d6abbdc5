//! The file system of the scratch folder as it is: this machine's own disk, without a loop device
//! between.

use super::{Running, Site, System};
use crate::error::Result;
use crate::lab::Lab;

/// A directory in the scratch folder, whatever device the site names.
pub struct ScratchFolder;

impl System for ScratchFolder {
    fn name(&self) -> String {
        "scratch folder".into()
    }

    /// If the folder is not on a block device, setting it up fails with a message.
    fn missing(&self) -> Option<String> {
        None
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        Running::in_scratch_folder(lab, self.name(), site)
    }
}
