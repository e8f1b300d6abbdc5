//! fuse2fs of e2fsprogs: ext4 in user space, which does not write a journal.

use super::{Running, Site, System, missing_programs};
use crate::error::Result;
use crate::lab::{Lab, Program};

/// fuse2fs as the distribution has it.
pub struct Fuse2fs;

impl System for Fuse2fs {
    fn name(&self) -> String {
        "fuse2fs".into()
    }

    fn missing(&self) -> Option<String> {
        missing_programs(&["fuse2fs", "mke2fs"])
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let mut running = Running::begin(lab, self.name(), site)?;
        let make = Program::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-b", "4096"]);
        let make = make.args(["-E", "lazy_itable_init=0,nodiscard"]);
        make.arg(running.block()).run()?;
        let mount = Program::new("fuse2fs").arg(running.block()).arg(&running.dir);
        running.mount(mount.args(["-o", "fakeroot"]), Program::new("umount"))?;
        Ok(running)
    }
}
