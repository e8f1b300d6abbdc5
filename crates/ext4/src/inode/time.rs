//! Times as inodes store them.

use zerocopy::little_endian::U32;

use crate::Timestamp;

/// Decodes a time. The seconds have 34 bits: 32 signed ones, plus two in the extra field that say
/// how many times 2^32 is added. The other 30 bits of the extra field are nanoseconds.
pub(super) fn decode_time(seconds: U32, extra: u32) -> Timestamp {
    let low = i64::from(seconds.get().cast_signed());
    Timestamp {
        seconds: low + (i64::from(extra & 3) << 32),
        nanoseconds: (extra >> 2).min(999_999_999),
    }
}

/// The nearest time that can be stored. Without an extra field that is a whole second from 1901 to
/// 2038.
pub(super) fn encode_time(time: Timestamp, has_extra: bool) -> (U32, U32) {
    let min = i64::from(i32::MIN);
    let max = if has_extra { (3 << 32) + i64::from(i32::MAX) } else { i64::from(i32::MAX) };
    let seconds = time.seconds.clamp(min, max);
    let low = (seconds & 0xFFFF_FFFF) as u32;
    let epoch = (seconds - i64::from(low.cast_signed())) >> 32 & 3;
    let extra = epoch as u32 | time.nanoseconds.min(999_999_999) << 2; // epoch: two bits
    (U32::new(low), U32::new(extra))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_over_their_whole_range() {
        for seconds in [-(1 << 31), -1, 0, 1, (1 << 31) - 1, 1 << 31, 1 << 32, (3 << 32) + 7] {
            let time = Timestamp { seconds, nanoseconds: 999_999_999 };
            let (word, extra) = encode_time(time, true);
            assert_eq!(decode_time(word, extra.get()), time);
        }
    }

    #[test]
    fn times_out_of_range_become_the_nearest_storable_ones() {
        let store = |seconds, has_extra| {
            let (word, extra) = encode_time(Timestamp { seconds, nanoseconds: 0 }, has_extra);
            decode_time(word, extra.get()).seconds
        };
        assert_eq!(store(1 << 40, true), (3 << 32) + i64::from(i32::MAX));
        assert_eq!(store(1 << 40, false), i64::from(i32::MAX));
        assert_eq!(store(-(1 << 40), true), i64::from(i32::MIN));
    }
}
