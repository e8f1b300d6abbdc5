//! Databases that do not protect themselves against torn pages. Each file has pages of one size,
//! and each write is one page, at a multiple of its size: mostly over old data, also over holes,
//! over preallocated blocks and at the end. They sync so seldom that transactions fill up, and a
//! commit may come between any two operations.

use super::script::Script;
use crate::op::{Op, Reserve};

const KIB: u64 = 1 << 10;
const PAGE_KIB: [u64; 5] = [4, 8, 16, 32, 64];
/// Bytes of each file at first. All files together have more blocks than a transaction.
const FILE_BYTES: u64 = 512 * KIB;
/// Bytes of a write that makes old data. One transaction holds them.
const OLD_BYTES: u64 = 128 * KIB;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<Op> {
    let mut script = Script::new(seed, 13, op_count);
    let mut end_bytes = [FILE_BYTES; PAGE_KIB.len()];
    for kib in PAGE_KIB {
        let path = path(kib);
        script.create(&path);
        match script.rng.u8(..4) {
            0 => script.fallocate(&path, Reserve::Extend, 0, FILE_BYTES),
            1 => script.truncate(&path, FILE_BYTES),
            _ => (0..FILE_BYTES / OLD_BYTES)
                .for_each(|nth| script.write(&path, nth * OLD_BYTES, OLD_BYTES as usize)),
        }
        // From then on, `auto` writes large pages to other blocks.
        if script.rng.bool() {
            script.fsync(&path);
        }
    }
    while !script.is_full() {
        let which = script.rng.usize(..PAGE_KIB.len());
        let (path, page_bytes) = (path(PAGE_KIB[which]), PAGE_KIB[which] * KIB);
        let page_count = end_bytes[which] / page_bytes;
        let page = match script.rng.u8(..8) {
            0 if end_bytes[which] < FILE_BYTES + 4 * page_bytes => page_count,
            _ => script.rng.u64(..page_count),
        };
        script.write(&path, page * page_bytes, page_bytes as usize);
        end_bytes[which] = end_bytes[which].max((page + 1) * page_bytes);
        match script.rng.u8(..128) {
            0 => script.fdatasync(&path),
            1 => script.checkpoint(),
            2..8 => {
                // Every second block: the next write of this page has many pieces.
                for block in (0..page_bytes / (8 * KIB)).take(4) {
                    let offset = page * page_bytes + block * 8 * KIB;
                    script.fallocate(&path, Reserve::Punch, offset, 4 * KIB);
                }
            }
            _ => {}
        }
    }
    script.ops
}

fn path(page_kib: u64) -> String {
    format!("pages{page_kib}k")
}
