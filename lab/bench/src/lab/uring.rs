//! `enable_uring` of the fuse module: set while any run lasts, and put back by the last one.
//!
//! Runs hold a shared lock on a note of what was set before; whoever can have it alone is the only one. What a
//! run that was killed leaves is a note that nobody holds: it tells the next run what was set before.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::teardown::Teardown;
use crate::error::{Error, Result};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
const NOTE: &str = "/run/onejournal-bench.enable_uring";
/// Held while the note is looked at or changed.
const GATE: &str = "/run/onejournal-bench.lock";

/// Lets FUSE servers use io_uring where the kernel can, until `teardown`.
pub fn allow(teardown: &mut Teardown) -> Result<()> {
    let Ok(before) = fs::read_to_string(PARAMETER) else { return Ok(()) };
    let _gate = lock(GATE, FlockOperation::LockExclusive)?;
    let is_left = fs::read_to_string(NOTE).is_ok_and(|text| !text.is_empty());
    let note = open(NOTE)?;
    if is_alone(&note) && !is_left {
        fs::write(NOTE, before.trim()).map_err(Error::at(Path::new(NOTE)))?;
    }
    flock(&note, FlockOperation::LockShared).map_err(failed)?;
    teardown.push(format!("putting {PARAMETER} back"), move || put_back(note));
    fs::write(PARAMETER, "Y").map_err(Error::at(Path::new(PARAMETER)))
}

fn put_back(note: File) -> Result<()> {
    let _gate = lock(GATE, FlockOperation::LockExclusive)?;
    if is_alone(&note) {
        let before = fs::read_to_string(NOTE).map_err(Error::at(Path::new(NOTE)))?;
        fs::write(PARAMETER, before).map_err(Error::at(Path::new(PARAMETER)))?;
        fs::remove_file(NOTE).map_err(Error::at(Path::new(NOTE)))?;
    }
    Ok(())
}

/// No other run holds the note.
fn is_alone(note: &File) -> bool {
    flock(note, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn lock(path: &str, operation: FlockOperation) -> Result<File> {
    let file = open(path)?;
    flock(&file, operation).map_err(failed)?;
    Ok(file)
}

fn open(path: &str) -> Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    file.map_err(Error::at(Path::new(path)))
}

fn failed(errno: rustix::io::Errno) -> Error {
    Error::io("a lock")(errno.into())
}
