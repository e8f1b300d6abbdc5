//! Rule: below `cli` no text names a command of the program. Errors carry facts, and `cli` knows
//! the commands: another program that uses a library has none of them.
//!
//! The log and its SQLite extension speak to people without `cli`, in programs of others. Each of
//! them has one file with the sentences for that. Bytes (`b"..."`) are for a disk, not for people.

use super::lexer::Kind;
use super::rule::{Finding, Rule};
use super::tree::{File, Tree};

pub const RULE: Rule = Rule {
    name: "messages",
    says: "below `cli` no message names a command, such as \"onejournal umount\"",
    find,
};

const BELOW: [&str; 11] = [
    "crates/host",
    "crates/device",
    "crates/volume-client",
    "crates/probe",
    "crates/journal",
    "crates/ext4",
    "crates/fuse",
    "crates/mount",
    "crates/log",
    "crates/sqlite",
    "crates/capi",
];
const DOORS: [&str; 2] = ["crates/log/src/error.rs", "crates/sqlite/src/messages.rs"];
const COMMANDS: &str = "crates/cli/src/lib.rs";

fn find(tree: &Tree) -> Vec<Finding> {
    let main = tree.files.iter().find(|file| file.path == COMMANDS);
    let commands = main.map(commands).unwrap_or_default();
    // Without them the rule would find nothing.
    assert!(!commands.is_empty(), "no commands are found in {COMMANDS}");
    let is_below = |file: &&File| BELOW.contains(&file.place()) && !file.is_test();
    let below = tree.files.iter().filter(is_below);
    let below = below.filter(|file| !DOORS.contains(&&*file.path));
    below.flat_map(|file| messages(file, &commands)).collect()
}

/// The names of the program's commands: the variants of `Command`, as clap writes them.
fn commands(main: &File) -> Vec<String> {
    let rust = main.rust();
    let text = |index| rust.text(&main.text, index);
    let is_enum = |index: &usize| text(*index) == "enum" && text(*index + 1) == "Command";
    let Some(at) = (0..rust.code.len()).find(is_enum) else { return Vec::new() };
    let mut commands = Vec::new();
    let mut index = at + 3;
    let end = rust.closing(at + 2);
    while index < end {
        match rust.code[index].kind {
            Kind::Word => commands.push(kebab(text(index))),
            Kind::Mark(b'(' | b'[' | b'{') => index = rust.closing(index),
            _ => {}
        }
        index += 1;
    }
    commands
}

/// `SetMode` as `set-mode`.
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    kebab
}

fn messages(file: &File, commands: &[String]) -> Vec<Finding> {
    let rust = file.rust();
    let texts =
        rust.code.iter().filter(|token| token.kind == Kind::Text && !rust.is_test(token.start));
    let mut found = Vec::new();
    for token in texts {
        let text = continued(&file.text[token.start..token.end]);
        if text.starts_with('b') {
            continue;
        }
        for (at, program) in text.match_indices("onejournal ") {
            let word =
                text[at + program.len()..].split(|c: char| c != '-' && !c.is_alphanumeric()).next();
            let command = commands.iter().find(|command| Some(command.as_str()) == word);
            found.extend(command.map(|command| {
                Finding::new(
                    &file.path,
                    token.line,
                    format!("names the command \"onejournal {command}\""),
                )
            }));
        }
    }
    found
}

/// The string with its continued lines put together.
fn continued(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

#[cfg(test)]
const MAIN: &str = r"
enum Command {
    /// Makes one
    Mkfs(MkfsArgs),
    #[command(hide = true)]
    SetMode { a: u8 },
}
";

#[test]
fn messages_that_name_commands_are_found() {
    let bad = "fn f() { g(\"run: onejournal \\\n     set-mode, please\") }";
    let found = super::rule::found(&RULE, &[(COMMANDS, MAIN), ("crates/log/src/a.rs", bad)]);
    assert_eq!(found, ["crates/log/src/a.rs:1: names the command \"onejournal set-mode\""]);
}

#[test]
fn comments_tests_bytes_doors_and_other_crates_may_name_commands() {
    let text = "\"onejournal mkfs\"";
    let good = format!(
        "// {text}\nlet a = (\"onejournal is here\", b{text});\n#[test]\nfn f() {{ {text} }}\n"
    );
    let files = [
        (COMMANDS, &*format!("{MAIN}{text}")),
        ("crates/log/src/a.rs", &*good),
        ("crates/log/tests/a.rs", text),
        ("crates/log/src/error.rs", text),
        ("crates/judge/src/a.rs", text),
    ];
    assert_eq!(super::rule::found(&RULE, &files), [""; 0]);
}
