//! The man pages and the completions of shells, made from the commands' options.
//!
//! A page of section 1 or 8 is a text in `crates/cli/man` into which the lists of options are
//! inserted. A page of section 5 is made from documents in `docs/format`. The texts are part of the
//! program, so it needs no source when it runs.

mod format;
mod options;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::helpers::{FsckHelper, MountHelper};

/// Pages with options: name with section, and text.
const COMMAND_PAGES: [(&str, &str); 5] = [
    ("onejournal.8", include_str!("../../man/onejournal.8")),
    ("mount.onejournal.8", include_str!("../../man/mount.onejournal.8")),
    ("fsck.onejournal.8", include_str!("../../man/fsck.onejournal.8")),
    ("onejournal-logd.8", include_str!("../../man/onejournal-logd.8")),
    ("onejournal-log.1", include_str!("../../man/onejournal-log.1")),
];

/// Pages of section 5: name, what it is, and the documents that it is made of.
const FORMAT_PAGES: [(&str, &str, &[&str]); 2] = [
    (
        "onejournal-journal",
        "format of the journal of a OneJournal volume",
        &[include_str!("../../../../docs/format/journal.md")],
    ),
    (
        "onejournal-log",
        "format of a OneJournal log and protocol of its daemon",
        &[
            include_str!("../../../../docs/format/log.md"),
            include_str!("../../../../docs/format/log-protocol.md"),
        ],
    ),
];

/// Writes all pages and completions: `DIR/man/NAME.SECTION`, and `DIR/completions` with the file
/// names that the shells look for (bash's with `.bash`).
pub fn write(dir: &Path) -> io::Result<()> {
    for (name, text) in files() {
        let path = dir.join(name);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, text)?;
    }
    Ok(())
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
/// `@COMMANDS WORDS@` for all its subcommands, and `@MOUNT GROUP@` for a group of the options of
/// `mount -o`.
fn command_page(text: &str) -> String {
    let mut page = String::new();
    for line in text.lines() {
        let words = |kind: &str| line.strip_prefix(kind).and_then(|rest| rest.strip_suffix('@'));
        let made = words("@OPTIONS ").map(|words| options::options(&command(words)));
        let made = made
            .or_else(|| words("@COMMANDS ").map(|words| options::subcommands(&command(words))))
            .or_else(|| words("@MOUNT ").map(options::mount_options));
        page.push_str(&made.unwrap_or_else(|| format!("{line}\n")));
    }
    page
}

/// All files: their paths below the directory, and their texts.
fn files() -> Vec<(String, String)> {
    let commands =
        COMMAND_PAGES.iter().map(|(name, text)| (format!("man/{name}"), command_page(text)));
    let formats = FORMAT_PAGES.iter().map(|(name, what, documents)| {
        (format!("man/{name}.5"), format::page(name, what, documents))
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
