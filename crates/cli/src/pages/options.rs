//! Lists of options, made by clap_mangen.

use clap::Command;
use clap_mangen::Man;

use crate::mount_options::group;

/// Subcommands that have pages of their own.
const OWN_PAGES: [&str; 2] = ["log", "logd"];

/// The options and arguments of a command.
pub fn options(command: &Command) -> String {
    let mut text = Vec::new();
    let mut command = command.clone();
    if command.get_arguments().any(|argument| argument.get_id() == "help") {
        command = command.mut_arg("help", |help| help.hide(true));
    }
    Man::new(command).render_options_section(&mut text).expect("it is in memory");
    // The string Aq is defined only where a page of clap_mangen begins.
    let text = String::from_utf8(text).expect("text").replace("\\*(Aq", "\\(aq");
    // Its heading, and settings for a page of its own.
    let lines = text.lines().filter(|line| !line.starts_with(".SH") && !line.starts_with(".ie"));
    let lines = lines.filter(|line| !line.starts_with(".el"));
    lines.flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// Each subcommand with its description and its options.
pub fn subcommands(command: &Command) -> String {
    let mut text = String::new();
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    for subcommand in visible {
        let name = subcommand.get_name();
        if name == "help" || OWN_PAGES.contains(&name) {
            continue;
        }
        let usage = subcommand.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").to_owned();
        let about = subcommand.get_long_about().or(subcommand.get_about());
        let about = about.map(ToString::to_string).unwrap_or_default();
        let (name, usage) = (escape(name), escape(&usage));
        text.push_str(&format!(".SS {name}\n\\fB{usage}\\fR\n"));
        for paragraph in about.split("\n\n") {
            text.push_str(&format!(".PP\n{}.\n", escape(paragraph.trim_end_matches('.'))));
        }
        text.push_str(&options(subcommand));
    }
    text
}

/// The options of `onejournal mount -o` in a group.
pub fn mount_options(title: &str) -> String {
    group(title)
        .list(|option, meaning| format!(".TP\n\\fB{}\\fR\n{}.\n", escape(option), escape(meaning)))
}

/// Escapes text for roff.
pub fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}
