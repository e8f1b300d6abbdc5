//! The SQL functions `onejournal_version()`, `onejournal_stat()`, `onejournal_last_error()` and
//! `onejournal_make_default()`.

use std::ffi::{CStr, c_int};

use crate::abi::ffi::*;
use crate::abi::functions::SqlFunction;
use crate::abi::loaded::{NAME, loaded};
use crate::abi::loading::Loading;
use crate::abi::vfs::make_default;
use crate::messages;
use crate::stat;

/// Adds the functions to a connection, which may have them. Returns SQLite's result code.
pub fn add_to(loading: &Loading<'_>) -> c_int {
    let functions = [
        Loading::add::<Version>,
        Loading::add::<Stat>,
        Loading::add::<LastError>,
        Loading::add::<MakeDefault>,
    ];
    let failed = functions.into_iter().map(|add| add(loading)).find(|rc| *rc != SQLITE_OK);
    failed.unwrap_or(SQLITE_OK)
}

struct Version;

impl SqlFunction for Version {
    const NAME: &'static CStr = c"onejournal_version";

    fn call() -> Option<String> {
        Some(env!("CARGO_PKG_VERSION").to_owned())
    }
}

struct Stat;

impl SqlFunction for Stat {
    const NAME: &'static CStr = c"onejournal_stat";

    fn call() -> Option<String> {
        Some(stat::to_json())
    }
}

struct LastError;

impl SqlFunction for LastError {
    const NAME: &'static CStr = c"onejournal_last_error";

    fn call() -> Option<String> {
        messages::last_error()
    }
}

/// For drivers that load an extension by its file's name only.
struct MakeDefault;

impl SqlFunction for MakeDefault {
    const NAME: &'static CStr = c"onejournal_make_default";
    /// A database file must not change the process.
    const IS_DIRECT_ONLY: bool = true;

    fn call() -> Option<String> {
        let is_default = make_default(&loaded().api) == SQLITE_OK;
        is_default.then(|| NAME.to_string_lossy().into_owned())
    }
}
