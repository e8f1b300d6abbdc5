//! An emulated disk: a file in a FUSE mount whose requests take as long as a model says. A loop
//! device on it (`losetup -f --show --direct-io=on DIR/disk`) can have any file system.
//!
//! # The files
//!
//! | file | |
//! |---|---|
//! | `disk` | the disk: reads, writes, `fsync` (a flush), holes and zeroed ranges (a discard) |
//! | `counters` | what the disk was asked to do, as JSON, with its parameters |
//! | `control` | takes commands ([`Command`]) |
//! | `trace` | one line an operation, while tracing: microseconds, `R`, `W`, `F` or `D`, offset, bytes |
//!
//! # The model
//!
//! See `model`. A transfer first takes its turn on the bus, and then a latency on one of several
//! channels. A flush waits for all channels. It costs a fixed time, and more for each further
//! extent that was written. A rotating disk seeks instead.
//!
//! A write's data are visible at once, and its answer comes when the model says. So writes become
//! visible in the order of their arrival. With a volatile cache, everything that was written since
//! the last flush can be lost (`crash P SEED`), each sector of 512 bytes by itself; see [`Disk`].
//!
//! # A record
//!
//! A [`Recorder`] keeps the data of every write, and the beginning and end of each write and flush,
//! of one disk or of several in one order ([`record`]). Crash images for any moment can be built
//! from it afterwards.
//!
//! # Exactness
//!
//! One thread takes and answers all requests. It sleeps until `spin_us` (60) before the next answer
//! is due, and then polls the clock. It runs under `SCHED_FIFO` if that is allowed. The counters
//! show how late its answers were. Memory: the whole disk, allocated at the start so that no
//! request pays for it; with a volatile cache also the old content of unflushed blocks. Together
//! that is at most twice the disk.
//!
//! `mkfs -E nodiscard` (`-K`) is faster, because a discard zeroes memory.
//!
//! The modules, from top to bottom:
//!
//! ```text
//!   service            takes requests, and answers when they are due
//!   files              FUSE requests as calls of the emulator
//!   emulator           bytes, time and counters
//!   control model      commands to a running disk; how long requests take
//!   disk counters parameters record trace
//! ```

mod control;
mod counters;
mod disk;
mod emulator;
mod files;
mod model;
mod parameters;
pub mod record;
mod service;
mod trace;

use std::path::Path;

use fuse::{Connection, IoUring, MountError, MountHandle, MountOptions, Polled, Source};

pub use control::{Command, CommandError};
pub use disk::Disk;
pub use emulator::Emulator;
pub use parameters::{ParameterError, Parameters, help};
pub use record::Recorder;
pub use service::prefer_this_thread;

/// A disk that is mounted and not served yet.
pub struct Mounted {
    polled: Polled,
}

impl Mounted {
    /// Mounts a disk on an empty directory; `name` is shown as the source of the mount.
    pub fn new(dir: &Path, name: &str) -> Result<Mounted, MountError> {
        Mounted::with(dir, name, false)
    }

    /// The same for a loop device with direct I/O: all channels of a model can be busy at the same
    /// time. After an asynchronous write with `O_DSYNC` the kernel sends no flush then, and pages
    /// that are read meanwhile stay. A loop device makes no such writes, and reads no pages.
    pub fn for_loop_device(dir: &Path, name: &str) -> Result<Mounted, MountError> {
        Mounted::with(dir, name, true)
    }

    fn with(dir: &Path, name: &str, async_direct_io: bool) -> Result<Mounted, MountError> {
        let options = MountOptions {
            io_uring: IoUring::Off,
            async_direct_io,
            fsname: Some(name.into()),
            subtype: Some("onejournal".into()),
            ..MountOptions::default()
        };
        let source = Source::Plain { name: name.into() };
        let polled = Connection::mount(&source, dir, &options)?.into_polled()?;
        Ok(Mounted { polled })
    }

    /// A handle with which any thread can unmount.
    pub fn handle(&self) -> MountHandle {
        self.polled.handle()
    }

    /// Serves in this thread until the disk is unmounted. Returns the emulator.
    pub fn serve(self, emulator: Emulator) -> Result<Emulator, MountError> {
        service::run(self.polled, emulator)
    }
}
