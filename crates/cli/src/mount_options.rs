//! `-o` of `onejournal mount`.

use std::net::SocketAddr;
use std::time::Duration;

use device::Durability;
use ext4::layout::claim::HEARTBEAT_MAX_S;
use ext4::{CheckpointPolicy, DataMode, DeltaCodec};
use mount::{IoUring, Memory, MountOptions, Order, SessionOptions};

use crate::claimant::TAKE_OVER;
use crate::journal_path::{JournalOptions, parse_journal_size};
use crate::target::parse_size;
use crate::{CliError, Result, mode};

const LOG_LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

/// Each option with its meaning; the default is in parentheses.
pub const OPTIONS: &[(&str, &str)] = &[
    ("ro, rw", "read-only, or for writing (rw)"),
    (
        "data=auto|ordered|writeback|journal|wasteless|selective|delta",
        "how file data are written (auto)",
    ),
    ("threshold=1..1048576", "data=selective: bytes from which a write goes in place (4096)"),
    ("delta=runs|copies|xor-lzo|whole", "how changed blocks are encoded (runs)"),
    (
        "checkpoint=late|early",
        "late: regions go home when their room is needed; early: at once, for measurements (late)",
    ),
    ("commit=1..300", "seconds after which a change is committed without a sync (5)"),
    ("regions=2..16", "regions of the journal (4; fewer if it is too small for so many)"),
    ("durability=power|reboot|process", "what a sync must survive at least (power)"),
    (
        "journal=PATH|internal",
        "the journal on NVRAM, a block device or a file; internal: in the volume, for this mount \
         (the volume's own)",
    ),
    ("journal_size=SIZE", "makes the file of journal=, 4M at least"),
    ("journal_latency=NS", "slows NVRAM down by so many nanoseconds a cache line"),
    ("allow_other", "other users may use the mount (as root the default)"),
    ("default_permissions", "the kernel checks permissions (always on)"),
    ("nosuid, nodev, noexec, noatime", "as for every file system"),
    (
        "order=history|sync",
        "history keeps the order of all writes; sync collects them until a sync (history)",
    ),
    ("atomic_writes", "the ioctls of F2FS, for SQLite with batch atomic writes"),
    (
        "may_tear",
        "mounts also if files are declared to need atomic writes that this mount does not give",
    ),
    (
        "noxattr",
        "no extended attributes; small files are faster; files with access lists are refused",
    ),
    ("log_level=error|warn|info|debug", "messages of the daemon, in syslog (info)"),
    ("remount", "changes ro, rw, nosuid, nodev, noexec and their opposites of a mounted volume"),
    ("io_uring=auto|on|off", "transport (auto); on allows it for the whole machine"),
    ("threads=1..256", "threads that serve requests (32; fewer with little memory)"),
    (
        "memory=SIZE",
        "what the daemon takes at most, 48M at least (as the control group and the machine allow)",
    ),
    ("takeover", "a volume that another machine has not closed; it must not be mounted there"),
    (
        "heartbeat=1..300",
        "seconds: says so often that the volume is in use, on a disk of several machines",
    ),
    ("fsname=NAME", "what the mount table shows as the source"),
    ("metrics=127.0.0.1:PORT", "Prometheus text at /metrics"),
    ("help", "shows these lines"),
];

/// What `-o help` shows: a line for each option.
pub fn help() -> String {
    OPTIONS.iter().map(|(option, text)| format!("{option:30}  {text}\n")).collect()
}

/// Whether the command line is `onejournal mount -o help`, which names no volume.
pub fn asks_for_help(words: impl IntoIterator<Item = String>) -> bool {
    let words: Vec<String> = words.into_iter().skip(1).collect();
    let has_it = || words.windows(2).any(|pair| pair[0] == "-o" && pair[1] == "help");
    words.first().is_some_and(|word| word == "mount")
        && (has_it() || words.iter().any(|word| word == "-ohelp"))
}

