//! Programs: run to their end, with what they said when they fail.

use std::fs::File;
use std::io;
use std::process::{Child, Command, Stdio};

use device::sync::RwLock;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};

/// Held alone while a program is started, and together by those who have files of a mount open that is to be gone then. A child
/// has all open files of this process until its exec has closed them, which is after `spawn` has returned (posix_spawn
/// waits until the child has memory of its own); and a mount on which a file is open is busy. When the child
/// closes its copy of a descriptor with an atomic write, the write is given up.
static STARTING: RwLock<()> = RwLock::new(());

/// Held alone while a new namespace has copies of all mounts, and together by those who unmount.
pub static COPYING: RwLock<()> = RwLock::new(());

/// How a shell in a new mount namespace begins: it lets go of the copies of all FUSE mounts. Errors end it.
const LET_GO: &str = r#"
set -e
while read -r _ dir kind _; do
    # Spaces in a path are written as numbers there.
    case $kind in fuse*) umount -l "$(printf %b "$dir")" ;; esac
done </proc/self/mounts
"#;

/// A shell in a new mount namespace, which lets go of FUSE mounts and then runs `script`. What is added to the command
/// are the script's arguments.
pub fn in_namespace(script: &str) -> Command {
    let mut unshare = Command::new("unshare");
    let script = format!("{LET_GO}{script}");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
    unshare
}

/// Exec closes descriptors in the order of their numbers, and the judge has no files with higher ones.
const LAST_DESCRIPTOR: i32 = 512;

/// Starts a program; every one has to be started here. Returns when the child has closed its copies of our descriptors.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _alone = STARTING.write();
    let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let last = fcntl_dupfd_cloexec(write_end, LAST_DESCRIPTOR)?;
    let child = command.spawn()?;
    drop(last);
    // The end of the pipe: the child has closed the last descriptor.
    io::copy(&mut File::from(read_end), &mut io::sink())?;
    Ok(child)
}

/// Does what has files open that no child may have. It must start no program.
pub fn without_children<T>(work: impl FnOnce() -> T) -> T {
    let _together = STARTING.read();
    work()
}

/// Runs a program; what it printed, or what it said and how it ended.
pub fn run(command: &mut Command) -> Result<String, String> {
    let (code, text) = outcome(command)?;
    if code == 0 { Ok(text) } else { Err(format!("{command:?} ended with {code}: {text}")) }
}

/// Runs a program; its exit code and all that it printed.
pub fn outcome(command: &mut Command) -> Result<(i32, String), String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = spawn(command).and_then(Child::wait_with_output);
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(code) => Ok((code, text.trim_end().to_owned())),
        None => Err(format!("{command:?} was killed: {}", output.status)),
    }
}

/// A tool of the system, also where `/sbin` is not on the path.
pub fn tool(name: &str) -> Command {
    let sbin = std::path::Path::new("/usr/sbin").join(name);
    if sbin.exists() { Command::new(sbin) } else { Command::new(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_child_has_none_of_our_descriptors_when_it_is_started() {
        for _ in 0..300 {
            let (read_end, write_end) =
                pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
            let mut child = spawn(&mut Command::new("true")).unwrap();
            drop(write_end);
            let found = File::from(read_end).read(&mut [0]);
            assert_eq!(found.unwrap(), 0, "the child could still write");
            child.wait().unwrap();
        }
    }
}
