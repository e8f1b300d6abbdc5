//! Bytes to write that no disk and no file system can shrink.

use device::AlignedBuf;

/// Random bytes that differ in each 512 bytes of each write.
pub(crate) struct Noise {
    bytes: AlignedBuf,
    random: fastrand::Rng,
}

/// Bytes that are new for each write begin at multiples of this.
const STEP_BYTES: usize = 512;

impl Noise {
    /// For writes of at most `len_bytes`.
    pub(crate) fn new(len_bytes: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = AlignedBuf::zeroed(len_bytes);
        random.fill(&mut bytes);
        Noise { bytes, random }
    }

    /// The bytes of the next write.
    pub(crate) fn next(&mut self, len_bytes: usize) -> &[u8] {
        let bytes = &mut self.bytes[..len_bytes];
        for step in bytes.chunks_mut(STEP_BYTES) {
            let mark = self.random.u64(..).to_le_bytes();
            let len = mark.len().min(step.len());
            step[..len].copy_from_slice(&mark[..len]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sector_is_written_twice() {
        let mut noise = Noise::new(4096, 1);
        let first = noise.next(4096).to_vec();
        let second = noise.next(4096);
        let same = first.chunks(STEP_BYTES).zip(second.chunks(STEP_BYTES));
        assert!(same.clone().count() == 8 && same.clone().all(|(one, other)| one != other));
        assert_eq!(noise.next(3).len(), 3);
    }
}
