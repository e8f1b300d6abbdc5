//! `docs/format/journal.md` against the structs: offset and size of every field, constants, sizes.

use std::mem::offset_of;

use onejournal_journal::form_name;
use onejournal_journal::format::{
    COMMIT_MAGIC, DESCRIPTOR_MAGIC, FORM_BLOCK, FORM_DELTA, FORM_EXTENT, FORM_SPARSE, FORM_XOR_LZO,
    FORMAT_VERSION, HEADER_CLEAN, HEADER_MAGIC, HEADER_SLOT_BYTES, LABEL_BYTES, LABEL_MAGIC,
    RawCommit, RawDescriptor, RawHeader, RawLabel, RawTag, record_seed,
};

const PAGE: &str = include_str!("../../../docs/format/journal.md");

/// (offset, size, name) of each field.
type Fields = Vec<(usize, usize, String)>;

macro_rules! fields {
    ($struct:ident: $($field:ident),*) => {{
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

#[test]
fn every_table_is_the_struct() {
    let label = fields!(RawLabel: magic, version, checksum, reserved, journal_uuid, volume_uuid);
    assert_eq!(documented("## Label"), label);
    let header = fields!(RawHeader: magic, version, checksum, flags, uuid, incarnation, sequence,
        region_bytes, region_count, tail_region, tail_tid, reach_offset, step_bytes,
        layout_checksum, space_bytes);
    assert_eq!(documented("## Header"), header);
    let descriptor = fields!(RawDescriptor: magic, tag_count, incarnation, tid, time_ns, revoke_count,
        payload_bytes, used_bytes, unpacked_bytes);
    assert_eq!(documented("### Descriptor"), descriptor);
    let tag = fields!(RawTag: home, stored_bytes, form, reserved);
    assert_eq!(documented("### Tag"), tag);
    assert_eq!(documented("### Commit record"), fields!(RawCommit: magic, checksum, tid));
}

#[test]
fn the_fields_fill_the_structs() {
    let tables = [
        ("## Label", size_of::<RawLabel>()),
        ("## Header", size_of::<RawHeader>()),
        ("### Descriptor", size_of::<RawDescriptor>()),
        ("### Tag", size_of::<RawTag>()),
        ("### Commit record", size_of::<RawCommit>()),
    ];
    for (heading, size_bytes) in tables {
        let end = documented(heading).iter().fold(0, |end, (offset, size, name)| {
            assert_eq!(*offset, end, "{heading} {name}");
            end + size
        });
        assert_eq!(end, size_bytes, "{heading}");
    }
}

#[test]
fn the_constants_are_those_of_the_page() {
    let magic = |heading| table(heading)[0][3].trim_matches('`').as_bytes().to_vec();
    assert_eq!(magic("## Label"), LABEL_MAGIC.to_le_bytes());
    assert_eq!(magic("## Header"), HEADER_MAGIC.to_le_bytes());
    assert_eq!(magic("### Descriptor"), DESCRIPTOR_MAGIC.to_le_bytes());
    assert_eq!(magic("### Commit record"), COMMIT_MAGIC.to_le_bytes());
    assert_eq!(table("## Header")[1][3], FORMAT_VERSION.to_string());
    assert!(PAGE.contains(&format!("format version {FORMAT_VERSION}.")));
    for form in [FORM_BLOCK, FORM_SPARSE, FORM_EXTENT, FORM_DELTA, FORM_XOR_LZO] {
        let name = form_name(form).expect("it has a name");
        assert!(PAGE.contains(&format!("| {form} | {name} |")), "{name}");
    }
    assert_eq!(form_name(FORM_XOR_LZO + 1), None);
    assert!(table("## Header")[3][3].starts_with("bit 0: *clean*"));
    assert_eq!((HEADER_CLEAN, HEADER_SLOT_BYTES, LABEL_BYTES), (1, 4096, 4096));
}

#[test]
fn the_seed_is_the_checksum_of_uuid_and_incarnation() {
    let mut bytes = [7; 16].to_vec();
    bytes.extend(9u64.to_le_bytes());
    assert_eq!(record_seed(&[7; 16], 9), crc32c::crc32c(&bytes));
}
