//! A URI that was taken for the name of a file.
//!
//! SQLite reads `file:app.db?vfs=onejournal` as a URI only for a program that asks for it
//! (`SQLITE_OPEN_URI`). For another program, and for several drivers, it makes a file of that name
//! through the default VFS. Everything then works as without the extension. So such a name is
//! refused:
//!
//! - by the extension's VFS, if it is the default one ([`is_one`]);
//! - through another VFS, when a connection is opened after the extension was loaded, and when the
//!   extension is loaded into a connection ([`asks_for_us`]). Not seen are the names of attached
//!   databases, and names in a directory that does not exist: the other VFS refuses these itself.

use std::path::Path;

use crate::failure::Failure;

/// Whether the path of a file has a URI with parameters in it.
pub fn is_one(path: &[u8]) -> bool {
    const SCHEME: &[u8] = b"file:";
    // SQLite has put the working directory before it.
    let mut names = path.split(|byte| *byte == b'/');
    asks_for_us(path) || path.contains(&b'?') && names.any(|name| name.starts_with(SCHEME))
}

/// Whether the path of a file ends with parameters that ask for the extension's VFS.
pub fn asks_for_us(path: &[u8]) -> bool {
    let Some(start) = path.iter().position(|byte| *byte == b'?') else { return false };
    path[start + 1..].split(|byte| *byte == b'&').any(|it| it == b"vfs=onejournal")
}

/// The error for a file of this name.
pub fn refusal(path: &Path) -> Failure {
    Failure::CannotOpen(format!(
        "{}: this is a URI, but it was opened as the name of a file, so its parameters have no \
         effect. Open it as a URI (SQLITE_OPEN_URI). If the driver cannot do that, make the \
         extension's VFS the default one, with SELECT onejournal_make_default() on a connection \
         to :memory:, and open the database by its plain name",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_found_wherever_sqlite_puts_it() {
        for uri in ["/data/file:app.db?vfs=onejournal", "file:/data/app.db?a=b&vfs=onejournal"] {
            assert!(is_one(uri.as_bytes()) && asks_for_us(uri.as_bytes()), "{uri}");
        }
        let without_scheme = b"/data/app.db?vfs=onejournal";
        assert!(is_one(without_scheme) && asks_for_us(without_scheme));
        let of_another_vfs = b"/data/file:app.db?mode=ro";
        assert!(is_one(of_another_vfs) && !asks_for_us(of_another_vfs));
        for name in ["/data/app.db", "/data/file:app.db", "/profile:a?b", "/vfs=onejournal/a?b"] {
            assert!(!is_one(name.as_bytes()) && !asks_for_us(name.as_bytes()), "{name}");
        }
    }
}
