//! Error numbers of the C interface, and the last message of each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use log::LogError;

/// A failure on its way to C.
pub(crate) struct Failure {
    code: c_int,
    text: String,
}

const EUSAGE: c_int = -8;
const ERANGE: c_int = -12;
const EBUG: c_int = -13;

impl Failure {
    /// An argument that cannot be.
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure { code: EUSAGE, text: text.into() }
    }

    /// A buffer that is too small.
    pub(crate) fn range(needed_bytes: usize) -> Failure {
        Failure { code: ERANGE, text: format!("the buffer must have {needed_bytes} bytes") }
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Failure {
        let code = match &error {
            LogError::Io(_) => -1,
            LogError::System { .. } | LogError::NoMemory(_) => -2,
            LogError::Aborted(_) => -3,
            LogError::Busy(_) => -4,
            LogError::Full { .. } | LogError::NoRoom(_) => -5,
            LogError::Damaged { .. } => -6,
            LogError::Incompatible(_) | LogError::DamagedMemory { .. } => -7,
            LogError::Usage(_)
            | LogError::TooLarge { .. }
            | LogError::PastEnd { .. }
            | LogError::WrongProcess => EUSAGE,
            LogError::NotFound(_) | LogError::Truncated { .. } => -9,
            LogError::Denied(_) => -10,
            LogError::Daemon(_) | LogError::InUse(_) => -11,
        };
        Failure { code, text: error.to_string() }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call of the C interface: no panic leaves it, and its error is kept for the thread.
pub(crate) fn guard(call: impl FnOnce() -> Result<()>) -> c_int {
    // What a panic leaves half done is protected by the locks of the log, which do not poison and
    // whose holders verify what they read.
    let done = catch_unwind(AssertUnwindSafe(call));
    let failure = match done {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Failure { code: EBUG, text: format!("a bug in OneJournal: {text}") }
        }
    };
    let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has no place for it any more.
    let _ = LAST.try_with(|last| last.replace(text));
    failure.code
}

/// See the header.
#[unsafe(no_mangle)]
extern "C" fn onejournal_log_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// See the header.
#[unsafe(no_mangle)]
extern "C" fn onejournal_log_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL"),
        };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        LAST.with(|last| last.borrow().to_str().expect("UTF-8").to_owned())
    }

    #[test]
    fn a_panic_becomes_a_number() {
        assert_eq!(guard(|| panic!("number {}", 7)), EBUG);
        assert!(last().contains("number 7"), "{}", last());
        assert_eq!(guard(|| Err(Failure::usage("with\0NUL"))), EUSAGE);
        assert_eq!(last(), "with NUL");
        assert_eq!(guard(|| Ok(())), 0);
        assert_eq!(last(), "with NUL", "valid until the next failure");
        let other = std::thread::spawn(last).join().expect("thread");
        assert_eq!(other, "", "each thread has its own");
    }
}
