//! What a process has from the process that started it: descriptors, signals, scheduling.
//!
//! `docs/reference/surroundings.md` says which of it a command keeps, and why.

use std::io;
use std::ptr;

/// The first descriptor that is not a standard one.
const FIRST: libc::c_uint = 3;
/// `CLOSE_RANGE_CLOEXEC` (Linux 5.11).
const CLOSE_ON_EXEC: libc::c_uint = 4;
/// `IOPRIO_WHO_PROCESS`, for which 0 is the calling thread.
const WHO_PROCESS: libc::c_int = 1;
/// `IOPRIO_CLASS_NONE`: the class and the priority follow from the nice value.
const CLASS_NONE: libc::c_int = 0;

/// Programs that this process starts from now on get none of its descriptors but the standard ones,
/// not even descriptors that it has inherited itself.
pub fn keep_descriptors_from_children() -> io::Result<()> {
    let (end, how) = (libc::c_uint::MAX, CLOSE_ON_EXEC);
    // SAFETY: takes three numbers. It closes nothing in this process.
    match unsafe { libc::syscall(libc::SYS_close_range, FIRST, end, how) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// No signal is blocked, the end of a child can be waited for, and a write beyond the limit on file
/// sizes is an error (`EFBIG`) and not the end of the process.
///
/// # Panics
/// If the kernel does not know one of these signals.
pub fn reset_signals() {
    // SAFETY: a set of signals without pointers, which sigemptyset(3) fills.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set lives until both calls have returned; the old set is not asked for.
    let unblocked = unsafe {
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut())
    };
    assert_eq!(unblocked, 0, "no signal is blocked");
    for (signal, action) in [(libc::SIGCHLD, libc::SIG_DFL), (libc::SIGXFSZ, libc::SIG_IGN)] {
        // SAFETY: both actions are the kernel's own, so no function is called.
        let before = unsafe { libc::signal(signal, action) };
        assert_ne!(before, libc::SIG_ERR, "signal {signal}");
    }
}

/// The calling thread, and threads and processes that it starts from now on, have the usual classes
/// on the processors and on disks: neither idle nor batch nor real-time. Without the privilege some
/// of that stays as it is.
pub fn reset_scheduling() {
    // SAFETY: takes the number of a process; 0 is the calling thread.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters live until the call has returned.
        let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &parameters) };
    }
    // SAFETY: takes three numbers.
    let _ = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_NONE) };
}
