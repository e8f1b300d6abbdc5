//! Cache lines, the unit of write-back.

/// Size of a cache line in bytes: the unit of write-back.
pub const LINE_BYTES: usize = 64;

/// The number of cache lines that a span touches.
pub fn line_count(offset: u64, len_bytes: usize) -> u64 {
    let before = offset % LINE_BYTES as u64;
    match len_bytes as u64 {
        0 => 0,
        len_bytes => (before + len_bytes).div_ceil(LINE_BYTES as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_where_they_begin() {
        let counts = [(0, 0), (0, 1), (0, 64), (1, 64), (63, 1), (63, 2), (10, 200)];
        let found = counts.map(|(offset, len_bytes)| line_count(offset, len_bytes));
        assert_eq!(found, [0, 1, 1, 2, 1, 2, 4]);
    }
}
