//! A change of some bytes: offset, kind, value.

use crate::fuzz::input::Input;

/// A change.
#[derive(Debug, Clone)]
pub struct Patch<'a> {
    offset: u16,
    change: Change<'a>,
}

#[derive(Debug, Clone)]
enum Change<'a> {
    /// Replaces the bytes by these.
    Put(&'a [u8]),
    /// Puts a number that code compares with, in this many bytes.
    Telling(u64, usize),
    /// Inverts a bit.
    Flip(u8),
    /// Adds this to the little-endian number of two bytes.
    Add(u16),
    /// Puts this many equal bytes.
    Fill(u8, u8),
    /// Copies this many bytes from another place.
    Copy(u16, u8),
}

/// Numbers at which behaviour changes.
const TELLING: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x100,
    0xfff,
    0x1000,
    0x1001,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 62,
    u64::MAX,
];

impl<'a> Patch<'a> {
    /// The next change of the input.
    pub fn read(input: &mut Input<'a>) -> Patch<'a> {
        let offset = input.u16();
        let kind = input.u8();
        let width = 1 << (kind >> 3 & 3);
        let change = match kind & 7 {
            0 | 1 => Change::Put(input.take(width)),
            2 => Change::Telling(TELLING[input.below(TELLING.len())], width),
            3 => Change::Flip(kind >> 5),
            4 => Change::Add(input.u16()),
            5 => Change::Fill(input.u8(), input.u8()),
            6 => Change::Copy(input.u16(), input.u8()),
            _ => {
                let count = usize::from(input.u8());
                Change::Put(input.take(count))
            }
        };
        Patch { offset, change }
    }

    /// Changes `bytes`. A change outside of them has no effect.
    pub fn apply(&self, bytes: &mut [u8]) {
        if bytes.is_empty() {
            return;
        }
        let at = usize::from(self.offset) % bytes.len();
        match self.change {
            Change::Put(new) => put(bytes, at, new),
            Change::Telling(number, width) => put(bytes, at, &number.to_le_bytes()[..width]),
            Change::Flip(bit) => bytes[at] ^= 1 << bit,
            Change::Add(number) => {
                let mut old = [0; 2];
                let there = &bytes[at..(at + 2).min(bytes.len())];
                old[..there.len()].copy_from_slice(there);
                put(bytes, at, &u16::from_le_bytes(old).wrapping_add(number).to_le_bytes());
            }
            Change::Fill(byte, count) => put(bytes, at, &vec![byte; usize::from(count)]),
            Change::Copy(from, count) => {
                let from = usize::from(from) % bytes.len();
                let end = (from + usize::from(count)).min(bytes.len());
                let copy = bytes[from..end].to_vec();
                put(bytes, at, &copy);
            }
        }
    }
}

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    let count = new.len().min(bytes.len() - at);
    bytes[at..at + count].copy_from_slice(&new[..count]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(instructions: &[u8]) -> [u8; 8] {
        let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        Patch::read(&mut Input::new(instructions)).apply(&mut bytes);
        bytes
    }

    #[test]
    fn each_kind_changes_what_it_says() {
        assert_eq!(patched(&[2, 0, 8, 0xaa, 0xbb, 0xcc]), [1, 2, 0xaa, 0xbb, 5, 6, 7, 8]);
        assert_eq!(patched(&[1, 0, 2 | 1 << 3, 6]), [1, 0xff, 0x0f, 4, 5, 6, 7, 8]);
        assert_eq!(patched(&[0, 0, 3 | 7 << 5]), [0x81, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(patched(&[7, 0, 4, 1, 0]), [1, 2, 3, 4, 5, 6, 7, 9]);
        assert_eq!(patched(&[5, 0, 5, 9, 200]), [1, 2, 3, 4, 5, 9, 9, 9]);
        assert_eq!(patched(&[0, 0, 6, 6, 0, 255]), [7, 8, 3, 4, 5, 6, 7, 8]);
        assert_eq!(patched(&[6, 0, 7, 3, 0xa, 0xb, 0xc]), [1, 2, 3, 4, 5, 6, 0xa, 0xb]);
    }
}
