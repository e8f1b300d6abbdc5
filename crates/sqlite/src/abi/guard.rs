//! Keeps panics from SQLite.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`. A panic, which is a bug, becomes `otherwise` and does not reach SQLite.
pub fn guard<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(otherwise)
}
