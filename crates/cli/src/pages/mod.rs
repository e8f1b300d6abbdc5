//! Checks that the man pages in `dist/man` and the completions in `dist/completions` agree with the
//! commands.
//!
//! A page of section 1 or 8 is a text in `crates/cli/man` into which the lists of options are
//! inserted. A page of section 5 is made from documents in `docs/format`. This command makes all of
//! them again:
//!
//! ```text
//! ONEJOURNAL_WRITE_PAGES=1 cargo test -p onejournal-cli --bin onejournal pages
//! ```

mod format;
mod options;

use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::helpers::{FsckHelper, MountHelper};

/// Pages with options: name and section.
const COMMAND_PAGES: [&str; 5] = [
    "onejournal.8",
    "mount.onejournal.8",
    "fsck.onejournal.8",
    "onejournal-logd.8",
    "onejournal-log.1",
];

/// Pages of section 5: name, what it is, and the documents that it is made of.
const FORMAT_PAGES: [(&str, &str, &[&str]); 2] = [
    ("onejournal-journal", "format of the journal of a OneJournal volume", &["journal.md"]),
    (
        "onejournal-log",
        "format of a OneJournal log and protocol of its daemon",
        &["log.md", "log-protocol.md"],
    ),
];

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A command by its words, as `onejournal log cat` or `mount.onejournal`.
fn command(words: &str) -> Command {
    let mut words = words.split(' ');
    let mut command = match words.next() {
        Some("onejournal") => Cli::command(),
        Some("mount.onejournal") => MountHelper::command(),
        Some("fsck.onejournal") => FsckHelper::command(),
        other => panic!("no program {other:?}"),
    };
    command.build();
    for word in words {
        let found = command.find_subcommand(word);
        command = found.unwrap_or_else(|| panic!("no command {word}")).clone();
    }
    command
}

/// The text of a page. In it, a line `@OPTIONS WORDS@` stands for the options of a command,
/// `@COMMANDS WORDS@` for all its subcommands, and `@MOUNT OPTIONS@` for the options of `mount -o`.
fn command_page(name: &str) -> String {
    let mut page = String::new();
    for line in read(&format!("crates/cli/man/{name}")).lines() {
        let words = |kind: &str| line.strip_prefix(kind).and_then(|rest| rest.strip_suffix('@'));
        match (words("@OPTIONS "), words("@COMMANDS ")) {
            (Some(words), _) => page.push_str(&options::options(&command(words))),
            (None, Some(words)) => page.push_str(&options::subcommands(&command(words))),
            _ if line == "@MOUNT OPTIONS@" => page.push_str(&options::mount_options()),
            _ => {
                page.push_str(line);
                page.push('\n');
            }
        }
    }
    page
}

fn format_page(name: &str, what: &str, documents: &[&str]) -> String {
    let text = documents.iter().map(|file| read(&format!("docs/format/{file}")));
    format::page(name, what, &text.collect::<Vec<_>>())
}

/// All files: their paths below `dist`, and their texts.
fn files() -> Vec<(String, String)> {
    let commands = COMMAND_PAGES.iter().map(|name| (format!("man/{name}"), command_page(name)));
    let formats = FORMAT_PAGES.iter().map(|(name, what, documents)| {
        (format!("man/{name}.5"), format_page(name, what, documents))
    });
    let shells = [
        (Shell::Bash, "onejournal.bash"),
        (Shell::Zsh, "_onejournal"),
        (Shell::Fish, "onejournal.fish"),
    ];
    let completions = shells.map(|(shell, name)| {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "onejournal", &mut text);
        (format!("completions/{name}"), String::from_utf8(text).expect("text"))
    });
    commands.chain(formats).chain(completions).collect()
}

#[test]
fn pages_and_completions_are_those_of_the_commands() {
    let is_to_write = std::env::var_os("ONEJOURNAL_WRITE_PAGES").is_some();
    for (path, text) in files() {
        let path = root().join("dist").join(path);
        if is_to_write {
            std::fs::write(&path, &text).expect("write");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "{} is out of date: ONEJOURNAL_WRITE_PAGES=1 cargo test -p onejournal-cli --bin onejournal pages",
            path.display()
        );
    }
}

/// Options and subcommands that `--help` shows, of a command and all below it.
fn shown(command: &Command, into: &mut Vec<String>) {
    let visible = command.get_arguments().filter(|argument| !argument.is_hide_set());
    for argument in visible.filter(|argument| argument.get_id() != "help") {
        match (argument.get_long(), argument.get_short()) {
            (Some(long), _) => into.push(format!("--{long}")),
            (None, Some(short)) => into.push(format!("-{short}")),
            (None, None) => {}
        }
    }
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
    for subcommand in subcommands.filter(|command| command.get_name() != "help") {
        into.push(subcommand.get_name().to_owned());
        shown(subcommand, into);
    }
}

#[test]
fn every_option_is_in_a_page() {
    let pages: String = ["onejournal.8", "onejournal-logd.8", "onejournal-log.1"]
        .iter()
        .map(|name| read(&format!("dist/man/{name}")).replace("\\-", "-").replace("\\fR", " "))
        .collect();
    let mut words = Vec::new();
    shown(&command("onejournal"), &mut words);
    assert!(words.len() > 50, "{words:?}");
    for word in words {
        assert!(pages.contains(&word), "{word} is in no page");
    }
    for helper in ["mount.onejournal", "fsck.onejournal"] {
        let page = read(&format!("dist/man/{helper}.8")).replace("\\-", "-");
        let mut words = Vec::new();
        shown(&command(helper), &mut words);
        assert!(words.len() > 5, "{words:?}");
        for word in words {
            assert!(page.contains(&format!("\\fB{word}\\fR")), "{word} is not in {helper}(8)");
        }
    }
}

/// Whether a program is installed; says so when it is not.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    if !found {
        eprintln!("skipped: needs {program}");
    }
    found
}

#[test]
fn man_and_mandoc_have_nothing_against_the_pages() {
    let run = |program: &str, arguments: &[&str], path: &PathBuf| {
        let mut command = std::process::Command::new(program);
        command.args(arguments).arg(path).env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8");
        let output = command.output().expect("run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (text, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (has_man, has_mandoc) = (has("man"), has("mandoc"));
    for (name, _) in files().into_iter().filter(|(name, _)| name.starts_with("man/")) {
        let path = root().join("dist").join(&name);
        if has_man {
            let (text, warnings) = run("man", &["--warnings", "-l"], &path);
            assert!(warnings.is_empty() && text.contains("NAME"), "{name}: {warnings}");
        }
        if has_mandoc {
            let (lint, _) = run("mandoc", &["-Tlint", "-Wwarning"], &path);
            assert!(lint.is_empty(), "{lint}");
        }
    }
}
