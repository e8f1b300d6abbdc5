//! The content of the report, before it becomes Markdown or HTML. Texts are Markdown, but only with
//! `code`, *emphasis*, **strong** and `[links](to)`.

/// The folder of the figures.
pub const PLOTS: &str = "plots";

/// A piece of the page.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Level 1 to 4; the anchor is its place in the page.
    Heading {
        level: u8,
        text: String,
        anchor: String,
    },
    Paragraph(String),
    Items(Vec<String>),
    Table(Table),
    /// `name` is the file in `plots/`.
    Figure {
        name: String,
        svg: String,
        title: String,
    },
    /// Folded until the reader opens it.
    Details {
        summary: String,
        blocks: Vec<Block>,
    },
}

/// Cells of text; all columns but the first `left_columns` are aligned to the right.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub left_columns: usize,
}

impl Block {
    /// A heading.
    pub fn heading(level: u8, text: &str, anchor: &str) -> Block {
        Block::Heading { level, text: text.to_owned(), anchor: anchor.to_owned() }
    }
}
