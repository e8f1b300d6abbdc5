//! Where the machine is not as usual: no `/dev/fuse`, no privileges.
//!
//! Both are made in mount name spaces of their own. These copy every mount there is, and a mount
//! ends with its last copy: a suite apart, so that no other test waits in vain for the end of one.

use crate::support;

use std::fs;
use std::process::Command;

use onejournal_testing::{has_namespaces, has_program};
use support::{ONEJOURNAL, Scratch, run};

const OPERATIONAL: i32 = 8;

#[test]
fn without_dev_fuse_it_says_what_to_do() {
    let Some(scratch) = Scratch::new() else { return };
    if !has_namespaces() {
        return;
    }
    let script = "mount -t tmpfs none /dev && mknod /dev/null c 1 3 && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", ONEJOURNAL, "mount"]);
    let ran = run(command.arg(scratch.image()).arg(scratch.dir()));
    ran.refused(OPERATIONAL, "modprobe fuse");
    scratch.check();
}

/// What a user without privileges does. `/dev/fuse` is open to everybody where udev has set it up;
/// here it is made so for this test alone.
const AS_USER: &str = r#"
set -e
mknod -m 666 fuse c 10 229
mount --bind fuse /dev/fuse
trap 'umount -l mnt 2>/dev/null || true' EXIT
user() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
user ./onejournal mkfs --size 64M image # regression: its root directory belonged to root
user ./onejournal mount image mnt
grep "$PWD/mnt fuse.onejournal " /proc/self/mounts
user sh -c 'echo hello > mnt/f'
user ./onejournal stat --all mnt | grep 'data_mode *auto'
if user ./onejournal mount image mnt2; then exit 1; fi
user ./onejournal umount mnt
e2fsck -fn image >/dev/null # at once: umount has waited
user ./onejournal fsck image
user ./onejournal mount -o ro image mnt
user cat mnt/f
if user ./onejournal mount -o allow_other image mnt2; then exit 1; fi
user fusermount3 -u mnt
if user ./onejournal mount image /var; then exit 1; fi
echo done
"#;

#[test]
fn a_user_who_is_not_root_gets_along() {
    let Some(scratch) = Scratch::empty() else { return };
    if !has_program("fusermount3") || !has_program("setpriv") || !has_namespaces() {
        return;
    }
    fs::create_dir(scratch.root().join("mnt2")).unwrap();
    for path in [scratch.root(), &scratch.dir(), &scratch.root().join("mnt2")] {
        std::os::unix::fs::chown(path, Some(support::OTHER_USER), Some(support::OTHER_USER))
            .unwrap();
    }
    // The build directory may be closed to others.
    fs::copy(ONEJOURNAL, scratch.root().join("onejournal")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", AS_USER]).current_dir(scratch.root());
    let path = std::env::var("PATH").unwrap_or_default();
    let ran = run(command.env("PATH", format!("{path}:/usr/sbin:/sbin")));
    let transcript = format!("{}{}", ran.out, ran.err);
    assert_eq!(ran.code, Some(0), "{transcript}");
    assert!(ran.out.ends_with("hello\ndone\n"), "{transcript}");
    assert!(ran.err.contains("in use"), "{transcript}");
}
