//! Why a process that drops cached pages can be killed.
//!
//! The kernel waits for a read of such a page that is under way, and only the answer ends the wait.
//! When the process is killed meanwhile, its waiting thread stays in the kernel and keeps
//! `/dev/fuse` open, so the kernel still expects the answer. The guard is a process of its own
//! without `/dev/fuse`: it aborts the connection when the serving process dies.
//!
//! The guard is started before pages are dropped for the first time. Most mounts need none.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Starts the guard of a connection: a process that aborts the connection (through
/// `/sys/fs/fuse/connections`) when the serving process dies. See
/// [`crate::Connection::guarded_by`].
pub trait Guard: fmt::Debug + Send + Sync {
    /// Returns when a guard watches over the connection of the file system with the number `device`
    /// (major, minor), or could not be started. Does nothing while one watches.
    ///
    /// The kernel gives the number to another file system as soon as this one is unmounted. So a
    /// guard must not abort what it has opened by that number until `is_connected` has been asked
    /// afterwards and has answered `true`: only then it has opened this connection.
    fn watch(&self, device: (u32, u32), is_connected: &dyn Fn() -> bool);
}

/// The guard of a connection, once it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guarded(Arc<OnceLock<Known>>);

#[derive(Debug)]
struct Known {
    guard: Arc<dyn Guard>,
    device: (u32, u32),
    connection: Arc<OwnedFd>,
}

impl Guarded {
    /// From now on `guard` watches over `connection`, that of `device`.
    pub(crate) fn by(&self, guard: Arc<dyn Guard>, device: (u32, u32), connection: Arc<OwnedFd>) {
        let is_first = self.0.set(Known { guard, device, connection }).is_ok();
        assert!(is_first, "a connection has one guard");
    }

    /// To be called before pages are dropped.
    pub(crate) fn watch(&self) {
        if let Some(known) = self.0.get() {
            known.guard.watch(known.device, &|| is_connected(&known.connection));
        }
    }
}

/// Whether the kernel still has the connection. It ends a connection before it gives away the
/// number of the file system.
fn is_connected(connection: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(connection, PollFlags::IN)];
    let answered = poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    answered.is_ok() && !asked[0].revents().contains(PollFlags::ERR)
}
