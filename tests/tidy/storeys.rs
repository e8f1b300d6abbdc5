//! Rule: a module uses modules on its own storey and below it. The head of `lib.rs` states the
//! storeys.
//!
//! The head of a crate's root file has a heading `# Storeys`, and after it a block of `text`, from
//! the top down. Each line is a storey: names of modules, separated by one space, and then an
//! explanation after two spaces. A line that is further in continues the explanation. A folder's
//! name may end with `/`. Each module of the root is on one storey.
//!
//! ```text
//!   names/ attr/  operations on names and attributes
//!   file/         the content of files:
//!                 read, write
//! ```
//!
//! `docs/developers/architecture.md` may show the same block, below "The storeys of `CRATE`".

use std::collections::BTreeMap;

use super::lexer::Kind;
use super::modules::{Crate, crates};
use super::rule::{Finding, Rule};
use super::tree::{File, Tree};

pub const RULE: Rule = Rule {
    name: "storeys",
    says: "the head of lib.rs states the storeys, and a module uses its own and lower ones",
    find,
};

const ARCHITECTURE: &str = "docs/developers/architecture.md";

fn find(tree: &Tree) -> Vec<Finding> {
    let architecture = tree.files.iter().find(|file| file.path == ARCHITECTURE);
    let mut found = Vec::new();
    for one in crates(tree) {
        let head = head(one.modules[0].file);
        let block = block(&head, "# Storeys");
        if let Some(page) = architecture {
            found.extend(other_picture(&one, page, &block));
        }
        let stated = stated(&block);
        found.extend(unstated(&one, &stated));
        found.extend(climbs(&one, &stated));
    }
    found
}

/// The documentation of the file, line by line.
fn head(file: &File) -> Vec<&str> {
    let heads = file.rust().comments.iter().filter(|token| token.kind == Kind::Head);
    let lines = heads.map(|token| &file.text[token.start..token.end]);
    lines.map(|line| line.trim_start_matches("//!").trim_end()).collect()
}

/// The lines of the first fenced block after the line that begins with `heading`.
fn block<'t>(lines: &[&'t str], heading: &str) -> Vec<&'t str> {
    let after = lines.iter().skip_while(|line| line.trim_start() != heading).skip(1);
    let section = after.take_while(|line| !line.trim_start().starts_with('#'));
    let block = section.skip_while(|line| !line.trim_start().starts_with("```text")).skip(1);
    let block: Vec<&str> =
        block.take_while(|line| !line.trim_start().starts_with("```")).copied().collect();
    let depth = |line: &&&str| line.len() - line.trim_start().len();
    let margin = block.iter().filter(|line| !line.is_empty()).map(|line| depth(&line)).min();
    block.into_iter().map(|line| line.get(margin.unwrap_or(0)..).unwrap_or("")).collect()
}

/// The modules of each line, and the number of the line.
fn stated<'t>(block: &[&'t str]) -> Vec<(&'t str, usize)> {
    let storeys = block.iter().enumerate().filter(|(_, line)| !line.starts_with(' '));
    let names = |(storey, line): (usize, &&'t str)| {
        let names = line.split("  ").next().unwrap_or_default().split(' ');
        names.map(|name| (name.trim_end_matches('/'), storey)).collect::<Vec<_>>()
    };
    storeys.flat_map(names).filter(|(name, _)| !name.is_empty()).collect()
}

/// Modules that are not on one storey, and names that are no module.
fn unstated(one: &Crate<'_>, stated: &[(&str, usize)]) -> Vec<Finding> {
    let path = &one.modules[0].file.path;
    let mut found = Vec::new();
    for module in one.tops() {
        let count = stated.iter().filter(|(name, _)| *name == module).count();
        if count != 1 {
            found.push(Finding::new(
                path,
                1,
                format!("`{module}` stands on {count} storeys, not on one"),
            ));
        }
    }
    for (name, _) in stated {
        if !one.tops().any(|module| module == *name) {
            found.push(Finding::new(
                path,
                1,
                format!("`{name}` stands on a storey, and is no module"),
            ));
        }
    }
    found
}

