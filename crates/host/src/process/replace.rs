//! Another program in place of this one.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;

use super::inherited::reset_signals;

/// Runs `program` in this process, with `arguments` (the first is its name) and the environment of
/// this one. SIGTERM, SIGINT and SIGHUP wait until it calls [`reset_signals`]: they would end a
/// program that does not handle them yet. Returns only if that fails.
pub fn replace_program(program: &Path, arguments: Vec<OsString>) -> io::Error {
    let program = CString::new(program.as_os_str().as_bytes());
    let arguments: Result<Vec<_>, _> =
        arguments.into_iter().map(|word| CString::new(word.into_vec())).collect();
    let (Ok(program), Ok(arguments)) = (program, arguments) else {
        return io::Error::new(io::ErrorKind::InvalidInput, "a zero in a path or an argument");
    };
    let pointers = arguments.iter().map(|word| word.as_ptr());
    let pointers: Vec<_> = pointers.chain(std::iter::once(ptr::null())).collect();
    hold_signals();
    // SAFETY: the program and the arguments are strings that end with a zero, the list of pointers
    // ends with a null pointer, and all of them live until the call has returned.
    unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
    let error = io::Error::last_os_error();
    reset_signals();
    error
}

fn hold_signals() {
    // SAFETY: a set of signals without pointers, which sigemptyset(3) fills.
    let mut held: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set lives until all calls have returned; the old set is not asked for.
    unsafe {
        libc::sigemptyset(&mut held);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&mut held, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &held, ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        let error = replace_program(Path::new("/nonexistent/program"), vec!["program".into()]);
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let error = replace_program(Path::new("/bin/true"), vec![OsString::from("a\0b")]);
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