/// The parsed options.
#[derive(Clone, PartialEq)]
pub struct Parsed {
    /// Options for FUSE.
    pub mount: MountOptions,
    /// The order of writes.
    pub order: Order,
    /// Offers the ioctls for atomic writes.
    pub atomic_writes: bool,
    /// Mounts although files are declared to need atomic writes that it does not give.
    pub may_tear: bool,
    /// Offers no extended attributes.
    pub no_xattr: bool,
    /// Where file data goes.
    pub data_mode: DataMode,
    /// Smaller writes go through the journal in `selective` mode.
    pub threshold_bytes: usize,
    /// Age at which a transaction is committed without a request.
    pub commit_interval: Duration,
    /// Bytes of memory that the daemon takes at most, if the user named a limit.
    pub memory_bytes: Option<u64>,
    /// Regions of the journal.
    pub region_count: usize,
    /// How deltas are encoded.
    pub delta_codec: DeltaCodec,
    /// When a filled region is brought home.
    pub checkpoint: CheckpointPolicy,
    /// The weakest durability class that the media may have, if the user named one. Otherwise it is
    /// `power`.
    pub durability: Option<Durability>,
    /// Opens a volume that another machine has not closed.
    pub take_over: bool,
    /// Seconds from one heartbeat of the volume's claim to the next; 0: no heartbeats.
    pub heartbeat_s: u32,
    /// The journal's own medium, if the user named one.
    pub journal: Option<JournalOptions>,
    /// Uses the journal in the volume, although the volume may have one elsewhere.
    pub journal_inside: bool,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Lowest level of messages that are sent.
    pub log_level: tracing::Level,
}

impl Default for Parsed {
    fn default() -> Parsed {
        Parsed {
            mount: MountOptions::default(),
            order: Order::default(),
            atomic_writes: false,
            may_tear: false,
            no_xattr: false,
            data_mode: DataMode::Auto,
            threshold_bytes: 4096,
            commit_interval: Duration::from_secs(5),
            memory_bytes: None,
            region_count: 4,
            delta_codec: DeltaCodec::Runs,
            checkpoint: CheckpointPolicy::Late,
            durability: None,
            take_over: false,
            heartbeat_s: 0,
            journal: None,
            journal_inside: false,
            metrics: None,
            log_level: tracing::Level::INFO,
        }
    }
}

/// Parses the options of the command line.
pub fn parse(options: &[String]) -> Result<Parsed> {
    let mut parsed = Parsed::default();
    words(options).try_for_each(|option| parsed.set(option))?;
    check_together(&parsed)?;
    Ok(parsed)
}

/// The options one by one.
pub fn words(options: &[String]) -> impl Iterator<Item = &str> {
    options.iter().map(|option| option.trim()).filter(|option| !option.is_empty())
}

/// Whether the option exists.
pub fn is_known(option: &str) -> bool {
    !matches!(Parsed::default().try_set(option), Err(Refused::Unknown))
}

/// Why an option is not set.
enum Refused {
    /// There is no such option.
    Unknown,
    /// There is, and this value of it is wrong.
    Wrong(CliError),
}

impl From<CliError> for Refused {
    fn from(error: CliError) -> Refused {
        Refused::Wrong(error)
    }
}

/// Name and value of an option.
pub fn split(option: &str) -> (&str, Option<&str>) {
    option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)))
}

impl Parsed {
    /// What the session is asked for.
    pub fn session(&self) -> SessionOptions {
        SessionOptions {
            mount: self.mount.clone(),
            order: self.order,
            atomic_writes: self.atomic_writes,
            no_xattr: self.no_xattr,
            may_tear: self.may_tear,
        }
    }

    /// Sets one option.
    pub fn set(&mut self, option: &str) -> Result<()> {
        self.try_set(option).map_err(|refused| match refused {
            Refused::Unknown => {
                let (name, _) = split(option);
                let text =
                    format!("unknown option {name}; to list all options: onejournal mount -o help");
                CliError::usage(text)
            }
            Refused::Wrong(error) => error,
        })
    }

    fn try_set(&mut self, option: &str) -> std::result::Result<(), Refused> {
        let (name, value) = split(option);
        if is_for_others(name, value) || set_flag(self, name, value) {
            return Ok(());
        }
        if let Some(why) = why_refused(name, value) {
            return Err(CliError::usage(format!("option {option}: {why}")).into());
        }
        match value {
            Some("internal") if name == "journal" => {
                self.journal_inside = true;
                Ok(())
            }
            Some(value) if name.starts_with("journal") => {
                let journal = self.journal.get_or_insert_default();
                set_journal_value(journal, name, value)
            }
            _ => set_value(self, name, value),
        }
    }
}

