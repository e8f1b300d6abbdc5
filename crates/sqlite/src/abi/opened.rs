//! A file that the extension opened for itself through the VFS below.

use std::ffi::{CStr, c_int};

use super::ffi::*;
use super::handles::Below;
use super::name::OwnName;
use super::real::Real;
use super::text::Name;

/// A file that this extension opened through the VFS below. It is closed when this is dropped.
pub struct Opened {
    real: Real,
    /// Memory for the file's object, aligned for anything. Only `real` uses it.
    _memory: Vec<u128>,
    /// The file's name. It has to exist as long as the file is open.
    _name: OwnName,
}

// SAFETY: no other file or connection uses this one, and the `Real` cannot be taken out. A VFS lets
// a file be used by one thread after another.
unsafe impl Send for Opened {}

impl Opened {
    /// Opens the database at `main`, or its WAL if the flags say so.
    pub fn open(below: Below, main: &CStr, flags: c_int) -> Result<Opened, c_int> {
        let name = OwnName::new(main).ok_or(SQLITE_NOMEM)?;
        let file_name = name.name(flags & SQLITE_OPEN_WAL != 0).map(Name::as_ptr);
        let object_bytes = usize::try_from(below.numbers().object_bytes).unwrap_or(0);
        let mut memory = vec![0_u128; object_bytes.div_ceil(16).max(1)];
        // SAFETY: the memory has the size that the VFS asked for, and begins with null for the
        // methods. Memory and name stay until `drop`, which ends the file first.
        let real = unsafe { Real::new(memory.as_mut_ptr().cast(), file_name) };
        let opened = Opened { real, _memory: memory, _name: name };
        opened.real.open(below, flags).map(|_| opened)
    }

    /// The file.
    pub fn real(&self) -> &Real {
        &self.real
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Nothing durable depends on it.
        let _ = self.real.end();
    }
}
