//! An emulated disk: a file in a FUSE mount whose requests take as long as a model says. A loop device
//! over it (`losetup -f --show --direct-io=on DIR/disk`) carries any file system.
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
//! See `model`: a transfer takes its turn on the bus and then a latency on one of several
//! channels; a flush waits for all channels and costs a fixed time and one for each further extent that
//! was written. A disk that rotates seeks instead.
//!
//! A write's data are there at once, its answer comes when the model says; so the order in which writes
//! become visible is the order of their arrival. With a volatile cache, what was written since the last
//! flush can be lost (`crash P SEED`), each sector of 512 bytes by itself; see [`Disk`].
//!
//! # A record
//!
//! A [`Recorder`] keeps the data of every write, and when each write and flush began and ended, of one disk or of
//! several in one order ([`record`]). Crash images can be built from it afterwards, for any moment.
//!
//! # Exactness
//!
//! One thread takes and answers all requests. It sleeps until `spin_us` (60) before the next answer is
//! due and watches the clock from there; it runs under `SCHED_FIFO` where it may. How late its answers
//! were is among the counters. Memory: the disk itself (all of it from the start, so that no request pays
//! for it), and with a volatile cache what unflushed blocks held before; at most twice the disk.
//!
//! `mkfs -E nodiscard` (`-K`) is quicker: a discard zeroes memory and keeps it.

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
        let options = MountOptions {
            io_uring: IoUring::Off,
            fsname: Some(name.into()),
            subtype: Some("onejournal".into()),
            ..MountOptions::default()
        };
        let source = Source::Plain { name: name.into() };
        let polled = Connection::mount(&source, dir, &options)?.into_polled()?;
        Ok(Mounted { polled })
    }

    /// With it any thread can unmount.
    pub fn handle(&self) -> MountHandle {
        self.polled.handle()
    }

    /// Serves in this thread until the disk is unmounted; the emulator then.
    pub fn serve(self, emulator: Emulator) -> Result<Emulator, MountError> {
        service::run(self.polled, emulator)
    }
}
