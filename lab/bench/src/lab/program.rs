//! Child processes. Each is started in a process group of its own, so that Ctrl-C reaches only this
//! program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

use servers::Host;

use super::interrupt;
use crate::error::{Error, Result};

/// A variable in the environment of every child and its children: the scratch folder of the run
/// that they belong to.
pub const MARK: &str = "ONEJOURNAL_BENCH_SCRATCH";

static SCRATCH: OnceLock<PathBuf> = OnceLock::new();

/// Marks all children from here on.
pub fn mark(scratch: &Path) {
    SCRATCH.get_or_init(|| scratch.to_owned());
}

/// This program. Programs are looked up in PATH, `/usr/sbin` and `/sbin`.
pub enum Bench {}

impl Host for Bench {
    type Error = Error;

    fn spawn(command: &mut Command) -> io::Result<process::Child> {
        command.env("PATH", search_path()).process_group(0);
        if let Some(scratch) = SCRATCH.get() {
            command.env(MARK, scratch);
        }
        command.spawn()
    }

    fn check() -> Result<()> {
        interrupt::check()
    }
}

/// A program to run.
pub type Program = servers::Program<Bench>;
/// A running process.
pub type Child = servers::Child<Bench>;

/// Whether a program is installed.
pub fn is_installed(name: &str) -> bool {
    std::env::split_paths(&search_path()).any(|dir| dir.join(name).is_file())
}

fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}
