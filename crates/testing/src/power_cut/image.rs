//! The bytes of a simulated medium. Images are cheap to copy, because they share chunks until one
//! of them is written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::sparse::{PIECE_BYTES, is_zero, write_piece};

const CHUNK_BYTES: usize = PIECE_BYTES;

type Chunk = [u8; CHUNK_BYTES];

/// The content of a medium. A clone shares its chunks of 16 KiB with the original until one of them
/// is written. In a new image a chunk of zeros takes no memory.
#[derive(Clone)]
pub struct Image {
    chunks: Vec<Arc<Chunk>>,
    size_bytes: u64,
}

impl Image {
    /// `size_bytes` zeros.
    pub fn zeroed(size_bytes: u64) -> Self {
        let chunk_count = size_bytes.div_ceil(CHUNK_BYTES as u64);
        let chunk_count = usize::try_from(chunk_count).expect("an image fits into memory");
        let zeros = Arc::new([0; CHUNK_BYTES]);
        Image { chunks: vec![zeros; chunk_count], size_bytes }
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut image = Self::zeroed(bytes.len() as u64);
        for (start, part) in (0..).step_by(CHUNK_BYTES).zip(bytes.chunks(CHUNK_BYTES)) {
            if !is_zero(part) {
                image.write(start, part);
            }
        }
        image
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Fills `buf` from `offset`. Panics outside of the image.
    pub fn read(&self, offset: u64, mut buf: &mut [u8]) {
        let mut place = self.place(offset, buf.len());
        while !buf.is_empty() {
            let (index, start) = place;
            let part = buf.len().min(CHUNK_BYTES - start);
            let (head, tail) = buf.split_at_mut(part);
            head.copy_from_slice(&self.chunks[index][start..start + part]);
            buf = tail;
            place = (index + 1, 0);
        }
    }

    /// Writes `data` at `offset`. Panics outside of the image.
    pub fn write(&mut self, offset: u64, mut data: &[u8]) {
        let mut place = self.place(offset, data.len());
        while !data.is_empty() {
            let (index, start) = place;
            let (head, tail) = data.split_at(data.len().min(CHUNK_BYTES - start));
            let chunk = Arc::make_mut(&mut self.chunks[index]);
            chunk[start..start + head.len()].copy_from_slice(head);
            data = tail;
            place = (index + 1, 0);
        }
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`.
    pub(crate) fn flip_bit(&mut self, offset: u64, bit: u8) {
        let mut byte = [0];
        self.read(offset, &mut byte);
        self.write(offset, &[byte[0] ^ (1 << bit)]);
    }

    /// All bytes, in one vector.
    pub fn to_bytes(&self) -> Vec<u8> {
        let size_bytes = usize::try_from(self.size_bytes).expect("an image fits into memory");
        let mut bytes = Vec::with_capacity(size_bytes);
        self.parts().for_each(|(_, part)| bytes.extend_from_slice(part));
        bytes
    }

    /// Makes `file` hold exactly this image.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        file.set_len(0)?;
        file.set_len(self.size_bytes)?;
        self.parts().try_for_each(|(start, part)| write_piece(file, start, part))
    }

    /// Changes `file`, which holds exactly `held`, so that it holds this image. That is cheap if
    /// one image was made from a clone of the other. Panics if the sizes differ.
    pub fn write_differences_to(&self, file: &File, held: &Image) -> io::Result<()> {
        self.differences(held).try_for_each(|(start, part, _)| file.write_all_at(part, start))
    }

    /// The chunks of 16 KiB (the last may be shorter) that differ from those of `other`: offset,
    /// the bytes here, the bytes there. That is cheap if one image was made from a clone of the
    /// other. Panics if the sizes differ.
    pub fn differences<'a>(
        &'a self,
        other: &'a Image,
    ) -> impl Iterator<Item = (u64, &'a [u8], &'a [u8])> {
        assert_eq!(self.size_bytes, other.size_bytes, "images of different sizes");
        let chunks = self.chunks.iter().zip(&other.chunks);
        let parts = self.parts().zip(other.parts()).zip(chunks);
        let differing = parts.filter(|(_, (chunk, held))| !same(chunk, held));
        differing.map(|(((offset, part), (_, held)), _)| (offset, part, held))
    }

    /// Index of the chunk, and position in it, of a span of the image.
    fn place(&self, offset: u64, len_bytes: usize) -> (usize, usize) {
        let end = offset.checked_add(len_bytes as u64);
        assert!(end.is_some_and(|end| end <= self.size_bytes), "outside of the image");
        let offset = usize::try_from(offset).expect("an image fits into memory");
        (offset / CHUNK_BYTES, offset % CHUNK_BYTES)
    }

    /// The chunks with their offsets. The last one ends where the image ends.
    fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        (0..).step_by(CHUNK_BYTES).zip(&self.chunks).map(|(start, chunk)| {
            let left = usize::try_from(self.size_bytes - start).unwrap_or(usize::MAX);
            (start, &chunk[..left.min(CHUNK_BYTES)])
        })
    }
}

fn same(a: &Arc<Chunk>, b: &Arc<Chunk>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        self.size_bytes == other.size_bytes
            && self.chunks.iter().zip(&other.chunks).all(|(a, b)| same(a, b))
    }
}

impl Eq for Image {}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image of {} bytes", self.size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE_BYTES: usize = 2 * CHUNK_BYTES + 512;

    fn numbered() -> Vec<u8> {
        (0..SIZE_BYTES).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn holds_what_was_written_across_chunks_and_at_the_end() {
        let mut image = Image::zeroed(SIZE_BYTES as u64);
        image.write(512, &numbered()[512..]);
        let mut expected = numbered();
        expected[..512].fill(0);
        assert_eq!(image.to_bytes(), expected);
        let mut buf = vec![0; CHUNK_BYTES + 1];
        image.read(CHUNK_BYTES as u64 - 7, &mut buf);
        assert_eq!(buf, expected[CHUNK_BYTES - 7..2 * CHUNK_BYTES - 6]);
        assert_eq!(image, Image::from_bytes(&expected));
    }

    #[test]
    fn a_clone_is_independent() {
        let original = Image::from_bytes(&numbered());
        let mut copy = original.clone();
        copy.write(0, &[9; 512]);
        assert_ne!(copy, original);
        assert_eq!(original.to_bytes(), numbered());
    }

    #[test]
    fn differences_turn_a_file_from_one_image_into_another() {
        let file = tempfile::tempfile().expect("file");
        let old = Image::from_bytes(&numbered());
        old.write_to(&file).expect("write");
        let mut new = old.clone();
        new.write(CHUNK_BYTES as u64, &[0; 1024]);
        new.write_differences_to(&file, &old).expect("write");
        let mut held = vec![1; SIZE_BYTES];
        file.read_exact_at(&mut held, 0).expect("read");
        assert_eq!(held, new.to_bytes());
        Image::zeroed(512).write_to(&file).expect("write");
        assert_eq!(file.metadata().expect("metadata").len(), 512);
    }

    #[test]
    #[should_panic(expected = "outside of the image")]
    fn nothing_is_outside() {
        Image::zeroed(512).write(512, &[0]);
    }
}
