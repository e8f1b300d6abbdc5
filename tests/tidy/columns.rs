//! Rule: a line of code, of a comment or of prose has at most 100 columns.
//!
//! Left out are lines that cannot be broken: rows of tables, one long word such as a link, blocks
//! of output on a page, and the inside of a raw string.

use super::language::Language;
use super::lexer::{Kind, Rust};
use super::rule::{Finding, Rule};
use super::tree::{File, Tree};

pub const RULE: Rule = Rule {
    name: "columns",
    says: "a line of code, of a comment or of prose has at most 100 columns",
    find,
};

const COLUMNS_MAX: usize = 100;

fn find(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().flat_map(long_lines).collect()
}

fn long_lines(file: &File) -> Vec<Finding> {
    let exempt = exemption(file);
    let long = |(index, line): (usize, &str)| {
        let count = if line.len() > COLUMNS_MAX { line.chars().count() } else { 0 };
        let is_long = count > COLUMNS_MAX && !is_one_word(line) && !exempt(index + 1, line);
        is_long.then(|| Finding::new(&file.path, index + 1, format!("{count} columns")))
    };
    file.text.lines().enumerate().filter_map(long).collect()
}

/// Says of a line and its number whether it may be long.
type Exemption<'f> = Box<dyn Fn(usize, &str) -> bool + 'f>;

fn exemption(file: &File) -> Exemption<'_> {
    match file.language {
        Language::Rust => {
            let raw = raw_lines(file.rust(), &file.text);
            Box::new(move |number, line| {
                let documentation = ["///", "//!"].map(|mark| line.trim_start().strip_prefix(mark));
                let text = documentation.into_iter().flatten().next().unwrap_or_default();
                text.trim_start().starts_with('|') || raw.contains(&number)
            })
        }
        Language::C | Language::Script => Box::new(|_, _| false),
        Language::Toml => Box::new(|_, line| !line.trim_start().starts_with('#')),
        Language::Markdown => {
            let output = output_lines(&file.text);
            Box::new(move |number, line| {
                line.trim_start().starts_with('|') || output.contains(&number)
            })
        }
        Language::OtherText | Language::Data => Box::new(|_, _| true),
    }
}

/// Whether the line is one word, after its indentation and the mark of a comment or list.
fn is_one_word(line: &str) -> bool {
    const MARKS: [&str; 7] = ["///", "//!", "//", "#", "*", "-", ">"];
    let line = line.trim();
    let text = MARKS.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line).trim_start();
    !text.contains(char::is_whitespace)
}

/// The lines after the first one of each raw string.
fn raw_lines(rust: &Rust, text: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    for token in rust.code.iter().filter(|token| token.kind == Kind::Text) {
        let string = &text[token.start..token.end];
        if string.trim_start_matches(['b', 'c']).starts_with('r') {
            lines.extend(token.line + 1..token.line + string.lines().count());
        }
    }
    lines
}

/// The lines of fenced blocks whose language is none, `text` or `console`.
fn output_lines(text: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut fence = None;
    for (index, line) in text.lines().enumerate() {
        let after = line.trim_start().strip_prefix("```");
        fence = match (after, fence) {
            (Some(language), None) => Some(["", "text", "console"].contains(&language.trim())),
            (Some(_), Some(_)) => None,
            (None, fence) => fence,
        };
        if fence == Some(true) {
            lines.push(index + 1);
        }
    }
    lines
}

#[cfg(test)]
fn lines_of(path: &str, text: &str) -> Vec<usize> {
    find(&Tree::of(&[(path, text)])).iter().map(|found| found.line).collect()
}

#[test]
fn long_lines_are_found() {
    let words = "word ".repeat(20) + "word";
    assert_eq!(lines_of("a.rs", &format!("// {words}\nlet a = \"{words}\";\n")), [1, 2]);
    assert_eq!(lines_of("a.cc", &format!("int a;\n/* {words} */\n")), [2]);
    assert_eq!(lines_of("scripts/a", &format!("#!/bin/sh\n: {words}\n")), [2]);
    assert_eq!(lines_of("a.toml", &format!("a = '{words}'\n# {words}\n")), [2]);
    assert_eq!(
        lines_of("a.md", &format!("{words}\n\n```sh\n: {words}\n```\n- {words}\n")),
        [1, 4, 6]
    );
}

#[test]
fn lines_that_cannot_be_broken_may_be_long() {
    let words = "word ".repeat(20) + "word";
    let link = "x".repeat(120);
    let rust = format!("//! | {words} |\n// {link}\nlet a = r\"\n{words}\n\";\n");
    assert!(lines_of("a.rs", &rust).is_empty());
    let page = format!("| {words} |\n- [{link}](b)\n```text\n{words}\n```\n```\n{words}\n```\n");
    assert!(lines_of("a.md", &page).is_empty());
    assert!(
        lines_of("a.rs", &format!("// {}\n", "é".repeat(40) + " " + &"é".repeat(56))).is_empty()
    );
    assert!(lines_of("docs/results/README.md", &words).is_empty());
}
