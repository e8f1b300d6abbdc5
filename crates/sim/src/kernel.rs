//! The kernel's ext4 as a second reference: the same operations on a loop mount.

use std::fs;
use std::io;
use std::process::Command;

use onejournal_testing::Image;
use tempfile::{NamedTempFile, TempDir};

use crate::calls::{Calls, read_tree};
use crate::format::run;
use crate::op::Op;
use crate::tree::Tree;

/// An image mounted by the kernel; unmounted when it is dropped.
pub struct Mounted {
    file: NamedTempFile,
    dir: TempDir,
    calls: Calls,
    is_mounted: bool,
}

impl Mounted {
    /// Mounts a copy of the image. The error says why that is not possible on this machine.
    pub fn mount(image: &Image) -> Result<Mounted, String> {
        let text = |e: io::Error| format!("temporary files: {e}");
        let file = NamedTempFile::new().map_err(text)?;
        image.write_to(file.as_file()).map_err(text)?;
        let dir = TempDir::new().map_err(text)?;
        let mut mount = Command::new("mount");
        run(mount.args(["-t", "ext4", "-o", "loop"]).arg(file.path()).arg(dir.path()))?;
        let calls = Calls::new(dir.path());
        Ok(Mounted { file, dir, calls, is_mounted: true })
    }

    /// Unmounts, and returns the bytes.
    pub fn unmount(mut self) -> Result<Vec<u8>, String> {
        self.calls.close_all();
        self.is_mounted = false;
        run(Command::new("umount").arg(self.dir.path()))?;
        fs::read(self.file.path()).map_err(|e| e.to_string())
    }

    /// Performs one operation. There are no power cuts here, so syncs are skipped.
    pub fn apply(&mut self, op: &Op) -> io::Result<()> {
        match op {
            Op::Sync | Op::Checkpoint => Ok(()),
            Op::Fsync { target, .. } => self.calls.exists(target),
            op => self.calls.apply(op),
        }
    }

    /// Everything on the mount.
    pub fn tree(&self) -> io::Result<Tree> {
        read_tree(self.dir.path())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.calls.close_all();
        if self.is_mounted {
            let _ = run(Command::new("umount").arg(self.dir.path()));
        }
    }
}
