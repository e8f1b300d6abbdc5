//! Explains why this user may not use a file of a log, and says what to do.

use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::LogError;

/// The file by which a log's directory is known.
const SETTINGS: &str = "service.json";

/// An error of the system at `path`. If the permissions of another user's file are the reason, the
/// text names that user, and says what to do.
pub fn system_at(path: &Path, error: Error) -> LogError {
    // A denial with a text of its own has no number.
    let is_denied = error.kind() == ErrorKind::PermissionDenied && error.raw_os_error().is_some();
    let why = if is_denied { explanation(path) } else { None };
    let error = why.map_or(error, |why| Error::new(ErrorKind::PermissionDenied, why));
    LogError::system(path.display().to_string(), error)
}

/// Why this user may not use `path`. `None`: not because of another user's files.
fn explanation(path: &Path) -> Option<String> {
    let me = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    // Root does not look along a path that another user may have chosen.
    let closed = (me != 0).then(|| closed_part(path))?;
    let owner = closed.symlink_metadata().ok()?.uid();
    if owner == me {
        return None;
    }
    let top = path.ancestors().find(|it| it.join(SETTINGS).symlink_metadata().is_ok());
    let what = if closed == path { "it".into() } else { closed.display().to_string() };
    let is_part = closed == path || top.is_some_and(|top| closed.starts_with(top));
    Some(match is_part {
        true => format!(
            "permission denied: {what} belongs to user {owner}, and this process is user {me}. If \
             user {me} is to use the log from now on, run as root: chown -R {me}:{group} {}",
            top.unwrap_or(path).display()
        ),
        false => format!(
            "permission denied: {what} belongs to user {owner}, who keeps user {me} out. Permit \
             it, or name another directory (log=, memory= or nvram= in the URI)"
        ),
    })
}

/// The part of the path that keeps this user out: a directory above it, or all of it.
fn closed_part(path: &Path) -> PathBuf {
    let mut parts: Vec<&Path> = path.ancestors().filter(|it| !it.as_os_str().is_empty()).collect();
    parts.reverse();
    let is_hidden = |part: &&Path| part.symlink_metadata().is_err();
    match parts.iter().position(is_hidden) {
        None => path.to_owned(),
        Some(0) => ".".into(),
        Some(index) => parts[index - 1].to_owned(),
    }
}
