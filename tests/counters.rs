//! What a sync costs: counted at the device, through `onejournal stat`.

use crate::support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use serde_json::Value;
use support::{Peer, Scratch};

/// Longer than any test: nothing is committed but by a sync.
const OPTIONS: &str = "commit=300";

/// A volume of a size for which mke2fs makes the journal in one piece: a commit that crosses from
/// one extent to the next takes a write for each.
fn mounted(options: &str) -> Option<Scratch> {
    let mut scratch = Scratch::with_size("256M")?;
    scratch.mount(options);
    Some(scratch)
}

/// Writes and flushes since `before`; a durable write is one of each.
fn cost(scratch: &Scratch, before: &Value) -> (u64, u64) {
    let after = scratch.stat();
    let count = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    let why = "another program called sync(2), which commits what a test has not synced";
    assert_eq!(count("syncfs"), 0, "{why}; try again where none does");
    (count("device_writes"), count("device_flushes"))
}

#[test]
fn one_write_and_one_flush_for_a_sync_with_something_new() {
    let Some(scratch) = mounted(OPTIONS) else { return };
    let mut file = File::create(scratch.path("f")).unwrap();
    for step in 0..10 {
        let before = scratch.stat();
        file.write_all(format!("line {step}\n").as_bytes()).unwrap();
        if step % 2 == 0 {
            file.sync_all().unwrap()
        } else {
            file.sync_data().unwrap()
        }
        assert_eq!(cost(&scratch, &before), (1, 1), "step {step}");
    }
    drop(file);
    scratch.close_and_check();
}

#[test]
fn a_new_file_in_new_directories_is_one_write() {
    let Some(scratch) = mounted(OPTIONS) else { return };
    let before = scratch.stat();
    fs::create_dir_all(scratch.path("a/b/c")).unwrap();
    fs::write(scratch.path("a/b/c/f"), vec![1; 60_000]).unwrap();
    fs::rename(scratch.path("a/b/c/f"), scratch.path("a/g")).unwrap();
    File::open(scratch.path("a/g")).unwrap().sync_all().unwrap();
    assert_eq!(cost(&scratch, &before), (1, 1));
    scratch.close_and_check();
}

/// The data go home, the record has their checksums, and one flush covers both. The journal does
/// not get the data.
#[test]
fn a_large_append_and_its_sync_are_two_writes_and_one_flush() {
    let Some(scratch) = mounted(OPTIONS) else { return };
    let mut file = File::create(scratch.path("log")).unwrap();
    file.write_all(b"begun").unwrap();
    file.write_all(&vec![9; 4091]).unwrap();
    file.sync_all().unwrap();
    for size_bytes in [64 << 10, 256 << 10, 1 << 20] {
        let before = scratch.stat();
        file.write_all(&vec![7; size_bytes]).unwrap();
        file.sync_all().unwrap();
        assert_eq!(cost(&scratch, &before), (2, 1), "{size_bytes} bytes");
        let journal_bytes = |stat: &Value| stat["journal_bytes"].as_u64().unwrap();
        let grown_bytes = journal_bytes(&scratch.stat()) - journal_bytes(&before);
        assert!(grown_bytes <= 4096, "{grown_bytes} bytes in the journal");
    }
    drop(file);
    scratch.close_and_check();
}

