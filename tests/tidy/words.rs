//! Rule: no sentence needs a second reading because of one of its words.
//!
//! A sentence has a named thing as its subject, and the word of the field for what it says. The
//! words that are found are wrong in nearly all sentences. Text in backticks or quotation marks is
//! left out.

use super::rule::{Finding, Rule};
use super::tree::{File, Tree};

pub const RULE: Rule = Rule {
    name: "words",
    says: "a sentence names its subject: no \"nobody\", \"those that\", or \"Else\" at its start",
    find,
};

/// Never a name for anything.
const SUBJECTS: [&str; 3] = ["whoever", "nobody", "somebody"];
/// After "those": it is a subject of its own, and not in front of a noun.
const RELATIVES: [&str; 4] = ["that", "who", "which", "whose"];
/// After "Those" and "that one": it is a subject.
const VERBS: [&str; 21] = [
    "is", "are", "was", "were", "has", "have", "had", "may", "can", "must", "will", "would",
    "does", "do", "did", "needs", "need", "waits", "wait", "alone", "first",
];
/// After "Those", too.
const PREPOSITIONS: [&str; 5] = ["of", "in", "for", "with", "on"];
/// After "lies": it means "is stored".
const PLACES: [&str; 12] = [
    "in",
    "on",
    "at",
    "outside",
    "before",
    "behind",
    "after",
    "beyond",
    "where",
    "there",
    "elsewhere",
    "beside",
];
/// After "behind": it means "after".
const AFTER: [&str; 9] =
    ["it", "its", "that", "this", "all", "them", "each", "everything", "these"];
/// After "behind the": it means "after".
const ENDS: [&str; 9] = ["end", "last", "first", "area", "label", "reach", "room", "log", "record"];
/// Verbs of a clause, for sentences that begin with "What".
const AUXILIARIES: [&str; 17] = [
    "is", "are", "was", "were", "has", "have", "had", "may", "can", "must", "will", "would",
    "does", "do", "did", "should", "could",
];
/// Here a clause of a sentence that begins with "What" ends.
const BREAKS: [&str; 14] = [
    "and", "or", "but", "when", "since", "before", "until", "while", "that", "if", "where",
    "because", "what", "which",
];

fn find(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.files {
        for paragraph in file.paragraphs().iter().chain(&file.messages()) {
            for (at, what) in wrong(&paragraph.text) {
                found.push(Finding::new(&file.path, paragraph.line(at), format!("\"{what}\"")));
            }
        }
        found.extend(names_of_tests(file));
    }
    found
}

/// What is wrong in the text, and where.
fn wrong(text: &str) -> Vec<(usize, String)> {
    let text = without_quotes(text);
    let words = words(&text);
    let word = |index: usize| words.get(index).map_or("", |(_, word)| *word);
    let mut found = Vec::new();
    for (index, (at, this)) in words.iter().enumerate() {
        let count = match *this {
            "Else" | "Nor" | "Of" => 1,
            "What" if is_subject(&text[*at..]) => 1,
            "Those"
                if VERBS.contains(&word(index + 1)) || PREPOSITIONS.contains(&word(index + 1)) =>
            {
                2
            }
            _ if is_any(this, &SUBJECTS) => 1,
            _ if is_any(this, &["those"]) && RELATIVES.contains(&word(index + 1)) => 2,
            _ if is_any(this, &["that"]) && is_that_one(&text, &words[index..]) => 2,
            _ if is_any(this, &["lies", "lie"]) && is_stored(&words, index) => 2,
            _ if is_any(this, &["behind"]) && AFTER.contains(&word(index + 1)) => 2,
            _ if is_any(this, &["behind"])
                && word(index + 1) == "the"
                && ENDS.contains(&word(index + 2)) =>
            {
                3
            }
            _ => continue,
        };
        let phrase: Vec<&str> = (index..index + count).map(word).collect();
        found.push((*at, phrase.join(" ")));
    }
    found
}

fn is_any(word: &str, of: &[&str]) -> bool {
    of.iter().any(|one| word.eq_ignore_ascii_case(one))
}

/// Whether "that one" stands here, and not "that one commit".
fn is_that_one(text: &str, words: &[(usize, &str)]) -> bool {
    let [_, (at, "one"), rest @ ..] = words else { return false };
    let is_end = text[at + "one".len()..].trim_start().is_empty()
        || text[at + "one".len()..].starts_with(['.', ',', ';', ':', '!', '?', ')', '\'']);
    is_end || rest.first().is_some_and(|(_, next)| VERBS.contains(next))
}

/// Whether "lies" is a verb here, and means "is stored".
fn is_stored(words: &[(usize, &str)], index: usize) -> bool {
    let is_noun = index > 0 && ["a", "the", "this", "that"].contains(&words[index - 1].1);
    !is_noun && words.get(index + 1).is_some_and(|(_, next)| PLACES.contains(next))
}

