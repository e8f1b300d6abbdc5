//! A test of `docs/format/sqlite.md`: its tables give the offset, size and value of every field
//! that the encoders write.

use onejournal_testing::FormatPage;

use crate::format::base::{Base, Kind, Stale, Witness, encode_base};
use crate::format::frames::{FramesHead, FramesWriter};
use crate::format::home;
use crate::format::page::Form;
use crate::format::pages;
use crate::format::wal::FrameHeader;

const PAGE: FormatPage = FormatPage::new(include_str!("../../../../docs/format/sqlite.md"));

/// Asserts that the fields of the table are in `bytes` with these values, without gaps, to the end.
fn assert_fields(heading: &str, bytes: &[u8], values: &[(&str, u64)]) {
    let rows = PAGE.table_from(heading, "| offset |");
    assert_eq!(rows.len(), values.len(), "{heading}");
    let mut end = 0;
    for (row, (name, value)) in rows.iter().zip(values) {
        let [offset, size] = [0, 1].map(|cell: usize| row[cell].parse::<usize>().expect("number"));
        assert_eq!(row[2].trim_matches('`'), *name, "{heading}");
        assert_eq!(offset, end, "{heading} {name}");
        end = offset + size;
        assert_eq!(bytes[offset..end], value.to_le_bytes()[..size], "{heading} {name}");
    }
    assert_eq!(end, bytes.len(), "{heading}");
}

const SALTS: u64 = 0x1122_3344_5566_7788;
const CHECKSUM: [u32; 2] = [0xa1a2_a3a4, 0xb1b2_b3b4];
const CHECKSUM_BYTES: u64 = 0xb1b2_b3b4_a1a2_a3a4;

fn header(kind: u64, bytes: &[u8]) {
    let body = bytes.len() as u64 - 8;
    let fields =
        [("kind", kind), ("version", 1), ("packed", 0), ("reserved", 0), ("body_bytes", body)];
    assert_fields("## Header", &bytes[..8], &fields);
}

#[test]
fn a_base_is_that_of_the_page() {
    for (number, kind, name) in
        [(1, Kind::Begin, "begin"), (2, Kind::Durable, "durable"), (3, Kind::Closed, "closed")]
    {
        let stale = vec![Stale { salts: [7; 8], frames: 9 }];
        let base = Base {
            kind,
            salts: SALTS.to_le_bytes(),
            page_bytes: 4096,
            change_counter: 77,
            frames: 88,
            checksum: CHECKSUM,
            stale,
            witnesses: vec![Witness { page: 55, crc: 66 }],
        };
        let bytes = encode_base(&base);
        header(number, &bytes);
        let fields = [
            ("salts", SALTS),
            ("page_bytes", 4096),
            ("change_counter", 77),
            ("frames", 88),
            ("checksum", CHECKSUM_BYTES),
            ("stale_count", 1),
        ];
        assert_fields("## Base", &bytes[8..40], &fields);
        let fields = [("salts", u64::from_le_bytes([7; 8])), ("frames", 9)];
        assert_fields("### Stale", &bytes[40..52], &fields);
        let fields = [("witness_count", 1), ("page", 55), ("crc", 66)];
        assert_fields("### Witness", &bytes[52..], &fields);
        let row = &PAGE.table_from("## Header", "| kind |")[number as usize - 1];
        assert_eq!(row[..3], [number.to_string(), format!("`{name}`"), "base".into()]);
    }
}

/// A page that does not pack, which differs from zeros everywhere.
fn noise() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..512).map(|_| random.u8(1..)).collect()
}

#[test]
fn frames_are_those_of_the_page() {
    let salts = SALTS.to_le_bytes();
    let head = FramesHead {
        salts,
        page_bytes: 512,
        change_counter: 77,
        first: 66,
        checksum: CHECKSUM,
        is_big_endian: true,
    };
    let mut writer = FramesWriter::new(&head, Vec::new());
    let checksum = [0xc1c2_c3c4, 0xd1d2_d3d4];
    writer.push(&FrameHeader { page: 55, commit_pages: 44, salts, checksum }, None, &noise());
    let bytes = writer.finish();
    header(6, &bytes);
    let fields = [
        ("salts", SALTS),
        ("page_bytes", 512),
        ("change_counter", 77),
        ("first", 66),
        ("checksum", CHECKSUM_BYTES),
        ("byte_order", 1),
        ("count", 1),
    ];
    assert_fields("## Frames", &bytes[8..41], &fields);
    let fields = [
        ("page", 55),
        ("commit_pages", 44),
        ("checksum", 0xd1d2_d3d4_c1c2_c3c4),
        ("base_crc", 0),
        ("form", Form::Whole as u64),
        ("bytes", 512),
    ];
    assert_fields("### Frame", &bytes[41..66], &fields);
    assert_eq!(bytes[66..], noise());
    assert_eq!(PAGE.table_from("## Header", "| kind |")[4][..3], ["6", "`frames`", "frames"]);
}

#[test]
fn pages_are_those_of_the_page() {
    let head = pages::Head {
        page_bytes: 512,
        counter_before: 77,
        counter_after: 78,
        pages_before: 55,
        pages_after: 56,
    };
    let mut writer = pages::Writer::new(&head);
    writer.push(56, None, &noise());
    let bytes = writer.finish();
    header(u64::from(pages::KIND), &bytes);
    let fields = [
        ("page_bytes", 512),
        ("counter_before", 77),
        ("counter_after", 78),
        ("pages_before", 55),
        ("pages_after", 56),
        ("count", 1),
    ];
    assert_fields("## Pages", &bytes[8..32], &fields);
    let fields = [
        ("number", 56),
        ("crc", u64::from(crc32c::crc32c(&noise()))),
        ("form", Form::Whole as u64),
        ("bytes", 512),
    ];
    assert_fields("### Page", &bytes[32..45], &fields);
    assert_eq!(PAGE.table_from("## Header", "| kind |")[3][..3], ["5", "`pages`", "pages"]);
}

#[test]
fn home_is_that_of_the_page() {
    let bytes = home::encode(SALTS);
    header(u64::from(home::KIND), &bytes);
    assert_fields("## Home", &bytes[8..], &[("upto", SALTS)]);
    assert_eq!(PAGE.table_from("## Header", "| kind |")[5][..3], ["7", "`home`", "home"]);
}

#[test]
fn the_forms_are_those_of_the_page() {
    let rows = PAGE.table_from("## Forms", "| form |");
    let known: Vec<Form> = (0..=u8::MAX).filter_map(Form::from_number).collect();
    assert_eq!(rows.len(), known.len());
    for (row, form) in rows.iter().zip(known) {
        assert_eq!(row[0], (form as u8).to_string());
        assert_eq!(row[1], format!("`{}`", format!("{form:?}").to_lowercase()));
    }
}
