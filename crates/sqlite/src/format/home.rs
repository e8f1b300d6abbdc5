//! The record *home*: the database file holds, durably, what the records before an LSN say. Records
//! from that LSN on still count.

use crate::format::codec::{Take, empty, finish};

/// Number of the kind.
pub const KIND: u8 = 7;

/// The record's bytes.
pub fn encode(upto: u64) -> Vec<u8> {
    let mut body = empty();
    body.extend_from_slice(&upto.to_le_bytes());
    finish(KIND, body)
}

/// The LSN of a body.
pub fn upto(take: &mut Take<'_>) -> Option<u64> {
    let bytes = take.bytes(8)?.try_into().ok()?;
    take.0.is_empty().then(|| u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::Record;

    #[test]
    fn golden_bytes() {
        let golden = [7, 1, 0, 0, 8, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
        assert_eq!(encode(0x1122_3344_5566_7788), golden);
        assert_eq!(Record::parse(&golden).expect("valid"), Record::Home(0x1122_3344_5566_7788));
        assert!(Record::parse(&golden[..15]).is_err());
    }
}
