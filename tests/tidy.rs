//! The style of the repository, as rules that are held by a test, in the manner of TigerBeetle's
//! `tidy.zig`.
//!
//! Each rule is a file of `tests/tidy`, with an example that it must find and one that it must not.
//! What the tree breaks today is counted in `tests/tidy.counts`, by rule and folder. A count may
//! only fall:
//!
//! - More places than recorded: the test fails, and names the new ones.
//! - Fewer: the test fails, too. With `ONEJOURNAL_WRITE_COUNTS=1` it records the lower count. It
//!   never raises one, unless there is no file: after files moved between folders, remove it and
//!   write it again.
//!
//! The rules read the files that git knows, as they are in the working tree. The test needs the
//! standard library only: `rustc --test --edition 2024 tests/tidy.rs` makes it in two seconds, and
//! it runs anywhere below the root of the repository.

#[path = "tidy/booleans.rs"]
mod booleans;
#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/columns.rs"]
mod columns;
#[path = "tidy/counts.rs"]
mod counts;
#[path = "tidy/functions.rs"]
mod functions;
#[path = "tidy/language.rs"]
mod language;
#[path = "tidy/lexer.rs"]
mod lexer;
#[path = "tidy/marks.rs"]
mod marks;
#[path = "tidy/members.rs"]
mod members;
#[path = "tidy/messages.rs"]
mod messages;
#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/report.rs"]
mod report;
#[path = "tidy/root_imports.rs"]
mod root_imports;
#[path = "tidy/rule.rs"]
mod rule;
#[path = "tidy/sizes.rs"]
mod sizes;
#[path = "tidy/storeys.rs"]
mod storeys;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

use std::fs;

use report::{Findings, report};
use rule::Rule;
use tree::Tree;

static RULES: [Rule; 14] = [
    storeys::RULE,
    circles::RULE,
    root_imports::RULE,
    columns::RULE,
    sizes::RULE,
    names::RULE,
    messages::RULE,
    functions::RULE,
    booleans::RULE,
    words::RULE,
    marks::BLANKS,
    marks::UNFINISHED,
    marks::HEADS,
    marks::EXPORTS,
];

#[test]
fn the_tree_breaks_no_more_rules_than_are_recorded() {
    let root = tree::root();
    let path = root.join("tests/tidy.counts");
    let tree = Tree::read(&root);
    let now = Findings::new(&tree, &RULES);
    let found = now.counts();
    let must_write = std::env::var_os("ONEJOURNAL_WRITE_COUNTS").is_some();
    let mut allowed = match fs::read_to_string(&path) {
        Ok(text) => counts::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display())),
        Err(_) if must_write => found.clone(),
        Err(why) => panic!("{}: {why}; ONEJOURNAL_WRITE_COUNTS=1 writes it", path.display()),
    };
    if must_write {
        allowed = counts::lowered(&found, &allowed);
        fs::write(&path, counts::write(&allowed)).expect("the file of counts can be written");
    }
    let differences = counts::compare(&found, &allowed);
    if !differences.is_empty() {
        let is_rise = |one: &counts::Difference| one.found > one.allowed;
        let before = differences.iter().any(is_rise).then(|| tree.before(&root)).flatten();
        let before = before.as_ref().map(|tree| Findings::new(tree, &RULES));
        panic!("{}", report(&differences, &now, before.as_ref()));
    }
}
