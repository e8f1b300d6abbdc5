//! The bytes of the disk, and which of them a crash may undo.
//!
//! Blocks of 4 KiB that were written are *unflushed* until the next flush. If the disk keeps their
//! old content (it has a volatile cache), a crash restores each of their sectors of 512 bytes, or
//! not.

use std::ops::Range;

use device::AlignedBuf;

const BLOCK_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

type Block = [u8; BLOCK_BYTES];

/// A disk in memory. All of its memory is allocated at the start.
pub struct Disk {
    bytes: AlignedBuf,
    is_unflushed: Vec<bool>,
    /// Blocks written since the last flush, in the order in which they were first written.
    unflushed: Vec<usize>,
    keeps_old: bool,
    /// The old content of the unflushed blocks, if it is kept; `None`: zeros.
    old: Vec<Option<Box<Block>>>,
    /// Buffers of old blocks, for reuse.
    spare: Vec<Box<Block>>,
}

impl Disk {
    /// `size_bytes` zero bytes, a multiple of 4096.
    pub fn new(size_bytes: u64) -> Disk {
        let size_bytes = usize::try_from(size_bytes).expect("a size in memory");
        assert!(size_bytes.is_multiple_of(BLOCK_BYTES));
        let mut bytes = AlignedBuf::zeroed(size_bytes);
        // Faults every page in, so that no request has to.
        bytes.iter_mut().step_by(BLOCK_BYTES).for_each(|byte| *std::hint::black_box(byte) = 0);
        Disk {
            is_unflushed: vec![false; size_bytes / BLOCK_BYTES],
            bytes,
            unflushed: Vec::new(),
            keeps_old: false,
            old: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Sets whether a crash can undo writes from now on. Earlier writes stay.
    pub fn set_volatile(&mut self, keeps_old: bool) {
        if self.keeps_old != keeps_old {
            self.flush();
            self.keeps_old = keeps_old;
        }
    }

    /// The part of these bytes that is on the disk.
    pub fn read(&self, span: Range<u64>) -> &[u8] {
        let clip = |at: u64| at.min(self.size_bytes()) as usize;
        &self.bytes[clip(span.start)..clip(span.end)]
    }

    /// Whether the bytes are on the disk.
    pub fn has(&self, span: &Range<u64>) -> bool {
        span.start <= span.end && span.end <= self.size_bytes()
    }

    /// Writes at `offset`. The caller has checked with [`Disk::has`].
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let start = offset as usize;
        self.mark(start..start + data.len());
        self.bytes[start..start + data.len()].copy_from_slice(data);
    }

    /// Zeroes bytes on the disk ([`Disk::has`]). Their memory stays allocated.
    pub fn discard(&mut self, span: Range<u64>) {
        let span = span.start as usize..span.end as usize;
        self.mark(span.clone());
        self.bytes[span].fill(0);
    }

    fn mark(&mut self, span: Range<usize>) {
        for block in span.start / BLOCK_BYTES..span.end.div_ceil(BLOCK_BYTES) {
            if !std::mem::replace(&mut self.is_unflushed[block], true) {
                self.unflushed.push(block);
                if self.keeps_old {
                    let old = self.keep(block);
                    self.old.push(old);
                }
            }
        }
    }

    fn keep(&mut self, block: usize) -> Option<Box<Block>> {
        let bytes = &self.bytes[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
        if bytes.iter().all(|byte| *byte == 0) {
            return None;
        }
        let mut old = self.spare.pop().unwrap_or_else(|| Box::new([0; BLOCK_BYTES]));
        old.copy_from_slice(bytes);
        Some(old)
    }

    /// Blocks written since the last flush.
    pub fn unflushed_count(&self) -> usize {
        self.unflushed.len()
    }

    /// Makes all writes permanent. Returns their extents in bytes, ascending and joined.
    pub fn flush(&mut self) -> Vec<Range<u64>> {
        let mut blocks = std::mem::take(&mut self.unflushed);
        blocks.sort_unstable();
        let mut extents: Vec<Range<u64>> = Vec::new();
        for block in blocks.drain(..) {
            self.is_unflushed[block] = false;
            let start = (block * BLOCK_BYTES) as u64;
            match extents.last_mut() {
                Some(last) if last.end == start => last.end += BLOCK_BYTES as u64,
                _ => extents.push(start..start + BLOCK_BYTES as u64),
            }
        }
        self.unflushed = blocks;
        self.spare.extend(self.old.drain(..).flatten());
        extents
    }

    /// A copy of all bytes.
    pub fn copy(&self) -> Vec<u8> {
        self.bytes.to_vec()
    }

    /// Replaces all bytes by a copy, permanently.
    pub fn restore(&mut self, copy: &[u8]) {
        self.flush();
        self.bytes.copy_from_slice(copy);
    }

    /// Cuts the power: each sector that was written since the last flush survives with probability
    /// `survival`, drawn from `seed`. Returns how many sectors lost something.
    pub fn crash(&mut self, survival: f64, seed: u64) -> u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut lost_count = 0;
        for (block, old) in self.unflushed.iter().zip(&self.old) {
            let old = old.as_deref().unwrap_or(&[0; BLOCK_BYTES]);
            let now = &mut self.bytes[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
            for (now, old) in now.chunks_mut(SECTOR_BYTES).zip(old.chunks(SECTOR_BYTES)) {
                if random.f64() >= survival && *now != *old {
                    now.copy_from_slice(old);
                    lost_count += 1;
                }
            }
        }
        self.flush();
        lost_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volatile_disk() -> Disk {
        let mut disk = Disk::new(1 << 20);
        disk.set_volatile(true);
        disk
    }

    fn sectors(disk: &Disk, span: Range<u64>) -> Vec<u8> {
        disk.read(span).chunks(SECTOR_BYTES).map(|sector| sector[0]).collect()
    }

    #[test]
    fn a_crash_takes_what_was_not_flushed_and_nothing_else() {
        let mut disk = volatile_disk();
        disk.write(0, &[1; 8192]);
        disk.flush();
        disk.write(512, &[2; 1024]);
        disk.write(512, &[3; 512]);
        disk.discard(4096..8192);
        assert_eq!(disk.crash(0.0, 1), 2 + 8);
        assert_eq!(sectors(&disk, 0..8192), [1; 16]);
        assert_eq!(disk.crash(0.0, 1), 0, "nothing is unflushed any more");
        disk.write(0, &[4; 4096]);
        assert_eq!(disk.crash(1.0, 1), 0);
        assert_eq!(sectors(&disk, 0..8192), [[4; 8], [1; 8]].concat());
    }

    #[test]
    fn each_sector_survives_by_itself_as_the_seed_says() {
        let crashed = |seed| {
            let mut disk = volatile_disk();
            disk.write(0, &[1; 1 << 18]);
            disk.flush();
            disk.write(0, &[2; 1 << 17]);
            let lost_count = disk.crash(0.5, seed);
            let found = sectors(&disk, 0..1 << 18);
            assert_eq!(found.iter().filter(|byte| **byte == 2).count() as u64, 256 - lost_count);
            assert!(
                found[256..].iter().all(|byte| *byte == 1),
                "seed {seed}: flushed ones changed"
            );
            assert!((64..192).contains(&lost_count), "seed {seed}: {lost_count} of 256 lost");
            found
        };
        assert_eq!(crashed(7), crashed(7));
        assert_ne!(crashed(7), crashed(8));
    }

    #[test]
    fn without_a_volatile_cache_nothing_is_lost() {
        let mut disk = Disk::new(1 << 20);
        disk.write(0, &[1; 4096]);
        assert_eq!(disk.crash(0.0, 1), 0);
        disk.set_volatile(true);
        disk.write(0, &[2; 4096]);
        disk.set_volatile(false);
        assert_eq!(disk.crash(0.0, 1), 0);
        assert_eq!(sectors(&disk, 0..4096), [2; 8]);
    }

    #[test]
    fn extents_are_joined_and_bounds_are_kept() {
        let mut disk = volatile_disk();
        for block in [9, 3, 4, 9, 5] {
            disk.write(block * 4096 + 100, &[1; 10]);
        }
        assert_eq!(disk.unflushed_count(), 4);
        assert_eq!(disk.flush(), [3 * 4096..6 * 4096, 9 * 4096..10 * 4096]);
        assert_eq!(disk.flush(), []);
        assert!(disk.has(&(0..1 << 20)) && !disk.has(&(1..(1 << 20) + 1)));
        assert_eq!(disk.read((1 << 20) - 5..u64::MAX).len(), 5);
        disk.write(1 << 20, &[]);
        disk.discard(1 << 20..1 << 20);
        assert_eq!(disk.flush(), []);
    }
}
