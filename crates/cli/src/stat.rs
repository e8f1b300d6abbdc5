//! `onejournal stat`: the counters of a mounted volume or of a file, through a virtual attribute.

use std::path::Path;

use serde_json::{Map, Value};

use crate::volumes::ServedVolume;
use crate::{CliError, Result, StatArgs, watch};

pub fn run(args: &StatArgs) -> Result<u8> {
    if let Some(seconds) = args.watch {
        return watch::run(&args.path, seconds, args.json);
    }
    let is_file = std::fs::metadata(&args.path).is_ok_and(|found| found.is_file());
    let name = if is_file { mount::FILE_XATTR } else { mount::STAT_XATTR };
    let text = match read_attribute(&args.path, name) {
        Ok(text) => text,
        Err(error) => read_of_target(&args.path, args.json)?.ok_or(error)?,
    };
    if args.json {
        println!("{}", text.trim_end());
        return Ok(0);
    }
    let stat = parse(&args.path, &text)?;
    let lines = flatten("", &stat);
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in &lines {
        println!("{name:width$}  {value}");
    }
    Ok(0)
}

/// The counters of the volume in an image or on a device that is being served; unless they are for a program, it is
/// printed by which process and where. `None` if it is not served.
fn read_of_target(path: &Path, json: bool) -> Result<Option<String>> {
    let Some(volume) = ServedVolume::on_target(path)? else { return Ok(None) };
    let Some(daemon) = volume.daemon()? else { return Ok(None) };
    let whereabouts = volume.whereabouts();
    if !json {
        println!("process {}, {whereabouts}\n", daemon.pid);
    }
    for dir in volume.reachable_dirs() {
        if let Ok(text) = read_attribute(&dir, mount::STAT_XATTR) {
            return Ok(Some(text));
        }
    }
    let pid = daemon.pid;
    Err(CliError::at(
        path,
        format!("process {pid} serves it, {whereabouts}: no counters to be had"),
    ))
}

/// The counters in an attribute.
pub fn parse(path: &Path, text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).map_err(|error| CliError::at(path, error))
}

/// Names and values to print, those of an object as `outer.inner`; buckets are for programs.
fn flatten(prefix: &str, stat: &Map<String, Value>) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (name, value) in stat {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(inner) => lines.extend(flatten(&format!("{name}."), inner)),
            Value::Array(_) => {}
            Value::String(text) => lines.push((name, text.clone())),
            Value::Null => lines.push((name, "-".into())),
            other => lines.push((name, other.to_string())),
        }
    }
    lines
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
            errno if mount::is_daemon_gone(errno) => CliError::at(path, mount::DAEMON_GONE),
            other => CliError::at(path, other),
        }
    })?;
    value.truncate(len);
    String::from_utf8(value).map_err(|error| CliError::at(path, error))
}
