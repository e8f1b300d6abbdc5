//! Programs: run to their end, with what they said when they fail.

use std::process::{Command, Stdio};

/// Runs a program; what it printed, or what it said and how it ended.
pub fn run(command: &mut Command) -> Result<String, String> {
    let (code, text) = outcome(command)?;
    if code == 0 { Ok(text) } else { Err(format!("{command:?} ended with {code}: {text}")) }
}

/// Runs a program; its exit code and all that it printed.
pub fn outcome(command: &mut Command) -> Result<(i32, String), String> {
    let output = command.stdin(Stdio::null()).output();
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
