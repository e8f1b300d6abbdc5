//! Runs programs, and returns their output if they fail.

use std::io;
use std::process::{Child, Command, Stdio};

use device::sync::RwLock;
use onejournal_testing::spawn_without_files;
use servers::Host;

/// Locked exclusively while a program is started, and shared by threads that have files open on a
/// mount that must not be busy later. A child has all open files of this process until its exec has
/// closed them. A mount with an open file is busy. And if the child closes its copy of a descriptor
/// with an atomic write, that atomic write is aborted.
static STARTING: RwLock<()> = RwLock::new(());

/// Locked exclusively while a new namespace has copies of all mounts, and shared by threads that
/// unmount.
pub static COPYING: RwLock<()> = RwLock::new(());

/// The start of a shell script in a new mount namespace: it detaches the copies of all FUSE mounts.
/// An error ends the script.
const LET_GO: &str = r#"
set -e
while read -r _ dir kind _; do
    # Spaces in a path are written as numbers there.
    case $kind in fuse*) umount -l "$(printf %b "$dir")" ;; esac
done </proc/self/mounts
"#;

/// A shell in a new mount namespace, which detaches FUSE mounts and then runs `script`. Arguments
/// that the caller adds to the command are the script's arguments.
pub fn in_namespace(script: &str) -> Command {
    let mut unshare = Command::new("unshare");
    let script = format!("{LET_GO}{script}");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
    unshare
}

/// Starts a program. Every program must be started by this function. Returns when the child has
/// closed its copies of our descriptors.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _alone = STARTING.write();
    spawn_without_files(command)
}

/// The judge, which starts servers and their clients.
pub enum Judge {}

impl Host for Judge {
    type Error = String;

    fn spawn(command: &mut Command) -> io::Result<Child> {
        spawn(command)
    }
}

/// A server or a client.
pub type Program = servers::Program<Judge>;

/// Runs `work`, which opens files that no child may inherit. It must not start a program.
pub fn without_children<T>(work: impl FnOnce() -> T) -> T {
    let _together = STARTING.read();
    work()
}

/// Runs a program. Returns its output; or, if it fails, its messages and how it ended.
pub fn run(command: &mut Command) -> Result<String, String> {
    let (code, text) = outcome(command)?;
    if code == 0 { Ok(text) } else { Err(format!("{command:?} ended with {code}: {text}")) }
}

/// Runs a program. Returns its exit code and all of its output.
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

/// A tool of the system, also if `/sbin` is not in the path.
pub fn tool(name: &str) -> Command {
    let sbin = std::path::Path::new("/usr/sbin").join(name);
    if sbin.exists() { Command::new(sbin) } else { Command::new(name) }
}