/// Options of an fstab entry that are for mount(8), systemd and others, and options that state what
/// is always true.
fn is_for_others(name: &str, value: Option<&str>) -> bool {
    if name.starts_with("x-") || name.starts_with("X-") {
        return true;
    }
    match value {
        None => matches!(
            name,
            "defaults"
                | "auto"
                | "noauto"
                | "user"
                | "nouser"
                | "users"
                | "nousers"
                | "owner"
                | "noowner"
                | "group"
                | "nogroup"
                | "nofail"
                | "_netdev"
                | "loop"
                | "async"
                | "nodiratime"
                | "nostrictatime"
                | "nolazytime"
                | "nomand"
                | "noiversion"
                | "silent"
                | "loud"
                | "acl"
                | "user_xattr"
                | "nodiscard"
        ),
        Some("remount-ro") => name == "errors",
        Some(_) => matches!(name, "user" | "comment" | "helper" | "uhelper" | "loop"),
    }
}

/// The reason why an option of other file systems is refused: it would promise something that a
/// volume does not do.
fn why_refused(name: &str, value: Option<&str>) -> Option<&'static str> {
    match (name, value) {
        ("sync" | "dirsync", None) => Some(
            "writes are durable when the program calls fsync or opens with O_SYNC; leave it out",
        ),
        ("strictatime" | "diratime" | "norelatime", None) => {
            Some("access times are kept as with relatime, of files only; leave it out")
        }
        ("lazytime" | "iversion" | "mand", None) => {
            Some("a FUSE mount has no such thing; leave it out")
        }
        ("discard", None) => Some("freed blocks are not trimmed; leave it out"),
        ("writeback_cache", None) => Some("it is called order=sync here"),
        ("errors", _) => {
            Some("a volume turns read-only after an error; only errors=remount-ro can be had")
        }
        _ => None,
    }
}

fn check_together(parsed: &Parsed) -> Result<()> {
    if parsed.journal.as_ref().is_some_and(|journal| journal.path.as_os_str().is_empty()) {
        let why =
            "options journal_size and journal_latency need journal=PATH: add it, or leave them out";
        return Err(CliError::usage(why));
    }
    if parsed.journal.is_some() && parsed.journal_inside {
        let why =
            "journal=internal cannot be had together with journal=PATH: leave one of them out";
        return Err(CliError::usage(why));
    }
    if parsed.order == Order::Sync && parsed.mount.io_uring == IoUring::On {
        let why = "order=sync cannot be had together with io_uring=on: leave one of them out";
        return Err(CliError::usage(why));
    }
    if !parsed.atomic_writes {
        return Ok(());
    }
    let excluded = if !parsed.data_mode.is_atomic() {
        format!("data={}", parsed.data_mode.name())
    } else if parsed.order == Order::Sync {
        "order=sync".into()
    } else if parsed.mount.read_only {
        "ro".into()
    } else {
        return Ok(());
    };
    Err(CliError::usage(format!(
        "atomic_writes cannot be had together with {excluded}: leave one of them out"
    )))
}

/// Sets an option without a value. `false`: it is not such an option.
fn set_flag(parsed: &mut Parsed, name: &str, value: Option<&str>) -> bool {
    if value.is_some() {
        return false;
    }
    let mount = &mut parsed.mount;
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
        "atomic_writes" => parsed.atomic_writes = true,
        "may_tear" => parsed.may_tear = true,
        "noxattr" => parsed.no_xattr = true,
        _ => return false,
    }
    true
}

fn set_journal_value(
    journal: &mut JournalOptions,
    name: &str,
    value: &str,
) -> std::result::Result<(), Refused> {
    let bad = |wanted: &str| CliError::usage(format!("option {name}={value} must be {wanted}"));
    match name {
        "journal" if value.is_empty() => return Err(bad("a path").into()),
        "journal" => journal.path = value.into(),
        "journal_size" => {
            let size_bytes = parse_journal_size(value);
            journal.size_bytes = Some(size_bytes.map_err(|why| bad(&format!("a size: {why}")))?);
        }
        "journal_latency" => {
            let wanted = "a number of nanoseconds up to 1000000";
            let ns = value.parse().ok().filter(|ns| *ns <= 1_000_000);
            journal.latency_ns_per_line = ns.ok_or_else(|| bad(wanted))?;
        }
        _ => return Err(Refused::Unknown),
    }
    Ok(())
}

