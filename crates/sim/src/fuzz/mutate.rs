//! Mutations from a seed for the short run: the same ones each time.

use fastrand::Rng;

/// The most bytes of a mutated input.
const MAX_BYTES: usize = 4096;

/// A changed copy of `input`, or of it and a part of `other`.
pub fn mutate(input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + rng.usize(..4) {
        let at = rng.usize(..=bytes.len());
        let end = (at + rng.usize(..16)).min(bytes.len());
        match rng.u8(..6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
            1 if at < bytes.len() => bytes[at] = rng.u8(..),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            4 if !other.is_empty() => {
                let from = rng.usize(..other.len());
                let until = (from + rng.usize(1..64)).min(other.len());
                bytes.splice(at..at, other[from..until].iter().copied());
            }
            _ => drop(bytes.splice(at..at, (0..rng.usize(1..9)).map(|_| rng.u8(..)))),
        }
    }
    bytes.truncate(MAX_BYTES);
    bytes
}
