//! The date that rows carry.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970; 0 on a machine whose clock is before.
pub fn seconds_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
