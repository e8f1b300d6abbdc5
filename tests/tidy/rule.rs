//! A rule of the repository, and a place that breaks it.

use super::tree::Tree;

/// A rule. `find` gives every place that breaks it.
pub struct Rule {
    /// Its name in `tests/tidy.counts`.
    pub name: &'static str,
    /// What holds, in one sentence.
    pub says: &'static str,
    pub find: fn(&Tree) -> Vec<Finding>,
}

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub what: String,
}

impl Finding {
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

/// What `rule` finds in files with these paths and texts, as `path:line: what`, for canaries.
#[cfg(test)]
pub fn found(rule: &Rule, files: &[(&str, &str)]) -> Vec<String> {
    let found = (rule.find)(&Tree::of(files));
    found.iter().map(|found| format!("{}:{}: {}", found.path, found.line, found.what)).collect()
}
