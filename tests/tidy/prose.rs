//! What people read: paragraphs of comments, of pages and of messages.

use super::language::Language;
use super::lexer::{Kind, Rust, Token};

/// A paragraph, a row of a table, or a message, on one line.
#[derive(Debug)]
pub struct Paragraph {
    pub text: String,
    /// Where in `text` each line of the file begins, and its number.
    lines: Vec<(usize, usize)>,
}

impl Paragraph {
    /// The line of the file with the byte `at` of the text.
    pub fn line(&self, at: usize) -> usize {
        self.lines.iter().rev().find(|(start, _)| *start <= at).map_or(1, |(_, line)| *line)
    }
}

/// The comments of a file, or the prose of a page. Fenced blocks are left out.
pub fn paragraphs(language: Language, rust: &Rust, text: &str) -> Vec<Paragraph> {
    match language {
        Language::Rust => gather(comment_lines(rust, text)),
        // C has the same comments as Rust.
        Language::C => gather(comment_lines(&Rust::new(text), text)),
        Language::Markdown => gather(numbered(text).collect()),
        Language::Script | Language::Toml => {
            let comment = |(number, line): (usize, &'_ str)| {
                (number, line.trim_start().strip_prefix('#').unwrap_or_default().to_owned())
            };
            gather(numbered(text).map(|(number, line)| comment((number, &line))).collect())
        }
        Language::OtherText | Language::Data => Vec::new(),
    }
}

/// The strings of a Rust file that are more than one word, without those of its tests.
pub fn messages(rust: &Rust, text: &str) -> Vec<Paragraph> {
    let texts = rust.code.iter().filter(|token| token.kind == Kind::Text);
    let outside = texts.filter(|token| !rust.is_test(token.start));
    let message = |token: &Token| {
        let lines = text[token.start..token.end].trim_matches('"').lines().enumerate();
        let lines = lines.map(|(index, line)| {
            (token.line + index, line.trim_end_matches('\\').trim_start().to_owned())
        });
        joined(lines.collect())
    };
    outside.map(message).filter(|message| message.text.trim().contains(' ')).collect()
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, String)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned()))
}

/// The lines of all comments without their marks. An empty line is between two comments of which
/// one does not continue the other.
fn comment_lines(rust: &Rust, text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut last_kind = None;
    for token in &rust.comments {
        let follows = lines.last().is_some_and(|(number, _)| number + 1 == token.line);
        if !follows || last_kind != Some(token.kind) {
            lines.push((token.line, String::new()));
        }
        last_kind = Some(token.kind);
        for (index, line) in text[token.start..token.end].lines().enumerate() {
            let marks: &[char] = if index == 0 { &['/', '!', '*'] } else { &['*', ' '] };
            let line = line.trim_start().trim_start_matches(marks);
            lines.push((token.line + index, line.trim_end_matches("*/").to_owned()));
        }
    }
    lines
}

/// Lines as paragraphs: a blank line, an item of a list, a heading or a row of a table begins
/// another one.
fn gather(lines: Vec<(usize, String)>) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut current = Vec::new();
    let mut is_fenced = false;
    for (number, line) in lines {
        let text = line.trim();
        let is_fence = text.starts_with("```");
        let is_row = text.starts_with('|') || text.starts_with('#');
        if is_fence || is_row || text.is_empty() || is_item(text) {
            paragraphs.push(joined(std::mem::take(&mut current)));
        }
        is_fenced ^= is_fence;
        if is_row && !is_fenced {
            paragraphs.push(joined(vec![(number, text.to_owned())]));
        } else if !is_fence && !is_fenced && !text.is_empty() {
            current.push((number, text.to_owned()));
        }
    }
    paragraphs.push(joined(current));
    paragraphs.retain(|paragraph| !paragraph.text.is_empty());
    paragraphs
}

fn is_item(text: &str) -> bool {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.starts_with("- ")
        || text.starts_with("* ")
        || (number.len() < text.len() && number.starts_with(". "))
}

fn joined(parts: Vec<(usize, String)>) -> Paragraph {
    let (mut text, mut lines) = (String::new(), Vec::new());
    for (number, part) in parts {
        if !text.is_empty() && !text.ends_with(' ') {
            text.push(' ');
        }
        lines.push((text.len(), number));
        text.push_str(&part);
    }
    Paragraph { text, lines }
}

#[cfg(test)]
fn texts(path: &str, text: &str) -> Vec<(usize, String)> {
    let language = super::language::language(path, text);
    let rust = Rust::new(if language == Language::Rust { text } else { "" });
    let all = paragraphs(language, &rust, text).into_iter().chain(messages(&rust, text));
    all.map(|one| (one.line(one.text.len()), one.text)).collect()
}

#[test]
fn paragraphs_of_comments_are_put_together() {
    let rust = r#"//! Head
//! goes on.
//!
//! - item
//! ```text
//! block
//! ```
/// Doc.
fn f() {} // One.
// Two.
let a = ("word", "two \
    words");
"#;
    let expected =
        [(2, "Head goes on."), (4, "- item"), (8, "Doc."), (10, "One. Two."), (12, "two words")];
    assert_eq!(texts("a.rs", rust), expected.map(|(line, text)| (line, text.to_owned())));
}

#[test]
fn pages_and_scripts_have_paragraphs() {
    let page = "# Title\nOne\ntwo.\n\n```sh\nls\n```\n| a | b |\n| c | d |\n1. item\n";
    let found: Vec<String> = texts("a.md", page).into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["# Title", "One two.", "| a | b |", "| c | d |", "1. item"]);
    let found: Vec<String> = texts("a.py", "# One\n# two.\nls()\n# Three.\n")
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(found, ["One two.", "Three."]);
    let found: Vec<String> =
        texts("a.h", "/* One\n * two. */\nint a;\n").into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["One two."]);
}
