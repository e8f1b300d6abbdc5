//! Starting programs from a process with many threads.

use std::io;
use std::process::{Child, Command};

use rustix::io::fcntl_dupfd_cloexec;

/// Higher than any descriptor that the calling process uses. Exec closes descriptors in the order of
/// their numbers.
const LAST_DESCRIPTOR: i32 = 512;

/// Starts a program, and returns when the child has closed its copies of this process's files.
///
/// [`Command::spawn`] may return before, because posix_spawn waits only until the child has its own
/// memory. Until the child has closed them, a mount with a file that was open is busy. Files that are
/// opened during the call may be copied, too: the caller prevents that with a lock.
pub fn spawn_without_files(command: &mut Command) -> io::Result<Child> {
    let (mut reader, writer) = io::pipe()?;
    let last = fcntl_dupfd_cloexec(&writer, LAST_DESCRIPTOR)?;
    drop(writer);
    let child = command.spawn()?;
    drop(last);
    // The end of the pipe: the child has closed the last descriptor.
    io::copy(&mut reader, &mut io::sink())?;
    Ok(child)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    #[test]
    fn a_child_has_none_of_our_descriptors_when_it_is_started() {
        for _ in 0..300 {
            let (read_end, write_end) = io::pipe().unwrap();
            fcntl_setfl(&read_end, OFlags::NONBLOCK).unwrap();
            let mut child = spawn_without_files(&mut Command::new("true")).unwrap();
            drop(write_end);
            let found = File::from(OwnedFd::from(read_end)).read(&mut [0]);
            assert_eq!(found.unwrap(), 0, "the child could still write");
            child.wait().unwrap();
        }
    }
}
