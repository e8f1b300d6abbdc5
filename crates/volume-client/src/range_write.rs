//! Writes several ranges of a file on a volume as one atomic change, with one system call.
//!
//! The ranges are the value of an extended attribute that no file holds. A value has at most 64
//! KiB, so a large change is sent in *parts*: the volume keeps the first ones in memory, and the
//! last one makes the change. The kernel checks that the caller may write the file.
//! `docs/reference/atomicity.md` is for users.
//!
//! ```text
//!   part:  version u32 | flags u32 | id 16 bytes | number u32 | count u32 | range | range | ...
//!   range: offset u64 | length u32 | bytes                                    (little-endian)
//! ```

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// The attribute.
pub const RANGES_XATTR: &str = "user.onejournal.ranges";

const VERSION: u32 = 1;
const IS_LAST: u32 = 1;
const IS_DURABLE: u32 = 2;
const ID_BYTES: usize = 16;
const HEAD_BYTES: usize = 4 + 4 + ID_BYTES + 4 + 4;
const RANGE_HEAD_BYTES: usize = 8 + 4;
/// Linux's limit for the value of an extended attribute.
const PART_BYTES_MAX: usize = 65_536;
/// The volume keeps no more bytes of one change.
pub const RANGES_BYTES_MAX: usize = 2 << 20;

/// Bytes of a file, and the offset that they are written to.
pub type Range<'a> = (u64, &'a [u8]);

/// A part of a change, as the volume gets it.
#[derive(Debug, PartialEq, Eq)]
pub struct RangePart<'a> {
    /// The change that it is a part of.
    pub id: [u8; ID_BYTES],
    /// Its number in the change, from 0 on.
    pub number: u32,
    /// Whether the change is complete with it.
    pub is_last: bool,
    /// Whether the change has to be durable when the last part is answered.
    pub is_durable: bool,
    /// Its ranges.
    pub ranges: Vec<Range<'a>>,
}

/// Why a change was not made, or may not have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeError {
    /// The file is as it was.
    Refused(Errno),
    /// The change may have been made, as a whole, or not.
    Unknown(Errno),
}

