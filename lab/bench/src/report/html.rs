//! The page as HTML that needs no other file.

use super::document::{Block, Table};

const STYLE: &str = "
body { font: 16px/1.5 Helvetica, Arial, sans-serif; color: #222; max-width: 1000px; \
    margin: 2em auto; padding: 0 1em }
h1, h2, h3 { line-height: 1.25 } h2 { margin-top: 2.5em; border-bottom: 1px solid #ddd }
table { border-collapse: collapse; margin: 1em 0; font-size: 14px; display: block; \
    overflow-x: auto }
th, td { border-bottom: 1px solid #ddd; padding: .3em .7em; vertical-align: top } \
    th { text-align: left; background: #f5f5f5 }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
figure { margin: 1em 0 } figure svg { max-width: 100%; height: auto }
figcaption { font-size: 14px; color: #555 } code { background: #f3f3f3; padding: 0 .2em }
details { margin: .5em 0 } summary { cursor: pointer; color: #3b76af }
";

/// The whole page.
pub fn render(blocks: &[Block]) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>OneJournal: measurements</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         {}</body>\n</html>\n",
        all(blocks)
    )
}

fn all(blocks: &[Block]) -> String {
    blocks.iter().map(one).collect()
}

fn one(block: &Block) -> String {
    match block {
        Block::Heading { level, text, anchor } => {
            format!("<h{level} id=\"{anchor}\">{}</h{level}>\n", inline(text))
        }
        Block::Paragraph(text) => format!("<p>{}</p>\n", inline(text)),
        Block::Items(items) => {
            let items: String =
                items.iter().map(|item| format!("<li>{}</li>\n", inline(item))).collect();
            format!("<ul>\n{items}</ul>\n")
        }
        Block::Table(table) => of_table(table),
        Block::Figure { svg, title, .. } => {
            format!("<figure>{}<figcaption>{}</figcaption></figure>\n", svg.trim(), inline(title))
        }
        Block::Details { summary, blocks } => {
            format!("<details><summary>{}</summary>\n{}</details>\n", inline(summary), all(blocks))
        }
    }
}

fn of_table(table: &Table) -> String {
    let row = |cells: &[String], tag: &str| {
        let cell = |(index, text): (usize, &String)| {
            let class = if index < table.left_columns { "" } else { " class=\"number\"" };
            format!("<{tag}{class}>{}</{tag}>", inline(text))
        };
        let cells: String = cells.iter().enumerate().map(cell).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = table.rows.iter().map(|cells| row(cells, "td")).collect();
    format!("<table>\n{}{rows}</table>\n", row(&table.header, "th"))
}

/// Converts the Markdown that texts may contain.
fn inline(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let parts: Vec<&str> = text.split('`').collect();
    let part = |(index, part): (usize, &&str)| {
        if index % 2 == 1 { format!("<code>{part}</code>") } else { emphasis(&links(part)) }
    };
    parts.iter().enumerate().map(part).collect()
}

fn emphasis(text: &str) -> String {
    let strong = between(text, "**", "strong");
    between(&strong, "*", "em")
}

/// Makes elements of the text between two marks. An odd last mark stays as it is.
fn between(text: &str, mark: &str, tag: &str) -> String {
    let parts: Vec<&str> = text.split(mark).collect();
    let is_even = parts.len().is_multiple_of(2);
    let mut out = String::new();
    for (index, part) in parts.iter().enumerate() {
        let is_last = is_even && index == parts.len() - 1;
        match (index % 2 == 1, is_last) {
            (true, false) => out.push_str(&format!("<{tag}>{part}</{tag}>")),
            (true, true) => out.push_str(&format!("{mark}{part}")),
            _ => out.push_str(part),
        }
    }
    out
}

/// `[text](to)`. The page may be anywhere, so a link to another file becomes its text.
fn links(text: &str) -> String {
    let Some((before, rest)) = text.split_once('[') else { return text.to_owned() };
    let link = rest.split_once("](").and_then(|(shown, rest)| Some((shown, rest.split_once(')')?)));
    match link {
        Some((shown, (to, after))) if to.starts_with('#') || to.contains("://") => {
            format!("{before}<a href=\"{to}\">{shown}</a>{}", links(after))
        }
        Some((shown, (_, after))) => format!("{before}{shown}{}", links(after)),
        None => format!("{before}[{}", links(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::inline;

    #[test]
    fn texts_become_elements() {
        let text = "a `b*c` *d* **e** <f> [g](#h) 2 * 3";
        let html =
            "a <code>b*c</code> <em>d</em> <strong>e</strong> &lt;f&gt; <a href=\"#h\">g</a> 2 * 3";
        assert_eq!(inline(text), html);
    }

    #[test]
    fn links_lead_to_this_page_or_the_web() {
        let text = "[a](../b.md#c) [d](#e) [f](https://g)";
        let html = "a <a href=\"#e\">d</a> <a href=\"https://g\">f</a>";
        assert_eq!(inline(text), html);
    }
}
