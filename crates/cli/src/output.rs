//! What the command prints. If the reader closes the pipe (`| head`), the command ends without a
//! message, like other programs.
//!
//! Paths, names of processes and the answers of a mount come from users whom the reader need not
//! trust. Characters in them could move the cursor, change colours, or turn the order of a line
//! around. So everything goes through this module: [`plain`] for each text from outside, [`lines`]
//! once more for all that is printed, [`json`] for what programs read. Records of a log are printed
//! as they are, unless to a terminal.

use std::io::{ErrorKind, Write};

use crate::error::{CliError, Result};

/// Exit code of a program that SIGPIPE ended, as shells show it.
const BROKEN_PIPE: u8 = 128 + 13;

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

/// Prints `text` with [`lines`], and a newline.
pub fn print_text(text: &str) -> Result<()> {
    print_line(lines(text).as_bytes())
}

/// Prints `bytes` as they are, and a newline.
pub fn print_line(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.write_all(b"\n"));
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError { text: String::new(), code: BROKEN_PIPE },
        _ => CliError::new(format!("standard output: {error}")),
    })
}

/// Prints `text` with [`lines`] and a newline to standard error, if anyone reads it. A line break
/// in it does not begin another message.
pub fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", lines(text.trim_end()).replace('\n', "\n  "));
}

/// Prints what is wrong with the command line, or the help that it asks for. Returns the exit code.
pub fn print_usage(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        // It repeats arguments, which may be names of files of other users.
        print_error(&error.render().to_string());
        return crate::error::USAGE;
    }
    let _ = error.print();
    0
}

/// A writer of messages that passes them on with [`lines`].
pub struct Lines<W>(pub W);

impl<W: Write> Write for Lines<W> {
    /// A message is written in one piece.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write_all(lines(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Prints a line like `println!`, and returns from the function if that fails.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::output::print_text(&format!($($argument)*))?
    };
}

/// The same for a text that is JSON.
macro_rules! say_json {
    ($text:expr) => {
        $crate::output::print_line($crate::output::json(&$text).as_bytes())?
    };
}
pub(crate) use say_json;

/// The same as [`say!`] for work that has to continue after the reader has closed the pipe.
#[macro_export]
macro_rules! mention {
    ($($argument:tt)*) => {{
        let _ = $crate::output::print_text(&format!($($argument)*));
    }};
}

/// Prints a line to standard error.
macro_rules! complain {
    ($($argument:tt)*) => {
        $crate::output::print_error(&format!($($argument)*))
    };
}
pub(crate) use complain;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Escape sequences as a terminal of 7 and of 8 bits knows them, and letters that turn the
    /// order around.
    const ACTIVE: &str = "a\x1b[2J\u{9b}2J\x7f\u{202e}b\u{2066}\u{200f}\u{61c}\u{2028}\n\tü😀";

    #[test]
    fn letters_that_a_terminal_acts_on_are_not_printed() {
        assert_eq!(plain(ACTIVE), "a?[2J?2J??b??????ü😀");
        assert_eq!(lines(ACTIVE), "a?[2J?2J??b????\n\tü😀");
        let mut written = Vec::new();
        Lines(&mut written).write_all(ACTIVE.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), lines(ACTIVE));
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

    /// Nothing else in the crate prints.
    #[test]
    fn everything_is_printed_here() {
        fn search(dir: &Path, found: &mut Vec<String>) {
            // Words and numbers of our own; and messages, which are made of plain text.
            let elsewhere = ["output.rs", "daemon.rs", "guard.rs", "messages.rs", "watch.rs"];
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() && !path.ends_with("bin") {
                    search(&path, found);
                } else if path.extension().is_some_and(|end| end == "rs")
                    && !elsewhere.iter().any(|name| path.ends_with(name))
                {
                    let text = fs::read_to_string(&path).unwrap();
                    let printing =
                        ["print!(", "println!(", "error.print()", "stdout()", "stderr()"];
                    let is_printing = |line: &&str| {
                        !line.contains("is_terminal()")
                            && printing.iter().any(|one| line.contains(one))
                    };
                    let lines = text.lines().filter(is_printing);
                    found.extend(lines.map(|line| format!("{}: {line}", path.display())));
                }
            }
        }
        let mut found = Vec::new();
        search(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
        assert!(found.is_empty(), "use say!, mention! or complain!: {found:#?}");
    }
}