/// Uses of a higher storey.
fn climbs(one: &Crate<'_>, stated: &[(&str, usize)]) -> Vec<Finding> {
    let storeys: BTreeMap<&str, usize> = stated.iter().copied().collect();
    let mut found = BTreeMap::new();
    for edge in &one.uses {
        let Some(from) = one.top(edge.from) else { continue };
        let file = &one.modules[edge.from].file.path;
        let what = match one.top(edge.to) {
            None => format!("`{from}` uses what the crate's root defines"),
            Some(to) if storeys.get(to) < storeys.get(from) => {
                format!("`{from}` uses `{to}`, which is above it")
            }
            Some(_) => continue,
        };
        found.entry((file, what)).or_insert(edge.line);
    }
    found.into_iter().map(|((file, what), line)| Finding::new(file, line, what)).collect()
}

/// Whether the page shows other storeys than the crate's head.
fn other_picture(one: &Crate<'_>, page: &File, block: &[&str]) -> Option<Finding> {
    let name = one.place.rsplit('/').next().unwrap_or(one.place);
    let heading = format!("## The storeys of `{name}`");
    let lines: Vec<&str> = page.text.lines().collect();
    let line = lines.iter().position(|line| *line == heading)? + 1;
    let differs = self::block(&lines, &heading) != block;
    differs.then(|| {
        let what = format!("the block differs from the one in {}", one.modules[0].file.path);
        Finding::new(&page.path, line, what)
    })
}

#[cfg(test)]
const LIB: &str = r"//! A crate.
//!
//! # Storeys
//!
//! ```text
//!   top/ side  both
//!              of them
//!   low
//! ```

mod low;
mod side;
mod top;
#[cfg(test)]
mod bench;
";

#[cfg(test)]
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let found = find(&Tree::of(files));
    found.iter().map(|found| format!("{}:{}: {}", found.path, found.line, found.what)).collect()
}

#[test]
fn uses_of_a_higher_storey_are_found() {
    let files = [
        ("crates/a/src/lib.rs", LIB),
        (
            "crates/a/src/low.rs",
            "use crate::top::Top;\npub struct Low;\n#[cfg(test)]\nuse crate::side;",
        ),
        ("crates/a/src/side.rs", "pub fn f(_: crate::low::Low) {}"),
        ("crates/a/src/top/mod.rs", "mod inner;\npub use inner::Top;"),
        ("crates/a/src/top/inner.rs", "use crate::side;\npub struct Top;"),
        ("crates/a/src/bench.rs", "use crate::top;"),
    ];
    assert_eq!(found(&files), ["crates/a/src/low.rs:1: `low` uses `top`, which is above it"]);
}

#[test]
fn modules_without_a_storey_are_found() {
    let lib = format!("{LIB}mod new;\n").replace("mod low;\n", "");
    let found = found(&[
        ("crates/a/src/lib.rs", &*lib),
        ("crates/a/src/new.rs", ""),
        ("crates/a/src/side.rs", ""),
        ("crates/a/src/top/mod.rs", ""),
    ]);
    let new = "crates/a/src/lib.rs:1: `new` stands on 0 storeys, not on one";
    assert_eq!(found, [new, "crates/a/src/lib.rs:1: `low` stands on a storey, and is no module"]);
}

#[test]
fn another_picture_on_the_page_is_found() {
    let page = |block: &str| format!("# Page\n\n## The storeys of `a`\n\n```text\n{block}\n```\n");
    let good = page("top/ side  both\n           of them\nlow");
    let found = |page: &str| {
        let modules = ["low", "side", "top"].map(|name| format!("crates/a/src/{name}.rs"));
        let mut files = vec![("crates/a/src/lib.rs", LIB), (ARCHITECTURE, page)];
        files.extend(modules.iter().map(|path| (&**path, "")));
        self::found(&files)
    };
    assert_eq!(found(&good), [""; 0]);
    let what = "the block differs from the one in crates/a/src/lib.rs";
    assert_eq!(found(&page("low\ntop side")), [format!("{ARCHITECTURE}:3: {what}")]);
}
