//! The names of streams.

use std::fmt;
use std::str::FromStr;

use crate::{LogError, Result};

/// Name of a stream: 1 to 128 letters, digits, `.`, `_`, `-`, the first of them no dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName(String);

/// Most bytes of a stream's name.
pub const NAME_BYTES_MAX: usize = 128;

impl StreamName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StreamName {
    type Err = LogError;

    fn from_str(text: &str) -> Result<StreamName> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = !text.is_empty()
            && text.len() <= NAME_BYTES_MAX
            && !text.starts_with('.')
            && text.bytes().all(allowed);
        match is_name {
            true => Ok(StreamName(text.to_owned())),
            false => Err(LogError::Usage(format!(
                "{text:?} is no name of a stream: 1 to {NAME_BYTES_MAX} letters, digits, '.', '_', \
                 '-', not beginning with a dot"
            ))),
        }
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_file_name_that_needs_no_quoting() {
        for good in ["a", "db-1.wal_2", &"x".repeat(NAME_BYTES_MAX)] {
            assert_eq!(good.parse::<StreamName>().expect(good).as_str(), good);
        }
        for bad in ["", ".", "..", ".a", "a/b", "a b", "ä", "a\0", &"x".repeat(NAME_BYTES_MAX + 1)]
        {
            assert!(bad.parse::<StreamName>().is_err(), "{bad:?}");
        }
    }
}
