//! The memory of the words: every access to a shared word goes through an operation of this module.
//!
//! In tests the words can be those of a model checker (`model`), which explores what a weakly
//! ordered machine may do. The code above this module is the same.
//!
//! | operation | ordering | for |
//! |---|---|---|
//! | [`get`](Memory::get), [`set`](Memory::set) | acquire, release | what was written before `set` is seen after `get` |
//! | [`exchange`](Memory::exchange), [`raise`](Memory::raise), [`add`](Memory::add), [`take`](Memory::take) | both | claims, marks that only grow |
//! | [`peek`](Memory::peek), [`leave`](Memory::leave), [`count`](Memory::count) | none | statistics and hints |
//! | [`change`](Memory::change), [`wait_for_change`](Memory::wait_for_change) | sequentially consistent fences | sleeping |

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use device::SharedWords;

use crate::faults::{self, Fault};
use crate::{LogError, Result};

#[cfg(test)]
use super::model::ModelWords;

/// Words of 8 bytes, each accessed atomically.
#[derive(Clone)]
pub(super) struct Memory(Backing);

#[derive(Clone)]
enum Backing {
    Mapped(Arc<SharedWords>),
    #[cfg(test)]
    Model(Arc<ModelWords>),
}

/// Runs an operation on the atomic at an index, whichever kind it is.
macro_rules! at {
    ($memory:expr, $index:expr, $word:ident => $operation:expr) => {{
        faults::crash_point();
        match &$memory.0 {
            Backing::Mapped(words) => {
                let $word = words.word($index);
                $operation
            }
            #[cfg(test)]
            Backing::Model(words) => {
                let $word = words.word($index);
                $operation
            }
        }
    }};
}

/// The same for the half of 32 bits that a futex can wait for.
macro_rules! half {
    ($memory:expr, $index:expr, $half:ident => $operation:expr) => {
        match &$memory.0 {
            Backing::Mapped(words) => {
                let $half = words.half($index);
                $operation
            }
            #[cfg(test)]
            Backing::Model(words) => {
                let $half = words.half($index);
                $operation
            }
        }
    };
}

impl Memory {
    pub(super) fn mapped(words: Arc<SharedWords>) -> Memory {
        Memory(Backing::Mapped(words))
    }

    #[cfg(test)]
    pub(super) fn model(words: Arc<ModelWords>) -> Memory {
        Memory(Backing::Model(words))
    }

    /// An error if the words are lost because another process made their file shorter. This process
    /// then sees zeros that no other process sees. Call this after reading words, and before
    /// writing, freeing or reporting anything because of them.
    pub(super) fn check(&self) -> Result<()> {
        let checked = match &self.0 {
            Backing::Mapped(words) => words.check(),
            #[cfg(test)]
            Backing::Model(_) => Ok(()),
        };
        checked.map_err(|e| {
            let source = e.source;
            let what = "End all processes that use the log: nothing synced is lost";
            LogError::Aborted(format!("{source}. {what}"))
        })
    }

    pub(super) fn get(&self, index: usize) -> u64 {
        let order = if faults::is(Fault::WordsReadRelaxed) { Relaxed } else { Acquire };
        at!(self, index, word => word.load(order))
    }

    pub(super) fn set(&self, index: usize, value: u64) {
        let order = if faults::is(Fault::WordsWrittenRelaxed) { Relaxed } else { Release };
        at!(self, index, word => word.store(value, order));
    }

    /// Replaces `from` by `to`. If the word is not `from`, the error is its value.
    pub(super) fn exchange(
        &self,
        index: usize,
        from: u64,
        to: u64,
    ) -> std::result::Result<u64, u64> {
        let (order, failed) = match faults::is(Fault::ClaimsRelaxed) {
            true => (Relaxed, Relaxed),
            false => (AcqRel, Acquire),
        };
        at!(self, index, word => word.compare_exchange(from, to, order, failed))
    }

    /// Makes the word `value` unless it is larger. Returns the previous value.
    pub(super) fn raise(&self, index: usize, value: u64) -> u64 {
        let order = if faults::is(Fault::WordsWrittenRelaxed) { Relaxed } else { AcqRel };
        at!(self, index, word => word.fetch_max(value, order))
    }

    /// Adds to the word. Returns the previous value.
    pub(super) fn add(&self, index: usize, value: u64) -> u64 {
        at!(self, index, word => word.fetch_add(value, AcqRel))
    }

