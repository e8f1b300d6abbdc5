//! `enable_uring` of the fuse module: set while any run is active, and restored by the last one.
//!
//! Runs hold a shared lock on a file with the previous value. A run that can lock it exclusively is
//! the only one. If a run is killed, the file stays without a lock, and tells the next run the
//! previous value.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::teardown::Teardown;
use crate::error::{Error, Result};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
const NOTE: &str = "/run/onejournal-bench.enable_uring";
/// Held while the file is read or changed.
const GATE: &str = "/run/onejournal-bench.lock";

/// Lets FUSE servers use io_uring, if the kernel can, until `teardown`.
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

/// Whether no other run holds the file.
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
