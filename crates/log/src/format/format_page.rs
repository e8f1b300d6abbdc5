//! `docs/format/log.md` against the structs: offset and size of every field, magics, versions.

use std::mem::offset_of;

use super::{chunk, group, quarantine, record, segments};
use crate::directory::options;

const PAGE: &str = include_str!("../../../../docs/format/log.md");

/// (offset, size, name) of each field.
type Fields = Vec<(usize, usize, String)>;

macro_rules! fields {
    ($struct:path: $($field:ident),*) => {{
        // Fails to compile when a field is missing here.
        fn sizes(value: $struct) -> Vec<usize> {
            let $struct { $($field),* } = value;
            vec![$(size_of_val(&$field)),*]
        }
        let value = <$struct as zerocopy::FromZeros>::new_zeroed();
        let offsets = [$(offset_of!($struct, $field)),*];
        let names = [$(stringify!($field).to_string()),*];
        let fields: Fields = offsets
            .into_iter()
            .zip(sizes(value))
            .zip(names)
            .map(|((offset, size), name)| (offset, size, name))
            .collect();
        fields
    }};
}

/// The rows of the first table under the heading.
fn table(heading: &str) -> Vec<Vec<String>> {
    let (_, section) = PAGE.split_once(&format!("\n{heading}\n")).expect("the heading is there");
    section
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect())
        .collect()
}

fn documented(heading: &str) -> Fields {
    let number = |cell: &str| cell.parse().expect("a number");
    table(heading)
        .iter()
        .map(|row| (number(&row[0]), number(&row[1]), row[2].trim_matches('`').to_string()))
        .collect()
}

/// The fields follow each other and fill the struct.
fn assert_filled(heading: &str, size_bytes: usize) {
    let end = documented(heading).iter().fold(0, |end, (offset, size, name)| {
        assert_eq!(*offset, end, "{heading} {name}");
        end + size
    });
    assert_eq!(end, size_bytes, "{heading}");
}

#[test]
fn every_table_is_the_struct() {
    let header = fields!(record::RawHeader: length_flags, crc, stream, lsn_low, usn);
    assert_eq!(documented("## Record"), header);
    assert_filled("## Record", record::HEADER_BYTES);
    let allocation = fields!(chunk::RawChunk: magic, salt, ordinal, first_lsn, stream, crc);
    assert_eq!(documented("## Chunk"), allocation);
    assert_filled("## Chunk", size_of::<chunk::RawChunk>());
    let segment = fields!(segments::RawSegment: magic, salt, first_lsn, stream, crc, reserved);
    assert_eq!(documented("## Log file"), segment);
    assert_filled("## Log file", size_of::<segments::RawSegment>());
    let header =
        fields!(group::RawHeader: magic, crc, version, salt, generation, sequence, step_bytes);
    assert_eq!(documented("### Header"), header);
    assert_filled("### Header", size_of::<group::RawHeader>());
    let entry = fields!(group::RawEntry: magic, crc, salt, sequence, len_bytes, piece_count);
    assert_eq!(documented("### Entry"), entry);
    assert_filled("### Entry", size_of::<group::RawEntry>());
    assert_eq!(documented("### Piece"), fields!(group::RawPiece: lsn, stream, len_bytes));
    assert_filled("### Piece", size_of::<group::RawPiece>());
    assert_eq!(
        documented("## Quarantined records"),
        fields!(quarantine::RawQuarantined: lsn, salt, len_bytes, crc)
    );
    assert_filled("## Quarantined records", size_of::<quarantine::RawQuarantined>());
}

#[test]
fn the_constants_are_those_of_the_page() {
    let magic = |heading| table(heading)[0][3].trim_matches('`').as_bytes().to_vec();
    assert_eq!(magic("## Chunk"), chunk::MAGIC.to_le_bytes());
    assert_eq!(magic("## Log file"), segments::MAGIC.to_le_bytes());
    assert_eq!(magic("### Header"), group::HEADER_MAGIC.to_le_bytes());
    assert_eq!(magic("### Entry"), group::ENTRY_MAGIC.to_le_bytes());
    assert_eq!(table("### Header")[2][3], group::VERSION.to_string());
    assert!(PAGE.contains(&format!("format version {}.", options::FORMAT)));
    assert!(table("## Record")[0][3].contains("bit 31"));
    assert_eq!(record::FOLLOWS_UNSYNCED, 1 << 31);
    assert_eq!((chunk::DATA_OFFSET, segments::DATA_OFFSET, group::HEADER_BYTES), (4096, 64, 4096));
    assert_eq!((record::ALIGN_BYTES, record::PAYLOAD_BYTES_MAX), (4, 16 << 20));
}
