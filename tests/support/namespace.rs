//! Tests that make mount namespaces, which have copies of all mounts: also of those of other tests.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::spawn;

/// For a shell in a new namespace: lets go of all volumes but that on the directory `$1`.
pub const LET_GO: &str = r#"
    while read -r _ dir kind _; do
        case $kind in fuse*.onejournal) [ "$dir" = "$1" ] || umount -l "$(printf %b "$dir")" ;; esac
    done </proc/self/mounts
"#;

/// Held by a test that makes namespaces, or that could be disturbed by one in the moment before it
/// has let go.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shell that waits for its input to end.
pub struct Waiting(Child);

impl Waiting {
    /// Starts the shell, which says `here` when it waits.
    pub fn start(command: &mut Command) -> Waiting {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(command).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "here\n");
        Waiting(child)
    }

    /// In a mount namespace of its own, which has a copy of the volume's mount on `mounted`. Its
    /// working directory is `dir`.
    pub fn in_copy(mounted: &Path, dir: &Path) -> Waiting {
        let script = format!(r#"{LET_GO} cd "$2" && echo here && read line"#);
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"]);
        command.args([mounted, dir]);
        Waiting::start(&mut command)
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it.
    pub fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
