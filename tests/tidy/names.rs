//! Rule: a name in backticks, in a comment of Rust, exists.
//!
//! A name is a path of a file of the repository, or an identifier that is no plain word: it has an
//! underscore or capitals, or is a path with `::`. It exists if the code has it as a word, in any
//! language, or in a string.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::language::Language;
use super::lexer::Kind;
use super::members::Members;
use super::rule::{Finding, Rule};
use super::tree::{File, Tree};

pub const RULE: Rule = Rule {
    name: "names",
    says: "a name in backticks in a comment is one of the code, or of a file",
    find,
};

/// Names that only other projects define.
const FOREIGN: [(&str, &[&str]); 5] = [
    ("the kernel", &["task_work", "dev_t", "st_blocks", "auto_da_alloc"]),
    (
        "ext4's features, and fields and structs of its format that have another name here",
        &[
            "gdt_csum",
            "sparse_super",
            "orphan_present",
            "bg_block_bitmap_csum",
            "bg_inode_bitmap_csum",
            "ext4_dir_entry_2",
            "ext4_dir_entry_tail",
            "dx_root_info",
            "dx_countlimit",
            "dx_entry",
            "dx_tail",
            "ext4_xattr_header",
            "ext4_xattr_entry",
        ],
    ),
    (
        "SQLite",
        &[
            "mxFrame",
            "sqlite3_database_file_object",
            "sqlite3_filename_database",
            "sqlite3_compileoption_used",
        ],
    ),
    ("a feature of rusqlite", &["loadable_extension"]),
    ("liblzo2, etcd", &["lzo1x_1", "etcd_disk_wal_fsync_duration_seconds"]),
];

/// The files of this test.
const HERE: &str = "tests/tidy";

/// Where each word of the code is: indices of files.
struct Words<'t> {
    files: HashMap<&'t str, HashSet<usize>>,
    members: Members<'t>,
}

fn find(tree: &Tree) -> Vec<Finding> {
    let words = Words::new(tree);
    let paths: BTreeSet<&str> = tree.files.iter().map(|file| &*file.path).collect();
    let mut found = Vec::new();
    let mut unused: BTreeSet<&str> =
        FOREIGN.iter().flat_map(|(_, names)| *names).copied().collect();
    for file in tree.files.iter().filter(|file| file.language == Language::Rust) {
        for paragraph in file.paragraphs() {
            for (at, span) in spans(&paragraph.text) {
                if !exists(file.place(), span, &words, &paths) && !is_foreign(span, &mut unused) {
                    found.push(Finding::new(&file.path, paragraph.line(at), format!("`{span}`")));
                }
            }
        }
    }
    if let Some(here) = tree.files.iter().find(|file| file.path == format!("{HERE}/names.rs")) {
        let what = |name| format!("`{name}` need not be in FOREIGN");
        found.extend(unused.into_iter().map(|name| Finding::new(&here.path, 1, what(name))));
    }
    found
}

/// Whether the name is a foreign one, which then is needed.
fn is_foreign(name: &str, unused: &mut BTreeSet<&str>) -> bool {
    unused.remove(name);
    FOREIGN.iter().any(|(_, names)| names.contains(&name))
}

/// What is between backticks, and where.
fn spans(text: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    let mut spans = Vec::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            spans.push((at, part));
        }
        at += part.len() + 1;
    }
    spans
}

fn is_word_letter(letter: char) -> bool {
    letter == '_' || letter.is_ascii_alphanumeric()
}

/// Whether the text is a name that exists, or no name.
fn exists(place: &str, span: &str, words: &Words<'_>, paths: &BTreeSet<&str>) -> bool {
    let span = span.strip_suffix("()").unwrap_or(span);
    let is_path = span.chars().all(|c| is_word_letter(c) || "/.-".contains(c));
    if is_path && span.ends_with(".rs") {
        let end = format!("/{span}");
        return paths.iter().any(|path| *path == span || path.ends_with(&end));
    }
    let segments: Vec<&str> = span.split("::").collect();
    let is_name = |segment: &&str| {
        !segment.is_empty()
            && segment.chars().all(is_word_letter)
            && !segment.as_bytes()[0].is_ascii_digit()
    };
    if !segments.iter().all(is_name) {
        return true;
    }
    match *segments {
        [name] => !is_identifier(name) || words.files.contains_key(name),
        [.., name, member] => {
            let is_module = ["crate", "self", "super"].contains(&name);
            let is_known = is_module && words.files.contains_key(member);
            is_known
                || (words.are_together(name, member)
                    && !words.members.is_of_others_only(place, name, member))
        }
        [] => true,
    }
}

