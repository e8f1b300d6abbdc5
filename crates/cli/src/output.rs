//! What the command prints. If the reader closes the pipe (`| head`), the command ends without a
//! message, like other programs.
//!
//! Paths, names of processes and the answers of a mount come from users whom the reader need not
//! trust. Characters in them could move the cursor, change colours, or turn the order of a line
//! around. So everything goes through this module: [`plain`] for each text from outside, and
//! [`plain_path`] for each path; [`lines`] once more for all that is printed; [`json`] for what
//! programs read. Records of a log are printed as they are, unless to a terminal.

use std::io::{ErrorKind, Write};

use clap::error::ContextValue;

use crate::error::{CliError, Result};
pub use crate::letters::{json, lines, plain, plain_path};

/// Exit code of a program that SIGPIPE ended, as shells show it.
const BROKEN_PIPE: u8 = 128 + 13;

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
pub fn print_usage(mut error: clap::Error) -> u8 {
    if error.use_stderr() {
        // It repeats arguments, which may be names of files of other users.
        let found = error.context().filter_map(|(kind, value)| Some((kind, plain_value(value)?)));
        for (kind, value) in found.collect::<Vec<_>>() {
            error.insert(kind, value);
        }
        print_error(&error.render().to_string());
        return crate::error::USAGE;
    }
    let _ = error.print();
    0
}

/// The same value of an error with [`plain`]. `None`: it is text of our own.
fn plain_value(value: &ContextValue) -> Option<ContextValue> {
    match value {
        ContextValue::String(text) => Some(ContextValue::String(plain(text))),
        ContextValue::Strings(all) => {
            Some(ContextValue::Strings(all.iter().map(|text| plain(text)).collect()))
        }
        ContextValue::StyledStrs(all) => {
            let all = all.iter().map(|text| plain(&text.to_string()).into());
            Some(ContextValue::StyledStrs(all.collect()))
        }
        _ => None,
    }
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

    #[test]
    fn messages_are_passed_on_without_escape_sequences() {
        let mut written = Vec::new();
        Lines(&mut written).write_all(b"a\x1b[2J\n\tb").unwrap();
        assert_eq!(written, b"a?[2J\n\tb");
    }

    /// The lines of the crate's files but `elsewhere` that have one of `words`.
    fn lines_with(words: &[&str], elsewhere: &[&str]) -> Vec<String> {
        fn search(dir: &Path, (words, elsewhere): (&[&str], &[&str]), found: &mut Vec<String>) {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() && !path.ends_with("bin") {
                    search(&path, (words, elsewhere), found);
                } else if path.extension().is_some_and(|end| end == "rs")
                    && !elsewhere.iter().any(|name| path.ends_with(name))
                {
                    let text = fs::read_to_string(&path).unwrap();
                    let has_one = |line: &&str| words.iter().any(|one| line.contains(one));
                    let lines = text.lines().filter(has_one);
                    found.extend(lines.map(|line| format!("{path:?}: {line}")));
                }
            }
        }
        let mut found = Vec::new();
        let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
        search(dir, (words, elsewhere), &mut found);
        found
    }

    /// Nothing else in the crate prints.
    #[test]
    fn everything_is_printed_here() {
        // Words and numbers of our own; and messages, which are made of plain text.
        let elsewhere = ["output.rs", "verbs/mount.rs", "guard.rs", "messages.rs", "watch.rs"];
        let printing = ["print!(", "println!(", "error.print()", "stdout()", "stderr()"];
        let mut found = lines_with(&printing, &elsewhere);
        found.retain(|line| !line.contains("is_terminal()"));
        assert!(found.is_empty(), "use say!, mention! or complain!: {found:#?}");
    }

    /// A path in a message begins no line.
    #[test]
    fn paths_in_messages_are_plain() {
        // Cells of tables, JSON, and arguments of other programs.
        let data = [
            "ls.rs",
            "top/rows.rs",
            "dump.rs",
            "probe/place.rs",
            "verbs/mount.rs",
            "fsck/command.rs",
        ];
        let elsewhere = [&data[..], &["letters.rs", "output.rs", "volumes.rs", "tests.rs"]];
        let found = lines_with(&[".display()"], &elsewhere.concat());
        assert!(found.is_empty(), "use plain_path: {found:#?}");
    }
}
