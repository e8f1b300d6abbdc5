//! Rule: a module imports from the module that defines a name, and not from what `lib.rs` exports.

use super::modules::crates;
use super::rule::{Finding, Rule};
use super::tree::Tree;

pub const RULE: Rule = Rule {
    name: "root-imports",
    says: "a name is imported from its module: `use crate::types::Tid`, not `use crate::Tid`",
    find,
};

fn find(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for one in crates(tree) {
        for edge in one.uses.iter().filter(|edge| edge.is_through_root) {
            let file = &one.modules[edge.from].file.path;
            let home = &one.modules[edge.to].file.path;
            let what = format!("{} is defined in {home}", edge.path.join("::"));
            found.push(Finding::new(file, edge.line, what));
        }
    }
    found
}

#[test]
fn imports_through_the_root_are_found() {
    let tree = Tree::of(&[
        ("crates/a/src/lib.rs", "mod b;\nmod c;\npub use b::{B, C};\npub const D: u8 = 0;"),
        ("crates/a/src/b.rs", "pub struct B;\npub struct C;\npub struct E;"),
        (
            "crates/a/src/c.rs",
            "use crate::B;\nuse crate::b::E;\nuse crate::D;\nfn f(_: super::C) {}",
        ),
    ]);
    let found = find(&tree);
    let lines: Vec<_> = found.iter().map(|found| (found.line, &*found.what)).collect();
    let home = "is defined in crates/a/src/b.rs";
    assert_eq!(lines, [(1, &*format!("crate::B {home}")), (4, &*format!("super::C {home}"))]);
}
