//! The target of a command of root changes between its check and its use: another user exchanges a
//! path, or a device gets another file or size. The command goes on with what it checked, and
//! everything else stays as it is.

use crate::support;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use onejournal_testing::{has_namespaces, has_program};
use support::{
    LET_GO, Loop, ONEJOURNAL, Ran, can_mount, onejournal, run, scratch_dir, system, text,
};
use tempfile::TempDir;

const SIZE_BYTES: u64 = 16 << 20;
const OPERATIONAL: i32 = 8;

/// Two images, `first` and `other`, and a link to the first one.
struct Images(TempDir);

impl Images {
    /// `None` if the tests cannot run here.
    fn new() -> Option<Images> {
        let programs = ["mke2fs", "e2fsck", "debugfs"];
        let can_run = has_namespaces() && programs.into_iter().all(has_program);
        can_run.then(|| Images(scratch_dir()))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the command on the link. Each time that it starts `tool`, the link leads to the other
    /// image first; not if the first argument of the tool is `but_not`.
    fn exchanged_at(&self, tool: &str, but_not: &str, command: &[&str]) -> Ran {
        let link = self.at("link");
        let _ = fs::remove_file(&link);
        symlink("first", &link).unwrap();
        let exchange = format!("ln -sfn other {}", link.display());
        let ran = self.changed_at((tool, but_not), &exchange, command, &link);
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("other"), "{ran:?}");
        ran
    }

    /// Runs the command on the target. Each time that it starts `tool`, the shell runs `change`
    /// first; not if the first argument of the tool is `but_not`.
    fn changed_at(
        &self,
        (tool, but_not): (&str, &str),
        change: &str,
        command: &[&str],
        target: &Path,
    ) -> Ran {
        let real = system("sh", ["-c", &format!("PATH=$PATH:/usr/sbin command -v {tool}")]).good();
        let (copy, fake) = (self.at("real"), self.at("fake"));
        fs::copy(real.trim(), &copy).unwrap();
        let script = format!(
            "#!/bin/bash\n[ \"$1\" = {but_not} ] || {{ {change}; }}\nexec -a {tool} {} \"$@\"\n",
            copy.display()
        );
        fs::write(&fake, script).unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        let (fake, real) = (fake.display(), real.trim());
        let bind = format!("{LET_GO} mount --bind {fake} {real} && exec \"$@\"");
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "sh", "-c", &bind, "sh", ONEJOURNAL]);
        let ran = run(inside.args(command).arg(target));
        assert!(!format!("{}{}", ran.out, ran.err).contains("/proc/"), "{ran:?}");
        ran
    }
}

#[test]
fn regression_mkfs_makes_the_volume_in_the_file_that_it_checked() {
    let Some(images) = Images::new() else { return };
    let (first, other) = (images.at("first"), images.at("other"));
    for path in [&first, &other] {
        File::create(path).unwrap().set_len(SIZE_BYTES).unwrap();
    }
    system("mke2fs", ["-q", "-F", "-t", "ext4", text(&other)]).good();
    let before = fs::read(&other).unwrap();
    images.exchanged_at("mke2fs", "-n", &["mkfs", "--journal-size", "4M"]).good();
    assert!(fs::read(&other).unwrap() == before, "a file that was not checked is overwritten");
    onejournal(["fsck", text(&first)]).good();
}

/// The kernel keeps a loop device whose file is detached until its last user closes it.
#[test]
fn mkfs_on_a_device_that_is_detached_meanwhile_makes_the_volume_on_its_first_file() {
    let Some(images) = Images::new().filter(|_| can_mount()) else { return };
    let (first, other) = (images.at("first"), images.at("other"));
    for path in [&first, &other] {
        File::create(path).unwrap().set_len(SIZE_BYTES).unwrap();
    }
    let device = Loop::attach(&first);
    let path = device.path.clone();
    let attach = format!("losetup {} {}", path.display(), other.display());
    let change = format!("losetup --detach {}; ! {attach} 2>/dev/null || exit 9", path.display());
    images.changed_at(("mke2fs", "-n"), &change, &["mkfs", "--journal-size", "4M"], &path).good();
    // From now on the number may be that of another test's device.
    std::mem::forget(device);
    assert!(
        fs::read(&other).unwrap().iter().all(|byte| *byte == 0),
        "the other file was written to"
    );
    onejournal(["fsck", text(&first)]).good();
}

#[test]
fn mkfs_on_a_device_that_becomes_smaller_fails_and_writes_nothing_past_its_end() {
    let Some(images) = Images::new().filter(|_| can_mount()) else { return };
    let first = images.at("first");
    File::create(&first).unwrap().set_len(SIZE_BYTES).unwrap();
    let device = Loop::attach(&first);
    let shown = device.path.display();
    let change = format!("truncate -s 10M {} && losetup --set-capacity {shown}", first.display());
    let mkfs = ["mkfs", "--journal-size", "6M"];
    let ran = images.changed_at(("mke2fs", "-n"), &change, &mkfs, &device.path);
    ran.refused(OPERATIONAL, "mke2fs could not make a volume");
    assert_eq!(fs::metadata(&first).unwrap().len(), 10 << 20, "written past the end");
}

#[test]
fn regression_fsck_checks_the_file_that_it_opened() {
    let Some(images) = Images::new() else { return };
    let (first, other) = (images.at("first"), images.at("other"));
    onejournal(["mkfs", "--size", "16M", "--journal-size", "4M", text(&first)]).good();
    fs::copy(&first, &other).unwrap();
    system("debugfs", ["-w", "-R", "clri <11>", text(&first)]).good();
    let before = fs::read(&other).unwrap();
    let looked = images.exchanged_at("e2fsck", "none", &["fsck", "-n"]);
    assert_eq!(looked.code, Some(4), "the first one is damaged: {looked:?}");
    if !can_mount() {
        return;
    }
    let repaired = images.exchanged_at("e2fsck", "none", &["fsck", "-y"]);
    repaired.ended(1);
    system("e2fsck", ["-fn", text(&first)]).good();
    assert!(fs::read(&other).unwrap() == before);
}
