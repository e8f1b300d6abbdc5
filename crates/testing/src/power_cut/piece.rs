//! A part of a write, which survives a power cut or not.

use std::ops::Range;
use std::sync::Arc;

use super::image::Image;

/// The bytes of a write, or some of them.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    offset: u64,
    data: Arc<[u8]>,
    range: Range<usize>,
}

impl Piece {
    pub(crate) fn new(offset: u64, data: Arc<[u8]>) -> Self {
        let range = 0..data.len();
        Piece { offset, data, range }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.data[self.range.clone()]
    }

    /// The bytes of `part`, counted from the start of this piece.
    pub(crate) fn part(&self, part: Range<usize>) -> Piece {
        let range = self.range.start + part.start..self.range.start + part.end;
        Piece { offset: self.offset + part.start as u64, data: self.data.clone(), range }
    }

    /// The parts of this piece before and after `[start, end)`.
    pub(crate) fn outside(self, start: u64, end: u64) -> impl Iterator<Item = Piece> {
        let len_bytes = self.range.len();
        let within = |at: u64| {
            let distance = at.saturating_sub(self.offset).min(len_bytes as u64);
            usize::try_from(distance).expect("not more than the length")
        };
        let parts = [0..within(start), within(end)..len_bytes];
        parts.into_iter().filter(|part| !part.is_empty()).map(move |part| self.part(part))
    }

    /// Flips a bit if the byte at `offset` is in this piece.
    pub(crate) fn flip_bit(&mut self, offset: u64, bit: u8) {
        let index = offset.checked_sub(self.offset).and_then(|i| usize::try_from(i).ok());
        if let Some(index) = index.filter(|&i| i < self.range.len()) {
            let mut bytes = self.bytes().to_vec();
            bytes[index] ^= 1 << bit;
            *self = Piece::new(self.offset, bytes.into());
        }
    }
}

/// Flips a bit of `image`.
pub(crate) fn flip_bit(image: &mut Image, offset: u64, bit: u8) {
    let mut byte = [0];
    image.read(offset, &mut byte);
    image.write(offset, &[byte[0] ^ (1 << bit)]);
}

/// Writes `pieces` in their order.
pub(crate) fn write_pieces(image: &mut Image, pieces: impl IntoIterator<Item = Piece>) {
    for piece in pieces {
        image.write(piece.offset, piece.bytes());
    }
}
