//! The page as Markdown.

use super::document::{Block, PLOTS, Table};

/// The whole page.
pub fn render(blocks: &[Block]) -> String {
    let mut page = String::new();
    for block in blocks {
        page.push_str(&one(block));
        page.push('\n');
    }
    page
}

fn one(block: &Block) -> String {
    match block {
        Block::Heading { level, text, anchor } => {
            let marks = "#".repeat(usize::from(*level));
            format!("<a id=\"{anchor}\"></a>\n\n{marks} {text}\n")
        }
        Block::Paragraph(text) => format!("{text}\n"),
        Block::Items(items) => items.iter().map(|item| format!("- {item}\n")).collect(),
        Block::Table(table) => of_table(table),
        Block::Figure { name, title, .. } => format!("![{title}]({PLOTS}/{name})\n"),
        Block::Details { summary, blocks } => {
            format!("<details><summary>{summary}</summary>\n\n{}</details>\n", render(blocks))
        }
    }
}

/// A table.
pub fn of_table(table: &Table) -> String {
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = (0..table.header.len())
        .map(|index| if index < table.left_columns { "---|" } else { "---:|" })
        .collect::<String>();
    let rows: String = table.rows.iter().map(|cells| row(cells)).collect();
    format!("{}|{rule}\n{rows}", row(&table.header))
}
