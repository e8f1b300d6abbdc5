//! Rule: a function has at most 70 lines.

use super::rule::{Finding, Rule};
use super::tree::Tree;

pub const RULE: Rule = Rule {
    name: "functions",
    says: "a function has at most 70 lines, from `fn` to its closing brace, also in tests",
    find,
};

const LINES_MAX: usize = 70;

fn find(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.files {
        for function in file.rust().functions.iter().filter(|one| one.line_count > LINES_MAX) {
            let what = format!("`{}` has {} lines", function.name, function.line_count);
            found.push(Finding::new(&file.path, function.line, what));
        }
    }
    found
}

#[test]
fn long_functions_are_found() {
    let function = |line_count: usize| {
        format!("\n#[test]\nfn f() {{\n{}}}\n", "    g();\n".repeat(line_count - 2))
    };
    let found = |text: &str| super::rule::found(&RULE, &[("a.rs", text)]);
    assert_eq!(found(&function(71)), ["a.rs:3: `f` has 71 lines"]);
    assert_eq!(found(&function(70)), [""; 0]);
    assert_eq!(found(&format!("//! ```\n//! fn f() {{}}\n{}", "//! text\n".repeat(99))), [""; 0]);
}
