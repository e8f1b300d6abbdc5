//! What the test says when a count is not the recorded one.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::counts::{Counts, Difference};
use super::rule::{Finding, Rule};
use super::tree::{File, Tree};

/// What all rules find in a tree.
pub struct Findings<'t> {
    tree: &'t Tree,
    of: Vec<(&'static Rule, Vec<Finding>)>,
}

impl<'t> Findings<'t> {
    pub fn new(tree: &'t Tree, rules: &'static [Rule]) -> Findings<'t> {
        Findings { tree, of: rules.iter().map(|rule| (rule, (rule.find)(tree))).collect() }
    }

    /// How many there are, by rule and folder.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for (rule, found) in &self.of {
            for finding in found {
                let key = (rule.name.to_owned(), self.place(finding).to_owned());
                *counts.entry(key).or_default() += 1;
            }
        }
        counts
    }

    fn file(&self, path: &str) -> Option<&'t File> {
        let index = self.tree.files.binary_search_by(|file| (*file.path).cmp(path)).ok()?;
        self.tree.files.get(index)
    }

    fn text(&self, path: &str) -> Option<&'t str> {
        self.file(path).map(|file| &*file.text)
    }

    fn place(&self, finding: &Finding) -> &'t str {
        self.file(&finding.path).map_or("root", File::place)
    }

    fn at(&self, rule: &str, place: &str) -> Vec<&Finding> {
        let of_rule = self.of.iter().filter(|(one, _)| one.name == rule);
        of_rule.flat_map(|(_, found)| found).filter(|one| self.place(one) == place).collect()
    }
}

/// All differences in words. `before` is what there was before the changes under way, as far as
/// that is known: what is new since then comes first.
pub fn report(
    differences: &[Difference],
    now: &Findings<'_>,
    before: Option<&Findings<'_>>,
) -> String {
    let mut text = "the tree differs from tests/tidy.counts.\n".to_owned();
    for (rule, _) in &now.of {
        let of_rule = || differences.iter().filter(|one| one.rule == rule.name);
        if of_rule().any(|one| one.found > one.allowed) {
            let _ = writeln!(text, "\n{}: {}.", rule.name, rule.says);
        }
        for rise in of_rule().filter(|one| one.found > one.allowed) {
            describe_rise(&mut text, rise, now, before);
        }
    }
    let falls: Vec<_> = differences.iter().filter(|one| one.found < one.allowed).collect();
    if !falls.is_empty() {
        text += "\nThese counts fell. Run this test with ONEJOURNAL_WRITE_COUNTS=1, and commit \
                 tests/tidy.counts:\n";
    }
    for Difference { rule, place, found, allowed } in falls {
        let _ = writeln!(text, "  {rule} {place}: {found} found, {allowed} recorded");
    }
    text
}

fn describe_rise(
    text: &mut String,
    rise: &Difference,
    now: &Findings<'_>,
    before: Option<&Findings<'_>>,
) {
    const PLACE_COUNT_MAX: usize = 20;
    let Difference { rule, place, found, allowed } = rise;
    let all = now.at(rule, place);
    let new = before.map(|before| without(&all, &before.at(rule, place))).unwrap_or_default();
    let (which, mut shown) = if new.is_empty() { ("All of them", all) } else { ("New ones", new) };
    // A finding in another file often has its cause in a changed one.
    let is_changed = |path: &str| before.is_some_and(|before| before.text(path) != now.text(path));
    shown.sort_by_key(|finding| !is_changed(&finding.path));
    let _ = writeln!(text, "  {place}: {found} found, {allowed} allowed. {which}:");
    for finding in shown.iter().take(PLACE_COUNT_MAX) {
        let _ = writeln!(text, "    {}:{}: {}", finding.path, finding.line, finding.what);
    }
    if shown.len() > PLACE_COUNT_MAX {
        let _ = writeln!(text, "    and {} more", shown.len() - PLACE_COUNT_MAX);
    }
}

/// The findings that were not there before. Lines move, so they are compared by file and text.
fn without<'f>(all: &[&'f Finding], before: &[&Finding]) -> Vec<&'f Finding> {
    let mut old: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for finding in before {
        *old.entry((&finding.path, &finding.what)).or_default() += 1;
    }
    let is_new = |finding: &&&'f Finding| match old.get_mut(&(&*finding.path, &*finding.what)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    all.iter().filter(is_new).copied().collect()
}

#[cfg(test)]
static LETTERS: [Rule; 1] = [Rule {
    name: "letters",
    says: "no line has an x",
    find: |tree| {
        let mut found = Vec::new();
        for file in &tree.files {
            let lines = file.text.lines().enumerate().filter(|(_, line)| line.contains('x'));
            found.extend(lines.map(|(index, line)| Finding::new(&file.path, index + 1, line)));
        }
        found
    },
}];

#[cfg(test)]
fn difference(found: usize, allowed: usize) -> Difference {
    Difference { rule: "letters".to_owned(), place: "docs".to_owned(), found, allowed }
}

#[test]
fn a_rise_names_the_new_places() {
    let old = Tree::of(&[("docs/a.md", "x1\ny\nx2\n")]);
    let new = Tree::of(&[("docs/a.md", "x2\nx3\nx1\n"), ("docs/b.md", "x1\n")]);
    let (old, new) = (Findings::new(&old, &LETTERS), Findings::new(&new, &LETTERS));
    let text = report(&[difference(4, 2)], &new, Some(&old));
    assert!(text.contains("letters: no line has an x."), "{text}");
    assert!(text.contains("docs: 4 found, 2 allowed. New ones:\n    docs/a.md:2: x3\n"), "{text}");
    assert!(text.contains("    docs/b.md:1: x1\n"), "{text}");
    assert!(!text.contains(": x2") && !text.contains("WRITE_COUNTS"), "{text}");
    let text = report(&[difference(4, 2)], &new, None);
    assert!(text.contains("All of them:\n    docs/a.md:1: x2\n"), "{text}");
}

#[test]
fn changed_files_come_first() {
    let old = Tree::of(&[("docs/a.md", ""), ("docs/b.md", "y")]);
    let new = Tree::of(&[("docs/a.md", ""), ("docs/b.md", "x")]);
    let rule: &'static Rule = &LETTERS[0];
    let both = ["docs/a.md", "docs/b.md"].map(|path| Finding::new(path, 1, "x"));
    let now = Findings { tree: &new, of: vec![(rule, both.to_vec())] };
    let text = report(&[difference(2, 0)], &now, Some(&Findings::new(&old, &LETTERS)));
    assert!(text.contains("New ones:\n    docs/b.md:1: x\n    docs/a.md:1: x\n"), "{text}");
}

#[test]
fn a_fall_says_how_to_record_it() {
    let tree = Tree::of(&[("docs/a.md", "x1\n")]);
    let text = report(&[difference(1, 2)], &Findings::new(&tree, &LETTERS), None);
    assert!(text.contains("ONEJOURNAL_WRITE_COUNTS=1"), "{text}");
    assert!(text.contains("letters docs: 1 found, 2 recorded"), "{text}");
    assert!(!text.contains("a.md"), "{text}");
}
