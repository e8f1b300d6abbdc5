//! `onejournal mount -o help`.

use super::option::Group;
use super::table::GROUPS;

/// A line for each option, in groups.
pub fn help() -> String {
    let lines = |group: &Group| group.list(|shown, meaning| format!("{shown:30}  {meaning}\n"));
    let groups = GROUPS.iter().map(|group| format!("{}:\n{}", group.title, lines(group)));
    groups.collect::<Vec<_>>().join("\n")
}

/// The group with this title.
pub fn group(title: &str) -> &'static Group {
    let found = GROUPS.iter().find(|group| group.title == title);
    found.unwrap_or_else(|| panic!("no group {title:?} of mount options"))
}

/// Whether the command line is `onejournal mount -o help`, which names no volume.
pub fn asks_for_help(words: impl IntoIterator<Item = String>) -> bool {
    let words: Vec<String> = words.into_iter().skip(1).collect();
    let has_it = || words.windows(2).any(|pair| pair[0] == "-o" && pair[1] == "help");
    words.first().is_some_and(|word| word == "mount")
        && (has_it() || words.iter().any(|word| word == "-ohelp"))
}
