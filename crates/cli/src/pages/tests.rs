//! Tests that the pages describe what the commands take.

use std::path::Path;

use clap::Command;

use super::{command, files, write};

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

/// The text of one made file, without the escapes of roff.
fn made(name: &str) -> String {
    let files = files();
    let found = files.iter().find(|(path, _)| path == name);
    let (_, text) = found.unwrap_or_else(|| panic!("{name} is not made"));
    text.replace("\\-", "-")
}

#[test]
fn every_option_is_in_a_page() {
    let pages: String = ["onejournal.8", "onejournal-logd.8", "onejournal-log.1"]
        .iter()
        .map(|name| made(&format!("man/{name}")).replace("\\fR", " "))
        .collect();
    let mut words = Vec::new();
    shown(&command("onejournal"), &mut words);
    assert!(words.len() > 50, "{words:?}");
    for word in words {
        assert!(pages.contains(&word), "{word} is in no page");
    }
    for helper in ["mount.onejournal", "fsck.onejournal"] {
        let page = made(&format!("man/{helper}.8"));
        let mut words = Vec::new();
        shown(&command(helper), &mut words);
        assert!(words.len() > 5, "{words:?}");
        for word in words {
            assert!(page.contains(&format!("\\fB{word}\\fR")), "{word} is not in {helper}(8)");
        }
    }
}

#[test]
fn every_option_is_completed_by_each_shell() {
    let mut words = Vec::new();
    shown(&command("onejournal"), &mut words);
    for name in ["onejournal.bash", "_onejournal", "onejournal.fish"] {
        let text = made(&format!("completions/{name}"));
        for word in &words {
            // fish has the name of an option without its hyphens.
            let wanted = if name.ends_with(".fish") { word.trim_start_matches('-') } else { word };
            assert!(text.contains(wanted), "{name} has no {word}");
        }
    }
}

#[test]
fn every_line_that_stands_for_a_list_is_replaced() {
    for (name, text) in files() {
        let left = text.lines().find(|line| line.starts_with('@') && line.ends_with('@'));
        assert_eq!(left, None, "{name}");
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
fn man_and_mandoc_have_nothing_against_the_written_pages() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path()).expect("the pages");
    let run = |program: &str, arguments: &[&str], path: &Path| {
        let mut command = std::process::Command::new(program);
        command.args(arguments).arg(path).env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8");
        let output = command.output().expect("run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (text, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (has_man, has_mandoc) = (has("man"), has("mandoc"));
    for (name, text) in files() {
        let path = dir.path().join(&name);
        assert!(std::fs::read_to_string(&path).is_ok_and(|written| written == text), "{name}");
        if !name.starts_with("man/") {
            continue;
        }
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