    /// Sets bits of the word. Returns the previous value.
    pub(super) fn set_bits(&self, index: usize, bits: u64) -> u64 {
        at!(self, index, word => word.fetch_or(bits, AcqRel))
    }

    /// Clears bits of the word.
    pub(super) fn clear_bits(&self, index: usize, bits: u64) {
        at!(self, index, word => word.fetch_and(!bits, AcqRel));
    }

    /// Makes the word 0. Returns the previous value.
    pub(super) fn take(&self, index: usize) -> u64 {
        at!(self, index, word => word.swap(0, AcqRel))
    }

    pub(super) fn peek(&self, index: usize) -> u64 {
        at!(self, index, word => word.load(Relaxed))
    }

    pub(super) fn leave(&self, index: usize, value: u64) {
        at!(self, index, word => word.store(value, Relaxed));
    }

    pub(super) fn count(&self, index: usize, value: u64) {
        at!(self, index, word => word.fetch_add(value, Relaxed));
    }

    /// The number of changes at `index`, for [`wait_for_change`](Memory::wait_for_change).
    pub(super) fn changes(&self, index: usize) -> u32 {
        half!(self, index, half => half.load(SeqCst))
    }

    /// Counts a change at `index`. Returns the new number. The caller must call
    /// [`wake`](Memory::wake) afterwards.
    pub(super) fn change(&self, index: usize) -> u32 {
        half!(self, index, half => half.fetch_add(1, SeqCst)).wrapping_add(1)
    }

    /// Counts a change, and wakes the threads that wait for one. If none is counted at `waiters`,
    /// this makes no system call.
    ///
    /// A waiter counts itself before it compares the number of changes for the last time. The
    /// number is changed before the waiters are counted. The two fences order these pairs, so
    /// either the waiter sees the change or it is seen. A process that dies while it waits stays
    /// counted: each change then makes a system call, and nothing else happens.
    pub(super) fn change_and_wake(&self, index: usize, waiters: usize) {
        self.change(index);
        self.fence();
        if self.peek(waiters) != 0 {
            self.wake(index);
        }
    }

    /// Sleeps while the number of changes is `seen`, for at most `limit`. May return early.
    pub(super) fn wait_for_change(&self, index: usize, waiters: usize, seen: u32, limit: Duration) {
        self.count(waiters, 1);
        self.fence();
        self.sleep(index, seen, limit);
        at!(self, waiters, word => word.fetch_sub(1, Relaxed));
    }

    /// Sleeps while the number of changes is `seen`, for at most `limit`, without being counted as
    /// a waiter.
    pub(super) fn sleep(&self, index: usize, seen: u32, limit: Duration) {
        match &self.0 {
            Backing::Mapped(words) => words.wait(index, seen, limit),
            #[cfg(test)]
            Backing::Model(words) => words.wait(index, seen),
        }
    }

    /// Wakes the threads of all processes that sleep at `index`.
    pub(super) fn wake(&self, index: usize) {
        match &self.0 {
            Backing::Mapped(words) => words.wake_all(index),
            #[cfg(test)]
            Backing::Model(words) => words.wake_all(index),
        }
    }

    /// All accesses of this thread before the fence take effect before all those after it.
    pub(super) fn fence(&self) {
        if faults::is(Fault::WaitersUnfenced) {
            return;
        }
        fence(self.is_mapped(), SeqCst);
    }

    /// All reads of this thread before the fence take effect before all accesses after it.
    pub(super) fn fence_reads(&self) {
        if !faults::is(Fault::ReadsUnfenced) {
            fence(self.is_mapped(), Acquire);
        }
    }

    /// All accesses of this thread before the fence take effect before all writes after it.
    pub(super) fn fence_writes(&self) {
        if !faults::is(Fault::WritesUnfenced) {
            fence(self.is_mapped(), Release);
        }
    }

    fn is_mapped(&self) -> bool {
        matches!(self.0, Backing::Mapped(_))
    }
}

/// Orders the reads of this thread before it before all those after it, where the kernel copied the
/// words: an acquiring fence would have no atomic load to pair with.
pub(super) fn fence_after_copy() {
    fence(true, SeqCst);
}

fn fence(is_mapped: bool, order: std::sync::atomic::Ordering) {
    match is_mapped {
        true => std::sync::atomic::fence(order),
        #[cfg(not(test))]
        false => unreachable!("words are mapped"),
        #[cfg(test)]
        false => loom::sync::atomic::fence(order),
    }
}
