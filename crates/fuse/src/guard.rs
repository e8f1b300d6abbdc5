//! Why a process that has the kernel drop pages can be killed.
//!
//! The kernel waits for a read of such a page that is under way, and nothing interrupts that but the answer. A thread
//! that asked for it and is killed meanwhile stays in the kernel; with it `/dev/fuse` stays open, so that the kernel
//! believes that the answer may still come. A process of its own, the guard, has no `/dev/fuse`: it aborts the
//! connection when the serving process dies.
//!
//! The guard is started before pages are dropped for the first time; most mounts need none.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Starts the guard.
pub trait Guard: fmt::Debug + Send + Sync {
    /// Returns when a guard watches over the connection of the file system with the number `device`, or could not
    /// be started. Does nothing while there is one.
    fn watch(&self, device: (u32, u32));
}

/// The guard of a connection, once it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guarded(Arc<OnceLock<Known>>);

#[derive(Debug)]
struct Known {
    guard: Arc<dyn Guard>,
    device: (u32, u32),
}

impl Guarded {
    /// From now on `guard` watches over the connection of `device`.
    pub(crate) fn by(&self, guard: Arc<dyn Guard>, device: (u32, u32)) {
        let is_first = self.0.set(Known { guard, device }).is_ok();
        assert!(is_first, "a connection has one guard");
    }

    /// To be called before pages are dropped.
    pub(crate) fn watch(&self) {
        if let Some(known) = self.0.get() {
            known.guard.watch(known.device);
        }
    }
}
