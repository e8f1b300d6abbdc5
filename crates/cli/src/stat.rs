//! `onejournal stat`: the counters of a mounted volume, through its virtual attribute.

use std::path::Path;

use serde_json::{Map, Value};

use crate::{CliError, Result, StatArgs};

pub fn run(args: &StatArgs) -> Result<u8> {
    let text = read_attribute(&args.dir, mount::STAT_XATTR)?;
    if args.json {
        println!("{}", text.trim_end());
        return Ok(0);
    }
    let stat: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| CliError::at(&args.dir, error))?;
    let width = stat.keys().map(String::len).max().unwrap_or(0);
    for (name, value) in &stat {
        match value {
            Value::String(text) => println!("{name:width$}  {text}"),
            Value::Null => println!("{name:width$}  -"),
            other => println!("{name:width$}  {other}"),
        }
    }
    Ok(0)
}

/// A virtual attribute of a mounted volume.
pub fn read_attribute(path: &Path, name: &[u8]) -> Result<String> {
    let mut value = vec![0u8; 64 << 10];
    let len = rustix::fs::getxattr(path, name, value.as_mut_slice()).map_err(|errno| {
        use rustix::io::Errno;
        match errno {
            Errno::NODATA | Errno::OPNOTSUPP => {
                CliError::at(path, "is not on a mounted OneJournal volume")
            }
            other => CliError::at(path, other),
        }
    })?;
    value.truncate(len);
    String::from_utf8(value).map_err(|error| CliError::at(path, error))
}
