//! A number of operations and their bytes, counted by many threads; and the counters that follow.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares counters at a time, of which the earlier can be subtracted from the later.
macro_rules! counters {
    ($(#[$of:meta])* $Counters:ident { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $Counters { $($(#[$doc])* pub $name: u64,)* }

        impl std::ops::Sub for $Counters {
            type Output = $Counters;

            /// The difference between `earlier` and `self`.
            fn sub(self, earlier: $Counters) -> $Counters {
                $Counters { $($name: self.$name - earlier.$name,)* }
            }
        }
    };
}

pub(crate) use counters;

#[derive(Default)]
pub(crate) struct Meter {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    /// Counts an operation.
    pub(crate) fn add(&self, len_bytes: usize) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
    }

    /// Operations and bytes so far.
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}
