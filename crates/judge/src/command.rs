//! Programs: run to their end, with what they said when they fail.

use std::io;
use std::process::{Child, Command, Stdio};

use parking_lot::RwLock;

/// Held alone while a program is started, and together by those who have files of a mount open that is to be gone then. A child
/// has all open files of this process until its exec has closed them, which is after `spawn` has returned (posix_spawn
/// waits until the child has memory of its own); and a mount on which a file is open is busy.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a program; every one has to be started here.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _alone = STARTING.write();
    command.spawn()
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
