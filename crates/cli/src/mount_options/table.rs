//! The table of all options of a mount. A row has the name, the default, the meaning, and what the
//! option takes and sets.

use std::net::SocketAddr;
use std::time::Duration;

use device::Durability;
use ext4::layout::claim::HEARTBEAT_MAX_S;
use ext4::{CheckpointPolicy, DataMode, DeltaCodec};
use mount::{IoUring, Memory, Order};

use super::option::Kind::{self, Flag, Number, Size, Text, Words};
use super::option::{Group, MountOption, Str};
use super::parsed::Parsed;
use crate::claimant::TAKE_OVER;
use crate::journal_path::MIN_JOURNAL_BYTES;

/// The usual options first. The last group is not in the pages for users.
pub static GROUPS: [Group; 3] = [
    Group { title: "Usual options", options: USUAL },
    Group { title: "Expert options", options: EXPERT },
    Group { title: "Options for measurements", options: MEASUREMENT },
];

#[rustfmt::skip]
static USUAL: &[MountOption] = &[
    row("ro", "rw", "read-only, or for writing",
        Flag("rw", |p, on| p.session.mount.read_only = on)),
    row("data", "auto", "how file data are written",
        Words("auto|ordered|writeback|journal|wasteless|selective|delta",
            |p, word| put(&mut p.data_mode, DataMode::from_name(word)))),
    row("order", "history",
        "history keeps the order of all writes; sync collects them until a sync",
        Words("history|sync", |p, word| put(&mut p.session.order, Order::from_name(word)))),
    row("commit", "5", "seconds after which a change is committed without a sync",
        Number(1..=300, "seconds", |p, s| p.commit_interval = Duration::from_secs(s.into()))),
    row("journal", "the volume's own",
        "the journal on NVRAM, a block device or a file; internal: in the volume, for this mount",
        Text("PATH|internal", "a path", set_journal)),
    row("journal_size", "", "makes the file of journal=",
        Size(MIN_JOURNAL_BYTES, "a journal", |p, n| p.journal_mut().size_bytes = Some(n))),
    row("memory", "as the control group and the machine allow", "what the daemon takes at most",
        Size(Memory::MIN_BYTES, "a mount", |p, bytes| p.memory_bytes = Some(bytes))),
    row("allow_other", "on for root", "other users may use the mount",
        Flag("", |p, on| p.session.mount.allow_other = on)),
    row("nosuid", "suid", "programs do not run with the rights of their owner",
        Flag("suid", |p, on| p.session.mount.nosuid = on)),
    row("nodev", "dev", "device files cannot be opened",
        Flag("dev", |p, on| p.session.mount.nodev = on)),
    row("noexec", "exec", "programs cannot be run",
        Flag("exec", |p, on| p.session.mount.noexec = on)),
    row("noatime", "relatime", "reading a file does not set its access time",
        Flag("relatime", |p, on| p.session.mount.noatime = on)),
    row("noxattr", "",
        "no extended attributes; small files are faster; files with access lists are refused",
        Flag("", |p, on| p.session.no_xattr = on)),
    row("atomic_writes", "", "the ioctls of F2FS, for SQLite with batch atomic writes",
        Flag("", |p, on| p.session.atomic_writes = on)),
    row("metrics", "", "Prometheus text at /metrics",
        Text("127.0.0.1:PORT", "a loopback address with a port, such as 127.0.0.1:9150",
            |p, address| put(&mut p.metrics, loopback(address).map(Some)))),
    row(TAKE_OVER, "",
        "a volume that another machine has not closed; it must not be mounted there",
        Flag("", |p, on| p.take_over = on)),
    // The command looks for it before it parses the others.
    row("remount", "",
        "changes ro, rw, nosuid, nodev, noexec and their opposites of a mounted volume",
        Flag("", |_, _| ())),
];

