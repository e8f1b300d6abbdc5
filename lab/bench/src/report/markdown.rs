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
        Block::Table(table) => compact(table),
        Block::Figure { name, title, .. } => format!("![{title}]({PLOTS}/{name})\n"),
        Block::Details { summary, blocks } => {
            format!("<details><summary>{summary}</summary>\n\n{}</details>\n", render(blocks))
        }
    }
}

/// A table as people write it, for a document that quotes one.
pub fn of_table(table: &Table) -> String {
    let row = |cells: &[String]| format!("| {} |\n", escaped(cells).join(" | "));
    of_rows(table, row, ["---|", "---:|"])
}

/// A table without blanks between its cells, and without the empty cells at the end of a row.
fn compact(table: &Table) -> String {
    let row = |cells: &[String]| {
        let count = cells.iter().rposition(|cell| !cell.is_empty()).map_or(1, |last| last + 1);
        format!("|{}|\n", escaped(&cells[..count]).join("|"))
    };
    of_rows(table, row, ["-|", "-:|"])
}

fn escaped(cells: &[String]) -> Vec<String> {
    cells.iter().map(|cell| cell.replace('|', "\\|")).collect()
}

/// `rules` are the marks below a column that is aligned to the left, and to the right.
fn of_rows(table: &Table, row: impl Fn(&[String]) -> String, [left, right]: [&str; 2]) -> String {
    let rule: String = (0..table.header.len())
        .map(|index| if index < table.left_columns { left } else { right })
        .collect();
    let rows: String = table.rows.iter().map(|cells| row(cells)).collect();
    format!("{}|{rule}\n{rows}", row(&table.header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_the_page_has_no_blanks_and_no_empty_cells_at_the_end() {
        let cells = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = vec![cells(["a|b", "", "1"]), cells(["**c**", "", ""]), cells(["", "", ""])];
        let table = Table { header: cells(["", "x", "y"]), rows, left_columns: 1 };
        assert_eq!(compact(&table), "||x|y|\n|-|-:|-:|\n|a\\|b||1|\n|**c**|\n||\n");
        let wide = "|  | x | y |\n|---|---:|---:|\n| a\\|b |  | 1 |\n| **c** |  |  |\n|  |  |  |\n";
        assert_eq!(of_table(&table), wide);
    }
}
