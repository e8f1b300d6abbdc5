//! Counters of a mounted volume or of a file on it, read through a virtual attribute.

use std::path::Path;

use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::advice::DAEMON_GONE;
use crate::error::{CliError, Result};

/// Counters by name.
#[derive(Debug, Clone, Default)]
pub struct Counters(pub Map<String, Value>);

impl Counters {
    /// A value. `outer.inner` names a value in an object.
    pub fn value(&self, name: &str) -> Option<&Value> {
        let (outer, inner) = name.split_once('.').map_or((name, None), |(o, i)| (o, Some(i)));
        let value = self.0.get(outer)?;
        inner.map_or(Some(value), |inner| value.get(inner))
    }

    /// A number; 0 if there is none.
    pub fn number(&self, name: &str) -> u64 {
        self.value(name).and_then(Value::as_u64).unwrap_or(0)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name).and_then(Value::as_str)
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.value(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The buckets of a distribution: inclusive upper bound and count.
    pub fn buckets(&self, name: &str) -> Vec<(u64, u64)> {
        let buckets = self.value(name).and_then(|spread| spread.get("buckets"));
        let pairs = buckets.and_then(Value::as_array).into_iter().flatten();
        pairs.filter_map(|pair| Some((pair.get(0)?.as_u64()?, pair.get(1)?.as_u64()?))).collect()
    }
}

/// Parses the object in an attribute.
pub fn parse(path: &Path, text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).map_err(|error| CliError::at(path, error))
}

/// The message for a path that is not on a mounted volume.
pub const NOT_ON_A_VOLUME: &str =
    "is not on a mounted OneJournal volume; to list the mounted volumes: onejournal ls";

/// A virtual attribute of a mounted volume.
pub fn read_attribute(path: &Path, name: &[u8]) -> Result<String> {
    let value = read_raw(path, name).map_err(|errno| cannot_read(path, errno))?;
    String::from_utf8(value).map_err(|error| CliError::at(path, error))
}

/// The error of reading a virtual attribute.
pub fn cannot_read(path: &Path, errno: Errno) -> CliError {
    match errno {
        Errno::NODATA | Errno::OPNOTSUPP => CliError::at(path, NOT_ON_A_VOLUME),
        errno if mount::is_daemon_gone(errno) => CliError::at(path, DAEMON_GONE),
        other => CliError::at(path, other),
    }
}

/// The same, with the system's error.
pub fn read_raw(path: &Path, name: &[u8]) -> std::result::Result<Vec<u8>, Errno> {
    let name = std::str::from_utf8(name).map_err(|_| Errno::INVAL)?;
    volume_client::virtual_attribute(path, name)
}

/// The bytes that a file is declared to need.
pub fn declared_bytes(file: &Path) -> Option<String> {
    String::from_utf8(read_raw(file, ext4::ATOMIC_XATTR.as_bytes()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let text = r#"{"a":1,"b":{"c":2,"buckets":[[3,4],[5,6]]},"d":"x","e":true,"f":null}"#;
        let counters = Counters(serde_json::from_str(text).unwrap());
        assert_eq!(
            ["a", "b.c", "d", "f", "f.g", "h"].map(|n| counters.number(n)),
            [1, 2, 0, 0, 0, 0]
        );
        assert_eq!((counters.text("d"), counters.text("a")), (Some("x"), None));
        assert!(counters.is_set("e") && !counters.is_set("f"));
        assert_eq!(counters.buckets("b"), [(3, 4), (5, 6)]);
        assert!(counters.buckets("a").is_empty());
    }
}
