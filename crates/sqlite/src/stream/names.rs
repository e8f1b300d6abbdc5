//! Names of the databases' streams.
//!
//! ```text
//! db-FILE-LOG-ID       the stream of a database
//! ```
//!
//! FILE is the database's file name, for people; other characters than letters, digits, `.`, `_`
//! and `-` are `_`. LOG is the first eight digits of the log's UUID, ID says which file it is
//! (`host::FileId`). So the name is a second record of what the database's attribute says, in the
//! log. It finds the stream again if the attribute was lost. A copied log has another UUID, so its
//! streams are known to be those of the copied databases.

use std::path::Path;

/// Most characters of a file name.
const FILE_CHARS_MAX: usize = 64;
/// Digits of a UUID.
const LOG_CHARS: usize = 8;

/// The part of a stream's name that people know.
fn plain(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let keep = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    file.chars().map(|c| if keep(c) { c } else { '_' }).take(FILE_CHARS_MAX).collect()
}

fn short(log: &str) -> &str {
    log.get(..LOG_CHARS).unwrap_or(log)
}

/// What follows the file name in the name of the stream of the file `id`.
pub fn ending(log: &str, id: u128) -> String {
    format!("-{}-{id:032x}", short(log))
}

/// The name of the stream of the file `id` at `path`.
pub fn of_file(path: &Path, log: &str, id: u128) -> String {
    format!("db-{}{}", plain(path), ending(log, id))
}

/// Whether `name` is that of the stream of the file `id` in this log. The last half of the ID is
/// another one in the name of a stream that was made beside that of a block-level copy.
pub fn is_name_of(log: &str, id: u128, name: &str) -> bool {
    let Some((rest, digits)) = name.rsplit_once('-').filter(|_| is_of_file(name)) else {
        return false;
    };
    let named = u128::from_str_radix(digits, 16);
    rest.ends_with(&format!("-{}", short(log))) && named.is_ok_and(|it| (it ^ id) >> 64 == 0)
}

/// What the names of all streams begin with that belong to a file of this file name.
pub fn beginning(path: &Path, log: &str) -> String {
    format!("db-{}-{}-", plain(path), short(log))
}

/// Whether `name` may be that of the stream of the file `id` at `path`, or of the file that this
/// one is a copy of, in whatever log.
pub fn is_of(path: &Path, id: u128, name: &str) -> bool {
    let is_like = name.starts_with(&format!("db-{}-", plain(path)));
    is_of_file(name) && (is_like || name.ends_with(&format!("-{id:032x}")))
}

/// Whether `name` is one that [`of_file`] returns, and not that of a stream beside it.
pub fn is_of_file(name: &str) -> bool {
    let id = name.rsplit_once('-').map_or("", |(_, id)| id);
    name.starts_with("db-") && id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_a_file_in_a_log() {
        let log = "0123456789abcdef0123456789abcdef";
        let name = of_file(Path::new("/a/app.db"), log, 7);
        assert_eq!(name, "db-app.db-01234567-00000000000000000000000000000007");
        assert!(name.starts_with(&beginning(Path::new("/b/app.db"), log)));
        assert!(!name.starts_with(&beginning(Path::new("/b/app.db"), "1123")));
        assert!(name.ends_with(&ending(log, 7)) && !name.ends_with(&ending(log, 8)));
        assert!(is_of(Path::new("/b/app.db"), 8, &name) && is_of(Path::new("/b.db"), 7, &name));
        assert!(!is_of(Path::new("/a/app"), 8, &name));
        assert!(is_name_of(log, 7, &name) && is_name_of(log, 7 ^ 0x801, &name));
        for (log, id) in [(log, 7 ^ 1 << 64), ("1123", 7)] {
            assert!(!is_name_of(log, id, &name), "{log} {id:x}");
        }
        assert!(!is_name_of(log, 7, &format!("{name}.doubt")) && !is_name_of(log, 7, "db"));
        assert!(is_of_file(&name) && !is_of_file(&format!("{name}.doubt")));
        let odd = of_file(Path::new(&format!("/a/ä b{}.db", "x".repeat(300))), log, u128::MAX);
        assert!(odd.starts_with("db-__b") && odd.parse::<log::StreamName>().is_ok(), "{odd}");
        let doubt = format!("{odd}.doubt");
        assert!(doubt.parse::<log::StreamName>().is_ok(), "room for what lies beside it");
    }
}
