//! The steps by which a processor makes stores durable.
//!
//! Everything that touches mapped memory goes through [`Processor`]. Other threads and processes
//! may access the same bytes at the same time, so no Rust reference to them exists. Every access is
//! a relaxed atomic access of single bytes, or has the same effect.

use crate::nvram::line::LINE_BYTES;

/// The steps of a durable store.
pub(in crate::nvram) trait Processor {
    /// Copies `from..from + buf.len()` into `buf`.
    ///
    /// # Safety
    /// The span is mapped and readable, and no Rust reference to it exists.
    unsafe fn load(&self, from: *const u8, buf: &mut [u8]);

    /// Copies `data` to `to`, through the cache: aligned words whole, the rest byte by byte.
    ///
    /// # Safety
    /// The span is mapped and writable, and no Rust reference to it exists.
    unsafe fn store(&self, to: *mut u8, data: &[u8]);

    /// Begins to write the cache line of `at` back to memory.
    ///
    /// # Safety
    /// `at` is mapped.
    unsafe fn write_back(&self, at: *const u8);

    /// Copies `line` to `to` past the cache, each word whole. Until the next [`Processor::fence`],
    /// other threads may find the old bytes, even after they have synchronised with this thread.
    ///
    /// # Safety
    /// As for `store`; and `to` is aligned to [`LINE_BYTES`]; and the caller issues a fence
    /// before it returns to code that may synchronise with other threads.
    unsafe fn stream_line(&self, to: *mut u8, line: &[u8; LINE_BYTES]);

    /// Returns when everything that this thread has streamed or begun to write back has left
    /// the processor.
    fn fence(&self);
}
