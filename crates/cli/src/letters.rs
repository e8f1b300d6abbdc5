//! Text from outside, without the letters that a terminal acts on.

use std::path::Path;

/// Whether a terminal acts on a letter instead of showing it: control characters (C0, DEL and C1),
/// and what sets the direction of text or separates lines.
fn is_active(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Text from outside, on one line, with `?` for each letter that a terminal acts on.
pub fn plain(text: &str) -> String {
    text.chars().map(|letter| if is_active(letter) { '?' } else { letter }).collect()
}

/// The same for a text of several lines.
pub fn lines(text: &str) -> String {
    let shown = |letter| if is_active(letter) && !"\n\t".contains(letter) { '?' } else { letter };
    text.chars().map(shown).collect()
}

/// JSON in which the letters that a terminal acts on are escaped. A program reads the same from it.
pub fn json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        // The others of ASCII are escaped, or are the line breaks of a pretty form.
        if is_active(letter) && (letter as u32) >= 0x7f {
            escaped.push_str(&format!("\\u{:04x}", letter as u32));
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

/// A path in a message: on one line, as [`plain`] has it.
pub fn plain_path(path: &Path) -> String {
    plain(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Escape sequences as a terminal of 7 and of 8 bits knows them, and letters that turn the
    /// order around.
    const ACTIVE: &str = "a\x1b[2J\u{9b}2J\x7f\u{202e}b\u{2066}\u{200f}\u{61c}\u{2028}\n\tü😀";

    #[test]
    fn letters_that_a_terminal_acts_on_are_not_printed() {
        assert_eq!(plain(ACTIVE), "a?[2J?2J??b??????ü😀");
        assert_eq!(lines(ACTIVE), "a?[2J?2J??b????\n\tü😀");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ ACTIVE: [ACTIVE] });
        for text in [value.to_string(), format!("{value:#}")] {
            let escaped = json(&text);
            assert!(!escaped.chars().any(|letter| is_active(letter) && letter != '\n'));
            assert!(escaped.contains("\\u009b2J\\u007f\\u202eb"), "{escaped}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        }
    }
}
