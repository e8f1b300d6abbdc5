//! Sets up experiments, and takes everything down again.
//!
//! - [`Lab`]: the folders of a run, the programs, the settings of the kernel;
//! - [`medium`]: block devices to measure on, which count;
//! - [`program`]: child processes;
//! - [`teardown`]: undoes everything in reverse order, in all cases;
//! - [`interrupt`] for signals.

mod counts;
mod emulated;
pub mod interrupt;
mod jbd2_trace;
mod loop_device;
mod medium;
pub mod processes;
mod program;
mod scratch;
mod teardown;
mod uring;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub use counts::DeviceCounts;
pub use emulated::EmulatedDisk;
pub use jbd2_trace::Jbd2Trace;
pub use medium::{Device, Medium};
pub use program::{Child, MARK, Program, is_installed};
pub use teardown::Teardown;

use crate::error::{Error, Result};
use loop_device::Part;
use medium::Parts;
use scratch::Scratch;

/// Programs of this repository.
pub struct Programs {
    /// `onejournal`
    pub onejournal: PathBuf,
    /// `onejournal-bench`
    pub bench: PathBuf,
    /// The SQLite extension.
    pub sqlite_extension: PathBuf,
}

/// The environment of a run. When it is dropped, everything is as before.
pub struct Lab {
    // Fields are dropped in this order.
    _settings: Teardown,
    scratch: Scratch,
    programs: Programs,
    parts: Rc<RefCell<Parts>>,
    seeds: Cell<u64>,
}

impl Lab {
    /// Sets up the folders below `base`, after clearing what killed runs left there. Needs root.
    pub fn new(base: &Path) -> Result<Lab> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::other("experiments need root, for loop devices and mounts"));
        }
        interrupt::install()?;
        let programs = Programs::beside_this_one()?;
        let scratch = Scratch::new(base)?;
        let mut settings = Teardown::default();
        uring::allow(&mut settings)?;
        Ok(Lab {
            _settings: settings,
            scratch,
            programs,
            parts: Rc::default(),
            seeds: Cell::default(),
        })
    }

    /// A folder on disk.
    pub fn scratch(&self) -> &Path {
        self.scratch.dir()
    }

    /// A folder in memory, which stands in for NVRAM.
    pub fn memory(&self) -> &Path {
        self.scratch.memory()
    }

    /// The programs.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// `onejournal-bench SUBCOMMAND`: clients are processes of their own.
    pub fn client(&self, subcommand: &str) -> Program {
        Program::new(&self.programs.bench).arg(subcommand)
    }

    /// A seed for the values of clients. Each call gives another one: a journal of deltas writes
    /// nothing for bytes that it has already.
    pub fn next_seed(&self) -> u64 {
        self.seeds.set(self.seeds.get() + 1);
        self.seeds.get()
    }

    /// An unused part of a block device. `teardown` releases it.
    fn claim_part(&self, device: &Path, len_bytes: u64, teardown: &mut Teardown) -> Result<Part> {
        let mut file = File::open(device).map_err(Error::at(device))?;
        let capacity_bytes = file.seek(SeekFrom::End(0)).map_err(Error::at(device))?;
        let part = self.parts.borrow_mut().claim(device, len_bytes, capacity_bytes);
        let full = || Error::other(format!("{}: no room for all systems", device.display()));
        let part = part.ok_or_else(full)?;
        let (parts, device, start) = (self.parts.clone(), device.to_owned(), part.start_bytes);
        teardown.push("giving a part of a device back", move || {
            parts.borrow_mut().release(&device, start);
            Ok(())
        });
        Ok(part)
    }
}

impl Programs {
    fn beside_this_one() -> Result<Programs> {
        let bench = std::env::current_exe().map_err(Error::io("this program's path"))?;
        let beside = |name: &str| bench.with_file_name(name);
        let programs = Programs {
            onejournal: beside("onejournal"),
            sqlite_extension: built_library(&bench, "libonejournal_sqlite.so"),
            bench: bench.clone(),
        };
        for path in [&programs.onejournal, &programs.sqlite_extension] {
            if !path.exists() {
                let text = format!("{} is missing: cargo build --release", path.display());
                return Err(Error::other(text));
            }
        }
        Ok(programs)
    }
}

/// A library that cargo built: beside the program, or in `deps` there if only tests were built.
fn built_library(program: &Path, name: &str) -> PathBuf {
    let beside = program.with_file_name(name);
    if beside.exists() { beside } else { program.with_file_name("deps").join(name) }
}

/// The kernel forgets all pages and inodes that it could read again.
pub fn drop_caches() -> Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(Error::io("drop_caches"))
}
