//! Tests that cannot run here say so through [`skip`]: the runner counts them, and a list of needs
//! makes such a skip a failure.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// What a test may lack. `ONEJOURNAL_MUST_RUN` is a list of their names, or `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The user root.
    Root,
    /// Mounting: `/dev/fuse`, and `CAP_SYS_ADMIN`.
    Fuse,
    /// Loop devices.
    Loop,
    /// Partitions of loop devices.
    Partitions,
    /// A tmpfs on `/dev/shm`.
    Shm,
    /// `/var/tmp` on a disk.
    Disk,
    /// io_uring, or FUSE over it.
    Uring,
    /// Namespaces of mounts, users and processes.
    Namespaces,
    /// NVRAM, named in the environment.
    Nvram,
    /// A kernel that has what the test is about.
    Kernel,
    /// A user other than root.
    User,
    /// A program; `skip` names it.
    Program,
    /// A database server, or a plug-in for one.
    Database,
}

impl Need {
    /// Its name in messages and in `ONEJOURNAL_MUST_RUN`.
    pub fn name(self) -> &'static str {
        match self {
            Need::Root => "root",
            Need::Fuse => "fuse",
            Need::Loop => "loop",
            Need::Partitions => "partitions",
            Need::Shm => "shm",
            Need::Disk => "disk",
            Need::Uring => "uring",
            Need::Namespaces => "namespaces",
            Need::Nvram => "nvram",
            Need::Kernel => "kernel",
            Need::User => "user",
            Need::Program => "program",
            Need::Database => "database",
        }
    }
}

/// Says on standard error that the calling test cannot run, in the form that the runner counts:
/// `skipped: NEED: why`. Panics if `ONEJOURNAL_MUST_RUN` lists the need.
#[track_caller]
pub fn skip(need: Need, why: impl Display) {
    let must_run = std::env::var("ONEJOURNAL_MUST_RUN").unwrap_or_default();
    assert!(!is_listed(need, &must_run), "cannot run, but must: {}: {why}", need.name());
    eprintln!("skipped: {}: {why}", need.name());
}

fn is_listed(need: Need, list: &str) -> bool {
    list.split(',').any(|name| name == "all" || name == need.name())
}

/// Whether the test is run by root; says so if not.
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(Need::Root, "needs root");
    }
    is_root
}

/// Whether root can make loop devices here; says why not.
pub fn has_loop_devices() -> bool {
    let exist = Path::new("/dev/loop-control").exists();
    if !exist {
        skip(Need::Loop, "needs /dev/loop-control");
    }
    exist && is_root()
}

/// Whether root can mount FUSE file systems here; says why not.
pub fn can_mount_fuse() -> bool {
    if !is_root() {
        return false;
    }
    let why = if !Path::new("/dev/fuse").exists() {
        "needs /dev/fuse"
    } else if !may_administer() {
        "needs CAP_SYS_ADMIN"
    } else {
        return true;
    };
    skip(Need::Fuse, why);
    false
}

/// Root of a container often has no `CAP_SYS_ADMIN`, and cannot mount.
fn may_administer() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    effective.unwrap_or_default() & CAP_SYS_ADMIN != 0
}

/// Whether `/dev/shm` is a tmpfs; says so if not.
pub fn has_shm() -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let found = rustix::fs::statfs("/dev/shm").is_ok_and(|fs| fs.f_type as u64 == TMPFS_MAGIC);
    if !found {
        skip(Need::Shm, "needs a tmpfs at /dev/shm");
    }
    found
}

/// Whether a program is installed, also in `/sbin`; says so if not.
pub fn has_program(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = dirs.into_iter().any(|dir| dir.join(program).exists());
    if !found {
        skip(Need::Program, format!("needs {program}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_needs_or_all_of_them() {
        assert!(is_listed(Need::Fuse, "root,fuse"));
        assert!(!is_listed(Need::Loop, "root,fuse"));
        assert!(is_listed(Need::Loop, "all"));
        assert!(!is_listed(Need::Loop, ""));
    }

    #[test]
    fn a_skip_of_what_must_run_is_a_failure() {
        let run = |list: &str| {
            let mut command = crate::again(module_path!(), "lacks_nvram");
            command.env("ONEJOURNAL_MUST_RUN", list).output().expect("a process")
        };
        let [may, must] = [run("root"), run("root,nvram")];
        let said = String::from_utf8_lossy(&may.stderr);
        assert!(may.status.success() && said.contains("skipped: nvram: a test"), "{said}");
        let said = String::from_utf8_lossy(&must.stderr);
        assert!(!must.status.success() && said.contains("must: nvram: a test"), "{said}");
    }

    #[test]
    #[ignore = "a process of the test above"]
    fn lacks_nvram() {
        skip(Need::Nvram, "a test");
    }
}
