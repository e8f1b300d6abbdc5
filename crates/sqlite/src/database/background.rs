//! The state of this process's background syncs of one database. The operations are in
//! `batch::background`, which also has the rules.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use device::sync::Mutex;

use crate::abi::opened::Opened;
use crate::failure::Failure;

/// The background syncs of one database in a process.
#[derive(Default)]
pub(crate) struct Background {
    pub state: Mutex<SyncState>,
    pub has_failed: AtomicBool,
    /// A sync of the database failed, and the stream header does not record it yet.
    pub is_doubtful: AtomicBool,
}

#[derive(Default)]
pub(crate) struct SyncState {
    /// The process whose thread it is.
    pub process: u32,
    pub job: Option<Job>,
    /// The file of the previous job.
    pub file: Option<Opened>,
    pub failure: Option<Failure>,
}

pub(crate) enum Job {
    /// The job has ended. Its file must be closed by a thread that SQLite knows. Contains whether
    /// the sync succeeded.
    Running(JoinHandle<(Opened, bool)>),
    /// State that only tests use.
    Begun(Opened, u64),
    Synced(Opened, u64, Result<(), Failure>),
}

impl Background {
    /// Takes the error of a sync, once.
    pub fn take_failure(&self) -> Option<Failure> {
        if !self.has_failed.swap(false, Ordering::Relaxed) {
            return None;
        }
        self.state.lock().failure.take()
    }
}

impl SyncState {
    /// Takes the file of a job that has ended.
    pub fn settle(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(std::mem::take(self));
        } else if matches!(&self.job, Some(Job::Running(thread)) if thread.is_finished())
            && let Some(Job::Running(thread)) = self.job.take()
        {
            // A file that knows of an error is not used again.
            self.file = thread.join().ok().and_then(|(file, is_good)| is_good.then_some(file));
        }
    }
}
