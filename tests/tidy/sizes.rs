//! Rule: no large file is committed, and none that a program makes from others.

use super::rule::{Finding, Rule};
use super::tree::Tree;

pub const RULE: Rule = Rule {
    name: "sizes",
    says: "a committed file has at most 256 KiB (raw results, report: 400 KiB) and is not made",
    find,
};

const KIB: u64 = 1 << 10;
const REPORT: &str = "docs/results/README.md";

fn find(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.files {
        let is_result = file.path.starts_with("docs/results/");
        let may_be_larger = is_result && is_compressed(&file.path) || file.path == REPORT;
        let max = if may_be_larger { 400 * KIB } else { 256 * KIB };
        if file.byte_count > max {
            found.push(Finding::new(
                &file.path,
                1,
                format!("{} KiB", file.byte_count.div_ceil(KIB)),
            ));
        }
        let is_page = is_result && file.path.ends_with(".html");
        if is_page
            || file.path.starts_with("dist/man/")
            || file.path.starts_with("dist/completions/")
        {
            found.push(Finding::new(&file.path, 1, "generated: build it instead"));
        }
    }
    found
}

fn is_compressed(path: &str) -> bool {
    [".gz", ".xz", ".zst", ".lz4"].iter().any(|end| path.ends_with(end))
}

#[test]
fn large_and_generated_files_are_found() {
    let large = "x".repeat(256 * 1024 + 1);
    let largest = "x".repeat(400 * 1024 + 1);
    let found = super::rule::found(
        &RULE,
        &[
            ("docs/a.md", &*large),
            ("docs/results/raw.tar.xz", &*largest),
            ("docs/results/report.html", ""),
            ("dist/man/onejournal.8", ""),
        ],
    );
    let generated = "1: generated: build it instead";
    assert_eq!(
        found,
        [
            "docs/a.md:1: 257 KiB".to_owned(),
            "docs/results/raw.tar.xz:1: 401 KiB".to_owned(),
            format!("docs/results/report.html:{generated}"),
            format!("dist/man/onejournal.8:{generated}"),
        ]
    );
}

#[test]
fn small_files_and_compressed_results_are_allowed() {
    let large = "x".repeat(300 * 1024);
    let files =
        [("docs/a.md", "text"), ("docs/results/raw.tar.xz", &*large), ("dist/a.service", "")];
    assert_eq!(super::rule::found(&RULE, &files), [""; 0]);
}
