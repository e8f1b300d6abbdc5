//! Tests that make mount namespaces, which have copies of all mounts: also of those of other tests.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// For a shell in a new namespace: lets go of all volumes but that on the directory `$1`.
pub const LET_GO: &str = r#"
    while read -r _ dir kind _; do
        case $kind in fuse*.onejournal) [ "$dir" = "$1" ] || umount -l "$(printf %b "$dir")" ;; esac
    done </proc/self/mounts
"#;

/// Held by a test that makes namespaces, or that could be disturbed by one in the moment before it has let go.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
