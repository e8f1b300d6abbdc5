//! What the extension says in words: to SQLite's error log, and as the last error of a thread.
//!
//! SQLite keeps only a result code, and "unable to open database file" says little. When a database
//! cannot be opened, there is no connection to ask for the reason. So the last error is kept for
//! each thread, and any other connection can ask for it (`onejournal_last_error()`).

use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::path::Path;

use log::LogError;

use crate::abi::ffi::SQLITE_WARNING;
use crate::abi::loaded::loaded;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Forgets the last error, because a database is being opened.
pub fn forget() {
    LAST.set(None);
}

/// Reports an error to SQLite's error log and to `onejournal_last_error()`.
pub fn tell(code: c_int, text: &str) {
    if code & 0xff != SQLITE_WARNING {
        LAST.set(Some(text.to_owned()));
    }
    for (nth, piece) in pieces(text).into_iter().enumerate() {
        let start = if nth == 0 { "onejournal:" } else { "onejournal: ..." };
        let text = format!("{start} {}", piece.replace('\0', " "));
        loaded().api.log(code, &CString::new(text).expect("no zeros"));
    }
}

/// Warns of a stream of `log` with commits of another file, which had the name of `database`.
pub fn tell_of_other_file(database: &Path, log: &Path, stream: &str) {
    let (database, log) = (database.display(), log.display());
    let text = format!(
        "{database}: the log {log} has commits of another file of this name, in the stream \
         {stream}: onejournal log cat shows it; if that file is gone for good, onejournal log rm \
         removes it"
    );
    tell(SQLITE_WARNING, &text);
}

/// Why a user cannot use a log, for the reason `refusal`, whose database belongs to user `owner`.
pub fn of_several_users(refusal: &LogError, owner: u32) -> String {
    format!(
        "the log {refusal}. The database belongs to user {owner}, and only that user and root can \
         write it with this extension. For several users, let a daemon serve a log (onejournal \
         logd --dir DIR, and log=DIR/socket in the URI) and permit them the database's stream \
         (docs/how-to/share-a-log.md)"
    )
}

/// SQLite cuts a message of its error log after 210 bytes.
const PIECE_BYTES_MAX: usize = 190;

/// The text in pieces of whole words, or of whole characters where a word is longer.
fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while rest.len() > PIECE_BYTES_MAX {
        let end = (0..=PIECE_BYTES_MAX).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(0);
        let (piece, behind) = match rest[..end].rfind(' ') {
            Some(space) if space > 0 => (&rest[..space], &rest[space + 1..]),
            _ => rest.split_at(end),
        };
        pieces.push(piece);
        rest = behind;
    }
    pieces.push(rest);
    pieces
}

/// The last error of this thread since it last opened a database.
pub fn last_error() -> Option<String> {
    LAST.with_borrow(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_comes_in_pieces_of_whole_words() {
        let text = "the advice is at the end ".repeat(30);
        let found = pieces(text.trim_end());
        assert!(found.len() > 3 && found.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX));
        assert_eq!(found.join(" "), text.trim_end());
        let path = "\u{e4}".repeat(300);
        assert_eq!(pieces(&path).concat(), path);
        assert_eq!(pieces("short"), ["short"]);
    }
}
