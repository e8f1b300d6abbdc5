//! A record of a database's stream: one of four kinds.
//!
//! | kind | file | what it says |
//! |---|---|---|
//! | base | `base` | how a generation of the WAL stands; all records before it are void |
//! | frames | `frames` | frames of one generation of the WAL |
//! | pages | `pages` | a transaction of a rollback mode |
//! | home | `home` | the database holds, durably, what the records before an LSN say |

use journal::codec::compress;

use crate::failure::Failure;
use crate::format::base::{Base, Kind};
use crate::format::codec::{BODY_BYTES_MAX, HEADER_BYTES, Take, VERSION};
use crate::format::frames::{self, FramesHead};
use crate::format::home;
use crate::format::pages;

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A base, which voids all records before it.
    Base(Base),
    /// Frames of one generation, and the bytes after the head, which [`frames::frames`] reads.
    Frames(FramesHead, Vec<u8>),
    /// Pages of a transaction in a rollback mode, and the bytes after the head.
    Pages(pages::Head, Vec<u8>),
    /// The database durably holds the content of the records before this LSN.
    Home(u64),
}

impl Record {
    /// Reads what the encoders of the kinds made.
    pub fn parse(bytes: &[u8]) -> Result<Record, Failure> {
        let damaged = || Failure::Damaged("a record of the log is none of this extension".into());
        let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(damaged)?;
        if header[1] != VERSION {
            let text = format!("a record of the log has version {}", header[1]);
            return Err(Failure::Damaged(text));
        }
        let body_bytes = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let mut unpacked = Vec::new();
        let body = match header[2] {
            0 if body.len() == body_bytes => body,
            1 if body_bytes <= BODY_BYTES_MAX => {
                compress::decompress(body, body_bytes, &mut unpacked).map_err(|_| damaged())?;
                &unpacked
            }
            _ => return Err(damaged()),
        };
        let mut take = Take(body);
        let record = match header[0] {
            1 => take.base(Kind::Begin).map(Record::Base),
            2 => take.base(Kind::Durable).map(Record::Base),
            3 => take.base(Kind::Closed).map(Record::Base),
            pages::KIND => pages::head(&mut take).map(|head| Record::Pages(head, take.0.to_vec())),
            frames::KIND => take.head().map(|head| Record::Frames(head, take.0.to_vec())),
            home::KIND => home::upto(&mut take).map(Record::Home),
            _ => None,
        };
        record.ok_or_else(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::base::{Stale, Witness, encode_base};
    use crate::format::frames::{FramesWriter, frames};
    use crate::format::page::Form;
    use crate::format::wal::{self, FrameHeader};
    use proptest::prelude::*;

    fn base() -> Base {
        Base {
            kind: Kind::Begin,
            salts: *b"saltsalt",
            page_bytes: 4096,
            change_counter: 7,
            frames: 3,
            checksum: [1, 2],
            stale: vec![Stale { salts: *b"oldsalts", frames: 9 }],
            witnesses: vec![Witness { page: 4, crc: 5 }],
        }
    }

    #[test]
    fn golden_bytes() {
        let golden = [
            &[1, 1, 0, 0, 56, 0, 0, 0][..],
            b"saltsalt\0\x10\0\0\x07\0\0\0\x03\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\0\0oldsalts\x09\0\0\0\x01\0\0\0\x04\0\0\0\x05\0\0\0",
        ]
        .concat();
        assert_eq!(encode_base(&base()), golden);
        assert_eq!(Record::parse(&golden).expect("valid"), Record::Base(base()));
    }

    #[test]
    fn frames_are_read_back() {
        let head = FramesHead {
            salts: *b"saltsalt",
            page_bytes: 1024,
            change_counter: 1,
            first: 5,
            checksum: [3, 4],
            is_big_endian: true,
        };
        let mut writer = FramesWriter::new(&head, vec![7; 3]);
        let (old, mut new) = (vec![1; 1024], vec![1; 1024]);
        new[100] = 2;
        let mut checksum = head.checksum;
        let mut checksums = Vec::new();
        for (page, commit_pages, base) in [(3_u32, 0_u32, Some(&old[..])), (9, 10, None)] {
            let front = [page.to_be_bytes(), commit_pages.to_be_bytes()].concat();
            checksum = wal::checksum(true, wal::checksum(true, checksum, &front), &new);
            checksums.push(checksum);
            let salts = head.salts;
            writer.push(&FrameHeader { page, commit_pages, salts, checksum }, base, &new);
        }
        let bytes = writer.finish();
        let Record::Frames(found, rest) = Record::parse(&bytes).expect("valid") else { panic!() };
        assert_eq!(found, head);
        let found = frames(&head, &rest).expect("valid");
        assert_eq!((found[0].page, found[0].form, found[1].commit_pages), (3, Form::Delta, 10));
        assert_eq!(found.iter().map(|frame| frame.checksum).collect::<Vec<_>>(), checksums);
        assert!(found.iter().all(|frame| frame.holds(&new) && !frame.holds(&old)));
        assert!(frames(&head, &rest[..rest.len() - 1]).is_err());
    }

    proptest! {
        #![proptest_config(onejournal_testing::proptest_config!(256))]

        #[test]
        fn garbage_is_refused_without_panic(mut bytes: Vec<u8>, kind in 0..8u8, packed in 0..3u8) {
            if bytes.len() >= 3 {
                (bytes[0], bytes[1], bytes[2]) = (kind, VERSION, packed);
            }
            if let Ok(Record::Frames(head, rest)) = Record::parse(&bytes) {
                let _ = frames(&head, &rest);
            }
        }
    }
}
