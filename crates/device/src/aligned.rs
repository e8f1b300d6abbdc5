//! A byte buffer aligned for direct I/O.

use std::ops::{Deref, DerefMut};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment of an [`AlignedBuf`] in bytes: enough for every logical sector size.
const ALIGN_BYTES: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; ALIGN_BYTES]);

/// Zero-filled bytes whose address is a multiple of 4096.
#[derive(Clone)]
pub struct AlignedBuf {
    pages: Vec<Page>,
    len_bytes: usize,
}

impl AlignedBuf {
    /// `len_bytes` zero bytes.
    pub fn zeroed(len_bytes: usize) -> Self {
        let page_count = len_bytes.div_ceil(ALIGN_BYTES);
        let pages = Page::new_vec_zeroed(page_count).expect("out of memory");
        AlignedBuf { pages, len_bytes }
    }

    /// A copy of `data`.
    pub fn from_slice(data: &[u8]) -> Self {
        let mut buf = Self::zeroed(data.len());
        buf.copy_from_slice(data);
        buf
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.as_slice().as_bytes()[..self.len_bytes]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_slice().as_mut_bytes()[..self.len_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_has_the_length_asked_for() {
        let buf = AlignedBuf::zeroed(5000);
        assert_eq!(buf.len(), 5000);
        assert_eq!(buf.as_ptr() as usize % ALIGN_BYTES, 0);
        assert!(AlignedBuf::zeroed(0).is_empty());
    }
}
