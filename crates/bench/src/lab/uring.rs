//! `enable_uring` of the fuse module: set while a run lasts, and put back.

use std::fs;
use std::path::{Path, PathBuf};

use super::teardown::Teardown;
use crate::error::{Error, Result};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
const BEFORE: &str = "enable_uring";

/// Lets FUSE servers use io_uring where the kernel can. What was set before is noted in `scratch`, so
/// that it can be put back after a run that was killed.
pub fn allow(scratch: &Path, teardown: &mut Teardown) -> Result<()> {
    let Ok(before) = fs::read_to_string(PARAMETER) else { return Ok(()) };
    let note: PathBuf = scratch.join(BEFORE);
    fs::write(&note, &before).map_err(Error::at(&note))?;
    let scratch = scratch.to_owned();
    teardown.push(format!("putting {PARAMETER} back"), move || restore_from(&scratch));
    fs::write(PARAMETER, "Y").map_err(Error::at(Path::new(PARAMETER)))
}

/// Whether FUSE servers may use it.
pub fn is_allowed() -> bool {
    fs::read_to_string(PARAMETER).is_ok_and(|text| text.trim() == "Y")
}

/// Puts back what the run of `scratch` found.
pub fn restore_from(scratch: &Path) -> Result<()> {
    let note = scratch.join(BEFORE);
    let Ok(before) = fs::read_to_string(&note) else { return Ok(()) };
    fs::write(PARAMETER, before.trim()).map_err(Error::at(Path::new(PARAMETER)))?;
    fs::remove_file(&note).map_err(Error::at(&note))
}
