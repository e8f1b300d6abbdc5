//! The kernel's other file systems: XFS, btrfs, F2FS and NILFS2.

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

/// F2FS as `mkfs.f2fs` makes it.
pub struct F2fs;

/// NILFS2 as `mkfs.nilfs2` makes it, with blocks of 4 KiB. It is mounted without the helper that
/// starts its cleaner: the cleaner keeps all segments of the last hour, so it would only read.
pub struct Nilfs2;

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

impl System for F2fs {
    fn name(&self) -> String {
        "F2FS".into()
    }

    fn missing(&self) -> Option<String> {
        missing_kernel_system("f2fs", &["mkfs.f2fs"])
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let running = Running::begin(lab, self.name(), site)?;
        let make = Program::new("mkfs.f2fs").args(["-q", "-f", "-t", "0"]);
        set_up(running, "f2fs", make, "noatime")
    }
}

impl System for Nilfs2 {
    fn name(&self) -> String {
        "NILFS2".into()
    }

    fn missing(&self) -> Option<String> {
        missing_kernel_system("nilfs2", &["mkfs.nilfs2"])
    }

    fn set_up(&self, lab: &Lab, site: &Site<'_>) -> Result<Running> {
        let running = Running::begin(lab, self.name(), site)?;
        let make = Program::new("mkfs.nilfs2").args(["-q", "-f", "-K", "-b", "4096"]);
        set_up(running, "nilfs2", make, "noatime")
    }
}

fn set_up(mut running: Running, kind: &str, make: Program, options: &str) -> Result<Running> {
    make.arg(running.block()).run()?;
    let mount = Program::new("mount").args(["--internal-only", "-t", kind, "-o", options]);
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