impl<'a> RangePart<'a> {
    /// Reads the value of the attribute. `None`: it is not one of these.
    pub fn parse(value: &'a [u8]) -> Option<RangePart<'a>> {
        let (head, mut rest) = value.split_at_checked(HEAD_BYTES)?;
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let flags = number(4);
        if number(0) != VERSION || flags & !(IS_LAST | IS_DURABLE) != 0 {
            return None;
        }
        let mut ranges = Vec::new();
        for _ in 0..number(28) {
            let (range, behind) = rest.split_at_checked(RANGE_HEAD_BYTES)?;
            let offset = u64::from_le_bytes(range[..8].try_into().expect("8 bytes"));
            let len_bytes = u32::from_le_bytes(range[8..].try_into().expect("4 bytes"));
            let (bytes, behind) = behind.split_at_checked(usize::try_from(len_bytes).ok()?)?;
            ranges.push((offset, bytes));
            rest = behind;
        }
        rest.is_empty().then(|| RangePart {
            id: head[8..24].try_into().expect("16 bytes"),
            number: number(24),
            is_last: flags & IS_LAST != 0,
            is_durable: flags & IS_DURABLE != 0,
            ranges,
        })
    }
}

/// The values that tell a volume to write `ranges`, in the order in which they are to be sent.
fn parts_of(ranges: &[Range<'_>], id: [u8; ID_BYTES], is_durable: bool) -> Vec<Vec<u8>> {
    let mut parts = vec![vec![0; HEAD_BYTES]];
    let mut counts = vec![0_u32];
    for &(mut offset, mut bytes) in ranges {
        while !bytes.is_empty() {
            let part = parts.last_mut().expect("there is one");
            let room = PART_BYTES_MAX.saturating_sub(part.len() + RANGE_HEAD_BYTES);
            if room == 0 {
                parts.push(vec![0; HEAD_BYTES]);
                counts.push(0);
                continue;
            }
            let (piece, behind) = bytes.split_at(room.min(bytes.len()));
            part.extend_from_slice(&offset.to_le_bytes());
            part.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            part.extend_from_slice(piece);
            *counts.last_mut().expect("one for each part") += 1;
            (offset, bytes) = (offset + piece.len() as u64, behind);
        }
    }
    let last = parts.len() - 1;
    for (number, (part, count)) in parts.iter_mut().zip(counts).enumerate() {
        let last_flag = if number == last { IS_LAST } else { 0 };
        let flags = last_flag | if is_durable { IS_DURABLE } else { 0 };
        part[..4].copy_from_slice(&VERSION.to_le_bytes());
        part[4..8].copy_from_slice(&flags.to_le_bytes());
        part[8..24].copy_from_slice(&id);
        part[24..28].copy_from_slice(&(number as u32).to_le_bytes());
        part[28..32].copy_from_slice(&count.to_le_bytes());
    }
    parts
}

/// A number that no other change of the same file has at the same time.
fn new_id() -> [u8; ID_BYTES] {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut id = [0; ID_BYTES];
    id[..4].copy_from_slice(&std::process::id().to_le_bytes());
    id[4..8].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    id[8..].copy_from_slice(&RandomState::new().build_hasher().finish().to_le_bytes());
    id
}

/// Writes `ranges`, which ascend and do not overlap, to the file at `path` on a volume: after a
/// crash all of them are there, or none. With `is_durable` they survive a power cut when this
/// returns.
///
/// # Errors
/// [`RangeError::Refused`] also if the file is not on a volume that offers this.
pub fn write_ranges(path: &Path, ranges: &[Range<'_>], is_durable: bool) -> Result<(), RangeError> {
    for part in parts_of(ranges, new_id(), is_durable) {
        rustix::fs::setxattr(path, RANGES_XATTR, &part, XattrFlags::empty()).map_err(failed)?;
    }
    Ok(())
}

/// What an error says of the change. The volume answers with these if it has changed nothing;
/// others may come from the kernel, when the volume's process has ended.
fn failed(errno: Errno) -> RangeError {
    match errno {
        Errno::OPNOTSUPP
        | Errno::NOSYS
        | Errno::INVAL
        | Errno::PERM
        | Errno::ACCESS
        | Errno::ROFS
        | Errno::BUSY
        | Errno::NOSPC
        | Errno::FBIG
        | Errno::TOOBIG
        | Errno::STALE
        | Errno::NOENT
        | Errno::NOTDIR
        | Errno::NOMEM => RangeError::Refused(errno),
        errno => RangeError::Unknown(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: [u8; ID_BYTES] = [9; ID_BYTES];

    #[test]
    fn a_small_change_is_one_part() {
        let ranges: Vec<Range<'_>> = vec![(5, b"abc"), (1 << 40, b"x")];
        let parts = parts_of(&ranges, ID, true);
        assert_eq!(parts.len(), 1);
        let golden = [
            &[1, 0, 0, 0, 3, 0, 0, 0][..],
            &ID,
            &[0, 0, 0, 0, 2, 0, 0, 0],
            &[5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0],
            b"abc",
            &[0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0],
            b"x",
        ];
        assert_eq!(parts[0], golden.concat());
        let (is_last, is_durable) = (true, true);
        let part = RangePart { id: ID, number: 0, is_last, is_durable, ranges };
        assert_eq!(RangePart::parse(&parts[0]), Some(part));
    }

    #[test]
    fn a_large_change_is_several_parts_that_fill_the_values() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
        let parts = parts_of(&[(7, &bytes[..100_000]), (300_000, &bytes[100_000..])], ID, false);
        assert_eq!(parts.len(), 4);
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            assert!(part.len() <= PART_BYTES_MAX && (number == 3 || part.len() > 65_500));
            let part = RangePart::parse(part).unwrap();
            assert_eq!((part.number as usize, part.is_last), (number, number == 3));
            for (offset, piece) in part.ranges {
                match found.last_mut() {
                    Some((at, run)) if *at + run.len() as u64 == offset => run.extend(piece),
                    _ => found.push((offset, piece.to_vec())),
                }
            }
        }
        let wanted = [(7, bytes[..100_000].to_vec()), (300_000, bytes[100_000..].to_vec())];
        assert!(found == wanted);
    }

    #[test]
    fn values_that_were_cut_or_changed_are_refused() {
        let part = &parts_of(&[(5, b"abc"), (20, b"defg")], ID, true)[0];
        for len in 0..part.len() {
            assert_eq!(RangePart::parse(&part[..len]), None, "{len} bytes");
        }
        assert_eq!(RangePart::parse(&[&part[..], b"x"].concat()), None);
        for (at, value) in [(0, 2), (4, 7), (28, 3), (40, 255), (43, 255)] {
            let mut part = part.clone();
            part[at] = value;
            assert_eq!(RangePart::parse(&part), None, "byte {at}");
        }
    }

    #[test]
    fn another_file_system_refuses() {
        let refused = write_ranges(Path::new("/proc/self/stat"), &[(0, b"x")], true);
        assert!(matches!(refused, Err(RangeError::Refused(_))), "{refused:?}");
    }
}
