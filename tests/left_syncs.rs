//! Syncs whose answer is left with the commit that serves them.

use crate::support;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use support::Scratch;

/// Through `/dev/fuse`. `commit=300`: nothing is committed but by a sync.
const OPTIONS: &str = "commit=300,order=history,io_uring=off";

fn mounted() -> Option<Scratch> {
    let mut scratch = Scratch::with_size("256M")?;
    scratch.mount(OPTIONS);
    Some(scratch)
}

/// More files than CPUs, so that syncs come while another one commits.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Threads write and sync until the daemon is killed, and say what was synced last.
fn write_until_killed(scratch: &Scratch, count: u64) -> [u64; 6] {
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
        let writers = NAMES.map(write).map(|writer| scope.spawn(writer));
        while scratch.counter("fsyncs") < count {
            std::thread::yield_now();
        }
        scratch.daemon().signal(rustix::process::Signal::KILL);
        writers.map(|writer| writer.join().unwrap())
    })
}

#[test]
fn synced_data_survive_a_killed_daemon() {
    let Some(mut scratch) = mounted() else { return };
    for round in 1..=10 {
        let synced = write_until_killed(&scratch, round * 100);
        scratch.kill();
        scratch.mount(OPTIONS);
        for (name, synced) in NAMES.into_iter().zip(synced) {
            let bytes = std::fs::read(scratch.path(name)).unwrap();
            let found = bytes
                .get(512..520)
                .map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("it has 8 bytes")));
            assert!(found == synced || found == synced + 1, "{found} for {synced}");
        }
    }
    scratch.close_and_check();
}

#[test]
fn a_sync_whose_commit_is_under_way_leaves_its_answer_with_it() {
    let Some(scratch) = mounted() else { return };
    let before = scratch.stat();
    std::thread::scope(|scope| {
        for name in NAMES {
            let mut file = File::create(scratch.path(name)).unwrap();
            scope.spawn(move || {
                for number in 0..200 {
                    file.write_all(&[number]).unwrap();
                    file.sync_data().unwrap();
                }
            });
        }
    });
    let [left, syncs, all] = scratch.grown(&before, ["syncs_left", "fsyncs", "syncfs"]);
    assert_eq!(all, 0, "another program called sync(2)");
    assert!(left > 0 && syncs == 1200, "{left} of {syncs}");
    scratch.close_and_check();
}
