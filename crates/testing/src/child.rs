//! Starting programs from a process with many threads.

use std::io;
use std::process::{Child, Command};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Starts a program, and returns when the child has let go of its copies of this process's files.
///
/// The standard library's `spawn` may return before, because posix_spawn waits only until the child
/// has its own memory. Until the child has let go of them, a mount with a file that was open is
/// busy. Files that are opened during the call may be copied, too: the caller prevents that with a
/// lock.
///
/// Exec only puts the files on a list, which the kernel works off before the child comes to its
/// first instruction. It does so also before it stops a process. So the child is stopped and
/// continued: when it has stopped, or ended, the list is empty.
pub fn spawn_without_files(command: &mut Command) -> io::Result<Child> {
    let child = command.spawn()?;
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP)?;
    let until = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(errno) = waitid(WaitId::Pid(pid), until) {
        if errno != Errno::INTR {
            return Err(errno.into());
        }
    }
    kill_process(pid, Signal::CONT)?;
    Ok(child)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::channel;

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    /// Another thread closes its own copies meanwhile. So some of the child's copies are the last
    /// ones, and what remains to be done for the file is done when the child lets go.
    #[test]
    fn a_child_has_none_of_our_files_when_it_is_started() {
        let (to_close, closed) = channel::<Vec<io::PipeWriter>>();
        std::thread::scope(|scope| {
            scope.spawn(move || closed.iter().for_each(drop));
            for _ in 0..300 {
                let pipes = (0..100).map(|_| io::pipe().unwrap());
                let (read_ends, write_ends): (Vec<_>, Vec<_>) = pipes.unzip();
                let (last, is_last) = io::pipe().map(|(end, writer)| (writer, end)).unwrap();
                to_close.send(write_ends).unwrap();
                let mut child = spawn_without_files(&mut Command::new("true")).unwrap();
                to_close.send(vec![last]).unwrap();
                // The other thread has closed everything.
                io::copy(&mut &is_last, &mut io::sink()).unwrap();
                for read_end in read_ends {
                    fcntl_setfl(&read_end, OFlags::NONBLOCK).unwrap();
                    let found = File::from(OwnedFd::from(read_end)).read(&mut [0]);
                    assert_eq!(found.unwrap(), 0, "the child could still write");
                }
                assert!(child.wait().unwrap().success());
            }
            drop(to_close);
        });
    }
}
