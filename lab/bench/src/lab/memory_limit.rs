//! A control group that limits memory, page cache included; of version 2 or 1.

use std::fs;
use std::path::{Path, PathBuf};

use super::program::Program;
use crate::error::{Error, Result};

/// Where the group is made, and the names of its files.
const VERSIONS: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// The group. It is removed when dropped.
pub struct MemoryLimit {
    dir: PathBuf,
    file: &'static str,
}

impl MemoryLimit {
    /// Makes one without a limit.
    pub fn new(name: &str) -> Result<MemoryLimit> {
        for (parent, file) in VERSIONS {
            let dir = Path::new(parent).join(format!("{name}-{}", std::process::id()));
            if fs::create_dir(&dir).is_err() {
                continue;
            }
            let limit = MemoryLimit { dir, file };
            if limit.dir.join(file).exists() {
                return Ok(limit);
            }
        }
        Err(Error::other("the kernel has none that can be made here"))
    }

    /// Sets the limit of its processes.
    pub fn set(&self, bytes: u64) -> Result<()> {
        let path = self.dir.join(self.file);
        fs::write(&path, bytes.to_string()).map_err(Error::at(&path))
    }

    /// A program that runs inside, with its children.
    pub fn inside(&self, program: &str) -> Program {
        let procs = self.dir.join("cgroup.procs");
        let enter = r#"echo $$ > "$0" && exec "$@""#;
        Program::new("sh").args(["-c", enter]).arg(procs).arg(program)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.dir) {
            eprintln!("onejournal-bench: removing {}: {error}", self.dir.display());
        }
    }
}
