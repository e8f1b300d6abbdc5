//! `docs/format/journal.md` against the structs: offset and size of every field, constants, sizes.

use onejournal_journal::form_name;
use onejournal_journal::format::{
    COMMIT_MAGIC, DESCRIPTOR_MAGIC, FORM_BLOCK, FORM_PATCH, FORMAT_VERSION, HEADER_CLEAN,
    HEADER_MAGIC, HEADER_SLOT_BYTES, LABEL_BYTES, LABEL_MAGIC, RawCheck, RawCommit, RawDescriptor,
    RawHeader, RawLabel, RawTag, record_seed,
};
use onejournal_testing::{FormatPage, fields};

const PAGE: FormatPage = FormatPage::new(include_str!("../../../../docs/format/journal.md"));

#[test]
fn every_table_is_the_struct() {
    let label = fields!(RawLabel: magic, version, checksum, block_count, journal_uuid, volume_uuid);
    assert_eq!(PAGE.fields("## Label"), label);
    let header = fields!(RawHeader: magic, version, checksum, flags, uuid, incarnation, sequence,
        region_bytes, region_count, tail_region, tail_tid, reach_offset, step_bytes,
        layout_checksum, space_bytes, settled_tid, window_blocks);
    assert_eq!(PAGE.fields("## Header"), header);
    let descriptor = fields!(RawDescriptor: magic, tag_count, incarnation, tid, time_ns,
        revoke_count, payload_bytes, used_bytes, unpacked_bytes, check_count);
    assert_eq!(PAGE.fields("### Descriptor"), descriptor);
    let tag = fields!(RawTag: home, stored_bytes, form, reserved);
    assert_eq!(PAGE.fields("### Tag"), tag);
    let check = fields!(RawCheck: home, block_count, checksum);
    assert_eq!(PAGE.fields("### Check"), check);
    assert_eq!(PAGE.fields("### Commit record"), fields!(RawCommit: magic, checksum, tid));
}

#[test]
fn the_fields_fill_the_structs() {
    let tables = [
        ("## Label", size_of::<RawLabel>()),
        ("## Header", size_of::<RawHeader>()),
        ("### Descriptor", size_of::<RawDescriptor>()),
        ("### Tag", size_of::<RawTag>()),
        ("### Check", size_of::<RawCheck>()),
        ("### Commit record", size_of::<RawCommit>()),
    ];
    for (heading, size_bytes) in tables {
        let end = PAGE.fields(heading).iter().fold(0, |end, (offset, size, name)| {
            assert_eq!(*offset, end, "{heading} {name}");
            end + size
        });
        assert_eq!(end, size_bytes, "{heading}");
    }
}

#[test]
fn the_constants_are_those_of_the_page() {
    let magic = |heading| PAGE.table(heading)[0][3].trim_matches('`').as_bytes().to_vec();
    assert_eq!(magic("## Label"), LABEL_MAGIC.to_le_bytes());
    assert_eq!(magic("## Header"), HEADER_MAGIC.to_le_bytes());
    assert_eq!(magic("### Descriptor"), DESCRIPTOR_MAGIC.to_le_bytes());
    assert_eq!(magic("### Commit record"), COMMIT_MAGIC.to_le_bytes());
    assert_eq!(PAGE.table("## Header")[1][3], FORMAT_VERSION.to_string());
    assert!(PAGE.text().contains(&format!("format version {FORMAT_VERSION}.")));
    for form in FORM_BLOCK..=FORM_PATCH {
        let name = form_name(form).expect("it has a name");
        assert!(PAGE.text().contains(&format!("| {form} | {name} |")), "{name}");
    }
    assert_eq!(form_name(FORM_PATCH + 1), None);
    assert!(PAGE.table("## Header")[3][3].starts_with("bit 0: *clean*"));
    assert_eq!((HEADER_CLEAN, HEADER_SLOT_BYTES, LABEL_BYTES), (1, 4096, 4096));
}

#[test]
fn the_seed_is_the_checksum_of_uuid_and_incarnation() {
    let mut bytes = [7; 16].to_vec();
    bytes.extend(9u64.to_le_bytes());
    assert_eq!(record_seed(&[7; 16], 9), crc32c::crc32c(&bytes));
}