/// Whether the clause that begins with "What" is the subject of another verb: "What was read is
/// kept."
fn is_subject(rest: &str) -> bool {
    let sentence =
        rest.split_inclusive(['.', '?', '!', ':', ';', ',', '(']).next().unwrap_or_default();
    let words = words(sentence).into_iter().map(|(_, word)| word);
    let clause: Vec<&str> = words.skip(1).take_while(|word| !BREAKS.contains(word)).collect();
    let is_infinitive = |index: usize| {
        index > 0
            && ["may", "can", "must", "will", "would", "to", "not"].contains(&clause[index - 1])
    };
    let verbs = clause
        .iter()
        .enumerate()
        .filter(|(index, word)| AUXILIARIES.contains(word) && !is_infinitive(*index));
    !sentence.ends_with('?') && verbs.count() > 1
}

/// The text with other letters in place of what is quoted.
fn without_quotes(text: &str) -> String {
    let mut closing = None;
    let hide = |letter: char| {
        let is_hidden = closing.is_some();
        match (letter, closing) {
            (_, Some(close)) if letter == close => closing = None,
            ('`' | '"', None) => closing = Some(letter),
            _ => {}
        }
        if is_hidden { "`".repeat(letter.len_utf8()) } else { letter.to_string() }
    };
    text.chars().map(hide).collect()
}

fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, letter) in text.char_indices().chain([(text.len(), ' ')]) {
        match (letter.is_alphanumeric() || "_-".contains(letter), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                words.push((from, &text[from..at]));
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// A name of a test is a sentence, too.
fn names_of_tests(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for test in file.rust().functions.iter().filter(|function| function.is_test) {
        let sentence = test.name.replace('_', " ");
        let first = sentence.split(' ').next().unwrap_or_default();
        let first = ["what", "who", "those", "of", "else", "nor"]
            .contains(&first)
            .then(|| first.to_owned());
        let word = first.or_else(|| wrong(&sentence).into_iter().next().map(|(_, what)| what));
        if let Some(word) = word {
            let what = format!("\"{word}\" in the name of a test");
            found.push(Finding::new(&file.path, test.line, what));
        }
    }
    found
}

#[cfg(test)]
fn found(text: &str) -> Vec<String> {
    let found = super::rule::found(&RULE, &[("a.md", text)]);
    found.into_iter().map(|found| found.replace("a.md:", "")).collect()
}

#[test]
fn sentences_without_a_named_subject_are_found() {
    assert_eq!(found("Whoever asks, nobody\nanswers."), ["1: \"Whoever\"", "1: \"nobody\""]);
    assert_eq!(
        found("It waits. Else it fails.\nNor is it read. Of a file, the size."),
        ["1: \"Else\"", "2: \"Nor\"", "2: \"Of\""]
    );
    assert_eq!(
        found("It keeps those\nthat wait. Those of a log stay."),
        ["1: \"those that\"", "2: \"Those of\""]
    );
    assert_eq!(
        found("When that one is read, or that one."),
        ["1: \"that one\"", "1: \"that one\""]
    );
    assert_eq!(
        found("It lies in the log. They lie behind it."),
        ["1: \"lies in\"", "1: \"lie behind\"", "1: \"behind it\""]
    );
    assert_eq!(found("A record behind the end."), ["1: \"behind the end\""]);
    assert_eq!(found("What was read is kept."), ["1: \"What\""]);
}

#[test]
fn plain_sentences_are_not_found() {
    for text in [
        "Those threads wait for that one commit, so that one write is enough.",
        "A disk lies about its flushes. It tells a lie in its answer. It lies between two others.",
        "The disk behind a bus. Nothing is left behind. It says nor, else and of.",
        "What is known when the power is cut. What can be done? What a commit has written.",
        "It quotes \"nobody\" and `those that`.",
    ] {
        assert_eq!(found(text), [""; 0], "{text}");
    }
}

#[test]
fn comments_messages_and_names_of_tests_are_read() {
    let text = r#"//! Nobody reads.
fn f() { g("somebody \
    writes") }
#[test]
fn what_is_there() {}
#[test]
fn a_file_that_nobody_has() { "nobody is told" }
#[test]
fn a_file_holds_what_it_was_given() {}
"#;
    let found = super::rule::found(&RULE, &[("a.rs", text)]);
    let expected = [
        "a.rs:1: \"Nobody\"",
        "a.rs:2: \"somebody\"",
        "a.rs:5: \"what\" in the name of a test",
        "a.rs:7: \"nobody\" in the name of a test",
    ];
    assert_eq!(found, expected);
}
