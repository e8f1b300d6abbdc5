//! Threads that block in a request until another one is answered.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::reply::{Begun, StandIns};

/// Counts the blocked threads, up to a limit.
pub(crate) struct Blocked {
    count: AtomicUsize,
    limit: usize,
}

impl Blocked {
    pub(crate) fn new(limit: usize) -> Blocked {
        Blocked { count: AtomicUsize::new(0), limit }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether another thread may block.
    pub(crate) fn has_room(&self) -> bool {
        self.count() < self.limit
    }
}

/// The threads that do not block answer the requests, as long as the limit leaves one.
impl StandIns for Blocked {
    fn begin(&self) -> Begun {
        let block = |count| (count < self.limit).then_some(count + 1);
        match self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, block) {
            Ok(_) => Begun::Yes,
            Err(_) => Begun::TooMany,
        }
    }

    fn end(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}
