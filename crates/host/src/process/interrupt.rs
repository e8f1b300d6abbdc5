//! Interrupts threads of this process that wait in a system call.
//!
//! The signal is SIGURG: where no handler is installed, it does nothing.

use std::ptr;
use std::sync::Once;

/// A thread that can be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interruptible(libc::pid_t);

impl Interruptible {
    /// The calling thread. From now on a system call in which it waits fails with `EINTR` when it
    /// is interrupted. That is true for all threads of the process, as far as the call allows it.
    pub fn current() -> Interruptible {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        // SAFETY: takes nothing, and cannot fail.
        Interruptible(unsafe { libc::gettid() })
    }

    /// Interrupts the thread, if it waits now. Does nothing if it has ended. (Its number may be
    /// that of another thread by then, which is interrupted instead.)
    pub fn interrupt(self) {
        // SAFETY: takes three numbers. The handler of the signal does nothing.
        let _ = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGURG) };
    }
}

extern "C" fn do_nothing(_: libc::c_int) {}

/// Without `SA_RESTART`, so that the system call fails.
fn install() {
    // SAFETY: a structure of numbers and a null pointer, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = do_nothing as *const () as libc::sighandler_t;
    // SAFETY: the action lives until the call has returned; its handler uses nothing, so it may
    // run at any time; the old action is not asked for.
    let installed = unsafe { libc::sigaction(libc::SIGURG, &action, ptr::null_mut()) };
    assert_eq!(installed, 0, "the kernel knows the signal");
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_that_waits_is_interrupted() {
        let (mut reader, _writer) = std::io::pipe().unwrap();
        let (told, begun) = channel();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                told.send(Interruptible::current()).unwrap();
                let error = reader.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Interrupted);
                is_over.store(true, Ordering::SeqCst);
            });
            let thread = begun.recv().unwrap();
            while !is_over.load(Ordering::SeqCst) {
                thread.interrupt();
                std::thread::yield_now();
            }
        });
    }
}
