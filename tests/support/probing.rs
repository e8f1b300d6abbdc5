//! What `onejournal probe` needs in every suite.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{ONEJOURNAL, Ran, onejournal, spawn};

/// The shortest measurement: everything once, and not much more.
pub const SHORT: [&str; 6] = ["probe", "--seconds", "0.2", "--size", "4M", "--json"];

pub fn probe<'a>(words: impl IntoIterator<Item = &'a str>) -> Ran {
    onejournal(SHORT.into_iter().chain(words))
}

pub fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Nothing is in the directory, and no file without a name holds its space.
#[track_caller]
pub fn check_empty(dir: &Path) {
    let left: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Ends a long measurement by `signal`, after it has begun. Its exit code, and what it says then.
pub fn end_by(signal: Signal, words: &[&str]) -> (Option<i32>, String) {
    end_by_after(signal, words, || ())
}

/// The same; `meanwhile` is called after the measurement has begun.
pub fn end_by_after(
    signal: Signal,
    words: &[&str],
    meanwhile: impl FnOnce(),
) -> (Option<i32>, String) {
    let mut command = Command::new(ONEJOURNAL);
    command.args(["probe", "--seconds", "3600", "--size", "4M"]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command).unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // It has its files when it has said what it will write.
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("at most"), "{line}");
    meanwhile();
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    (child.wait().unwrap().code(), rest)
}
