//! How many places may break a rule: `tests/tidy.counts`. A count may only fall.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The rule's name and the folder, and how many places there break the rule.
pub type Counts = BTreeMap<(String, String), usize>;

const HEAD: &str = "\
# How many places of a folder break a rule of tests/tidy.rs. A count may only fall, and a folder
# without a line has none. After a count fell, ONEJOURNAL_WRITE_COUNTS=1 writes this file again.
";

/// Reads the file; a line that is no count is an error.
pub fn parse(text: &str) -> Result<Counts, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| parse_line(line).ok_or_else(|| format!("not RULE FOLDER COUNT: {line}")))
        .collect()
}

fn parse_line(line: &str) -> Option<((String, String), usize)> {
    let mut words = line.split_whitespace();
    let (rule, place, count) = (words.next()?, words.next()?, words.next()?);
    let is_whole = words.next().is_none();
    is_whole.then_some(((rule.to_owned(), place.to_owned()), count.parse().ok()?))
}

/// The file's text.
pub fn write(counts: &Counts) -> String {
    let mut text = HEAD.to_owned();
    for ((rule, place), count) in counts.iter().filter(|(_, count)| **count > 0) {
        let _ = writeln!(text, "{rule:<12} {place:<16} {count:>5}");
    }
    text
}

/// What is found and what is allowed, where they differ.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    pub rule: String,
    pub place: String,
    pub found: usize,
    pub allowed: usize,
}

/// All differences, in the order of rule and folder.
pub fn compare(found: &Counts, allowed: &Counts) -> Vec<Difference> {
    let mut keys: Vec<_> = found.keys().chain(allowed.keys()).collect();
    keys.sort();
    keys.dedup();
    let difference = |key: &(String, String)| {
        let count = |counts: &Counts| counts.get(key).copied().unwrap_or(0);
        let (rule, place) = key.clone();
        Difference { rule, place, found: count(found), allowed: count(allowed) }
    };
    keys.into_iter().map(difference).filter(|one| one.found != one.allowed).collect()
}

/// What may be written: the lower one of each two counts.
pub fn lowered(found: &Counts, allowed: &Counts) -> Counts {
    let lower = |(key, count): (&(String, String), &usize)| {
        (key.clone(), (*count).min(found.get(key).copied().unwrap_or(0)))
    };
    allowed.iter().map(lower).collect()
}

#[cfg(test)]
fn counts(of: &[(&str, &str, usize)]) -> Counts {
    of.iter().map(|(rule, place, count)| ((rule.to_string(), place.to_string()), *count)).collect()
}

#[test]
fn counts_are_read_as_they_were_written() {
    let some = counts(&[("columns", "crates/a", 3), ("words", "docs", 12345)]);
    assert_eq!(parse(&write(&some)), Ok(some));
    assert!(parse("columns crates/a").is_err());
    assert!(parse("columns crates/a three").is_err());
    assert!(parse("columns crates/a 3 4").is_err());
}

#[test]
fn rise_and_fall_are_both_differences() {
    let allowed = counts(&[("a", "x", 2), ("a", "y", 2), ("b", "x", 1)]);
    let found = counts(&[("a", "x", 3), ("a", "y", 2), ("c", "x", 1)]);
    let difference = |rule: &str, found, allowed| Difference {
        rule: rule.to_owned(),
        place: "x".to_owned(),
        found,
        allowed,
    };
    let expected = [difference("a", 3, 2), difference("b", 0, 1), difference("c", 1, 0)];
    assert_eq!(compare(&found, &allowed), expected);
}

#[test]
fn no_count_is_raised_when_they_are_written() {
    let allowed = counts(&[("a", "x", 2), ("a", "y", 2), ("b", "x", 1)]);
    let found = counts(&[("a", "x", 3), ("a", "y", 1), ("c", "x", 1)]);
    let expected = counts(&[("a", "x", 2), ("a", "y", 1), ("b", "x", 0)]);
    assert_eq!(lowered(&found, &allowed), expected);
}
