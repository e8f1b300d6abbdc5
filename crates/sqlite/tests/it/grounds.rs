//! File systems to put databases on.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use onejournal_testing::{Need, can_mount_ext4, has_program, skip};
use rustix::mount::UnmountFlags;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroundKind {
    Ext4,
    Xfs,
    Btrfs,
    Tmpfs,
    Overlay,
    Vfat,
    Ramfs,
}

impl fmt::Display for GroundKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", format!("{self:?}").to_lowercase())
    }
}

impl GroundKind {
    /// Whether databases there have logs.
    pub fn has_logs(self) -> bool {
        !matches!(self, GroundKind::Vfat | GroundKind::Ramfs)
    }

    /// The program that makes it, and its arguments before the image.
    fn maker(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            GroundKind::Ext4 => Some(("mkfs.ext4", &["-q", "-F"])),
            GroundKind::Xfs => Some(("mkfs.xfs", &["-q"])),
            GroundKind::Btrfs => Some(("mkfs.btrfs", &["-q"])),
            GroundKind::Vfat => Some(("mkfs.vfat", &[])),
            GroundKind::Tmpfs | GroundKind::Overlay | GroundKind::Ramfs => None,
        }
    }
}

/// A mounted file system. It is unmounted when this is dropped.
pub struct Ground {
    pub kind: GroundKind,
    home: tempfile::TempDir,
}

/// Bytes of an image; XFS has no smaller ones.
const IMAGE_BYTES: u64 = 320 << 20;

/// Whether the kernel knows the file system; says so if not.
fn is_known(kind: GroundKind) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").expect("proc");
    let name = kind.to_string();
    let is_known = known.split_whitespace().any(|known| known == name);
    if !is_known {
        skip(Need::Kernel, format!("the kernel has no {name}"));
    }
    is_known
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).stdout(std::process::Stdio::null()).status();
    assert!(status.expect(program).success(), "{program} {arguments:?}");
}

impl Ground {
    /// A new one; `None`, and a word about why, if it cannot be made here.
    pub fn new(kind: GroundKind) -> Option<Ground> {
        if !can_mount_ext4() || !is_known(kind) {
            return None;
        }
        let ground = Ground { kind, home: tempfile::tempdir().expect("directory") };
        for name in ["mounted", "upper", "lower", "work"] {
            std::fs::create_dir(ground.home.path().join(name)).expect("directory");
        }
        let mounted = ground.path().display().to_string();
        match kind.maker() {
            Some((program, arguments)) => {
                if !has_program(program) {
                    return None;
                }
                let image = ground.image();
                let file = std::fs::File::create(&image).expect("image");
                file.set_len(IMAGE_BYTES).expect("image");
                let image = image.display().to_string();
                run(program, &[arguments, &[&image]].concat());
                run("mount", &["-o", "loop", &image, &mounted]);
            }
            None if kind == GroundKind::Overlay => {
                let at = |name: &str| ground.home.path().join(name).display().to_string();
                let (lower, upper, work) = (at("lower"), at("upper"), at("work"));
                let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
                run("mount", &["-t", "overlay", "-o", &options, "overlay", &mounted]);
            }
            None => {
                let name = kind.to_string();
                run("mount", &["-t", &name, &name, &mounted]);
            }
        }
        Some(ground)
    }

    fn image(&self) -> PathBuf {
        self.home.path().join("image")
    }

    /// Makes it read-only, or writable again.
    pub fn remount(&self, how: &str) {
        let mounted = self.path().display().to_string();
        run("mount", &["-o", &format!("remount,{how}"), &mounted]);
    }

    /// A block-level copy of it as it is on the disk now, mounted.
    pub fn snapshot(&self) -> Ground {
        let copy = Ground { kind: self.kind, home: tempfile::tempdir().expect("directory") };
        std::fs::create_dir(copy.path()).expect("directory");
        run("sync", &["-f", &self.path().display().to_string()]);
        std::fs::copy(self.image(), copy.image()).expect("copied");
        let (image, mounted) =
            (copy.image().display().to_string(), copy.path().display().to_string());
        run("mount", &["-o", "loop", &image, &mounted]);
        copy
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.home.path().join("mounted")
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path(), UnmountFlags::DETACH);
    }
}
