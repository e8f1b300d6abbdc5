//! Makes a man page of section 5 from documents in Markdown.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::options::escape;

/// The longest text that is put into one line of roff.
const WIDTH: usize = 110;

pub fn page(name: &str, what: &str, documents: &[&str]) -> String {
    let head = format!(
        ".\\\" Made from docs/format by onejournal-pages.\n.TH {} 5 2026-11-22 OneJournal\n\
         .SH NAME\n{} \\- {}\n",
        name.to_uppercase(),
        escape(name),
        escape(what)
    );
    let mut roff = Roff { page: head, ..Roff::default() };
    for document in documents {
        for event in Parser::new_ext(document, Options::ENABLE_TABLES) {
            roff.take(event);
        }
    }
    roff.end_paragraph();
    roff.page.push_str(
        ".SH SEE ALSO\n.BR onejournal (8),\n.BR onejournal\\-logd (8),\n.BR onejournal\\-log (1)\n",
    );
    roff.page
}

/// A page that is being written.
#[derive(Default)]
struct Roff {
    page: String,
    /// The paragraph, heading, item or cell that is being read.
    text: String,
    is_code_block: bool,
    /// The number of an ordered list's next item.
    lists: Vec<Option<u64>>,
    /// Rows of the table that is being read.
    rows: Vec<Vec<String>>,
}

impl Roff {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => {
                self.end_paragraph();
                self.is_code_block = true;
            }
            Event::End(TagEnd::CodeBlock) => {
                self.begin();
                self.page.push_str(".RS 4\n.nf\n");
                let code = std::mem::take(&mut self.text);
                self.page.push_str(&escape(code.trim_end()));
                self.page.push_str("\n.fi\n.RE\n");
                self.is_code_block = false;
            }
            Event::Text(text) if self.is_code_block => self.text.push_str(&text),
            Event::Text(text) => self.text.push_str(&escape_within(&text)),
            Event::Code(text) => self.text.push_str(&format!("\\fB{}\\fR", escape_within(&text))),
            Event::SoftBreak | Event::HardBreak => self.text.push(' '),
            Event::Start(Tag::Emphasis | Tag::Strong) => self.text.push_str("\\fI"),
            Event::End(TagEnd::Emphasis | TagEnd::Strong) => self.text.push_str("\\fR"),
            Event::Start(Tag::Heading { .. } | Tag::Paragraph) => self.end_item_head(),
            Event::End(TagEnd::Heading(level)) => self.heading(level),
            Event::End(TagEnd::Paragraph) => self.end_paragraph(),
            Event::Start(Tag::List(first)) => {
                self.end_paragraph();
                self.lists.push(first);
            }
            Event::End(TagEnd::List(_)) => {
                self.lists.pop();
            }
            Event::Start(Tag::Item) => self.begin_item(),
            Event::End(TagEnd::Item) => self.end_paragraph(),
            event => self.take_table(event),
        }
    }

    fn take_table(&mut self, event: Event<'_>) {
        match event {
            Event::Start(Tag::Table(_)) => self.end_paragraph(),
            Event::Start(Tag::TableHead | Tag::TableRow) => self.rows.push(Vec::new()),
            Event::End(TagEnd::TableCell) => {
                let cell = std::mem::take(&mut self.text);
                self.rows.last_mut().expect("in a row").push(cell);
            }
            Event::End(TagEnd::Table) => self.table(),
            _ => {}
        }
    }

    /// In an item, the first paragraph continues after the item's mark.
    fn end_item_head(&mut self) {
        if !self.text.is_empty() {
            self.end_paragraph();
        }
    }

    fn begin_item(&mut self) {
        self.end_paragraph();
        let mark: CowStr<'_> = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}.", *number - 1).into()
            }
            _ => "\\(bu".into(),
        };
        self.page.push_str(&format!(".IP {mark} 4\n"));
    }

    fn heading(&mut self, level: HeadingLevel) {
        let text = std::mem::take(&mut self.text);
        let text = without_fonts(&text);
        match level {
            HeadingLevel::H1 => self.page.push_str(&format!(".SH \"{}\"\n", text.to_uppercase())),
            _ => self.page.push_str(&format!(".SS \"{text}\"\n")),
        }
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if self.lists.is_empty() {
            self.begin();
        } else if !self.page.trim_end().ends_with(" 4") {
            self.page.push_str(".IP\n");
        }
        self.page.push_str(&wrapped(text));
    }

    /// Begins a paragraph. The first paragraph after a heading needs no request.
    fn begin(&mut self) {
        let last = self.page.lines().last().unwrap_or_default();
        if !last.starts_with(".S") {
            self.page.push_str(".PP\n");
        }
    }

    /// Writes each row as an item, with its last cell below the others. (tbl breaks long cells
    /// badly on narrow terminals.)
    fn table(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        for (index, row) in rows.iter().enumerate() {
            let Some((last, others)) = row.split_last() else { continue };
            let font = if index == 0 { 'I' } else { 'B' };
            let plain: Vec<String> = others.iter().map(|cell| without_fonts(cell)).collect();
            let mark = wrapped(&plain.join(", ")).replace('\n', " ");
            let mark = if mark.trim().is_empty() { "\\(em".into() } else { mark };
            self.page.push_str(&format!(".TP\n\\f{font}{}\\fR\n", mark.trim()));
            let body = if last.is_empty() { "\\&\n".into() } else { wrapped(last) };
            self.page.push_str(&body);
        }
    }
}

fn without_fonts(text: &str) -> String {
    ["\\fB", "\\fI", "\\fR"].iter().fold(text.to_owned(), |text, font| text.replace(font, ""))
}

fn escape_within(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Lines of moderate length. No line is taken for a roff request.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            let guard = if word.starts_with(['.', '\'']) { "\\&" } else { "" };
            *line = format!("{guard}{word}");
        } else if line.len() + word.len() < WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            let guard = if word.starts_with(['.', '\'']) { "\\&" } else { "" };
            lines.push(format!("{guard}{word}"));
        }
    }
    lines.join("\n") + "\n"
}
