//! A FUSE device that every user may open, for runs by a user who is not root.
//!
//! If only root may open `/dev/fuse`, the judge starts itself again in a mount namespace of its
//! own, in which another node of the same device is mounted over it. The machine's own node stays
//! as it is.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{ExitStatus, Stdio};

use crate::command::{COPYING, in_namespace, spawn};

const DEVICE: &str = "/dev/fuse";
const MODE: u32 = 0o666;

/// See [`in_namespace`].
const SCRIPT: &str = r#"
echo ready
dir=$(mktemp -d)
mount -t tmpfs none "$dir"
mknod -m 666 "$dir/fuse" c "$1" "$2"
mount --bind "$dir/fuse" /dev/fuse
umount -l "$dir"
rmdir "$dir"
shift 2
exec "$@"
"#;

/// Whether only root may use FUSE.
pub fn is_closed() -> bool {
    std::fs::metadata(DEVICE).is_ok_and(|fuse| fuse.mode() & MODE & 0o7 != MODE & 0o7)
}

/// Whether a program has to be started with [`run`], and can be: a container may forbid making the
/// node.
pub fn is_needed() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    is_closed() && is_root && run(&["true".into()]).is_ok_and(|status| status.success())
}

/// Runs a program in a namespace in which all users may use FUSE. This process prints its output.
pub fn run(program: &[OsString]) -> io::Result<ExitStatus> {
    let device = std::fs::metadata(DEVICE)?.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mut unshare = in_namespace(SCRIPT);
    unshare.args([major.to_string(), minor.to_string()]).args(program);
    let copying = COPYING.write();
    let mut child = spawn(unshare.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let mut lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
    let _ready = lines.next();
    drop(copying);
    for line in lines {
        println!("{}", line?);
    }
    child.wait()
}
