//! Compares a page of `docs/format` with the code: the tables of the page with the fields of a
//! struct.

/// Offset and size in bytes, and name, of each field.
pub type Fields = Vec<(usize, usize, String)>;

/// A page of `docs/format`, in Markdown.
pub struct FormatPage(&'static str);

impl FormatPage {
    /// The page with this text: `FormatPage::new(include_str!(...))`.
    pub const fn new(text: &'static str) -> FormatPage {
        FormatPage(text)
    }

    /// The text of the page.
    pub fn text(&self) -> &'static str {
        self.0
    }

    /// The rows of the first table under the heading, as cells. Panics without such a heading.
    pub fn table(&self, heading: &str) -> Vec<Vec<String>> {
        self.table_from(heading, "|")
    }

    /// The rows of the first table under the heading whose first line starts with `start`.
    pub fn table_from(&self, heading: &str, start: &str) -> Vec<Vec<String>> {
        let section = self.0.split_once(&format!("\n{heading}\n"));
        let (_, section) = section.unwrap_or_else(|| panic!("the page has no heading {heading}"));
        let lines = section.lines().skip_while(|line| !line.starts_with(start));
        let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
        let cells = |row: &str| -> Vec<String> {
            row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        rows.map(cells).collect()
    }

    /// The fields in the first table under the heading: offset, size, name.
    pub fn fields(&self, heading: &str) -> Fields {
        let number = |cell: &str| cell.parse().expect("a number");
        let field = |row: &Vec<String>| {
            (number(&row[0]), number(&row[1]), row[2].trim_matches('`').to_owned())
        };
        self.table(heading).iter().map(field).collect()
    }

    /// Panics unless the page has these fields as rows of a table, with their offsets from `start`
    /// in hexadecimal.
    pub fn assert_rows_from(&self, start: usize, fields: &Fields) {
        for (offset, size, name) in fields {
            let row = format!("\n| 0x{:02X} | {size} | `{name}` |", start + offset);
            assert!(self.0.contains(&row), "no {row}");
        }
    }

    /// Panics unless the fields under the heading follow each other and fill `size_bytes`.
    pub fn assert_filled(&self, heading: &str, size_bytes: usize) {
        let end = self.fields(heading).iter().fold(0, |end, (offset, size, name)| {
            assert_eq!(*offset, end, "{heading} {name}");
            end + size
        });
        assert_eq!(end, size_bytes, "{heading}");
    }
}

/// The [`Fields`](crate::Fields) of a struct that implements `zerocopy::FromZeros`:
/// `fields!(RawTag: home, form)`. Does not compile unless all fields are named.
#[macro_export]
macro_rules! fields {
    ($struct:path: $($field:ident),* $(,)?) => {{
        fn sizes(value: $struct) -> Vec<usize> {
            let $struct { $($field),* } = value;
            vec![$(size_of_val(&$field)),*]
        }
        let sizes = sizes(<$struct as ::zerocopy::FromZeros>::new_zeroed());
        let offsets = [$(std::mem::offset_of!($struct, $field)),*];
        let names = [$(stringify!($field)),*];
        let fields = offsets.into_iter().zip(sizes).zip(names);
        fields
            .map(|((offset, size), name)| (offset, size, name.to_owned()))
            .collect::<$crate::Fields>()
    }};
}

#[cfg(test)]
mod tests {
    use zerocopy::little_endian::{U16, U32};

    use super::*;

    const PAGE: FormatPage = FormatPage::new(
        "# Page\n\n## Tag\n\n| offset | size | field |\n|---|---|---|\n| 0 | 4 | `home` |\n\
         | 4 | 2 | `form` |\n\n\
         | form | name |\n|---|---|\n| 1 | block |\n\n## Empty\n",
    );

    #[derive(zerocopy::FromZeros)]
    #[repr(C)]
    struct RawTag {
        home: U32,
        form: U16,
    }

    #[test]
    fn a_table_is_held_against_a_struct() {
        assert_eq!(PAGE.fields("## Tag"), fields!(RawTag: home, form));
        PAGE.assert_filled("## Tag", size_of::<RawTag>());
        assert_eq!(PAGE.table_from("## Tag", "| form |"), [["1", "block"]]);
        assert!(PAGE.table("## Empty").is_empty());
    }

    #[test]
    #[should_panic(expected = "## Tag")]
    fn a_gap_is_found() {
        PAGE.assert_filled("## Tag", 8);
    }
}
