//! Pins the numbers that users see: their names in JSON and the page for Prometheus, with the
//! values that a test can set. `ONEJOURNAL_WRITE_TABLES=1` writes `numbers_test.txt` again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Counters, NvramCounters};
use ext4::{DataMode, InodeNo, Owner};
use fuse::abi::InHeader;
use fuse::{Body, Reply};
use serde_json::Value;

use crate::adapter::Adapter;
use crate::adapter::call::Call;
use crate::adapter::harness::{adapter, make};
use crate::stat::{FILE_XATTR, FILES_XATTR, JournalCounters, Opening, STAT_XATTR};

fn block(first: u64) -> Counters {
    let [read_count, read_bytes, write_count, write_bytes, flush_count, durable_write_count] =
        [0, 1, 2, 3, 4, 5].map(|index| first + index);
    let durable_write_bytes = 999;
    Counters {
        read_count,
        read_bytes,
        write_count,
        write_bytes,
        durable_write_count,
        durable_write_bytes,
        flush_count,
    }
}

fn nvram() -> NvramCounters {
    let [read_count, read_bytes, store_count, store_bytes, line_count, fence_count] =
        [0, 1, 2, 3, 4, 5].map(|index| 400 + index);
    NvramCounters { read_count, read_bytes, store_count, store_bytes, line_count, fence_count }
}

/// A mount of which the numbers that it counts itself are set.
fn mount(medium: Option<JournalCounters>) -> (Adapter, InodeNo) {
    let mut adapter = adapter(DataMode::Auto);
    adapter.stat_source.device_counters = Arc::new(|| block(30));
    adapter.counters.opening = Opening::so_far(&adapter.stat_source);
    adapter.stat_source.device_counters = Arc::new(|| block(200));
    if let Some(medium) = medium {
        adapter.stat_source.journal_target = Some("other".into());
        adapter.stat_source.journal_counters = Some(Arc::new(move || medium));
        adapter.stat_source.memory_bytes_max = Some(777);
    }
    let counters = &adapter.counters;
    for (index, counter) in [
        &counters.requests,
        &counters.fsyncs,
        &counters.syncfs,
        &counters.app_writes,
        &counters.app_bytes,
        &counters.atomic_commits,
        &counters.atomic_aborts,
    ]
    .into_iter()
    .enumerate()
    {
        counter.store(101 + index as u64, Ordering::Relaxed);
    }
    let ino = {
        let volume = adapter.volume.read();
        let volume = volume.as_ref().unwrap();
        let ino = make(volume, b"file", Owner::default());
        volume.as_root().write(ino, 0, &[1; 5000]).unwrap();
        volume.as_root().sync().unwrap();
        ino
    };
    (adapter, ino)
}

fn attribute(adapter: &Adapter, ino: InodeNo, name: &[u8]) -> Value {
    let volume = adapter.volume.read();
    let volume = volume.as_ref().unwrap().as_root();
    let mut room = [0; 64];
    let (body, reply) = (Body::whole(&[]), &mut Reply::new(&mut room));
    let call = Call { adapter, volume, header: InHeader::default(), body, reply };
    let Ok(Some(json)) = call.virtual_attribute(ino, name) else { panic!("no attribute") };
    serde_json::from_slice(&json).unwrap()
}

/// Names and values, each on a line. A value that depends on the machine or the time is shown as
/// its kind.
fn lines_of(prefix: &str, value: &Value, into: &mut BTreeSet<String>) {
    for (name, value) in value.as_object().unwrap() {
        let name = format!("{prefix}{name}");
        let is_set = ["requests", "fsyncs", "syncfs", "app_", "atomic_", "device", "opening"];
        let is_set = is_set.iter().any(|part| name.contains(part));
        match value {
            Value::Object(_) => lines_of(&format!("{name}."), value, into),
            Value::Number(_) if is_set || name.contains("journal_medium") => {
                into.insert(format!("{name} {value}"));
            }
            Value::Number(_) => drop(into.insert(format!("{name} a number"))),
            Value::Array(_) => drop(into.insert(format!("{name} a list"))),
            _ => drop(into.insert(format!("{name} {value}"))),
        }
    }
}

/// The page, family by family, in the order of names.
fn families(page: &str) -> BTreeSet<String> {
    let set = ["requests", "fsyncs", "app_", "atomic_", "device", "opening", "medium", "info"];
    let line = |line: &str| match line.rsplit_once(' ') {
        Some((name, _)) if !set.iter().any(|part| name.contains(part)) => format!("{name} ...\n"),
        _ => format!("{line}\n"),
    };
    let family = |family: &str| {
        let (help, rest) = family.split_once('\n').unwrap();
        let (kind, samples) = rest.split_once('\n').unwrap();
        let samples: String = samples.lines().map(line).collect();
        format!("{help}\n{kind}\n{samples}").trim_end().to_owned()
    };
    page.split("# HELP ").skip(1).map(family).collect()
}

#[test]
fn the_numbers_that_users_see_stay() {
    let mut found = String::new();
    for (kind, medium) in [
        ("the journal in the volume", None),
        ("the journal on a block device", Some(JournalCounters::Block(block(300)))),
        ("the journal on NVRAM", Some(JournalCounters::Nvram(nvram()))),
    ] {
        let (adapter, ino) = mount(medium);
        if medium.is_some() {
            *adapter.counters.last_error.lock() = Some("why".into());
        }
        let mut lines = BTreeSet::new();
        lines_of("stat ", &attribute(&adapter, ino, STAT_XATTR), &mut lines);
        lines_of("file ", &attribute(&adapter, ino, FILE_XATTR), &mut lines);
        lines_of("files ", &attribute(&adapter, ino, FILES_XATTR)[0], &mut lines);
        let lines: Vec<String> =
            lines.into_iter().chain(families(&adapter.metrics().unwrap())).collect();
        found.push_str(&format!("{kind}:\n{}\n\n", lines.join("\n")));
    }
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/adapter/operations/numbers_test.txt");
    if std::env::var_os("ONEJOURNAL_WRITE_TABLES").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found, expected);
}