/// The data get other blocks. The old ones are free after the commit.
#[test]
fn a_large_overwrite_and_its_sync_are_two_writes_and_one_flush() {
    let Some(mut scratch) = mounted(OPTIONS) else { return };
    let path = scratch.path("database");
    fs::write(&path, vec![1; 4 << 20]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    let free = scratch.counter("free_bytes");
    for (byte, offset, size_bytes) in
        [(2, 1 << 20, 64 << 10), (3, (1 << 20) - 8192, 256 << 10), (4, 3 << 20, 1 << 20)]
    {
        let before = scratch.stat();
        file.write_all_at(&vec![byte; size_bytes], offset).unwrap();
        file.sync_all().unwrap();
        assert_eq!(cost(&scratch, &before), (2, 1), "{size_bytes} bytes");
        let journal_bytes = |stat: &Value| stat["journal_bytes"].as_u64().unwrap();
        let grown_bytes = journal_bytes(&scratch.stat()) - journal_bytes(&before);
        assert!(grown_bytes <= 8192, "{grown_bytes} bytes in the journal");
    }
    assert_eq!(scratch.counter("free_bytes"), free);
    drop(file);
    scratch.remount(OPTIONS);
    let mut expected = vec![1; 4 << 20];
    expected[1 << 20..(1 << 20) + (64 << 10)].fill(2);
    expected[(1 << 20) - 8192..(1 << 20) - 8192 + (256 << 10)].fill(3);
    expected[3 << 20..].fill(4);
    assert!(fs::read(&path).unwrap() == expected);
    scratch.close_and_check();
}

#[test]
fn nothing_for_a_sync_with_nothing_new() {
    let Some(scratch) = mounted(OPTIONS) else { return };
    let (file, other) = (scratch.path("f"), scratch.path("other"));
    fs::write(&file, "x").unwrap();
    fs::write(&other, "y").unwrap();
    let (file, other) = (File::open(&file).unwrap(), File::open(&other).unwrap());
    file.sync_all().unwrap();
    let before = scratch.stat();
    for _ in 0..10 {
        file.sync_all().unwrap();
        file.sync_data().unwrap();
    }
    other.sync_all().unwrap(); // committed together with the first
    File::open(scratch.dir()).unwrap().sync_all().unwrap();
    assert_eq!(cost(&scratch, &before), (0, 0));
    // A sync of a file without changes does not commit those of another file.
    fs::write(scratch.path("new"), "z").unwrap();
    file.sync_data().unwrap();
    assert_eq!(cost(&scratch, &before), (0, 0));
    drop((file, other));
    scratch.close_and_check();
}

#[test]
fn a_write_to_a_synchronous_file_is_one_write() {
    let Some(scratch) = mounted(OPTIONS) else { return };
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::DSYNC.bits().cast_signed();
    let path = scratch.path("f");
    let file =
        OpenOptions::new().create_new(true).write(true).custom_flags(flags).open(&path).unwrap();
    for step in 0..5 {
        let before = scratch.stat();
        file.write_all_at(&[step; 100], u64::from(step) * 100).unwrap();
        assert_eq!(cost(&scratch, &before), (1, 1), "step {step}");
    }
    drop(file);
    scratch.close_and_check();
}

#[test]
fn overwriting_in_place_is_one_write_and_one_flush() {
    let Some(scratch) = mounted("commit=300,data=ordered") else { return };
    let path = scratch.path("f");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    let commits = scratch.counter("commits");
    for step in 2..6 {
        let before = scratch.stat();
        file.write_all_at(&vec![step; 1 << 20], 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(cost(&scratch, &before), (1, 1), "step {step}");
    }
    assert_eq!(scratch.counter("commits"), commits, "the data go home, nothing else has changed");
    drop(file);
    scratch.close_and_check();
}

/// With the database in WAL mode a transaction is one write of SQLite's and one `fdatasync`.
#[test]
fn a_transaction_of_sqlite_is_one_flush() {
    let Some(scratch) = mounted(OPTIONS) else { return };
    let Some(mut peer) = Peer::new(&scratch.dir()) else { return };
    peer.good("db = sqlite3.connect('db', isolation_level=None)");
    peer.good("db.execute('pragma journal_mode=wal').fetchall()");
    peer.good("db.execute('pragma synchronous=full')");
    peer.good("db.execute('create table t(k integer primary key, v)')");
    peer.good("db.execute('insert into t values(0, ?)', ('x' * 100,))");
    const COUNT: u64 = 50;
    let before = scratch.stat();
    for key in 1..=COUNT {
        peer.good(&format!("db.execute('insert into t values({key}, ?)', ('x' * 100,)); r = 1"));
    }
    assert_eq!(cost(&scratch, &before), (COUNT, COUNT));
    peer.good("db.close()");
    drop(peer);
    scratch.close_and_check();
}

/// The read-ahead is set where a `fuseblk` mount has it: with the kernel's own, 128 KiB, these
/// would be twice as many.
#[test]
fn regression_a_cold_sequential_read_takes_large_requests() {
    let Some(mut scratch) = mounted("commit=300,data=ordered") else { return };
    fs::write(scratch.path("f"), vec![1; 32 << 20]).unwrap();
    scratch.umount();
    scratch.mount("");
    let before = scratch.stat();
    assert_eq!(fs::read(scratch.path("f")).unwrap().len(), 32 << 20);
    let after = scratch.stat();
    let count = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    assert!(count("device_bytes_read") >= 32 << 20, "it was not cold");
    assert!(count("device_reads") < 160, "{} reads of 32 MiB", count("device_reads"));
    scratch.close_and_check();
}

/// Requests that the kernel sends for each of `count` calls.
fn requests_each(scratch: &Scratch, count: u64, mut call: impl FnMut(u64)) -> f64 {
    let before = scratch.counter("requests");
    (0..count).for_each(&mut call);
    (scratch.counter("requests") - before) as f64 / count as f64
}

/// What many links to one file cost is requests: a LOOKUP of the new name, a GETATTR of the
/// directory (whose attributes the kernel forgets at each change) and the LINK. To remove one costs
/// a LOOKUP only if the kernel has forgotten the name, which it may do at any time to get memory
/// back. It does not grow with their number, in requests or in bytes of the journal.
#[test]
fn a_link_costs_the_same_however_many_there_are() {
    let Some(scratch) = mounted("commit=300,order=history") else { return };
    fs::write(scratch.path("f"), "f").unwrap();
    fs::create_dir(scratch.path("d")).unwrap();
    let name = |n: u64| scratch.path(&format!("d/{n}"));
    let link = |n: u64| fs::hard_link(scratch.path("f"), name(n)).unwrap();
    // A commit logs each block that changed once.
    let logged = |from: u64| {
        let before = scratch.counter("logged_blocks");
        (from..from + 100).for_each(link);
        File::open(scratch.path("d")).unwrap().sync_all().unwrap();
        scratch.counter("logged_blocks") - before
    };
    let few = logged(0);
    let linked = requests_each(&scratch, 5000, |n| link(100 + n));
    File::open(scratch.path("d")).unwrap().sync_all().unwrap();
    let many = logged(5100);
    // Each of the 100 names may be in a block of its own.
    assert!(many <= few + 100 + 10, "{few} blocks at first, {many} then");
    let unlinked = requests_each(&scratch, 5000, |n| fs::remove_file(name(n)).unwrap());
    assert!(linked < 3.01 && unlinked < 3.01, "{linked} requests a link, {unlinked} a removal");
    scratch.close_and_check();
}
