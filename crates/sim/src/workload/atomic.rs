//! What SQLite does for a transaction on a file with atomic writes: it writes the pages atomically
//! and calls `fdatasync`, without a journal. Two databases take turns, and a third file is written
//! beside them.

use super::script::Script;

const PAGE: u64 = 4096;
const PAGE_BYTES: usize = PAGE as usize;

pub(super) fn ops(seed: u64, op_count: usize) -> Vec<crate::op::Op> {
    let mut script = Script::new(seed, 10, op_count);
    let mut page_counts = [4u64; 2];
    for path in ["a.db", "b.db"] {
        script.create(path);
        script.write(path, 0, 4 * PAGE_BYTES);
    }
    script.create("log");
    let mut log_bytes = 0;
    while !script.is_full() {
        let which = script.rng.usize(..2);
        let path = ["a.db", "b.db"][which];
        let pieces = match script.rng.u8(..5) {
            0 => large(&mut script, &mut page_counts[which]),
            _ => pages(&mut script, &mut page_counts[which]),
        };
        script.write_atomic(path, pieces);
        match script.rng.u8(..8) {
            // A database that was cut grows through pages that were freed, or over a hole.
            0 => {
                page_counts[which] = page_counts[which].div_ceil(2);
                let size_bytes = page_counts[which] * PAGE - script.rng.u64(..PAGE);
                script.truncate(path, size_bytes);
            }
            1 => script.checkpoint(),
            2..5 => script.fdatasync(path),
            _ => {
                script.write("log", log_bytes, 700);
                log_bytes += 700;
            }
        }
    }
    script.ops
}

/// The first page, which counts the transactions, and some others, partly after the end. Sometimes
/// only parts of pages.
fn pages(script: &mut Script, page_count: &mut u64) -> Vec<(u64, usize)> {
    let mut pieces = vec![(0, PAGE_BYTES)];
    let mut page = 0;
    for _ in 0..script.rng.usize(1..12) {
        page += script.rng.u64(1..4);
        let is_part = script.rng.u8(..6) == 0;
        let len_bytes = if is_part { script.rng.usize(1..PAGE_BYTES) } else { PAGE_BYTES };
        pieces.push((page * PAGE + (PAGE - len_bytes as u64), len_bytes));
    }
    *page_count = (*page_count).max(page + 1);
    pieces
}

/// So many pages that the running transaction has no room for all of them and must be committed
/// first.
fn large(script: &mut Script, page_count: &mut u64) -> Vec<(u64, usize)> {
    let mut pieces = Vec::new();
    let mut page = 0;
    for _ in 0..script.rng.usize(3..6) {
        let count = script.rng.u64(10..30);
        pieces.push((page * PAGE, count as usize * PAGE_BYTES));
        page += count + 1;
    }
    *page_count = (*page_count).max(page);
    pieces
}
