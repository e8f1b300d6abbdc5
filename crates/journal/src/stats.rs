//! Counters of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::FORM_COUNT;

macro_rules! counters {
    (
        $($(#[$doc:meta])* $name:ident,)*;
        by form:
        $($(#[$form_doc:meta])* $by_form:ident,)*
    ) => {
        /// Live counters.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub $name: AtomicU64,)*
            $(pub $by_form: [AtomicU64; FORM_COUNT],)*
        }

        /// What the engine has done since it was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$form_doc])* pub $by_form: [u64; FORM_COUNT],)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                Stats {
                    $($name: load(&self.$name),)*
                    $($by_form: self.$by_form.each_ref().map(load),)*
                }
            }
        }
    };
}

counters! {
    /// Transactions written to the journal.
    commits,
    /// Handles that joined those transactions.
    handles,
    /// Calls of `sync` that asked for a transaction.
    syncs,
    /// Calls of `sync` that found it committed already.
    syncs_without_io,
    /// Calls of `sync` that were left with the commit in flight.
    syncs_left,
    /// Bytes written to the journal, padding included.
    journal_bytes,
    /// Blocks logged.
    logged_blocks,
    /// Revoke records written.
    revokes,
    /// Bytes brought home by checkpoints.
    home_bytes,
    /// Bytes written in place (ordered data).
    in_place_bytes,
    /// Regions brought home.
    checkpoints,
    /// Logged blocks that needed no write home, because they were overwritten or freed since.
    cancelled_blocks,
    /// Times a commit had to wait for a checkpoint: for a free region, or for memory.
    stalls,
    /// Time spent in those waits, in nanoseconds.
    stall_ns,
    ;
    by form:
    /// Blocks logged in each record form. The first one is that of the form with the number 1.
    blocks_by_form,
    /// Bytes of the changes in these blocks, with tags, before the payload is compressed.
    bytes_by_form,
}

impl Counters {
    /// Adds a record's changes, given by form and bytes, to the counters of their forms. Called by
    /// the commit in flight.
    pub(crate) fn add_by_form(&self, changes: &[(u8, usize)]) {
        let mut by_form = [(0, 0); FORM_COUNT];
        for (form, len_bytes) in changes {
            let (blocks, bytes) = &mut by_form[usize::from(*form) - 1];
            *blocks += 1;
            *bytes += len_bytes;
        }
        let counters = self.blocks_by_form.iter().zip(&self.bytes_by_form);
        for (counters, (blocks, bytes)) in counters.zip(by_form) {
            if blocks > 0 {
                Self::add_alone(counters.0, blocks);
                Self::add_alone(counters.1, bytes);
            }
        }
    }

    /// [`Counters::add`] for a counter that no other thread adds to at the same time, because a
    /// lock or the commit in flight protects it. Without a locked instruction, of which a commit to
    /// NVRAM would execute more than for its locks.
    pub(crate) fn add_alone(counter: &AtomicU64, count: usize) {
        counter.store(counter.load(Ordering::Relaxed) + count as u64, Ordering::Relaxed);
    }

    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}
