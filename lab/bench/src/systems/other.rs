//! The kernel's XFS and btrfs.

use super::onejournal::JOURNAL_MIB;
use super::{Running, Site, System, missing_kernel_system};
use crate::error::Result;
use crate::lab::{Device, Lab, Program};

/// XFS as `mkfs.xfs` makes it. It needs 300 MiB.
pub struct Xfs;

/// XFS with its log on an emulated device of this preset.
pub struct XfsLogOn(pub &'static str);

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
        let running = Running::begin(lab, self.name(), site)?;
        set_up(running, "xfs", Program::new("mkfs.xfs").args(["-q", "-f", "-K"]), "noatime")
    }
}

impl System for XfsLogOn {
    fn name(&self) -> String {
        format!("XFS, log on {}", self.0)
    }

    fn missing(&self) -> Option<String> {
        Xfs.missing()
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let mut running = Running::begin(lab, self.name(), site)?;
        let log = running.add_journal(lab, &Device::preset(self.0), JOURNAL_MIB)?;
        let log = log.display();
        let make = Program::new("mkfs.xfs").args(["-q", "-f", "-K", "-l"]);
        let make = make.arg(format!("logdev={log}"));
        set_up(running, "xfs", make, &format!("noatime,logdev={log}"))
    }
}

impl System for Btrfs {
    fn name(&self) -> String {
        "btrfs".into()
    }

    fn missing(&self) -> Option<String> {
        missing_kernel_system("btrfs", &["mkfs.btrfs"])
    }

    /// `mkfs.btrfs` compares what is below loop devices, and not their offsets. So it believes that
    /// a free part of a device is mounted when another part is.
    fn missing_on(&self, device: &Device) -> Option<String> {
        let is_part = matches!(device, Device::Block(_));
        if is_part { Some("mkfs.btrfs refuses parts of a device".into()) } else { self.missing() }
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let running = Running::begin(lab, self.name(), site)?;
        set_up(running, "btrfs", Program::new("mkfs.btrfs").args(["-q", "-f", "-K"]), "noatime")
    }
}

fn set_up(mut running: Running, kind: &str, make: Program, options: &str) -> Result<Running> {
    make.arg(running.block()).run()?;
    let mount = Program::new("mount").args(["-t", kind, "-o", options]);
    let mount = mount.arg(running.block()).arg(&running.dir);
    running.mount(mount, Program::new("umount"))?;
    Ok(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn btrfs_is_left_out_on_a_block_device() {
        assert!(Btrfs.missing_on(&Device::Block("/dev/x".into())).is_some());
        assert_eq!(Btrfs.missing_on(&Device::Memory), Btrfs.missing());
    }
}