fn set_value(
    parsed: &mut Parsed,
    name: &str,
    value: Option<&str>,
) -> std::result::Result<(), Refused> {
    let bad = |wanted: &str| {
        CliError::usage(format!("option {name}={} must be {wanted}", value.unwrap_or_default()))
    };
    match (name, value) {
        ("data", Some(text)) => {
            let mode = DataMode::from_name(text);
            parsed.data_mode = mode.ok_or_else(|| bad(&format!("a mode; {}", mode::names())))?;
        }
        ("order", text) => {
            let order = text.and_then(Order::from_name);
            parsed.order = order.ok_or_else(|| bad("history or sync"))?;
        }
        ("delta", Some("runs")) => parsed.delta_codec = DeltaCodec::Runs,
        ("delta", Some("copies")) => parsed.delta_codec = DeltaCodec::Copies,
        ("delta", Some("xor-lzo")) => parsed.delta_codec = DeltaCodec::XorLzo,
        ("delta", Some("whole")) => parsed.delta_codec = DeltaCodec::Whole,
        ("delta", _) => return Err(bad("runs, copies, xor-lzo or whole").into()),
        ("checkpoint", Some("late")) => parsed.checkpoint = CheckpointPolicy::Late,
        ("checkpoint", Some("early")) => parsed.checkpoint = CheckpointPolicy::Early,
        ("checkpoint", _) => return Err(bad("late or early").into()),
        ("threshold", Some(text)) => {
            let bytes: usize = text.parse().map_err(|_| bad("a number of bytes"))?;
            if !(1..=1 << 20).contains(&bytes) {
                return Err(bad("1 to 1048576 bytes").into());
            }
            parsed.threshold_bytes = bytes;
        }
        ("commit", Some(text)) => {
            let seconds: u64 = text.parse().map_err(|_| bad("a number of seconds"))?;
            if !(1..=300).contains(&seconds) {
                return Err(bad("1 to 300 seconds").into());
            }
            parsed.commit_interval = Duration::from_secs(seconds);
        }
        ("regions", Some(text)) => {
            let count: usize = text.parse().map_err(|_| bad("a number"))?;
            if !(2..=16).contains(&count) {
                return Err(bad("2 to 16").into());
            }
            parsed.region_count = count;
        }
        ("threads", Some(text)) => {
            let count: usize = text.parse().map_err(|_| bad("a number"))?;
            if !(1..=256).contains(&count) {
                return Err(bad("1 to 256").into());
            }
            parsed.mount.thread_count = count;
        }
        ("memory", Some(text)) => parsed.memory_bytes = Some(parse_memory(text)?),
        (TAKE_OVER, None) => parsed.take_over = true,
        ("log_level", text) => {
            let level = text.filter(|text| LOG_LEVELS.contains(text));
            let level = level.and_then(|text| text.parse().ok());
            parsed.log_level = level.ok_or_else(|| bad("error, warn, info or debug"))?;
        }
        ("heartbeat", text) => {
            let seconds = text.and_then(|text| text.parse().ok());
            let seconds = seconds.filter(|seconds| (1..=HEARTBEAT_MAX_S).contains(seconds));
            parsed.heartbeat_s = seconds.ok_or_else(|| bad("1 to 300 seconds"))?;
        }
        ("io_uring", Some("on")) => parsed.mount.io_uring = IoUring::On,
        ("io_uring", Some("auto")) => parsed.mount.io_uring = IoUring::Auto,
        ("io_uring", Some("off")) => parsed.mount.io_uring = IoUring::Off,
        ("io_uring", _) => return Err(bad("on, auto or off").into()),
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
        _ => return Err(Refused::Unknown),
    }
    Ok(())
}

