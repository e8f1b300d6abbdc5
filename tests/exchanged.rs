//! Another user exchanges the target of a command of root between its check and its use. The
//! command goes on with the file that it checked, and the other file stays as it is.

use crate::support;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use onejournal_testing::{has_namespaces, has_program};
use support::{ONEJOURNAL, Ran, can_mount, onejournal, run, scratch_dir, system, text};
use tempfile::TempDir;

const SIZE_BYTES: u64 = 16 << 20;

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
        let _ = fs::remove_file(self.at("link"));
        symlink("first", self.at("link")).unwrap();
        let real = system("sh", ["-c", &format!("PATH=$PATH:/usr/sbin command -v {tool}")]).good();
        let (copy, fake) = (self.at("real"), self.at("fake"));
        fs::copy(real.trim(), &copy).unwrap();
        let script = format!(
            "#!/bin/bash\n[ \"$1\" = {but_not} ] || ln -sfn other {}\nexec -a {tool} {} \"$@\"\n",
            self.at("link").display(),
            copy.display()
        );
        fs::write(&fake, script).unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        let bind = format!("mount --bind {} {} && exec \"$@\"", fake.display(), real.trim());
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "sh", "-c", &bind, "sh", ONEJOURNAL]);
        let ran = run(inside.args(command).arg(self.at("link")));
        assert_eq!(fs::read_link(self.at("link")).unwrap(), Path::new("other"), "{ran:?}");
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
    assert_eq!(repaired.code, Some(1), "{repaired:?}");
    system("e2fsck", ["-fn", text(&first)]).good();
    assert!(fs::read(&other).unwrap() == before);
}
