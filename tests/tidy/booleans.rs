//! Rule: a struct has at most three booleans.
//!
//! Four have sixteen values, and most of them mean nothing. An enum names the states that there
//! are. The options of a command (clap's `Args` and `Parser`) are what a user may combine.

use super::lexer::Rust;
use super::rule::{Finding, Rule};
use super::tree::{File, Tree};

pub const RULE: Rule = Rule {
    name: "booleans",
    says: "a struct has at most three fields of type `bool`: name its states in an enum",
    find,
};

const BOOLEANS_MAX: usize = 3;

fn find(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|file| !file.is_test()).flat_map(found_in).collect()
}

fn found_in(file: &File) -> Vec<Finding> {
    let rust = file.rust();
    let text = |index| rust.text(&file.text, index);
    let (mut found, mut is_options) = (Vec::new(), false);
    for index in 0..rust.code.len() {
        match text(index) {
            "derive" => {
                let derived = index..rust.closing(index + 1);
                is_options = derived.map(text).any(|name| ["Args", "Parser"].contains(&name));
            }
            "enum" | "fn" => is_options = false,
            "struct" if !std::mem::take(&mut is_options) => {
                let (name, token) = (text(index + 1), rust.code[index]);
                let count = booleans(file, rust, index);
                if count > BOOLEANS_MAX && !rust.is_test(token.start) {
                    let what = format!("`{name}` has {count} booleans");
                    found.push(Finding::new(&file.path, token.line, what));
                }
            }
            _ => {}
        }
    }
    found
}

/// Fields of type `bool` of the struct at `index`.
fn booleans(file: &File, rust: &Rust, index: usize) -> usize {
    let is_open = |at: &usize| [b'{', b'(', b';'].iter().any(|mark| rust.is_mark(*at, *mark));
    let Some(open) = (index..rust.code.len()).find(is_open) else { return 0 };
    let end = rust.closing(open);
    let (mut count, mut at) = (0, open + 1);
    while at < end {
        if [b'{', b'(', b'['].iter().any(|mark| rust.is_mark(at, *mark)) {
            at = rust.closing(at);
        }
        let is_whole = !rust.is_mark(at - 1, b'>') && (at + 1 == end || rust.is_mark(at + 1, b','));
        count += usize::from(is_whole && rust.text(&file.text, at) == "bool");
        at += 1;
    }
    count
}

#[test]
fn structs_of_many_booleans_are_found() {
    let fields = "pub a: bool,\nb: bool, c: bool, pub(crate) d: bool";
    let bad = format!("\nstruct A<T> {{ {fields} }}\nstruct B(bool, pub bool, bool, bool);");
    let found = super::rule::found(&RULE, &[("a.rs", &*bad)]);
    assert_eq!(found, ["a.rs:2: `A` has 4 booleans", "a.rs:4: `B` has 4 booleans"]);
}

#[test]
fn few_booleans_options_and_tests_are_not_found() {
    let (three, four) = ("a: bool, b: bool, c: bool", "a: bool, b: bool, c: bool, d: bool");
    let good = format!(
        "struct A {{ {three}, d: Option<bool>, e: fn(bool) -> bool, f: [bool; 9] }}\n\
         #[derive(Debug, Args)]\n#[command(a)]\npub struct B {{ {four} }}\n\
         struct C;\nfn f({four}) {{}}\nenum E {{ A {{ {four} }} }}\n\
         #[cfg(test)]\nmod tests {{ struct D {{ {four} }} }}"
    );
    assert_eq!(super::rule::found(&RULE, &[("a.rs", &*good)]), [""; 0]);
}
