//! Bytes that compressors find hard.

use fastrand::Rng;

/// At least `byte_count` bytes: pieces of noise, and copies of earlier bytes, short and long.
pub fn noise_and_copies(random: &mut Rng, byte_count: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    while bytes.len() < byte_count {
        let longest = [3, 20, 60, 700][random.usize(..4)];
        let len = random.usize(..=longest);
        if random.bool() || bytes.is_empty() {
            bytes.extend((0..len).map(|_| random.u8(..)));
        } else {
            let nearest = bytes.len() - random.usize(..bytes.len().min(4000));
            let from = nearest.saturating_sub(1);
            (0..len).for_each(|n| bytes.push(bytes[from + n]));
        }
    }
    bytes
}
