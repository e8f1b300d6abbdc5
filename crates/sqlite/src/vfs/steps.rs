//! Runs a step that comes before the call of the file below, or takes its place.

use std::ffi::c_int;

use crate::abi::ffi::*;
use crate::abi::guard::guard;
use crate::failure::Failure;
use crate::messages::tell;
use crate::volume::rollback::Step;

/// Runs a step of a transaction on a volume. Returns SQLite's result code; `None`: the call of the
/// file below is still to be made.
pub fn rolled(default: c_int, f: impl FnOnce() -> Result<Step, Failure>) -> Option<c_int> {
    guard(Some(default), || match f() {
        Ok(Step::Done) => Some(SQLITE_OK),
        Ok(Step::Below) => None,
        Err(e) => {
            let code = e.code(default);
            if code != SQLITE_IOERR_SHORT_READ && code != SQLITE_NOTFOUND {
                tell(code, &format!("a transaction on a volume: {e}"));
            }
            Some(code)
        }
    })
}

/// Runs a function on what is held back for a WAL or a journal on a volume. Returns SQLite's result
/// code.
pub fn settled(f: impl FnOnce() -> Result<(), Failure>) -> c_int {
    guard(SQLITE_IOERR, || match f() {
        Ok(()) => SQLITE_OK,
        Err(e) => {
            let code = e.code(SQLITE_IOERR);
            tell(code, &format!("a WAL or journal on a volume: {e}"));
            code
        }
    })
}

/// Runs `below` if the code before it is a success.
pub fn then(code: c_int, below: impl FnOnce() -> c_int) -> c_int {
    if code == SQLITE_OK { below() } else { code }
}
