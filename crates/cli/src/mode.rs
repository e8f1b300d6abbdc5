//! `onejournal set-mode` and `get-mode`: the data mode of a file, through its attributes.

use std::path::{Path, PathBuf};

use ext4::{DATA_MODE_XATTR, DataMode};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::counters::read_attribute;
use crate::say;
use crate::{CliError, Result};

pub fn set(mode: &str, files: &[PathBuf]) -> Result<u8> {
    if mode != "default" && DataMode::from_name(mode).is_none() {
        return Err(CliError::usage(format!(
            "{mode} is not a data mode; {}, and default",
            names()
        )));
    }
    for file in files {
        // Elsewhere the attribute would be an ordinary one, without effect.
        read_attribute(file, mount::MODE_XATTR)?;
        set_one(mode, file).map_err(|errno| CliError::at(file, errno))?;
    }
    Ok(0)
}

fn set_one(mode: &str, file: &Path) -> rustix::io::Result<()> {
    if mode != "default" {
        let flags = XattrFlags::empty();
        return rustix::fs::setxattr(file, DATA_MODE_XATTR, mode.as_bytes(), flags);
    }
    match rustix::fs::removexattr(file, DATA_MODE_XATTR) {
        Err(Errno::NODATA) => Ok(()),
        removed => removed,
    }
}

pub fn get(files: &[PathBuf]) -> Result<u8> {
    for file in files {
        say!("{}\t{}", read_attribute(file, mount::MODE_XATTR)?, file.display());
    }
    Ok(0)
}

/// The names of the modes, for the error about an unknown mode.
pub fn names() -> String {
    let names: Vec<_> = DataMode::ALL.iter().map(|mode| mode.name()).collect();
    format!("there are {}", names.join(", "))
}
