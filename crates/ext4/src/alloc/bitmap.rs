//! Searching and changing the bits of a bitmap block, a word at a time. Bit n is bit n % 8 of
//! byte n / 8; 1 = in use.

use std::ops::Range;

use journal::BlockBytes;

const WORD_BITS: u32 = 64;

fn word(bits: &BlockBytes, index: u32) -> u64 {
    let at = index as usize * 8;
    u64::from_le_bytes(bits[at..at + 8].try_into().expect("8 bytes"))
}

/// Is this bit set?
pub(super) fn is_set(bits: &BlockBytes, index: u32) -> bool {
    bits[(index / 8) as usize] & 1 << (index % 8) != 0
}

/// The first bit of `range` that is `wanted`; the end of the range when there is none.
fn find(bits: &BlockBytes, range: &Range<u32>, wanted: bool) -> u32 {
    let mut index = range.start;
    while index < range.end {
        let all = word(bits, index / WORD_BITS);
        let ones = if wanted { all } else { !all } >> (index % WORD_BITS);
        if ones != 0 {
            return (index + ones.trailing_zeros()).min(range.end);
        }
        index = (index / WORD_BITS + 1) * WORD_BITS;
    }
    range.end
}

/// The first clear bit of `range`.
pub(super) fn find_clear(bits: &BlockBytes, range: Range<u32>) -> Option<u32> {
    let index = find(bits, &range, false);
    (index < range.end).then_some(index)
}

/// The first run of at least `wanted` clear bits in `range`, cut to `wanted`. If there is none, the
/// longest run. `None` if no bit is clear.
pub(super) fn find_run(bits: &BlockBytes, range: Range<u32>, wanted: u32) -> Option<Range<u32>> {
    let mut best: Option<Range<u32>> = None;
    let mut rest = range;
    while let Some(start) = find_clear(bits, rest.clone()) {
        let limit = rest.end.min(start.saturating_add(wanted));
        let end = find(bits, &(start..limit), true);
        if end - start >= wanted {
            return Some(start..end);
        }
        if best.as_ref().is_none_or(|best| end - start > best.end - best.start) {
            best = Some(start..end);
        }
        rest.start = end;
    }
    best
}

/// The end of the clear bits that begin at `start`, at most `end`.
pub(super) fn clear_until(bits: &BlockBytes, start: u32, end: u32) -> u32 {
    find(bits, &(start..end), true)
}

/// Whether all bits of `range` are set (or, with `false`, clear).
pub(super) fn all_are(bits: &BlockBytes, range: Range<u32>, set: bool) -> bool {
    find(bits, &range, !set) == range.end
}

/// Sets or clears all bits of `range`.
pub(crate) fn fill(bits: &mut BlockBytes, range: Range<u32>, set: bool) {
    let mut index = range.start;
    while index < range.end {
        let at = (index / 8) as usize;
        if index.is_multiple_of(8) && range.end - index >= 8 {
            let whole = ((range.end - index) / 8) as usize;
            bits[at..at + whole].fill(if set { 0xFF } else { 0 });
            index += whole as u32 * 8; // a bitmap block has 32768 bits
        } else {
            let mask = 1 << (index % 8);
            if set {
                bits[at] |= mask
            } else {
                bits[at] &= !mask
            }
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u32 = 32768;

    fn with(ranges: &[Range<u32>]) -> Box<BlockBytes> {
        let mut bits = Box::new([0; 4096]);
        ranges.iter().for_each(|range| fill(&mut bits, range.clone(), true));
        bits
    }

    #[test]
    fn runs_are_found_over_word_borders() {
        let bits = with(&[0..60, 70..130, 1000..SIZE]);
        assert_eq!(find_run(&bits, 0..SIZE, 5), Some(60..65));
        assert_eq!(find_run(&bits, 0..SIZE, 11), Some(130..141));
        assert_eq!(find_run(&bits, 0..SIZE, 5000), Some(130..1000));
        assert_eq!(find_run(&bits, 62..66, 100), Some(62..66));
        assert_eq!(find_run(&bits, 1000..SIZE, 1), None);
        assert_eq!(find_clear(&bits, 61..SIZE), Some(61));
    }

    #[test]
    fn agrees_with_a_bit_by_bit_search() {
        let mut state = 12345u32;
        let mut next = |limit: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % limit
        };
        for _ in 0..300 {
            let mut bits = Box::new([0u8; 4096]);
            let mut model = vec![false; SIZE as usize];
            for _ in 0..20 {
                let start = next(SIZE);
                let range = start..(start + next(3000)).min(SIZE);
                let set = next(3) > 0;
                fill(&mut bits, range.clone(), set);
                range.for_each(|i| model[i as usize] = set);
            }
            let from = next(SIZE);
            let clear = (from..SIZE).find(|i| !model[*i as usize]);
            assert_eq!(find_clear(&bits, from..SIZE), clear);
            let wanted = next(500) + 1;
            let is_run = |s: u32| s + wanted <= SIZE && (s..s + wanted).all(|i| !model[i as usize]);
            let run = (from..SIZE).find(|start| is_run(*start));
            let found = find_run(&bits, from..SIZE, wanted);
            match run {
                Some(start) => assert_eq!(found, Some(start..start + wanted)),
                None => assert!(found.is_none_or(|r| r.end - r.start < wanted)),
            }
        }
    }

    #[test]
    fn ranges_are_filled_exactly() {
        let mut bits = Box::new([0; 4096]);
        fill(&mut bits, 3..21, true);
        assert_eq!(bits[..4], [0xF8, 0xFF, 0x1F, 0]);
        assert!(all_are(&bits, 3..21, true) && !all_are(&bits, 2..21, true));
        assert!(all_are(&bits, 21..SIZE, false) && !is_set(&bits, 2) && is_set(&bits, 20));
    }
}
