//! Unmounting in a mount namespace, by a process of its own.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use mount::{MountError, Unmounter};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{CliError, DetachArgs, Result};

/// Which mount namespace it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
}

impl NamespaceId {
    /// That of this process.
    pub fn own() -> io::Result<NamespaceId> {
        fs::metadata("/proc/self/ns/mnt").map(|found| NamespaceId::of(&found))
    }

    fn of(found: &fs::Metadata) -> NamespaceId {
        NamespaceId { device: found.dev(), inode: found.ino() }
    }
}

/// A mount namespace, to be given to [`detach`].
pub fn of_process(pid: &str) -> io::Result<File> {
    File::open(format!("/proc/{pid}/ns/mnt"))
}

/// Takes the mounts of `device` off in `namespace`, by a process of its own.
pub fn detach(namespace: File, device: (u32, u32), lazily: bool) -> Result<()> {
    let (major, minor) = device;
    let mut command = Command::new("/proc/self/exe");
    command.arg("detach").arg(format!("{major}:{minor}")).args(lazily.then_some("--lazily"));
    let output = command.stdin(namespace).output();
    let output = output.map_err(|error| CliError::new(format!("/proc/self/exe: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(CliError::new(text.trim().trim_start_matches("onejournal: ")))
}

/// `onejournal detach`, which [`detach`] runs: its standard input is the namespace.
pub fn run_detach(args: &DetachArgs) -> Result<u8> {
    let failed = |what: &str, errno| CliError::new(format!("{what}: {errno}"));
    // The namespace may have another /proc, or none.
    let process = rustix::fs::open("/proc/self", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| failed("/proc/self", errno))?;
    let stdin = io::stdin();
    let wanted = rustix::fs::fstat(&stdin).map_err(|errno| failed("standard input", errno))?;
    let own = NamespaceId::own().map_err(|error| CliError::new(error.to_string()))?;
    if (wanted.st_dev, wanted.st_ino) != (own.device, own.inode) {
        move_into_link_name_space(stdin.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(|errno| failed("entering the mount namespace", errno))?;
    }
    let table = rustix::fs::openat(&process, "mountinfo", OFlags::RDONLY, Mode::empty())
        .map_err(|errno| failed("mountinfo", errno))?;
    let mut text = Vec::new();
    io::Read::read_to_end(&mut File::from(table), &mut text)
        .map_err(|error| CliError::new(error.to_string()))?;
    // The topmost first.
    let mounts = mount::parse_mounts(&text).into_iter().rev();
    mounts
        .filter(|entry| entry.device == args.device && entry.is_volume())
        .try_for_each(|entry| mount::unmount_here(&entry.dir, args.lazily))
        .map_err(|error: MountError| CliError::new(error.to_string()))?;
    Ok(0)
}

/// How the daemon unmounts.
#[derive(Debug)]
pub struct ByProcess;

impl Unmounter for ByProcess {
    fn unmount(&self, device: (u32, u32), lazily: bool) -> std::result::Result<(), MountError> {
        let failed = |why| MountError::Unmounter { why };
        let own = of_process("self").map_err(|error| failed(error.to_string()))?;
        detach(own, device, lazily).map_err(|error| failed(error.text))
    }
}
