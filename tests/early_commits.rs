//! Commits that begin before their sync is asked for, and syncs whose answer is left with a commit.

use crate::support;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use serde_json::Value;
use support::Scratch;

/// Through `/dev/fuse`, and through io_uring where the kernel has it.
const TRANSPORTS: [&str; 2] = ["off", "auto"];

/// `commit=300`: nothing is committed but by a sync, or early.
fn mounted(how: &str, transport: &str) -> Option<Scratch> {
    let mut scratch = Scratch::with_size("256M")?;
    scratch.mount(&format!("commit=300,order=history,early_commit={how},io_uring={transport}"));
    Some(scratch)
}

/// How much numbers have grown since `before`.
fn grown<const N: usize>(scratch: &Scratch, before: &Value, names: [&str; N]) -> [u64; N] {
    let after = scratch.stat();
    let grown = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    assert_eq!(grown("syncfs"), 0, "another program called sync(2)");
    names.map(grown)
}

/// Whether the thread that wrote commits or the one that syncs: a transaction is committed once.
#[test]
fn an_early_commit_is_the_one_that_the_sync_asks_for() {
    for transport in TRANSPORTS {
        let Some(scratch) = mounted("always", transport) else { return };
        let mut file = File::create(scratch.path("log")).unwrap();
        file.write_all(b"begun").unwrap();
        file.sync_all().unwrap();
        let before = scratch.stat();
        for step in 0..200 {
            file.write_all(format!("line {step}\n").as_bytes()).unwrap();
            file.sync_data().unwrap();
        }
        let counts = ["commits", "device_writes", "device_flushes", "fsyncs"];
        assert_eq!(grown(&scratch, &before, counts), [200; 4], "io_uring={transport}");
        assert_ne!(grown(&scratch, &before, ["early_commits"]), [0], "io_uring={transport}");
        drop(file);
        scratch.close_and_check();
    }
}

/// Three threads write and sync until the daemon is killed, and say what was synced last.
fn write_until_killed(scratch: &Scratch, count: u64) -> [u64; 3] {
    std::thread::scope(|scope| {
        let write = |name: &str| {
            let file = File::create(scratch.path(name)).unwrap();
            move || {
                let mut synced = 0;
                for number in 1.. {
                    let bytes = u64::to_le_bytes(number);
                    let written = file
                        .write_all_at(&bytes, number % 7 * 8)
                        .and_then(|()| file.write_all_at(&bytes, 512))
                        .and_then(|()| file.sync_data());
                    if written.is_err() {
                        break;
                    }
                    synced = number;
                }
                synced
            }
        };
        let writers = ["a", "b", "c"].map(write).map(|writer| scope.spawn(writer));
        while scratch.counter("fsyncs") < count {
            std::thread::yield_now();
        }
        scratch.daemon().signal(rustix::process::Signal::KILL);
        writers.map(|writer| writer.join().unwrap())
    })
}

#[test]
fn synced_data_survive_a_daemon_that_is_killed_while_it_commits_early() {
    for (transport, how) in TRANSPORTS.into_iter().flat_map(|t| [(t, "always"), (t, "habit")]) {
        let Some(mut scratch) = mounted(how, transport) else { return };
        for round in 1..=5 {
            let synced = write_until_killed(&scratch, round * 100);
            scratch.kill();
            scratch.mount(&format!("commit=300,early_commit={how},io_uring={transport}"));
            for (name, synced) in ["a", "b", "c"].into_iter().zip(synced) {
                let bytes = std::fs::read(scratch.path(name)).unwrap();
                let found = bytes.get(512..520).map_or(0, |bytes| {
                    u64::from_le_bytes(bytes.try_into().expect("it has 8 bytes"))
                });
                let is_found = found == synced || found == synced + 1;
                assert!(is_found, "{how}, io_uring={transport}: {found} for {synced}");
            }
        }
        scratch.close_and_check();
    }
}

#[test]
fn a_sync_whose_commit_is_under_way_leaves_its_answer_with_it() {
    let Some(scratch) = mounted("always", "off") else { return };
    let before = scratch.stat();
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let mut file = File::create(scratch.path(name)).unwrap();
            scope.spawn(move || {
                for number in 0..200 {
                    file.write_all(&[number]).unwrap();
                    file.sync_data().unwrap();
                }
            });
        }
    });
    let [left, syncs] = grown(&scratch, &before, ["syncs_left", "fsyncs"]);
    assert!(left > 0 && syncs == 600, "{left} of {syncs}");
    scratch.close_and_check();
}

/// As SQLite writes its WAL.
#[test]
fn a_habit_costs_no_commit() {
    for transport in TRANSPORTS {
        let Some(scratch) = mounted("habit", transport) else { return };
        let file = File::create(scratch.path("wal")).unwrap();
        file.sync_all().unwrap();
        let before = scratch.stat();
        for step in 0..200 {
            let offset = 32 + step * 4120;
            file.write_all_at(&[0, 0, 0, 1, 0, 0, 0, 1].repeat(3), offset).unwrap();
            file.write_all_at(&[step as u8; 4096], offset + 24).unwrap();
            file.sync_data().unwrap();
        }
        let counts = ["commits", "early_commits_in_vain"];
        assert_eq!(grown(&scratch, &before, counts), [200, 0], "io_uring={transport}");
        // Where a commit takes long none is begun early.
        let median_ns = scratch.stat()["commit_latency_ns"]["p99"].as_u64().unwrap();
        if median_ns < 1_000_000 {
            let [early] = grown(&scratch, &before, ["early_commits"]);
            assert!(early > 0, "io_uring={transport}");
        }
        drop(file);
        scratch.close_and_check();
    }
}
