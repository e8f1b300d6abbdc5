//! Rules on single lines and on heads of files: blanks, tabs, words of unfinished work, a purpose
//! in the first line, and what `mod.rs` is for.

use super::language::Language;
use super::lexer::Kind;
use super::rule::{Finding, Rule};
use super::tree::{File, Tree};

pub const BLANKS: Rule = Rule {
    name: "blanks",
    says: "no line ends in blanks, no tab in Rust, and a file ends with one newline",
    find: find_blanks,
};

pub const UNFINISHED: Rule = Rule {
    name: "unfinished",
    says: "no `dbg!`, `todo!` or `unimplemented!`, and no comment that says FIXME, TODO or XXX",
    find: find_unfinished,
};

pub const HEADS: Rule = Rule {
    name: "heads",
    says: "a Rust file starts with its purpose: a comment `//!`",
    find: find_heads,
};

pub const EXPORTS: Rule = Rule {
    name: "exports",
    says: "`mod.rs` and `lib.rs` declare and export; functions and types are in files with a name",
    find: find_exports,
};

fn find_blanks(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|file| file.language != Language::Data).flat_map(blanks).collect()
}

fn blanks(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |line, what: &str| found.push(Finding::new(&file.path, line, what));
    for (index, line) in file.text.split('\n').enumerate() {
        let text = line.trim_end();
        // Two blanks are a line break on a page.
        let is_break = file.language == Language::Markdown && &line[text.len()..] == "  ";
        if text.len() < line.len() && !is_break {
            find(index + 1, "blanks at the end of the line");
        }
        if file.language == Language::Rust && line.contains('\t') {
            find(index + 1, "a tab");
        }
    }
    if !file.text.ends_with('\n') || file.text.ends_with("\n\n") {
        find(file.text.lines().count(), "the file does not end with one newline");
    }
    found
}

fn find_unfinished(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.files {
        let rust = file.rust();
        for (index, token) in rust.code.iter().enumerate().filter(|(_, one)| one.kind == Kind::Word)
        {
            let word = rust.text(&file.text, index);
            if ["dbg", "todo", "unimplemented"].contains(&word) && rust.is_mark(index + 1, b'!') {
                found.push(Finding::new(&file.path, token.line, format!("{word}!")));
            }
        }
        for token in &rust.comments {
            let comment = &file.text[token.start..token.end];
            let mut words = comment.split(|c: char| !c.is_alphanumeric());
            if let Some(word) = words.find(|word| ["FIXME", "TODO", "XXX"].contains(word)) {
                found.push(Finding::new(&file.path, token.line, word));
            }
        }
    }
    found
}

fn find_heads(tree: &Tree) -> Vec<Finding> {
    let headless = |file: &&File| {
        let rust = file.rust();
        let head = rust.comments.first().filter(|token| token.kind == Kind::Head);
        // An attribute of the whole file may stand before it.
        let is_first = |head: usize| {
            rust.code
                .first()
                .is_none_or(|code| head < code.start || file.text[code.start..].starts_with("#!"))
        };
        file.language == Language::Rust && !head.is_some_and(|head| is_first(head.start))
    };
    let files = tree.files.iter().filter(headless);
    files.map(|file| Finding::new(&file.path, 1, "the file does not start with `//!`")).collect()
}

fn find_exports(tree: &Tree) -> Vec<Finding> {
    let is_root = |file: &&File| {
        let is_named = file.path.ends_with("/mod.rs") || file.path.ends_with("/src/lib.rs");
        is_named && !file.is_test()
    };
    let first =
        |file: &File| defined(file).map(|(line, what)| Finding::new(&file.path, line, what));
    tree.files.iter().filter(is_root).filter_map(first).collect()
}

/// The first function, type or implementation of the file, outside of tests and macros.
fn defined(file: &File) -> Option<(usize, String)> {
    let rust = file.rust();
    let mut index = 0;
    while index < rust.code.len() {
        let token = rust.code[index];
        match rust.text(&file.text, index) {
            _ if rust.is_test(token.start) => {}
            word @ ("fn" | "struct" | "enum" | "union" | "trait" | "impl") => {
                return Some((token.line, format!("has its first `{word}`")));
            }
            "{" | "(" | "[" => index = rust.closing(index),
            _ => {}
        }
        index += 1;
    }
    None
}

#[cfg(test)]
fn found(rule: &Rule, path: &str, text: &str) -> Vec<usize> {
    (rule.find)(&Tree::of(&[(path, text)])).iter().map(|found| found.line).collect()
}

#[test]
fn blanks_at_the_end_of_lines_are_found() {
    assert_eq!(found(&BLANKS, "a.rs", "a \nb\n\tc\n"), [1, 3]);
    assert_eq!(found(&BLANKS, "a.md", "a \nb  \nc   \n"), [1, 3]);
    assert_eq!(found(&BLANKS, "a.sh", "a\n\n"), [2]);
    assert_eq!(found(&BLANKS, "a.sh", "a"), [1]);
    assert!(found(&BLANKS, "Makefile", "a:\n\tb\n").is_empty());
}

#[test]
fn unfinished_work_is_found() {
    assert_eq!(
        found(&UNFINISHED, "a.rs", "fn f() {\n    todo!()\n}\n// FIXME: g\ndbg!(1);\n"),
        [2, 5, 4]
    );
    assert!(found(&UNFINISHED, "a.rs", "let todo = \"FIXME\"; // a to-do list\n").is_empty());
}

#[test]
fn files_without_a_head_are_found() {
    assert_eq!(found(&HEADS, "a.rs", "// No head.\nfn f() {}\n"), [1]);
    assert_eq!(found(&HEADS, "a.rs", "use b;\n//! Late.\n"), [1]);
    assert!(found(&HEADS, "a.rs", "//! A head.\nuse b;\n").is_empty());
    assert!(found(&HEADS, "a.rs", "#![no_main]\n//! A head.\nuse b;\n").is_empty());
}

#[test]
fn definitions_in_mod_rs_are_found() {
    assert_eq!(
        found(&EXPORTS, "crates/a/src/b/mod.rs", "mod c;\nuse c::{D};\nfn f() {}\nfn g() {}\n"),
        [3]
    );
    let exports = "mod c;\npub use c::{D, E};\npub const F: u8 = 0;\n#[cfg(test)]\nfn f() {}\n";
    assert!(found(&EXPORTS, "crates/a/src/lib.rs", exports).is_empty());
    assert!(found(&EXPORTS, "crates/a/src/b.rs", "fn f() {}\n").is_empty());
}
