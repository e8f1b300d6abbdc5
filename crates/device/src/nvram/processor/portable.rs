//! Processors for which this crate does not know how to write lines back. On them NVRAM can only
//! have the class `process`.

use std::sync::atomic::{AtomicU8, Ordering, fence};

use super::steps::Processor;
use crate::nvram::line::LINE_BYTES;

/// The processor this runs on.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Native;

impl Native {
    /// Whether stores can be made durable here at all.
    pub(in super::super) const CAN_WRITE_BACK: bool = false;

    /// Nothing to detect.
    pub(in super::super) fn detect() -> Self {
        Native
    }
}

impl Processor for Native {
    unsafe fn load(&self, from: *const u8, buf: &mut [u8]) {
        for (index, byte) in buf.iter_mut().enumerate() {
            // SAFETY: `index` is in the span, for which the caller vouches. All code accesses the
            // span by atomic bytes only.
            *byte =
                unsafe { AtomicU8::from_ptr(from.cast_mut().add(index)) }.load(Ordering::Relaxed);
        }
    }

    unsafe fn store(&self, to: *mut u8, data: &[u8]) {
        for (index, &byte) in data.iter().enumerate() {
            // SAFETY: as in `load`.
            unsafe { AtomicU8::from_ptr(to.add(index)) }.store(byte, Ordering::Relaxed);
        }
    }

    unsafe fn write_back(&self, _at: *const u8) {}

    unsafe fn stream_line(&self, to: *mut u8, line: &[u8; LINE_BYTES]) {
        // SAFETY: the caller vouches for more than `store` asks for.
        unsafe { self.store(to, line) }
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}
