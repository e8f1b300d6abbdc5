//! What this machine has of what tests need. Each function says through [`skip`] what is missing.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::FsOpenFlags;

use crate::skip::{Need, skip};

/// The parameter of the kernel's module that allows FUSE over io_uring.
pub const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The packages that `scripts/setup` installs, and programs in them that tests ask for.
const OF_SETUP: [(&str, &[&str]); 16] = [
    ("gcc", &["cc", "nm", "readelf", "strip"]),
    ("make", &["make"]),
    ("e2fsprogs", &["mke2fs", "mkfs.ext4", "e2fsck", "debugfs", "chattr", "lsattr"]),
    ("xfsprogs", &["mkfs.xfs"]),
    ("btrfs-progs", &["mkfs.btrfs"]),
    ("dosfstools", &["mkfs.vfat"]),
    ("fuse3", &["fusermount3"]),
    ("sqlite3", &["sqlite3"]),
    (
        "util-linux",
        &[
            "unshare", "nsenter", "setpriv", "runuser", "setsid", "flock", "prlimit", "findfs",
            "blkid", "partx", "addpart", "delpart",
        ],
    ),
    ("mount", &["mount", "umount", "losetup"]),
    ("attr", &["getfattr", "setfattr"]),
    ("acl", &["getfacl", "setfacl"]),
    ("python3", &["python3"]),
    ("procps", &["ps"]),
    ("strace", &["strace"]),
    ("iproute2", &["ip"]),
];

/// Words in the names of their programs and files.
const DATABASES: [&str; 6] = ["etcd", "leveldb", "mariadb", "postgresql", "redis", "rocksdb"];

/// Whether the test is run by root; says so if not.
#[track_caller]
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(Need::Root, "needs root");
    }
    is_root
}

/// Whether root can make loop devices here; says why not.
#[track_caller]
pub fn has_loop_devices() -> bool {
    let exist = Path::new("/dev/loop-control").exists();
    if !exist {
        skip(Need::Loop, "needs /dev/loop-control");
    }
    exist && is_root()
}

/// Whether root can mount file systems of the kernel here; says why not.
#[track_caller]
pub fn can_mount() -> bool {
    if !is_root() {
        return false;
    }
    let may = may_administer();
    if !may {
        skip(Need::Fuse, "needs CAP_SYS_ADMIN");
    }
    may
}

/// Whether root can mount an image with the kernel's ext4 here; says why not.
#[track_caller]
pub fn can_mount_ext4() -> bool {
    if !has_loop_devices() || !can_mount() {
        return false;
    }
    // The call loads the module.
    let found = rustix::mount::fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC);
    let is_known = found.err() != Some(Errno::NODEV);
    if !is_known {
        skip(Need::Kernel, "needs the kernel's ext4");
    }
    is_known
}

/// Whether root can mount FUSE file systems here; says why not.
#[track_caller]
pub fn can_mount_fuse() -> bool {
    let exists = Path::new("/dev/fuse").exists();
    if !exists {
        skip(Need::Fuse, "needs /dev/fuse");
    }
    exists && can_mount()
}

/// Whether the kernel has FUSE over io_uring; says so if not.
#[track_caller]
pub fn has_fuse_over_uring() -> bool {
    // Opening the device loads the module.
    let is_there = File::open("/dev/fuse").is_ok() && Path::new(ENABLE_URING).exists();
    if !is_there {
        skip(Need::Uring, "needs FUSE over io_uring (Linux 6.14)");
    }
    is_there
}

/// Whether programs may use io_uring; says so if not.
#[track_caller]
pub fn has_uring() -> bool {
    match io_uring::IoUring::new(1) {
        Ok(_) => return true,
        Err(error) => skip(Need::Uring, format!("needs io_uring: {error}")),
    }
    false
}

/// Whether root can make namespaces of mounts and processes here; says why not.
#[track_caller]
pub fn has_namespaces() -> bool {
    if !is_root() || !has_program("unshare") {
        return false;
    }
    let exist = ["mnt", "pid"].iter().all(|name| Path::new("/proc/self/ns").join(name).exists());
    let why = match (exist, may_administer()) {
        (true, true) => return true,
        (true, false) => "needs CAP_SYS_ADMIN",
        (false, _) => "needs a kernel with namespaces",
    };
    skip(Need::Namespaces, why);
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
#[track_caller]
pub fn has_shm() -> bool {
    let is_tmpfs = is_tmpfs(Path::new("/dev/shm"));
    if !is_tmpfs {
        skip(Need::Shm, "needs a tmpfs at /dev/shm");
    }
    is_tmpfs
}

/// Whether the files of `/var/tmp` are not in memory; says so if they are.
#[track_caller]
pub fn has_disk() -> bool {
    let is_tmpfs = is_tmpfs(Path::new("/var/tmp"));
    if is_tmpfs {
        skip(Need::Disk, "needs /var/tmp on a disk");
    }
    !is_tmpfs
}

fn is_tmpfs(dir: &Path) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    rustix::fs::statfs(dir).is_ok_and(|fs| fs.f_type as u64 == TMPFS_MAGIC)
}

/// Whether a program is installed, also in `/sbin`; says so if not. An absolute path is a file.
#[track_caller]
pub fn has_program(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = dirs.into_iter().any(|dir| dir.join(program).exists());
    if !found {
        skip(need_of(program), format!("needs {program}"));
    }
    found
}

fn need_of(program: &str) -> Need {
    if OF_SETUP.iter().any(|(_, programs)| programs.contains(&program)) {
        return Need::Program;
    }
    let is_of_database = DATABASES.iter().any(|name| program.contains(name));
    if is_of_database { Need::Database } else { Need::OptionalProgram }
}

/// A Python whose module `sqlite3` can load extensions, preferably the distribution's. Many are
/// built without.
pub fn find_python_with_extensions() -> Option<&'static str> {
    let can_load = "import sqlite3; sqlite3.Connection.enable_load_extension";
    ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        let output = Command::new(python).args(["-c", can_load]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// The same; says so if there is none.
#[track_caller]
pub fn python_with_extensions() -> Option<&'static str> {
    let found = find_python_with_extensions();
    if found.is_none() {
        skip(Need::Program, "needs a python3 whose sqlite3 loads extensions");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_setup_databases_and_others_are_different_needs() {
        assert_eq!(need_of("unshare"), Need::Program);
        assert_eq!(need_of("promtool"), Need::OptionalProgram);
        assert_eq!(need_of("mariadbd"), Need::Database);
        assert!(has_program("sh") && has_program("/bin/sh"));
    }

    #[test]
    fn the_packages_are_those_of_setup() {
        let setup = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/setup");
        let setup = std::fs::read_to_string(setup).expect("the script");
        let installed = setup.split("missing+=(").skip(1).filter_map(|rest| rest.split(')').next());
        let mut installed: Vec<&str> = installed.flat_map(str::split_whitespace).collect();
        // The headers of the C library have no program.
        installed.retain(|package| *package != "libc6-dev");
        assert_eq!(OF_SETUP.map(|(package, _)| package).as_slice(), installed);
    }
}
