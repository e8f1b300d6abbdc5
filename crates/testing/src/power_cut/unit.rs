//! What of a write survives a power cut whole or not at all.

use device::LINE_BYTES;
use fastrand::Rng;

use super::piece::Piece;

/// What a power cut leaves whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// 512 bytes of a block device, whatever logical sector it reports. A device with sectors of
    /// 4096 bytes may be a file, or an image that another device holds.
    Sector,
    /// An aligned word of 8 bytes of NVRAM, and single bytes where a word is stored in part.
    Word,
}

const SECTOR_BYTES: usize = 512;
const WORD_BYTES: usize = 8;

impl Unit {
    /// The units of a write. On a block device, it consists of whole sectors.
    pub fn split(self, piece: &Piece) -> Vec<Piece> {
        let len_bytes = piece.bytes().len();
        let mut units = Vec::new();
        let mut start = 0;
        while start < len_bytes {
            let is_aligned = (piece.offset() + start as u64).is_multiple_of(WORD_BYTES as u64);
            let unit_bytes = match self {
                Unit::Sector => SECTOR_BYTES,
                Unit::Word if is_aligned && len_bytes - start >= WORD_BYTES => WORD_BYTES,
                Unit::Word => 1,
            };
            let end = (start + unit_bytes).min(len_bytes);
            units.push(piece.part(start..end));
            start = end;
        }
        units
    }

    /// What is left of a write.
    pub(crate) fn torn(self, piece: &Piece, rng: &mut Rng) -> Vec<Piece> {
        match self {
            Unit::Sector => torn_sectors(piece, rng),
            Unit::Word => choose(self.split(piece), rng),
        }
    }

    /// What is left of the writes that were issued, and of the one in flight.
    pub(crate) fn survivors<'a>(
        self,
        issued: impl Iterator<Item = &'a Piece>,
        in_flight: Option<&'a Piece>,
        rng: &mut Rng,
    ) -> Vec<Piece> {
        match self {
            Unit::Sector => {
                // The chance that an unflushed write is lost as a whole, before it may be torn.
                let lost_eighths = [0, 3, 7][rng.usize(..3)];
                let mut left = Vec::new();
                for piece in issued {
                    if rng.u8(..8) >= lost_eighths {
                        left.extend(torn_sectors(piece, rng));
                    }
                }
                left.extend(in_flight.into_iter().flat_map(|piece| torn_sectors(piece, rng)));
                left
            }
            Unit::Word => {
                choose(issued.chain(in_flight).flat_map(|piece| self.split(piece)).collect(), rng)
            }
        }
    }
}

/// Runs of sectors that survive by chance: mostly all or none, otherwise torn.
fn torn_sectors(piece: &Piece, rng: &mut Rng) -> Vec<Piece> {
    let count = piece.bytes().len() / SECTOR_BYTES;
    let sectors = |start: usize, end: usize| piece.part(start * SECTOR_BYTES..end * SECTOR_BYTES);
    match rng.u8(..8) {
        0..2 => Vec::new(),
        2..4 => vec![piece.clone()],
        4 => vec![sectors(0, rng.usize(..=count))],
        5 => vec![sectors(rng.usize(..=count), count)],
        6 if count > 0 => {
            let hole = rng.usize(..count);
            vec![sectors(0, hole), sectors(hole + 1, count)]
        }
        _ => (0..count).filter(|_| rng.bool()).map(|at| sectors(at, at + 1)).collect(),
    }
}

/// A random subset of words. There are several kinds of subsets, because each kind finds its own
/// kind of mistake.
fn choose(mut words: Vec<Piece>, rng: &mut Rng) -> Vec<Piece> {
    match rng.u8(..6) {
        // Each word by itself: few, half, most of them.
        kind @ 0..3 => {
            let kept_eighths = [1, 4, 7][usize::from(kind)];
            words.retain(|_| rng.u8(..8) < kept_eighths);
        }
        // Each line as it was at some time.
        3 => {
            let seed = rng.u64(..);
            let count = words.len();
            let written_back = |word: &Piece| {
                let line = word.offset() / LINE_BYTES as u64;
                Rng::with_seed(seed ^ line).usize(..=count)
            };
            let mut index = 0..count;
            words.retain(|word| index.next().expect("one for each") < written_back(word));
        }
        // All but one, and only one.
        4 if !words.is_empty() => drop(words.remove(rng.usize(..words.len()))),
        5 if !words.is_empty() => words = vec![words.swap_remove(rng.usize(..words.len()))],
        _ => {}
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_made_of_words_and_of_single_bytes_at_its_ends() {
        let atoms = Unit::Word.split(&Piece::new(6, vec![1; 21].into()));
        let spans: Vec<_> = atoms.iter().map(|a| (a.offset(), a.bytes().len())).collect();
        assert_eq!(spans, [(6, 1), (7, 1), (8, 8), (16, 8), (24, 1), (25, 1), (26, 1)]);
        assert!(Unit::Word.split(&Piece::new(3, Vec::new().into())).is_empty());
    }
}