fn parse_memory(text: &str) -> Result<u64> {
    let (least, option) = (Memory::MIN_BYTES >> 20, format!("option memory={text}"));
    match parse_size(text) {
        Ok(bytes) if bytes >= Memory::MIN_BYTES => Ok(bytes),
        Ok(_) => {
            Err(CliError::usage(format!("{option} is too little: a mount needs {least}M at least")))
        }
        Err(why) => Err(CliError::usage(format!("{option} must be a size such as 256M: {why}"))),
    }
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
        assert_eq!(parsed.order, Order::History);
        assert_eq!(parse_text("order=sync").unwrap().order, Order::Sync);
        assert_eq!((parsed.take_over, parsed.heartbeat_s), (false, 0));
        let parsed = parse_text("takeover,heartbeat=5").unwrap();
        assert_eq!((parsed.take_over, parsed.heartbeat_s), (true, 5));
        assert_eq!(parse_text("delta=whole").unwrap().delta_codec, DeltaCodec::Whole);
        assert_eq!(parse_text("checkpoint=early").unwrap().checkpoint, CheckpointPolicy::Early);
        assert_eq!(parse_text("memory=48M").unwrap().memory_bytes, Some(48 << 20));
        assert!(parse_text("noxattr").unwrap().no_xattr && !parsed.no_xattr);
        assert!(parse_text("may_tear,order=sync").unwrap().may_tear && !parsed.may_tear);
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
        assert!(!parsed.journal_inside);
        let parsed = parse_text("journal=internal").unwrap();
        assert_eq!((parsed.journal, parsed.journal_inside), (None, true));
        let parsed = parse_text("journal=./internal").unwrap();
        assert_eq!(parsed.journal.map(|journal| journal.path), Some("./internal".into()));
        assert!(parse_text("journal=internal,journal=/x").is_err());
        for text in ["journal_size=x", "journal_size=1M", "journal_latency=-1", "journal_x=1"] {
            let error = parse_text(&format!("journal=/x,{text}")).err().unwrap();
            assert!(error.text.contains(text.split('=').next().unwrap()), "{text}: {error}");
        }
    }

    #[test]
    fn an_fstab_entry_has_options_for_others() {
        let text = "defaults,noauto,nofail,auto,user,users=x,nouser,owner,group,_netdev,\
                    comment=a b,x-systemd.automount,X-mount.mkdir=0755,x-gvfs-show,\
                    uhelper=onejournal,nodiratime,errors=remount-ro";
        let text = text.replace("users=x", "users");
        assert!(parse_text(&text).unwrap() == Parsed::default());
        assert_eq!(parse_text("log_level=debug").unwrap().log_level, tracing::Level::DEBUG);
    }

    #[test]
    fn malformed_and_unsupported_options_are_refused_by_name() {
        let bad = [
            "sync",
            "dirsync",
            "strictatime",
            "lazytime",
            "discard",
            "errors=continue",
            "log_level",
            "log_level=trace",
            "remount=1",
            "users=x",
            "data=fast",
            "order",
            "order=strict",
            "writeback_cache",
            "commit=0",
            "commit=x",
            "regions=1",
            "threads=0",
            "memory",
            "memory=x",
            "memory=47M",
            "durability=dram",
            "io_uring=1",
            "delta=lz4",
            "checkpoint",
            "checkpoint=now",
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
            "journal=internal,journal_size=8M",
        ];
        for text in bad {
            let name = text.split('=').next().unwrap();
            let error = parse_text(text).err().unwrap();
            assert!(error.text.contains(name), "{text}: {error}");
        }
        for other in ["data=ordered", "data=selective", "data=writeback", "order=sync", "ro"] {
            let error = parse_text(&format!("atomic_writes,{other}")).err().unwrap();
            assert!(error.text.contains(other), "{error}");
        }
        let error = parse_text("order=sync,io_uring=on").err().unwrap();
        assert!(error.text.contains("io_uring=on"), "{error}");
        assert!(parse_text("atomic_writes,data=journal").unwrap().atomic_writes);
        let error = parse_text("frobnicate").err().unwrap();
        assert!(error.text.starts_with("unknown option frobnicate; "), "{error}");
    }

    #[test]
    fn a_wrong_value_does_not_make_an_option_unknown() {
        let known = ["ro", "data=delta", "data=fast", "sync", "journal_size=1M", "comment=x"];
        for option in known {
            assert!(is_known(option), "{option}");
        }
        for option in ["frobnicate", "frobnicate=1", "journal_x=1", "ro=1"] {
            assert!(!is_known(option), "{option}");
        }
    }
}
