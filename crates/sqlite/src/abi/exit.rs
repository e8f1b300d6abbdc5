//! A function that runs when the process ends.

use std::ffi::c_int;

unsafe extern "C" {
    safe fn atexit(f: extern "C" fn()) -> c_int;
}

/// Has `f` run when the process ends.
pub fn at_exit(f: extern "C" fn()) {
    // If there is no room for one more, the process ends without it.
    let _ = atexit(f);
}
