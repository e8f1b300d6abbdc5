//! Rule: no circle of files within a crate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::modules::{Crate, crates};
use super::rule::{Finding, Rule};
use super::tree::Tree;

pub const RULE: Rule = Rule {
    name: "circles",
    says: "no file uses another one that uses it, directly or through others",
    find,
};

/// The files that each file uses.
type Graph<'t> = BTreeMap<&'t str, BTreeSet<&'t str>>;

fn find(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for one in crates(tree) {
        let graph = graph(&one);
        for file in graph.keys() {
            if let Some(circle) = circle(&graph, file) {
                let short = |path: &str| {
                    path.rsplit_once("/src/").map_or(path, |(_, name)| name).to_owned()
                };
                let names: Vec<_> = circle.into_iter().map(short).collect();
                found.push(Finding::new(
                    file,
                    1,
                    format!("a circle of files: {}", names.join(" -> ")),
                ));
            }
        }
    }
    found
}

fn graph<'t>(one: &Crate<'t>) -> Graph<'t> {
    let mut graph = Graph::new();
    let path = |module: usize| &*one.modules[module].file.path;
    for edge in one.uses.iter().filter(|edge| path(edge.from) != path(edge.to)) {
        graph.entry(path(edge.from)).or_default().insert(path(edge.to));
    }
    graph
}

/// A shortest way from the file back to itself.
fn circle<'t>(graph: &Graph<'t>, file: &'t str) -> Option<Vec<&'t str>> {
    let mut came_from: BTreeMap<&str, &'t str> = BTreeMap::new();
    let mut queue = VecDeque::from([file]);
    while let Some(at) = queue.pop_front() {
        for next in graph.get(at).into_iter().flatten() {
            if !came_from.contains_key(next) {
                came_from.insert(next, at);
                queue.push_back(next);
            }
        }
    }
    let mut way = vec![file, *came_from.get(file)?];
    while way.last() != Some(&file) {
        way.push(came_from[way.last()?]);
    }
    way.reverse();
    Some(way)
}

#[test]
fn circles_of_files_are_found() {
    let bad = Tree::of(&[
        ("crates/a/src/lib.rs", "mod b;\nmod c;\nmod d;\npub use d::D;"),
        ("crates/a/src/b.rs", "use crate::c::C;\npub struct B;"),
        ("crates/a/src/c.rs", "use super::D;\npub struct C;"),
        ("crates/a/src/d.rs", "pub struct D;\nfn f() { crate::b::B; }"),
    ]);
    let found = find(&bad);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[0].what, "a circle of files: b.rs -> c.rs -> d.rs -> b.rs");
}

#[test]
fn exports_and_tests_make_no_circle() {
    let good = Tree::of(&[
        ("crates/a/src/lib.rs", "mod b;\npub use b::{B, C};"),
        (
            "crates/a/src/b/mod.rs",
            "mod c;\nmod d;\npub use c::C;\npub use d::B;\npub const E: u8 = 0;",
        ),
        ("crates/a/src/b/c.rs", "pub struct C;\nuse super::E;"),
        ("crates/a/src/b/d.rs", "use super::C;\npub struct B;\nmod tests;"),
        ("crates/a/src/b/d/tests.rs", "use super::super::super::B;"),
    ]);
    assert!(find(&good).is_empty());
}
