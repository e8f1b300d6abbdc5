//! `-o` of `onejournal mount`.

use std::net::SocketAddr;
use std::time::Duration;

use device::Durability;
use ext4::{DataMode, DeltaCodec};
use mount::{IoUring, MountOptions};

use crate::claimant::TAKE_OVER;
use crate::journal_path::JournalOptions;
use crate::target::parse_size;
use crate::{CliError, Result, mode};

/// As `mkfs` makes them; the engine says what is too small for so many regions.
const SMALLEST_JOURNAL_BYTES: u64 = 4 << 20;

/// Shown by `--help`.
pub const HELP: &str = "Mount options, separated by commas: ro, rw, data=auto|ordered|writeback|\
journal|wasteless|selective|delta (auto), threshold=1..1048576 (bytes; 4096, for selective), \
delta=runs|xor-lzo (runs), commit=1..300 (seconds; 5), regions=2..16 (4), durability=power|reboot|process, journal=PATH (NVRAM, a \
block device, a file; journal_size=SIZE makes the file, 4M at least; journal_latency=NS slows NVRAM down by so \
much a cache line), allow_other (as root the default), default_permissions (always on), nosuid, nodev, noexec, noatime, writeback_cache, \
atomic_writes (the ioctls of F2FS, for SQLite with batch atomic writes), io_uring=auto|on|off (auto; on allows it for the whole machine), \
threads=1..256 (32), takeover (a volume that another machine has not closed: nobody must have it mounted there), heartbeat=1..300 \
(seconds; for a disk that several machines share: says so often that the volume is in use), fsname=NAME, metrics=127.0.0.1:PORT (Prometheus text at /metrics)";

/// What the options ask for.
pub struct Parsed {
    /// For the FUSE side.
    pub mount: MountOptions,
    /// Where file data goes.
    pub data_mode: DataMode,
    /// Smaller writes go through the journal in `selective` mode.
    pub threshold_bytes: usize,
    /// Age at which a transaction is committed without being asked.
    pub commit_interval: Duration,
    /// Regions of the journal.
    pub region_count: usize,
    /// How deltas are encoded.
    pub delta_codec: DeltaCodec,
    /// The least that the media have to survive, as asked for by name; otherwise a power cut.
    pub durability: Option<Durability>,
    /// Opens a volume that another machine has not closed.
    pub take_over: bool,
    /// Seconds from one heartbeat of the volume's claim to the next; 0: there are none.
    pub heartbeat_s: u32,
    /// The journal's own medium.
    pub journal: Option<JournalOptions>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

/// Parses the options of the command line.
pub fn parse(options: &[String]) -> Result<Parsed> {
    let mut parsed = Parsed {
        mount: MountOptions::default(),
        data_mode: DataMode::Auto,
        threshold_bytes: 4096,
        commit_interval: Duration::from_secs(5),
        region_count: 4,
        delta_codec: DeltaCodec::Runs,
        durability: None,
        take_over: false,
        heartbeat_s: 0,
        journal: None,
        metrics: None,
    };
    let mut journal = JournalOptions::default();
    for option in options.iter().map(|option| option.trim()).filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if !set_flag(&mut parsed.mount, name, value) {
            match value {
                Some(value) if name.starts_with("journal") => {
                    set_journal_value(&mut journal, name, value)?;
                }
                _ => set_value(&mut parsed, name, value)?,
            }
        }
    }
    let has_path = !journal.path.as_os_str().is_empty();
    if !has_path && journal != JournalOptions::default() {
        let why = "options journal_size and journal_latency need journal=PATH";
        return Err(CliError::usage(why));
    }
    parsed.journal = has_path.then_some(journal);
    check_together(&parsed)?;
    Ok(parsed)
}

fn check_together(parsed: &Parsed) -> Result<()> {
    if !parsed.mount.atomic_writes {
        return Ok(());
    }
    let excluded = match (parsed.data_mode, &parsed.mount) {
        (mode, _) if !mode.is_atomic() => format!("data={}", mode.name()),
        (_, mount) if mount.writeback_cache => "writeback_cache".into(),
        (_, mount) if mount.read_only => "ro".into(),
        _ => return Ok(()),
    };
    Err(CliError::usage(format!("atomic_writes cannot be had together with {excluded}")))
}

