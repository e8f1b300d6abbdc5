//! x86-64: CLWB (or the nearest instruction that the processor has), non-temporal stores, SFENCE.
//!
//! When SFENCE has completed, the memory controller has accepted everything that was written back
//! or streamed before it. A platform with ADR keeps that in a power cut, and MAP_SYNC is offered on
//! no other platform. This also holds for a thread that is moved to another CPU between store and
//! fence: the kernel's context switch executes locked instructions, which order write-backs and
//! non-temporal stores as SFENCE does.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};

use super::steps::Processor;
use crate::nvram::line::LINE_BYTES;

/// A word is stored whole or not at all.
const WORD_BYTES: usize = 8;

/// The instructions that write a line back, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteBack {
    /// CLWB: the line stays in the cache.
    Keep,
    /// CLFLUSHOPT: the line leaves the cache.
    Evict,
    /// CLFLUSH: like CLFLUSHOPT, but one line after the other. Every x86-64 processor has it.
    EvictInOrder,
}

/// The processor this runs on.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Native {
    write_back: WriteBack,
}

impl Native {
    /// Whether stores can be made durable here at all.
    pub(in super::super) const CAN_WRITE_BACK: bool = true;

    /// Asks the processor what it can do.
    pub(in super::super) fn detect() -> Self {
        const STRUCTURED_FEATURES: u32 = 7;
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        // The oldest compiler that builds this has these functions as unsafe ones.
        // SAFETY: every processor of this architecture has the instruction CPUID, and the leaf is
        // one that it says it has.
        #[allow(unused_unsafe)]
        let features = unsafe {
            match __cpuid(0).eax {
                ..STRUCTURED_FEATURES => 0,
                _ => __cpuid_count(STRUCTURED_FEATURES, 0).ebx,
            }
        };
        let write_back = match features {
            features if features & CLWB != 0 => WriteBack::Keep,
            features if features & CLFLUSHOPT != 0 => WriteBack::Evict,
            _ => WriteBack::EvictInOrder,
        };
        Native { write_back }
    }
}

impl Processor for Native {
    unsafe fn load(&self, from: *const u8, buf: &mut [u8]) {
        // SAFETY: reads `buf.len()` bytes that the caller vouches for, and fills `buf`, which
        // is borrowed for that. The direction flag is clear in every asm block. It does what
        // a loop of relaxed atomic loads of single bytes does.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") buf.len() => _,
                inout("rsi") from => _,
                inout("rdi") buf.as_mut_ptr() => _,
                options(nostack, preserves_flags)
            );
        }
    }

    unsafe fn store(&self, to: *mut u8, data: &[u8]) {
        let head = to.align_offset(WORD_BYTES).min(data.len());
        let (head, rest) = data.split_at(head);
        let (words, tail) = rest.as_chunks::<WORD_BYTES>();
        // SAFETY: the three parts together are `data`, so each address written is in the
        // span that the caller vouches for; that of a word is aligned, because `head` ends at
        // a word or at the end of `data`.
        unsafe {
            store_bytes(to, head);
            let to = to.add(head.len());
            for (index, word) in words.iter().enumerate() {
                store_word(to.add(index * WORD_BYTES), u64::from_ne_bytes(*word));
            }
            store_bytes(to.add(words.len() * WORD_BYTES), tail);
        }
    }

    unsafe fn write_back(&self, at: *const u8) {
        // SAFETY: the line is mapped, as the caller vouches. No byte is changed, and Rust's
        // memory model knows nothing of caches. The instruction was found by `detect`.
        unsafe {
            match self.write_back {
                WriteBack::Keep => asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags)),
                WriteBack::Evict => {
                    asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags));
                }
                WriteBack::EvictInOrder => {
                    asm!("clflush [{}]", in(reg) at, options(nostack, preserves_flags));
                }
            }
        }
    }

    unsafe fn stream_line(&self, to: *mut u8, line: &[u8; LINE_BYTES]) {
        // SAFETY: the 64 bytes from the aligned `to` are the caller's to write; `line` has 64
        // bytes. SSE2 is part of x86-64. Once the caller has fenced it did what a loop of
        // relaxed atomic stores of single bytes does.
        unsafe {
            asm!(
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movntdq [{to}], {a}",
                "movntdq [{to} + 16], {b}",
                "movntdq [{to} + 32], {c}",
                "movntdq [{to} + 48], {d}",
                from = in(reg) line.as_ptr(),
                to = in(reg) to,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    }

    fn fence(&self) {
        // SAFETY: SFENCE only orders. Without `nomem` the compiler moves no access over it.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) }
    }
}

/// # Safety
/// The span of `data` from `to` is mapped and writable, and no Rust reference to it exists.
unsafe fn store_bytes(to: *mut u8, data: &[u8]) {
    for (index, &byte) in data.iter().enumerate() {
        // SAFETY: `index` is in the span. Does what a relaxed atomic store does.
        unsafe {
            let to = to.add(index);
            asm!("mov [{}], {}", in(reg) to, in(reg_byte) byte, options(nostack, preserves_flags));
        }
    }
}

/// # Safety
/// The 8 bytes at `to` are aligned, mapped and writable, and no Rust reference to them exists.
unsafe fn store_word(to: *mut u8, word: u64) {
    // SAFETY: as the caller vouches. Does what 8 relaxed atomic stores of single bytes do, in
    // one instruction: an aligned one is never torn.
    unsafe { asm!("mov [{}], {}", in(reg) to, in(reg) word, options(nostack, preserves_flags)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; 2 * LINE_BYTES]);

    /// The ways of writing back that this processor has.
    fn available() -> impl Iterator<Item = WriteBack> {
        let best = Native::detect().write_back;
        let all = [WriteBack::Keep, WriteBack::Evict, WriteBack::EvictInOrder];
        all.into_iter().skip_while(move |&way| way != best)
    }

    #[test]
    fn every_way_of_writing_back_changes_nothing() {
        for write_back in available() {
            let native = Native { write_back };
            let mut lines = Lines([7; 2 * LINE_BYTES]);
            let at = lines.0.as_mut_ptr();
            // SAFETY: both lines are ours, and no reference to them is used meanwhile.
            unsafe {
                native.store(at.add(3), &[1; 70]);
                native.write_back(at);
                native.write_back(at.add(127));
            }
            native.fence();
            let expected = [&[7; 3][..], &[1; 70], &[7; 55]].concat();
            assert!(lines.0[..] == expected, "{write_back:?}");
        }
    }
}
