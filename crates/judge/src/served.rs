//! A volume that is mounted and served in this process, on recording media: the disk, and NVRAM
//! with the journal.
//!
//! The daemon's own code and threads run, on requests of the kernel. Only its media are replaced. A
//! daemon in another process would map its NVRAM, and its stores could not be recorded.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use device::Metered;
use ext4::{JournalChoice, OpenOptions, Volume};
use journal::Medium;
use mount::{
    MountHandle, MountPoint, Order, Session, SessionError, SessionOptions, Source, StatSource,
};
use onejournal_testing::Image;
use onejournal_testing::drive::Recorder;

use crate::command::COPYING;
use crate::memory::RamNvram;
use crate::ram::RamDisk;

const SECTOR_BYTES: usize = 512;
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// The mount. It is removed when dropped.
pub struct Served {
    handle: MountHandle,
    thread: Option<JoinHandle<Result<(), SessionError>>>,
}

impl Served {
    /// Mounts what `images` hold, a volume and its journal, on `dir`. `order` as in `-o`.
    pub fn mount(
        images: &[Image],
        recorder: &Recorder,
        dir: &Path,
        order: Order,
    ) -> Result<Served, String> {
        let disk = RamDisk::new(images[0].clone(), SECTOR_BYTES, recorder.clone(), 0);
        let disk = Arc::new(Metered::new(disk));
        let memory = Arc::new(RamNvram::new(images[1].clone(), recorder.clone()));
        let options = OpenOptions {
            journal: JournalChoice::On(Medium::Nvram(memory)),
            commit_interval: Some(COMMIT_INTERVAL),
            ..OpenOptions::default()
        };
        let volume = Volume::open(disk.clone(), options).map_err(|e| format!("opening: {e}"))?;
        let stat_source = StatSource {
            target: "recorded disk".into(),
            version: "judge".into(),
            durability: "power",
            device_counters: Arc::new(move || disk.counters()),
            memory_bytes_max: None,
            journal_target: None,
            journal_counters: None,
        };
        let source = Source::Plain { name: "onejournal-judge".into() };
        let options = SessionOptions { order, ..SessionOptions::default() };
        let place = MountPoint::open(dir).map_err(|e| format!("mounting: {e}"))?;
        let session = Session::mount(volume, &source, &place, &options, stat_source);
        let session = session.map_err(|e| format!("mounting: {e}"))?;
        let handle = session.handle();
        let builder = std::thread::Builder::new().name("served".into());
        let started = builder.spawn(|| session.run().map(drop));
        let thread = Some(started.map_err(|e| format!("serving: {e}"))?);
        Ok(Served { handle, thread })
    }

    /// Removes the mount, and waits until everything is home. If another thread starts a program
    /// meanwhile, the program has the actors' files open until its exec has closed them, perhaps
    /// after `spawn` has returned. The mount ends after that.
    pub fn umount(mut self) -> Result<(), String> {
        let _no_copies = COPYING.read();
        self.handle.unmount_lazily().map_err(|e| format!("unmounting: {e}"))?;
        match self.thread.take().expect("it is served").join() {
            Ok(ended) => ended.map_err(|e| format!("serving: {e}")),
            Err(_) => Err("the server panics".into()),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The run has failed already.
            let _ = self.handle.unmount_lazily();
            let _ = thread.join();
        }
    }
}