/// Options without a value. `false`: not one of them.
fn set_flag(mount: &mut MountOptions, name: &str, value: Option<&str>) -> bool {
    if value.is_some() {
        return false;
    }
    match name {
        "ro" => mount.read_only = true,
        "rw" => mount.read_only = false,
        "allow_other" => mount.allow_other = true,
        "default_permissions" => mount.default_permissions = true,
        "nosuid" => mount.nosuid = true,
        "suid" => mount.nosuid = false,
        "nodev" => mount.nodev = true,
        "dev" => mount.nodev = false,
        "noexec" => mount.noexec = true,
        "exec" => mount.noexec = false,
        "noatime" => mount.noatime = true,
        "relatime" => mount.noatime = false,
        "writeback_cache" => mount.writeback_cache = true,
        "atomic_writes" => mount.atomic_writes = true,
        // What mount(8) adds to an fstab entry and what is the default anyway.
        "defaults" | "auto" | "noauto" | "user" | "nouser" | "nofail" | "_netdev" => {}
        _ => return false,
    }
    true
}

fn set_journal_value(journal: &mut JournalOptions, name: &str, value: &str) -> Result<()> {
    let bad = |wanted: &str| CliError::usage(format!("option {name}={value} must be {wanted}"));
    match name {
        "journal" if value.is_empty() => return Err(bad("a path")),
        "journal" => journal.path = value.into(),
        "journal_size" => {
            let size_bytes = parse_size(value).map_err(|why| bad(&format!("a size: {why}")))?;
            if size_bytes < SMALLEST_JOURNAL_BYTES {
                return Err(bad("4M at least"));
            }
            journal.size_bytes = Some(size_bytes);
        }
        "journal_latency" => {
            let wanted = "a number of nanoseconds up to 1000000";
            let ns = value.parse().ok().filter(|ns| *ns <= 1_000_000);
            journal.latency_ns_per_line = ns.ok_or_else(|| bad(wanted))?;
        }
        _ => return Err(CliError::usage(format!("unknown option {name}"))),
    }
    Ok(())
}

