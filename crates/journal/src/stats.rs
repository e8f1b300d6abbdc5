//! Counters of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::FORM_COUNT;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Live counters.
        #[derive(Default)]
        pub(crate) struct Counters { $(pub $name: AtomicU64,)* }

        /// What the engine has done since it was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
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
    /// Bytes written to the journal, padding included.
    journal_bytes,
    /// Blocks logged.
    logged_blocks,
    /// Blocks logged whole.
    whole_blocks,
    /// Blocks of which the bytes that are not zero were logged.
    sparse_blocks,
    /// Blocks of which the bytes that were written were logged.
    extent_blocks,
    /// Blocks of which the bytes that differ were logged.
    delta_blocks,
    /// Blocks logged in DJFS' form.
    xor_lzo_blocks,
    /// Blocks logged as copies and literal bytes.
    copy_blocks,
    /// Bytes of changes logged as whole blocks. This and the next five counters include tags, and
    /// count bytes before the payload is compressed.
    block_bytes,
    /// Bytes of changes logged as the bytes that are not zero.
    sparse_bytes,
    /// Bytes of changes logged as the bytes that were written.
    extent_bytes,
    /// Bytes of changes logged as the bytes that differ.
    delta_bytes,
    /// Bytes of changes logged in DJFS' form.
    xor_lzo_bytes,
    /// Bytes of changes logged as copies and literal bytes.
    copy_bytes,
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
}

impl Counters {
    /// Adds a record's changes, given by form and bytes, to the counters of their forms. Called by
    /// the commit in flight.
    pub(crate) fn add_by_form(&self, changes: &[(u8, usize)]) {
        let mut by_form = [(0, 0); FORM_COUNT];
        for (form, len_bytes) in changes {
            // A patch counts as copies.
            let (blocks, bytes) = &mut by_form[usize::from(*form).min(FORM_COUNT - 1) - 1];
            *blocks += 1;
            *bytes += len_bytes;
        }
        let counters = [
            (&self.whole_blocks, &self.block_bytes),
            (&self.sparse_blocks, &self.sparse_bytes),
            (&self.extent_blocks, &self.extent_bytes),
            (&self.delta_blocks, &self.delta_bytes),
            (&self.xor_lzo_blocks, &self.xor_lzo_bytes),
            (&self.copy_blocks, &self.copy_bytes),
        ];
        for (counters, (blocks, bytes)) in counters.into_iter().zip(by_form) {
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