/// Whether the word has an underscore or a capital letter. Constants in capitals are often the
/// system's, and `fuse_` stands for all names that begin so.
fn is_identifier(name: &str) -> bool {
    let has_small = name.bytes().any(|byte| byte.is_ascii_lowercase());
    let has_capital = name.bytes().any(|byte| byte.is_ascii_uppercase());
    let is_part = name.starts_with('_') || name.ends_with('_');
    has_small && !is_part && (name.contains('_') || has_capital)
}

impl<'t> Words<'t> {
    fn new(tree: &'t Tree) -> Words<'t> {
        let mut words = Words { files: HashMap::new(), members: Members::new(tree) };
        for (index, file) in tree.files.iter().enumerate() {
            words.add(index, &file.path);
            match file.language {
                Language::Rust => words.add_code(index, file),
                Language::Markdown | Language::Data => {}
                Language::C | Language::Script | Language::Toml | Language::OtherText => {
                    words.add(index, &file.text);
                }
            }
        }
        words
    }

    fn add_code(&mut self, index: usize, file: &'t File) {
        for token in &file.rust().code {
            // The strings here are lists and examples of names.
            let is_name = token.kind == Kind::Text && !file.path.starts_with(HERE);
            if token.kind == Kind::Word || is_name {
                self.add(index, &file.text[token.start..token.end]);
            }
        }
    }

    fn add(&mut self, index: usize, text: &'t str) {
        for word in text.split(|c| !is_word_letter(c)).filter(|word| !word.is_empty()) {
            self.files.entry(word).or_default().insert(index);
        }
    }

    /// Whether some file has both words, in its code or as names of itself and its folder.
    fn are_together(&self, one: &str, other: &str) -> bool {
        match (self.files.get(one), self.files.get(other)) {
            (Some(one), Some(other)) => !one.is_disjoint(other),
            _ => false,
        }
    }
}

#[cfg(test)]
fn found(comment: &str) -> Vec<String> {
    let code = r#"pub struct Wide { part_count: u8 }
impl Wide { fn cut(&self) {} }
struct Narrow;
impl Narrow { fn bend() { g("some_text") } }
"#;
    let files = [
        ("crates/a/src/lib.rs", &*format!("//! Head.\n{code}// {comment}\n")),
        ("crates/a/src/folder/inner.rs", "//! Head.\npub const LARGE: u8 = 0;\n"),
        ("plugins/a.h", "int c_name(void); // SOME\n"),
    ];
    let found = super::rule::found(&RULE, &files);
    found.into_iter().map(|line| line.replace("crates/a/src/lib.rs:", "")).collect()
}

#[test]
fn names_that_are_gone_are_found() {
    assert_eq!(found("See `old_name`."), ["6: `old_name`"]);
    assert_eq!(found("See\n// `OldName`, and `old_name()`."), ["7: `OldName`", "7: `old_name()`"]);
    assert_eq!(found("`folder/gone.rs`"), ["6: `folder/gone.rs`"]);
    assert_eq!(found("`gone.rs`"), ["6: `gone.rs`"]);
    assert_eq!(found("`inner::SMALL`"), ["6: `inner::SMALL`"]);
    assert_eq!(found("[`Wide::bend`]"), ["6: `Wide::bend`"]);
    assert_eq!(found("`crate::old_name`"), ["6: `crate::old_name`"]);
}

#[test]
fn names_that_exist_are_not_found() {
    let names = [
        "part_count",
        "Wide::cut",
        "Wide::part_count",
        "Wide",
        "some_text",
        "c_name()",
        "folder/inner.rs",
        "inner.rs",
        "inner::LARGE",
        "crate::folder::inner",
        "folder::inner",
    ];
    for name in names {
        assert_eq!(found(&format!("`{name}`")), [""; 0]);
    }
    for other in ["word", "two_words or more", "O_DIRECT", "fuse_", "Vec<OldName>", "gdt_csum"] {
        assert_eq!(found(&format!("`{other}`")), [""; 0]);
    }
}
