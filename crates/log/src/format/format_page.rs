//! `docs/format/log.md` against the structs: offset and size of every field, magics, versions.

use onejournal_testing::{FormatPage, fields};

use super::{chunk, group, quarantine, record, segments};
use crate::directory::options;

const PAGE: FormatPage = FormatPage::new(include_str!("../../../../docs/format/log.md"));

#[test]
fn every_table_is_the_struct() {
    let header = fields!(record::RawHeader: length_flags, crc, stream, lsn_low, usn);
    assert_eq!(PAGE.fields("## Record"), header);
    PAGE.assert_filled("## Record", record::HEADER_BYTES);
    let allocation = fields!(chunk::RawChunk: magic, salt, ordinal, first_lsn, stream, crc);
    assert_eq!(PAGE.fields("## Chunk"), allocation);
    PAGE.assert_filled("## Chunk", size_of::<chunk::RawChunk>());
    let segment = fields!(segments::RawSegment: magic, salt, first_lsn, stream, crc, reserved);
    assert_eq!(PAGE.fields("## Log file"), segment);
    PAGE.assert_filled("## Log file", size_of::<segments::RawSegment>());
    let header =
        fields!(group::RawHeader: magic, crc, version, salt, generation, sequence, step_bytes);
    assert_eq!(PAGE.fields("### Header"), header);
    PAGE.assert_filled("### Header", size_of::<group::RawHeader>());
    let entry = fields!(group::RawEntry: magic, crc, salt, sequence, len_bytes, piece_count);
    assert_eq!(PAGE.fields("### Entry"), entry);
    PAGE.assert_filled("### Entry", size_of::<group::RawEntry>());
    assert_eq!(PAGE.fields("### Piece"), fields!(group::RawPiece: lsn, stream, len_bytes));
    PAGE.assert_filled("### Piece", size_of::<group::RawPiece>());
    assert_eq!(
        PAGE.fields("## Quarantined records"),
        fields!(quarantine::RawQuarantined: lsn, salt, len_bytes, crc)
    );
    PAGE.assert_filled("## Quarantined records", size_of::<quarantine::RawQuarantined>());
}

#[test]
fn the_constants_are_those_of_the_page() {
    let magic = |heading| PAGE.table(heading)[0][3].trim_matches('`').as_bytes().to_vec();
    assert_eq!(magic("## Chunk"), chunk::MAGIC.to_le_bytes());
    assert_eq!(magic("## Log file"), segments::MAGIC.to_le_bytes());
    assert_eq!(magic("### Header"), group::HEADER_MAGIC.to_le_bytes());
    assert_eq!(magic("### Entry"), group::ENTRY_MAGIC.to_le_bytes());
    assert_eq!(PAGE.table("### Header")[2][3], group::VERSION.to_string());
    assert!(PAGE.text().contains(&format!("format version {}.", options::FORMAT)));
    let changelog = include_str!("../../../../CHANGELOG.md");
    assert!(changelog.contains(&format!("\n- Group log: version {}.", group::VERSION)));
    assert!(PAGE.table("## Record")[0][3].contains("bit 31"));
    assert_eq!(record::FOLLOWS_UNSYNCED, 1 << 31);
    assert_eq!((chunk::DATA_OFFSET, segments::DATA_OFFSET, group::HEADER_BYTES), (4096, 64, 4096));
    assert_eq!((record::ALIGN_BYTES, record::PAYLOAD_BYTES_MAX), (4, 16 << 20));
}
