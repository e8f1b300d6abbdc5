//! The kernel's XFS and btrfs.

use super::{Running, Site, System, missing_kernel_system};
use crate::error::Result;
use crate::lab::{Lab, Program};

/// XFS as `mkfs.xfs` makes it. It needs 300 MiB.
pub struct Xfs;

/// btrfs as `mkfs.btrfs` makes it.
pub struct Btrfs;

impl System for Xfs {
    fn name(&self) -> String {
        "XFS".into()
    }

    fn missing(&self) -> Option<String> {
        missing_kernel_system("xfs", &["mkfs.xfs"])
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        set_up(lab, site, self.name(), "xfs", Program::new("mkfs.xfs").args(["-q", "-f", "-K"]))
    }
}

impl System for Btrfs {
    fn name(&self) -> String {
        "btrfs".into()
    }

    fn missing(&self) -> Option<String> {
        missing_kernel_system("btrfs", &["mkfs.btrfs"])
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        set_up(lab, site, self.name(), "btrfs", Program::new("mkfs.btrfs").args(["-q", "-f", "-K"]))
    }
}

fn set_up(lab: &Lab, site: &Site<'_>, name: String, kind: &str, make: Program) -> Result<Running> {
    let mut running = Running::begin(lab, name, site)?;
    make.arg(running.block()).run()?;
    let mount = Program::new("mount").args(["-t", kind, "-o", "noatime"]);
    let mount = mount.arg(running.block()).arg(&running.dir);
    running.mount(mount, Program::new("umount"))?;
    Ok(running)
}
