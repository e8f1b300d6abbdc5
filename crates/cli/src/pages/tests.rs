//! Tests that the pages describe what the commands take.

use std::path::{Path, PathBuf};

use clap::Command;
use mount::{Metric, Number};
use onejournal_testing::has_program;

use super::{command, files, write};
use crate::mount_options::group;
use crate::verbs::log::metrics;

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

/// The man pages, written to a directory.
fn written() -> (tempfile::TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path()).expect("the pages");
    let files = files().into_iter().filter(|(name, _)| name.starts_with("man/"));
    let paths = files.map(|(name, _)| dir.path().join(name)).collect();
    (dir, paths)
}

/// What a program prints on standard output and on standard error.
fn run(program: &str, arguments: &[&str], path: &Path) -> (String, String) {
    let mut command = std::process::Command::new(program);
    command.args(arguments).arg(path).env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8");
    let output = command.output().expect("run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn all_files_are_written() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path()).expect("the pages");
    for (name, text) in files() {
        let written = std::fs::read_to_string(dir.path().join(&name));
        assert!(written.is_ok_and(|written| written == text), "{name}");
    }
}

#[test]
fn man_has_nothing_against_the_pages() {
    if !has_program("man") {
        return;
    }
    let (_dir, paths) = written();
    for path in paths {
        let (text, warnings) = run("man", &["--warnings", "-l"], &path);
        assert!(warnings.is_empty() && text.contains("NAME"), "{}: {warnings}", path.display());
    }
}

#[test]
fn mandoc_has_nothing_against_the_pages() {
    if !has_program("mandoc") {
        return;
    }
    let (_dir, paths) = written();
    for path in paths {
        let (lint, _) = run("mandoc", &["-Tlint", "-Wwarning"], &path);
        assert!(lint.is_empty(), "{lint}");
    }
}

/// A table is in a document between a line with its title and a line with the end.
fn assert_table(page: &str, what: &str, title: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(&path).expect(page);
    let (begin, end) = (format!("<!-- {what}: {title} -->\n"), format!("<!-- end of {what} -->"));
    let (before, rest) = text.split_once(&begin).expect(title);
    let (old, after) = rest.split_once(&end).expect(title);
    if std::env::var_os("ONEJOURNAL_WRITE_TABLES").is_some() {
        let text = format!("{before}{begin}{table}{end}{after}");
        std::fs::write(&path, text).expect(page);
    } else {
        let how = "ONEJOURNAL_WRITE_TABLES=1 in the environment of this test renews it";
        assert!(old == table, "{page}: the table of {title} is not the program's; {how}");
    }
}

#[test]
fn documents_have_the_mount_options_of_the_program() {
    let (users, developers) = ("reference/mount-options.md", "developers/laboratory.md");
    for (title, page) in [
        ("Usual options", users),
        ("Expert options", users),
        ("Options for measurements", developers),
    ] {
        let rows = group(title).list(|option, meaning| {
            let option = option.replace(", ", "`, `").replace('|', "`, `");
            format!("| `{option}` | {meaning} |\n")
        });
        let table = format!("| option | meaning |\n|---|---|\n{rows}");
        assert_table(page, "mount options", title, &table);
    }
}

/// Name, metric and meaning of a number.
fn cells<G: Copy>(number: &Number<G>, info: &str) -> [String; 3] {
    let metric = match number.metric {
        Metric::Nowhere => String::new(),
        Metric::Label => format!("label `{}` of `onejournal_{info}`", number.name),
        _ => format!("`onejournal_{}`", number.metric_name()),
    };
    let meaning = [number.help, number.more].join(" ").trim_end().to_owned();
    [format!("`{}`", number.name), metric, meaning]
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

#[test]
fn documents_have_the_numbers_of_the_program() {
    let (page, what) = ("reference/metrics.md", "numbers");
    let mut table = "| name | metric of Prometheus | meaning |\n|---|---|---|\n".to_owned();
    for (title, numbers) in &mount::VOLUME {
        table.push_str(&format!("| **{title}** | | |\n"));
        table.extend(numbers.iter().map(|number| line(&cells(number, "info"))));
    }
    assert_table(page, what, "the volume", &table);
    let rows = mount::FILE.iter().map(|number| {
        let [name, _, meaning] = cells(number, "");
        line(&[name, meaning])
    });
    let table = format!("| name | meaning |\n|---|---|\n{}", rows.collect::<String>());
    assert_table(page, what, "a file", &table);
    let rows = metrics::NUMBERS.iter().map(|number| line(&cells(number, "log_info")[1..]));
    let table = format!("| metric | meaning |\n|---|---|\n{}", rows.collect::<String>());
    assert_table(page, what, "a log", &table);
}
