//! A part of a write, which survives a power cut or not.

use std::ops::Range;
use std::sync::Arc;

use super::image::Image;

/// The bytes of a write, or some of them.
#[derive(Debug, Clone)]
pub struct Piece {
    offset: u64,
    data: Arc<[u8]>,
    range: Range<usize>,
}

impl Piece {
    /// All of `data`, at `offset` of the medium.
    pub fn new(offset: u64, data: Arc<[u8]>) -> Self {
        let range = 0..data.len();
        Piece { offset, data, range }
    }

    /// Its place on the medium.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.data[self.range.clone()]
    }

    /// Its end on the medium.
    pub fn end(&self) -> u64 {
        self.offset + self.range.len() as u64
    }

    /// The bytes of `part`, counted from the start of this piece.
    pub(crate) fn part(&self, part: Range<usize>) -> Piece {
        let range = self.range.start + part.start..self.range.start + part.end;
        Piece { offset: self.offset + part.start as u64, data: self.data.clone(), range }
    }

    /// The parts before, inside and after `span` of the medium. Each may be empty.
    pub fn around(&self, span: Range<u64>) -> [Piece; 3] {
        let len_bytes = self.range.len();
        let within = |at: u64| {
            let distance = at.saturating_sub(self.offset).min(len_bytes as u64);
            usize::try_from(distance).expect("not more than the length")
        };
        let (start, end) = (within(span.start), within(span.end));
        [0..start, start..end, end..len_bytes].map(|part| self.part(part))
    }

    /// Writes it.
    pub fn write_to(&self, image: &mut Image) {
        image.write(self.offset, self.bytes());
    }

    /// Flips a bit if the byte at `offset` is in this piece.
    pub(crate) fn flip_bit(&mut self, offset: u64, bit: u8) {
        if (self.offset..self.end()).contains(&offset) {
            let index = usize::try_from(offset - self.offset).expect("not more than the length");
            let mut bytes = self.bytes().to_vec();
            bytes[index] ^= 1 << bit;
            *self = Piece::new(self.offset, bytes.into());
        }
    }
}