fn set_value(parsed: &mut Parsed, name: &str, value: Option<&str>) -> Result<()> {
    let bad = |wanted: &str| {
        CliError::usage(format!("option {name}={} must be {wanted}", value.unwrap_or_default()))
    };
    match (name, value) {
        ("data", Some(text)) => {
            let mode = DataMode::from_name(text);
            parsed.data_mode = mode.ok_or_else(|| bad(&format!("a mode; {}", mode::names())))?;
        }
        ("delta", Some("runs")) => parsed.delta_codec = DeltaCodec::Runs,
        ("delta", Some("xor-lzo")) => parsed.delta_codec = DeltaCodec::XorLzo,
        ("delta", _) => return Err(bad("runs or xor-lzo")),
        ("threshold", Some(text)) => {
            let bytes: usize = text.parse().map_err(|_| bad("a number of bytes"))?;
            if !(1..=1 << 20).contains(&bytes) {
                return Err(bad("1 to 1048576 bytes"));
            }
            parsed.threshold_bytes = bytes;
        }
        ("commit", Some(text)) => {
            let seconds: u64 = text.parse().map_err(|_| bad("a number of seconds"))?;
            if !(1..=300).contains(&seconds) {
                return Err(bad("1 to 300 seconds"));
            }
            parsed.commit_interval = Duration::from_secs(seconds);
        }
        ("regions", Some(text)) => {
            let count: usize = text.parse().map_err(|_| bad("a number"))?;
            if !(2..=16).contains(&count) {
                return Err(bad("2 to 16"));
            }
            parsed.region_count = count;
        }
        ("threads", Some(text)) => {
            let count: usize = text.parse().map_err(|_| bad("a number"))?;
            if !(1..=256).contains(&count) {
                return Err(bad("1 to 256"));
            }
            parsed.mount.thread_count = count;
        }
        (TAKE_OVER, None) => parsed.take_over = true,
        ("heartbeat", text) => {
            let seconds = text.and_then(|text| text.parse().ok());
            let seconds = seconds.filter(|seconds| (1..=300).contains(seconds));
            parsed.heartbeat_s = seconds.ok_or_else(|| bad("1 to 300 seconds"))?;
        }
        ("io_uring", Some("on")) => parsed.mount.io_uring = IoUring::On,
        ("io_uring", Some("auto")) => parsed.mount.io_uring = IoUring::Auto,
        ("io_uring", Some("off")) => parsed.mount.io_uring = IoUring::Off,
        ("io_uring", _) => return Err(bad("on, auto or off")),
        ("durability", text) => {
            let class = text.and_then(Durability::from_name);
            parsed.durability = Some(class.ok_or_else(|| bad("power, reboot or process"))?);
        }
        ("metrics", text) => {
            let wanted = || bad("a loopback address with a port, such as 127.0.0.1:9150");
            let address = text.and_then(|text| text.parse::<SocketAddr>().ok());
            let is_ours = |address: &SocketAddr| address.ip().is_loopback();
            parsed.metrics = Some(address.filter(is_ours).ok_or_else(wanted)?);
        }
        ("fsname", Some(text)) => parsed.mount.fsname = Some(text.to_string()),
        _ => {
            return Err(CliError::usage(format!("unknown option {name}; see onejournal mount -h")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<Parsed> {
        parse(&text.split(',').map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn known_options() {
        let parsed =
            parse_text("ro,data=ordered,commit=30,regions=8,threads=2,fsname=x,metrics=[::1]:9")
                .unwrap();
        assert!(parsed.mount.read_only);
        assert_eq!(parsed.data_mode, DataMode::Ordered);
        assert_eq!(parsed.commit_interval, Duration::from_secs(30));
        assert_eq!((parsed.region_count, parsed.mount.thread_count), (8, 2));
        assert_eq!(parsed.metrics.unwrap().port(), 9);
        assert_eq!((parsed.take_over, parsed.heartbeat_s), (false, 0));
        let parsed = parse_text("takeover,heartbeat=5").unwrap();
        assert_eq!((parsed.take_over, parsed.heartbeat_s), (true, 5));
    }

    #[test]
    fn a_journal_elsewhere() {
        let parsed = parse_text("journal=/x/y,journal_size=8M,journal_latency=300").unwrap();
        let expected = JournalOptions {
            path: "/x/y".into(),
            size_bytes: Some(8 << 20),
            latency_ns_per_line: 300,
        };
        assert_eq!((parsed.journal, parsed.durability), (Some(expected), None));
        let parsed = parse_text("durability=reboot").unwrap();
        assert_eq!((parsed.journal, parsed.durability), (None, Some(Durability::Reboot)));
        for text in ["journal_size=x", "journal_size=1M", "journal_latency=-1", "journal_x=1"] {
            let error = parse_text(&format!("journal=/x,{text}")).err().unwrap();
            assert!(error.text.contains(text.split('=').next().unwrap()), "{text}: {error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let bad = [
            "data=fast",
            "commit=0",
            "commit=x",
            "regions=1",
            "threads=0",
            "durability=dram",
            "io_uring=1",
            "delta=lz4",
            "heartbeat",
            "heartbeat=0",
            "heartbeat=301",
            "takeover=1",
            "metrics",
            "metrics=9150",
            "metrics=0.0.0.0:9150",
            "journal=",
            "journal_size=1G",
            "journal_latency=5",
        ];
        for text in bad {
            let name = text.split('=').next().unwrap();
            let error = parse_text(text).err().unwrap();
            assert!(error.text.contains(name), "{text}: {error}");
        }
        for other in ["data=ordered", "data=selective", "data=writeback", "writeback_cache", "ro"] {
            let error = parse_text(&format!("atomic_writes,{other}")).err().unwrap();
            assert!(error.text.contains(other), "{error}");
        }
        assert!(parse_text("atomic_writes,data=journal").unwrap().mount.atomic_writes);
        assert!(parse_text("frobnicate").err().unwrap().text.contains("frobnicate"));
    }
}
