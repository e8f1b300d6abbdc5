//! Processes of other users.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use super::Place;

/// Sets permissions.
pub fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
}

/// Gives a tree away.
pub fn give(path: &Path, uid: u32) {
    lchown(path, Some(uid), Some(uid)).expect("given");
    if path.is_dir() && !path.is_symlink() {
        for entry in std::fs::read_dir(path).expect("directory") {
            give(&entry.expect("entry").path(), uid);
        }
    }
}

/// A place whose directories everybody may use as /tmp.
pub fn public_place() -> Place {
    let place = Place::new(false);
    for path in [&place.root, &place.memory] {
        permit(path, 0o1777);
    }
    place
}

/// Runs an ignored test, a step of the others, as another user.
pub fn act(place: &Place, uid: u32, step: &str, more: &[(&str, &str)]) -> Output {
    let program = tempfile::tempdir().expect("directory");
    permit(program.path(), 0o755);
    let copy = program.path().join("act");
    // A child copies it. A file that this process had open for writing could be inherited by a
    // child that another test starts at the same time, and running the copy would fail with "text
    // file busy".
    let program_path = std::env::current_exe().expect("this program");
    let copied = Command::new("cp").args([&program_path, &copy]).status().expect("cp");
    assert!(copied.success(), "copy");
    let mut command = Command::new(&copy);
    command.args(["--exact", step, "--ignored", "--nocapture"]).current_dir("/").uid(uid).gid(uid);
    place.tell(&mut command);
    command.envs(more.iter().copied()).output().expect("run")
}

/// What a process printed. The pieces of a long message of the extension are put together.
pub fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let mut said = String::new();
    for line in String::from_utf8_lossy(&text).lines() {
        let (gap, line) =
            line.split_once(" onejournal: ... ").map_or(("\n", line), |it| (" ", it.1));
        said.push_str(gap);
        said.push_str(line);
    }
    said
}