#[rustfmt::skip]
static EXPERT: &[MountOption] = &[
    row("threshold", "4096", "data=selective: bytes from which a write goes in place",
        Number(1..=1 << 20, "bytes", |p, bytes| p.threshold_bytes = bytes as usize)),
    row("delta", "auto",
        "copies: a changed block copies what the journal has; auto: not on NVRAM; runs: never",
        Words("auto|copies|runs", |p, word| choose(&mut p.delta_codec, word, &DELTAS))),
    row("regions", "4", "regions of the journal; fewer if it is too small for so many",
        Number(2..=16, "regions", |p, count| p.region_count = count as usize)),
    row("durability", "power", "what a sync must survive at least",
        Words("power|reboot|process",
            |p, word| put(&mut p.durability, Durability::from_name(word).map(Some)))),
    row("may_tear", "",
        "mounts also if files are declared to need atomic writes that this mount does not give",
        Flag("", |p, on| p.session.may_tear = on)),
    row("default_permissions", "always on", "the kernel checks permissions",
        Flag("", |p, on| p.session.mount.default_permissions = on)),
    row("heartbeat", "",
        "seconds: says so often that the volume is in use, on a disk of several machines",
        Number(1..=HEARTBEAT_MAX_S, "seconds", |p, seconds| p.heartbeat_s = seconds)),
    row("io_uring", "auto", "requests through io_uring; on allows it for the whole machine",
        Words("auto|on|off", |p, word| choose(&mut p.session.mount.io_uring, word, &IO_URING))),
    row("threads", "32", "threads that serve requests; fewer with little memory",
        Number(1..=256, "threads", |p, n| p.session.mount.thread_count = n as usize)),
    row("fsname", "", "what the mount table shows as the source",
        Text("NAME", "a name",
            |p, name| put(&mut p.session.mount.fsname, Some(Some(name.into()))))),
    row("log_level", "info", "messages of the daemon, in syslog",
        Words("error|warn|info|debug", |p, word| put(&mut p.log_level, word.parse().ok()))),
];

#[rustfmt::skip]
static MEASUREMENT: &[MountOption] = &[
    row("checkpoint", "late",
        "late: regions go home when their room is needed; early: at once, as in DJFS",
        Words("late|early", |p, word| choose(&mut p.checkpoint, word, &CHECKPOINTS))),
    row("delta", "",
        "xor-lzo: changed blocks are encoded as in DJFS; whole: they are logged whole",
        Words("xor-lzo|whole", |p, word| choose(&mut p.delta_codec, word, &DELTAS))),
    row("journal_latency", "0", "slows NVRAM down by so many nanoseconds a cache line",
        Number(0..=1_000_000, "nanoseconds",
            |p, ns| p.journal_mut().latency_ns_per_line = ns.into())),
];

const fn row(name: Str, default: Str, help: Str, kind: Kind) -> MountOption {
    MountOption { name, default, help, kind }
}

const IO_URING: [(&str, IoUring); 3] =
    [("auto", IoUring::Auto), ("on", IoUring::On), ("off", IoUring::Off)];
const CHECKPOINTS: [(&str, CheckpointPolicy); 2] =
    [("late", CheckpointPolicy::Late), ("early", CheckpointPolicy::Early)];
const DELTAS: [(&str, Option<DeltaCodec>); 5] = [
    ("auto", None),
    ("runs", Some(DeltaCodec::Runs)),
    ("copies", Some(DeltaCodec::Copies)),
    ("xor-lzo", Some(DeltaCodec::XorLzo)),
    ("whole", Some(DeltaCodec::Whole)),
];

/// The rows of an option: several, if its words are in several groups. All set it in the same way.
pub fn rows(name: &str) -> Vec<&'static MountOption> {
    let all = GROUPS.iter().flat_map(|group| group.options);
    all.filter(|option| option.is_named(name)).collect()
}

fn put<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|value| *place = value).is_some()
}

fn choose<T: Copy>(place: &mut T, word: &str, values: &[(&str, T)]) -> bool {
    let found = values.iter().find(|(name, _)| *name == word);
    put(place, found.map(|(_, value)| *value))
}

fn loopback(address: &str) -> Option<SocketAddr> {
    address.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback())
}

fn set_journal(p: &mut Parsed, path: &str) -> bool {
    match path {
        "internal" => p.journal_inside = true,
        path => p.journal_mut().path = path.into(),
    }
    true
}
