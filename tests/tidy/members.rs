//! The types of the workspace and their members, as far as the code says them.

use std::collections::{HashMap, HashSet};

use super::lexer::Kind;
use super::tree::{File, Tree};

/// Fields, variants, methods and constants of each type.
pub struct Members<'t> {
    of: HashMap<&'t str, HashSet<&'t str>>,
    /// Types that are defined here, with their crates, and not those of other crates that have an
    /// `impl` here.
    defined: HashSet<(&'t str, &'t str)>,
    /// What types get from traits, whose default methods no `impl` names.
    of_traits: HashSet<&'t str>,
    all: HashSet<&'t str>,
}

impl<'t> Members<'t> {
    pub fn new(tree: &'t Tree) -> Members<'t> {
        let (of, defined) = (HashMap::new(), HashSet::new());
        let mut members = Members { of, defined, of_traits: HashSet::new(), all: HashSet::new() };
        for file in &tree.files {
            for index in 0..file.rust().code.len() {
                members.add(file, index);
            }
        }
        members
    }

    /// Whether `member` is one of other types, and certainly none of the type `name` of the crate
    /// `place`.
    pub fn is_of_others_only(&self, place: &str, name: &str, member: &str) -> bool {
        let has = self.of.get(name).is_some_and(|members| members.contains(member));
        let is_elsewhere = self.all.contains(member) && !self.of_traits.contains(member);
        self.defined.contains(&(place, name)) && !has && is_elsewhere
    }

    /// Takes the definition or implementation that begins at `index`, if one does.
    fn add(&mut self, file: &'t File, index: usize) {
        let rust = file.rust();
        let text = |index| rust.text(&file.text, index);
        let keyword = text(index);
        let is_definition = ["struct", "enum", "union", "trait"].contains(&keyword);
        if !is_definition && (keyword != "impl" || !begins_item(file, index)) {
            return;
        }
        let is_open = |at: &usize| rust.is_mark(*at, b'{') || rust.is_mark(*at, b';');
        let Some(open) = (index..rust.code.len()).find(is_open) else { return };
        let found = if is_definition && keyword != "trait" {
            words_inside(file, open)
        } else {
            items_inside(file, open)
        };
        self.all.extend(&found);
        if keyword == "trait" {
            self.of_traits.extend(&found);
        }
        let names = if is_definition { index + 1..index + 2 } else { index + 1..open };
        for name in names.filter(|at| rust.code[*at].kind == Kind::Word).map(text) {
            self.of.entry(name).or_default().extend(&found);
            if is_definition {
                self.defined.insert((file.place(), name));
            }
        }
    }
}

/// Whether the `impl` at `index` is no type (`-> impl Iterator`).
fn begins_item(file: &File, index: usize) -> bool {
    let rust = file.rust();
    let before = index.checked_sub(1).map(|before| rust.text(&file.text, before));
    before.is_none_or(|before| ["}", "]", ";", "{", "unsafe"].contains(&before))
}

/// The words between braces that are in no further brackets: fields or variants, and types of
/// fields.
fn words_inside(file: &File, open: usize) -> Vec<&str> {
    let rust = file.rust();
    let mut words = Vec::new();
    let end = rust.closing(open);
    let mut index = open + 1;
    while index < end {
        match rust.code[index].kind {
            Kind::Mark(b'{' | b'(' | b'[') => index = rust.closing(index),
            Kind::Word => words.push(rust.text(&file.text, index)),
            _ => {}
        }
        index += 1;
    }
    words
}

/// The functions, constants and types that are defined between braces.
fn items_inside(file: &File, open: usize) -> Vec<&str> {
    let words = words_inside(file, open);
    let is_item = |pair: &&[&str]| ["fn", "const", "type"].contains(&pair[0]);
    words.windows(2).filter(is_item).map(|pair| pair[1]).collect()
}

#[test]
fn members_of_types_are_known() {
    let text = r"
struct A { b: u8, c: C }
enum C { D, E(u8) }
impl A { fn f(&self) { g() } const H: u8 = 0; }
trait T { fn t() {} }
fn i() -> impl T {}
impl C { fn j() {} }
";
    let tree = Tree::of(&[("crates/a/src/lib.rs", text)]);
    let members = Members::new(&tree);
    let is_of_others_only = |name, member| members.is_of_others_only("crates/a", name, member);
    for (name, member) in [("A", "b"), ("A", "f"), ("A", "H"), ("C", "D"), ("C", "E"), ("A", "t")] {
        assert!(!is_of_others_only(name, member), "{name}::{member}");
    }
    for (name, member) in [("A", "j"), ("A", "D"), ("C", "f")] {
        assert!(is_of_others_only(name, member), "{name}::{member}");
    }
    assert!(!is_of_others_only("A", "clone"), "a method of another crate");
    assert!(!is_of_others_only("Vec", "j"), "a type of another crate");
    assert!(!members.is_of_others_only("crates/b", "A", "j"), "a type of the same name");
}
