//! Loop devices, with direct I/O.

use std::fs;
use std::path::{Path, PathBuf};

use super::program::Program;
use super::teardown::Teardown;
use crate::error::{Error, Result};

/// Attaches a file, or a part of a block device. Returns the path of the loop device.
pub fn attach(file: &Path, part: Option<Part>, teardown: &mut Teardown) -> Result<PathBuf> {
    let mut program = Program::new("losetup").args(["-f", "--show", "--direct-io=on"]);
    if let Some(part) = part {
        program = program
            .arg(format!("--offset={}", part.start_bytes))
            .arg(format!("--sizelimit={}", part.len_bytes));
    }
    let path = PathBuf::from(program.arg(file).run()?.trim());
    let detached = path.clone();
    teardown.push(format!("detaching {}", path.display()), move || detach(&detached));
    Ok(path)
}

/// A part of a block device.
pub struct Part {
    pub start_bytes: u64,
    pub len_bytes: u64,
}

/// Detaches it. If it is still in use, the kernel detaches it with the last user.
pub fn detach(path: &Path) -> Result<()> {
    Program::new("losetup").arg("-d").arg(path).uninterrupted().run().map(drop)
}

/// Loop devices over files in `dirs`.
pub fn backed_by_files_below(dirs: &[&Path]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").map_err(Error::io("/sys/block"))?.flatten() {
        let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        if dirs.iter().any(|dir| Path::new(file.trim_end()).starts_with(dir)) {
            found.push(Path::new("/dev").join(entry.file_name()));
        }
    }
    Ok(found)
}
