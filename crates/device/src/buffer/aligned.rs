//! A byte buffer aligned for direct I/O.

use std::ops::{Deref, DerefMut};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::buffer::huge::HugeMemory;

/// Alignment of an [`AlignedBuf`] in bytes: enough for every logical sector size.
const ALIGN_BYTES: usize = 4096;

/// Larger buffers get a mapping of their own in huge pages.
const ORDINARY_BYTES_MAX: usize = 1 << 20;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; ALIGN_BYTES]);

enum Memory {
    Ordinary(Vec<Page>),
    Huge(HugeMemory),
}

/// Zero-filled bytes whose address is a multiple of 4096. Buffers of more than 1 MiB are in huge
/// pages if the system has them.
pub struct AlignedBuf {
    memory: Memory,
    len_bytes: usize,
}

impl AlignedBuf {
    /// `len_bytes` zero bytes.
    pub fn zeroed(len_bytes: usize) -> Self {
        let huge = (len_bytes > ORDINARY_BYTES_MAX).then(|| HugeMemory::zeroed(len_bytes));
        let memory = huge.flatten().map_or_else(|| ordinary(len_bytes), Memory::Huge);
        AlignedBuf { memory, len_bytes }
    }

    /// A copy of `data`.
    pub fn from_slice(data: &[u8]) -> Self {
        let mut buf = Self::zeroed(data.len());
        buf.copy_from_slice(data);
        buf
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

fn ordinary(len_bytes: usize) -> Memory {
    let page_count = len_bytes.div_ceil(ALIGN_BYTES);
    Memory::Ordinary(Page::new_vec_zeroed(page_count).expect("out of memory"))
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = match &self.memory {
            Memory::Ordinary(pages) => pages.as_slice().as_bytes(),
            Memory::Huge(memory) => memory.as_slice(),
        };
        &bytes[..self.len_bytes]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = match &mut self.memory {
            Memory::Ordinary(pages) => pages.as_mut_slice().as_mut_bytes(),
            Memory::Huge(memory) => memory.as_mut_slice(),
        };
        &mut bytes[..self.len_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_has_the_length_asked_for() {
        for len_bytes in [0, 1, 5000, ORDINARY_BYTES_MAX, ORDINARY_BYTES_MAX + 1, 3 << 20] {
            let mut buf = AlignedBuf::zeroed(len_bytes);
            assert_eq!(buf.len(), len_bytes);
            assert_eq!(buf.as_ptr() as usize % ALIGN_BYTES, 0);
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(7);
            assert_eq!(buf[..], vec![7; len_bytes]);
            assert_eq!(buf[..], AlignedBuf::from_slice(&buf)[..]);
        }
    }
}
