//! A mount namespace in which the kernel's ext4 has a disk, as if the machine had just been
//! started.
//!
//! After a power cut the machine has another boot id, and nothing in `/dev/shm`. By these the log
//! service distinguishes a power cut from the death of a process. So programs that open a crash
//! image run in this namespace: another file is mounted over the kernel's boot id, and an empty
//! tmpfs over `/dev/shm`. The disk always has the same path, because the extension derives names
//! from it.
//!
//! A new namespace has copies of all mounts, and a mount is not gone before its copies are. So the
//! namespace removes the copies of FUSE mounts at once. Until it has done so, no thread of this
//! process unmounts a FUSE mount.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use servers::Child;

use crate::command::{COPYING, Judge, Program, in_namespace, tool};

/// Where the disk is mounted.
pub const ROOT: &str = "/dev/shm/volume";

/// Where a daemon listens for containers, and where they see its socket.
pub const SOCKET: &str = "/dev/shm/socket";
pub const SOCKET_IN_CONTAINER: &str = "/dev/shm/log.sock";

/// See [`in_namespace`].
const SCRIPT: &str = r#"
mount -t tmpfs -o mode=1777 none /dev/shm
cat /proc/sys/kernel/random/uuid >/dev/shm/boot_id
mount --bind /dev/shm/boot_id /proc/sys/kernel/random/boot_id
mkdir /dev/shm/volume
mount -t ext4 "$1" /dev/shm/volume
echo ready
read -r how
umount /dev/shm/volume
"#;

/// Runs `"$@"` in a container: it has a `/dev/shm` of its own, and in it the socket of the daemon.
const CONTAINER: &str = r#"
set -e
mount -t proc proc /proc
umount -l /dev/shm/volume
room=$(mktemp -d /dev/shm/room.XXXXXX)
mount -t tmpfs -o mode=1777 none "$room"
touch "$room/log.sock"
mount --bind /dev/shm/socket "$room/log.sock"
mount --rbind "$room" /dev/shm
exec "$@"
"#;

/// Options of `unshare` for a container. Its clock is so many seconds ahead.
const UNSHARED: &str =
    "--mount --propagation private --ipc --pid --fork --kill-child --time --monotonic=1000000";

/// The way into a namespace, for programs.
#[derive(Debug, Clone, Copy)]
pub struct Door {
    holder: u32,
}

/// The namespace. A process keeps it alive until the end: with its last process the namespace goes,
/// and what is mounted in it.
pub struct Space {
    holder: Child<Judge>,
}

impl Door {
    /// A program that will run in the namespace.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.enter();
        command.arg("--").arg(program);
        command
    }

    /// The same, with the identity of a user who is not root.
    pub fn command_as(self, program: impl AsRef<OsStr>, user: u32) -> Command {
        let mut command = self.enter();
        let user = user.to_string();
        command.args(["--setuid", &user, "--setgid", &user, "--"]).arg(program);
        command
    }

    fn enter(self) -> Command {
        let mut command = tool("nsenter");
        command.arg("--target").arg(self.holder.to_string()).arg("--mount");
        command
    }
}

impl Space {
    /// Mounts a device.
    pub fn start(device: &Path) -> Result<Space, String> {
        let mut unshare = in_namespace(SCRIPT);
        unshare.arg(device);
        let _nobody_unmounts = COPYING.write();
        let mut holder = Program::of(unshare).start()?;
        holder.wait_until_ready().map_err(|why| format!("mounting: {why}"))?;
        Ok(Space { holder })
    }

    /// The way into it.
    pub fn door(&self) -> Door {
        Door { holder: self.holder.pid() }
    }

    /// A program that will run in it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.door().command(program)
    }

    /// A program that will run in a container on the same machine.
    pub fn command_in_container(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command("unshare");
        command.args(UNSHARED.split(' ')).args(["sh", "-c", CONTAINER, "sh"]).arg(program);
        command
    }

    /// The path at which this process sees [`ROOT`].
    pub fn root(&self) -> PathBuf {
        let inside = ROOT.trim_start_matches('/');
        PathBuf::from(format!("/proc/{}/root", self.holder.pid())).join(inside)
    }

    /// Unmounts. All programs must have ended.
    pub fn umount(mut self) -> Result<(), String> {
        self.holder.send("umount")?;
        self.holder.finish().map(drop).map_err(|why| format!("unmounting: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use onejournal_testing::{Need, can_mount_ext4, has_namespaces, has_shm, skip};
    use tempfile::NamedTempFile;

    use super::*;
    use crate::command::run;
    use crate::rig::Loop;

    /// A space with a new disk, the disk's device, and its image.
    fn start() -> (Space, Loop, NamedTempFile) {
        let image = NamedTempFile::new().unwrap();
        image.as_file().set_len(8 << 20).unwrap();
        run(tool("mkfs.ext4").args(["-q", "-b", "4096"]).arg(image.path())).unwrap();
        let device = Loop::attach(image.path(), 512, false).unwrap();
        (Space::start(&device.path).unwrap(), device, image)
    }

    #[test]
    fn a_space_looks_like_a_machine_that_was_just_started() {
        if !can_mount_ext4() || !has_namespaces() || !has_shm() {
            return;
        }
        let here = NamedTempFile::new_in("/dev/shm").unwrap();
        let (space, _device, _image) = start();
        let boot_id = "/proc/sys/kernel/random/boot_id";
        let outside = std::fs::read_to_string(boot_id).unwrap();
        let inside = run(space.command("cat").arg(boot_id)).unwrap();
        assert!(inside.len() == 36 && inside != outside.trim(), "{inside:?} and {outside:?}");
        assert!(run(space.command("ls").arg(here.path())).is_err(), "memory of before is there");
        run(space.command("ls").arg(Path::new(ROOT).join("lost+found"))).unwrap();
        let mounts = run(space.command("cat").arg("/proc/self/mounts")).unwrap();
        assert!(!mounts.lines().any(|line| line.contains(" fuse")), "{mounts}");
        space.umount().unwrap();
        assert!(!Path::new(ROOT).exists(), "the mount is for the space only");
    }

    #[test]
    fn a_container_has_its_own_clock_and_sees_nothing_but_the_socket() {
        if !can_mount_ext4() || !has_namespaces() || !has_shm() {
            return;
        }
        if !Path::new("/proc/self/ns/time").exists() {
            return skip(Need::Namespaces, "needs namespaces of clocks");
        }
        let (space, _device, _image) = start();
        let shm = space.root().parent().unwrap().to_owned();
        let _listener = UnixListener::bind(shm.join("socket")).unwrap();
        let look = "ls /dev/shm; echo process $$; grep monotonic /proc/self/timens_offsets";
        let seen = run(space.command_in_container("sh").args(["-c", look])).unwrap();
        let words: Vec<&str> = seen.split_whitespace().collect();
        assert_eq!(words, ["log.sock", "process", "1", "monotonic", "1000000", "0"]);
        space.umount().unwrap();
    }
}
