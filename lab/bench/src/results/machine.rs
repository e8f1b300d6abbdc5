//! The machine and the build that results belong to.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::wake_up;

/// The machine of the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cpu_count: usize,
    pub memory_gib: f64,
    pub kernel: String,
    pub distribution: String,
    /// The disk below the scratch folder.
    pub disk: String,
    /// The time in which a byte goes to another CPU and back, in microseconds
    /// ([`wake_up`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_up_us: Option<f64>,
}

/// The build that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Build {
    pub version: String,
    /// Git's revision, with a `+` if something was not committed; empty if the build was not told.
    pub revision: String,
    /// `release` or `debug`.
    pub profile: String,
    pub sqlite: String,
}

impl Machine {
    /// The machine of this process.
    pub fn this(scratch: &Path) -> Machine {
        Machine {
            cpu: field("/proc/cpuinfo", "model name", ':').unwrap_or_else(|| "?".into()),
            cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_gib().unwrap_or(0.0),
            kernel: line("/proc/sys/kernel/osrelease"),
            distribution: field("/etc/os-release", "PRETTY_NAME", '=').unwrap_or_default(),
            disk: describe_disk(scratch),
            wake_up_us: wake_up::round_trip_us(),
        }
    }
}

impl Build {
    /// The build of this process. The Makefile tells the compiler the revision
    /// (`scripts/revision`). A build script would compile this crate anew after each commit.
    pub fn this() -> Build {
        Build {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: option_env!("ONEJOURNAL_REVISION").unwrap_or_default().to_owned(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            sqlite: rusqlite::version().to_owned(),
        }
    }
}

/// The name in `/sys/block` of the disk that a directory is on.
pub fn disk_of(dir: &Path) -> Option<String> {
    let device = fs::metadata(dir).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition's folder is in the folder of its disk.
    let is_partition = path.join("partition").exists();
    let disk = if is_partition { path.parent()? } else { &path };
    Some(disk.file_name()?.to_str()?.to_owned())
}

fn describe_disk(scratch: &Path) -> String {
    let Some(name) = disk_of(scratch) else { return "not a disk".into() };
    let about = |file: &str| line(&format!("/sys/block/{name}/{file}"));
    let gib = about("size").parse::<f64>().unwrap_or(0.0) * 512.0 / f64::from(1 << 30);
    let kind = if about("queue/rotational") == "1" { "rotational" } else { "not rotational" };
    let cache = about("queue/write_cache");
    let fua = if about("queue/fua") == "1" { "FUA" } else { "no FUA" };
    let model = about("device/model");
    format!("{name} {model}, {gib:.0} GiB, {kind}, {cache}, {fua}").replace(" ,", ",")
}

fn memory_gib() -> Option<f64> {
    let text = field("/proc/meminfo", "MemTotal", ':')?;
    let kib: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some((kib / 1024.0 / 1024.0 * 10.0).round() / 10.0)
}

fn line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn field(path: &str, name: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    let (_, value) = pairs.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().trim_matches('"').to_owned())
}
