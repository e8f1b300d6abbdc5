//! All numbers of a volume and of a file. A number is added here, where it gets its name, its
//! metric and its meaning.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value as Json;

use crate::numbers::Metric::{self, Counter, Gauge, Histogram, Label, Nowhere};
use crate::numbers::Value::{self, Count, Flag, Forms, Maybe, Spread, Text};
use crate::numbers::{Group, Number, object, page};
use crate::stat::{Seen, SeenFile, resident_bytes};

type Str = &'static str;
type OfVolume = fn(&Seen<'_>) -> Value;
type OfFile = fn(&SeenFile) -> Value;

/// The numbers of a volume since the mount. The first group is in the summary of `onejournal stat`.
#[rustfmt::skip]
pub static VOLUME: [Group<OfVolume>; 10] = [
    ("The volume", &[
        row("version", Label, "The version of OneJournal.", |s| Value::text(&s.source.version)),
        row("target", Label, "What is mounted.", |s| Value::text(&s.source.target)),
        row("durability", Label, "The [durability class](durability.md) of the media.",
            |s| Value::text(s.source.durability)),
        row("data_mode", Label, "The volume's [data mode](modes.md).",
            |s| Value::text(s.volume.data_mode().name())),
        row("transport", Label, "How requests come from the kernel: `dev_fuse` or `io_uring`.",
            |s| Value::text(s.transport)),
        row("order", Label, "[The order of writes](order.md): `history` or `sync`.",
            |s| Value::text(s.order.name())),
        row("atomic_write_bytes", Gauge,
            "Aligned writes of up to so many bytes are atomic; 0: none.",
            |s| Count(s.volume.atomic_write_bytes()))
            .more("They are [never torn](atomicity.md#untorn-writes), in files that do not ask for \
                another data mode."),
        row("atomic_declared_bytes", Gauge,
            "The largest atomic writes that files were declared to need.",
            |s| Count(s.volume.declared_bytes())).more("0: none."),
        row("read_only", Gauge, "1 after a failed write, or if asked for.",
            |s| Flag(s.volume.is_read_only())).more("In JSON `true` or `false`."),
        row("mount_time_s", Gauge, "When the volume was ready, in seconds since 1970.",
            |s| Count(s.adapter.opening.time_s)).named("mount_time_seconds"),
        row("last_error", Gauge, "1 after a grave error: see last_error of stat.",
            |s| Text(s.adapter.last_error.lock().clone())).named("has_error")
            .more("In JSON the text of the last one, or null. If `read_only` is set, too, the \
                journal is aborted: the volume failed."),
    ]),
    ("Requests", &[
        row("requests", Counter, "Requests of the kernel.", |s| load(&s.adapter.requests)),
        row("fsyncs", Counter, "Calls of fsync and fdatasync.", |s| load(&s.adapter.fsyncs))
            .more("A synchronous write implies one."),
        row("syncfs", Nowhere, "Calls of `sync` and `syncfs` that reached the volume.",
            |s| load(&s.adapter.syncfs))
            .more("One is made at the mount. 0: [they do not reach it](syncs.md#sync-and-umount)."),
        row("app_writes", Counter, "Writes of applications.", |s| load(&s.adapter.app_writes))
            .more("They are counted as they arrive from the kernel, which may split a large \
                `write` into several. With `order=sync` it joins small ones, and sends whole \
                pages."),
        row("app_bytes", Counter, "Bytes that programs wrote.", |s| load(&s.adapter.app_bytes))
            .more("They are counted with `app_writes`."),
        row("atomic_commits", Counter, "Atomic writes committed.",
            |s| load(&s.adapter.atomic_commits))
            .more("These are atomic writes (`-o atomic_writes`) and [changes of several \
                ranges](atomicity.md#several-ranges-at-once)."),
        row("atomic_aborts", Counter, "Atomic writes given up.",
            |s| load(&s.adapter.atomic_aborts)),
    ]),
    ("Commits", &[
        row("commits", Counter, "Transactions made durable.", |s| Count(s.journal.commits)),
        row("handles", Counter, "Operations in them.", |s| Count(s.journal.handles)),
        row("syncs", Counter, "Syncs asked of the journal.", |s| Count(s.journal.syncs))
            .more("`fsync`, the commit timer and a full transaction ask for one."),
        row("syncs_without_io", Counter, "Syncs that found everything durable.",
            |s| Count(s.journal.syncs_without_io)),
        row("syncs_left", Counter, "Syncs whose answer was left with a commit under way.",
            |s| Count(s.journal.syncs_left)),
        row("syncs_per_commit", Histogram, "Syncs that a commit served.",
            |s| Spread(s.syncs_per_commit.clone()))
            .more("This is the size of a group commit. Prometheus has the bounds 1, 3, 7, ..."),
    ]),
    ("Latency", &[
        row("commit_latency_ns", Histogram,
            "From the closing of a transaction until it was durable.",
            |s| Spread(s.commit_latency_ns.clone())).named("commit_latency_seconds")
            .more("It includes data that are written in place and waits for a checkpoint. Values \
                are from 1 µs to 60 s. Prometheus has powers of two of nanoseconds as bounds."),
        row("stalls", Counter, "Commits that waited for a checkpoint.",
            |s| Count(s.journal.stalls))
            .more("There was no free region, or too little memory for blocks that are not home. A \
                larger journal, more memory (`memory=`) or a faster device helps."),
        row("stall_ns", Counter, "Time that commits waited for a checkpoint.",
            |s| Count(s.journal.stall_ns)).named("stall_seconds_total"),
    ]),
    ("Journal", &[
        row("journal_size_bytes", Gauge, "Size of the journal.",
            |s| Count(s.volume.journal_size_bytes()))
            .more("0 if the volume was mounted read-only."),
        row("journal_bytes", Counter, "Bytes written to the journal, padding included.",
            |s| Count(s.journal.journal_bytes)).named("journal_written_bytes_total"),
        row("journal_bytes_by_form", Counter,
            "Changes logged by record form, before packing and padding.",
            |s| Forms(s.journal.bytes_by_form)).named("journal_bytes_total")
            .more("They are bytes, with tags, so the sum is not `journal_bytes`. The forms are \
                `block` (the whole block), `sparse` (the bytes that are not zero), `extent` (the \
                bytes that were written), `delta` (the bytes that differ), `xor_lzo`, `copy` (new \
                bytes and copies from the journal), and `patch` (the same, for a part of the \
                block). Prometheus has them as the label `form`."),
        row("logged_blocks", Nowhere, "Blocks in the committed transactions.",
            |s| Count(s.journal.logged_blocks)),
        row("logged_blocks_by_form", Counter, "Blocks logged by record form.",
            |s| Forms(s.journal.blocks_by_form)).named("logged_blocks_total")
            .more("The bytes of a form divided by its blocks give the mean size of a change."),
        row("revokes", Counter, "Revokes logged.", |s| Count(s.journal.revokes)),
    ]),
    ("Checkpoints", &[
        row("checkpoints", Counter, "Regions brought home.", |s| Count(s.journal.checkpoints)),
        row("home_bytes", Counter, "Bytes brought home by checkpoints.",
            |s| Count(s.journal.home_bytes)),
        row("cancelled_blocks", Counter, "Logged blocks that needed no write home.",
            |s| Count(s.journal.cancelled_blocks)).more("They were overwritten or freed first."),
        row("in_place_bytes", Counter, "Data written in place.",
            |s| Count(s.journal.in_place_bytes))
            .more("They are in their final place before the commit."),
    ]),
    ("Device", &[
        row("device_reads", Counter, "Reads of the device.", |s| Count(s.device.read_count))
            .more("The numbers of the device count requests after merging. For an image they count \
                what went to the file: its file system writes more to its disk, which \
                [`probe --watch`](probe.md) counts."),
        row("device_bytes_read", Counter, "Bytes read from the device.",
            |s| Count(s.device.read_bytes)).named("device_read_bytes_total"),
        row("device_writes", Counter, "Writes to the device.", |s| Count(s.device.write_count)),
        row("device_bytes_written", Counter, "Bytes written to the device.",
            |s| Count(s.device.write_bytes)).named("device_written_bytes_total"),
        row("device_durable_writes", Counter, "Writes that were durable when they returned.",
            |s| Count(s.device.durable_write_count)).more("`device_writes` counts them, too."),
        row("device_flushes", Counter, "Flushes, with durable writes.",
            |s| Count(s.device.flush_count)),
        row("opening_bytes", Gauge,
            "Bytes written before the volume was ready: recovery, zeros of a new journal.",
            |s| Count(s.adapter.opening.bytes)).more("They are in `device_bytes_written`, too."),
        row("opening_flushes", Gauge,
            "Flushes of device and journal medium before the volume was ready.",
            |s| Count(s.adapter.opening.flushes)),
        row("write_amplification", Nowhere, "Bytes written to the device divided by `app_bytes`.",
            |s| amplification(s.device.write_bytes.saturating_sub(s.adapter.opening.bytes),
                s.adapter.app_bytes.load(Ordering::Relaxed)))
            .more("It leaves out a journal on another medium, and the bytes that were written \
                before the volume was ready. It does not include the blocks that checkpoints have \
                not brought home yet."),
    ]),
    ("Journal's own medium", &[
        row("journal_target", Nowhere, "The journal's device or file, if it is not in the volume.",
            |s| Text(s.source.journal_target.clone())),
        row("journal_medium.kind", Nowhere, "`block` or `nvram`.",
            |s| Text(s.block.map(|_| "block").or(s.nvram.map(|_| "nvram")).map(str::to_owned)))
            .more("This and the rest are the requests and bytes that reached the journal's own \
                medium. Without one, `journal_medium` is null."),
        row("journal_medium.reads", Counter, "Reads of the journal's own medium.",
            |s| Maybe(s.block.map(|b| b.read_count).or(s.nvram.map(|n| n.read_count)))),
        row("journal_medium.bytes_read", Counter, "Bytes read from it.",
            |s| Maybe(s.block.map(|b| b.read_bytes).or(s.nvram.map(|n| n.read_bytes))))
            .named("journal_medium_read_bytes_total"),
        row("journal_medium.writes", Counter, "Writes to it.",
            |s| Maybe(s.block.map(|b| b.write_count)))
            .more("This and the next three are of a block device or a file."),
        row("journal_medium.bytes_written", Counter, "Bytes written to it.",
            |s| Maybe(s.block.map(|b| b.write_bytes))).named("journal_medium_written_bytes_total"),
        row("journal_medium.durable_writes", Counter,
            "Writes that were durable when they returned.",
            |s| Maybe(s.block.map(|b| b.durable_write_count))),
        row("journal_medium.flushes", Counter, "Flushes of it, with durable writes.",
            |s| Maybe(s.block.map(|b| b.flush_count))),
        row("journal_medium.stores", Counter, "Stores to it.",
            |s| Maybe(s.nvram.map(|n| n.store_count)))
            .more("This and the next three are of NVRAM."),
        row("journal_medium.bytes_stored", Counter, "Bytes stored in it.",
            |s| Maybe(s.nvram.map(|n| n.store_bytes))).named("journal_medium_stored_bytes_total"),
        row("journal_medium.lines", Counter, "Cache lines written back.",
            |s| Maybe(s.nvram.map(|n| n.line_count))),
        row("journal_medium.fences", Counter, "Fences.", |s| Maybe(s.nvram.map(|n| n.fence_count)))
            .more("Each durable write has one."),
    ]),
    ("Memory", &[
        row("memory_bytes", Gauge, "Memory that the daemon has now.",
            |_| Count(resident_bytes().unwrap_or(0))).more("Its program text is in it."),
        row("memory_bytes_max", Gauge, "Memory that the daemon takes at most.",
            |s| Maybe(s.source.memory_bytes_max)).named("memory_max_bytes")
            .more("The option is [`memory=`](mount-options.md#speed)."),
    ]),
    ("Space", &[
        row("space_bytes", Gauge, "Space for files.", |s| bytes_of(s, s.space.block_count))
            .more("This and the rest are as `df` shows them."),
        row("free_bytes", Gauge, "Free space.", |s| bytes_of(s, s.space.free_block_count)),
        row("available_bytes", Gauge, "Free space that is not reserved for root.",
            |s| bytes_of(s, s.space.available_block_count)),
        row("inodes", Gauge, "Inodes.", |s| Count(s.space.inode_count)),
        row("free_inodes", Gauge, "Free inodes.", |s| Count(s.space.free_inode_count)),
    ]),
];

/// The numbers of a file since the mount.
#[rustfmt::skip]
pub static FILE: &[Number<OfFile>] = &[
    of_file("ino", "The number of its inode.", |f| Count(f.ino.0.into())),
    of_file("app_writes", "Writes of applications to it.", |f| Count(f.stat.app_writes)),
    of_file("app_bytes", "Bytes that programs wrote to it.", |f| Count(f.stat.app_bytes)),
    of_file("fsyncs", "Calls of fsync and fdatasync.", |f| Count(f.stat.fsyncs)),
    of_file("journal_bytes", "Its data in the journal, before packing and padding.",
        |f| Count(f.stat.journal_bytes.iter().sum())),
    of_file("journal_bytes_by_form", "The same by record form.", |f| Forms(f.stat.journal_bytes)),
    of_file("in_place_bytes", "Its data that were written in place.",
        |f| Count(f.stat.in_place_bytes)),
    of_file("home_bytes", "Its data that checkpoints brought home.", |f| Count(f.stat.home_bytes)),
    of_file("write_amplification", "Journal, in-place and home bytes divided by `app_bytes`.",
        |f| amplification(f.stat.written_bytes(), f.stat.app_bytes)),
    of_file("may_be_partial",
        "Counters of files that were not used for long have been dropped since the mount, perhaps \
         the ones of this file.",
        |f| Flag(f.stat.may_be_partial)),
    of_file("atomic_write_bytes", "The largest aligned writes that are never torn in it.",
        |f| Maybe(f.atomic.map(|[write_bytes, _]| write_bytes)))
        .more("The list of files leaves this and the next one out."),
    of_file("atomic_declared_bytes", "What it is declared to need; 0: nothing.",
        |f| Maybe(f.atomic.map(|[_, declared_bytes]| declared_bytes))),
];

const fn row(name: Str, metric: Metric, help: Str, get: OfVolume) -> Number<OfVolume> {
    Number::new(name, metric, help, get)
}

const fn of_file(name: Str, help: Str, get: OfFile) -> Number<OfFile> {
    Number::new(name, Nowhere, help, get)
}

fn load(counter: &AtomicU64) -> Value {
    Count(counter.load(Ordering::Relaxed))
}

fn bytes_of(seen: &Seen<'_>, block_count: u64) -> Value {
    Count(block_count * u64::from(seen.space.block_bytes))
}

/// `written` over `wanted` bytes, to the hundredth; none when nothing was wanted.
fn amplification(written_bytes: u64, wanted_bytes: u64) -> Value {
    let ratio = written_bytes as f64 / wanted_bytes as f64;
    Value::Ratio((wanted_bytes > 0).then(|| (ratio * 100.0).round() / 100.0))
}

/// The JSON of a volume.
pub(crate) fn volume_json(seen: &Seen<'_>) -> Json {
    let numbers = VOLUME.iter().flat_map(|(_, numbers)| *numbers);
    object(numbers.map(|number| (number.name, (number.get)(seen))))
}

/// The page of a volume for Prometheus.
pub(crate) fn volume_page(seen: &Seen<'_>) -> String {
    let numbers = VOLUME.iter().flat_map(|(_, numbers)| *numbers);
    let numbers = numbers.map(|number| (number, (number.get)(seen)));
    page(("info", "What is mounted and how."), numbers)
}

/// The JSON of a file.
pub(crate) fn file_json(seen: &SeenFile) -> Json {
    let is_there = |name: &str| seen.atomic.is_some() || !name.starts_with("atomic_");
    let numbers = FILE.iter().filter(|number| is_there(number.name));
    object(numbers.map(|number| (number.name, (number.get)(seen))))
}
