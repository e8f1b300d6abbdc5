//! Pins what users see of numbers: the groups of `onejournal stat`, and the numbers of a log.
//! `ONEJOURNAL_WRITE_TABLES=1` writes `numbers_test.txt` again.

use std::path::Path;

use log::{LogStat, Options, Server, ServerOptions, StreamStat};
use serde_json::{Value, json};

use crate::counters::Counters;
use crate::log_metrics;
use crate::stat::groups::groups;

/// The JSON of a mount in which every number is there, and is different.
fn counters(medium: Value) -> Counters {
    let forms = |first: u64| {
        let names = ["block", "sparse", "extent", "delta", "xor_lzo", "copy", "patch"];
        names.into_iter().zip(first..).collect::<Value>()
    };
    let spread = |first: u64| {
        let names = ["count", "sum", "mean", "p50", "p90", "p99", "p999", "max"];
        names.into_iter().zip(first..).collect::<Value>()
    };
    let mut all = json!({
        "version": "1", "target": "t", "durability": "power", "data_mode": "auto",
        "transport": "dev_fuse", "order": "history", "atomic_write_bytes": 1001,
        "atomic_declared_bytes": 1002, "read_only": true, "mount_time_s": 1003,
    });
    let names = "requests fsyncs syncfs app_writes app_bytes atomic_commits atomic_aborts commits
        handles syncs syncs_without_io syncs_per_commit commit_latency_ns journal_bytes
        journal_bytes_by_form logged_blocks logged_blocks_by_form revokes home_bytes in_place_bytes
        checkpoints cancelled_blocks stalls stall_ns device_reads device_bytes_read device_writes
        device_bytes_written device_durable_writes device_flushes opening_bytes opening_flushes
        journal_target journal_medium write_amplification journal_size_bytes memory_bytes
        memory_bytes_max space_bytes free_bytes available_bytes inodes free_inodes last_error";
    for (name, number) in names.split_whitespace().zip((2000u64..).step_by(100)) {
        all[name] = match name {
            "syncs_per_commit" | "commit_latency_ns" => {
                let mut spread = spread(number);
                spread["buckets"] = json!([]);
                spread
            }
            "journal_bytes_by_form" | "logged_blocks_by_form" => forms(number),
            "journal_medium" => medium.clone(),
            "journal_target" | "last_error" => json!("text"),
            "write_amplification" => json!(2.5),
            _ => json!(number),
        };
    }
    Counters(serde_json::from_value(all).unwrap())
}

fn groups_of(medium: Value) -> String {
    let groups = groups(&counters(medium)).into_iter();
    groups
        .map(|(title, lines)| {
            let lines: Vec<_> = lines.iter().map(|(n, value)| format!("  {n}  {value}")).collect();
            format!("{title}\n{}\n", lines.join("\n"))
        })
        .collect()
}

fn names(value: &Value) -> String {
    let names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.join(" ")
}

/// The page of a log, with the values of its texts.
fn log_page() -> String {
    let dir = tempfile::tempdir().unwrap();
    let (log, socket) = (dir.path().join("log"), dir.path().join("socket"));
    let options = Options { pool_bytes: 1 << 20, ..Options::default() };
    let server = Server::start(log, &options, &ServerOptions::at(&socket)).unwrap();
    let page = log_metrics::render(&server);
    server.stop().unwrap();
    page.replace(&*socket.to_string_lossy(), "SOCKET")
}

#[test]
fn the_numbers_that_users_see_stay() {
    let block = json!({ "kind": "block", "reads": 1, "bytes_read": 2, "writes": 3,
        "bytes_written": 4, "durable_writes": 5, "flushes": 6 });
    let nvram = json!({ "kind": "nvram", "reads": 1, "bytes_read": 2, "stores": 3,
        "bytes_stored": 4, "lines": 5, "fences": 6 });
    let stream = StreamStat {
        name: "one".into(),
        head: 0,
        drained: 0,
        durable: 0,
        appended: 0,
        record_count: 0,
        payload_bytes: 0,
        file_bytes: 0,
        is_aborted: false,
    };
    let found = [
        groups_of(Value::Null),
        groups_of(block),
        groups_of(nvram),
        names(&serde_json::to_value(LogStat::default()).unwrap()),
        names(&serde_json::to_value(stream).unwrap()),
        log_page(),
    ]
    .join("\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stat/numbers_test.txt");
    if std::env::var_os("ONEJOURNAL_WRITE_TABLES").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found, expected);
}
