//! Another program removes the shared memory while processes use it, as logind does with that of a
//! user who has logged out (`RemoveIPC=yes`): no record is lost, and the processes go on in new
//! memory.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onejournal::{Log, LogError, Options, Stream};
use onejournal_testing::{test_name, tier};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{TestDirectory, append_synced, on_both, payload, records};

/// The directories of shared memory.
fn incarnations(test_dir: &TestDirectory) -> Vec<PathBuf> {
    let entries = fs::read_dir(test_dir.memory.path()).expect("memory");
    let paths = entries.map(|entry| entry.expect("entry").path());
    paths.filter(|path| !path.ends_with("nvram")).collect()
}

/// Removes the files of a directory, in any order, and the directory. Other processes may make
/// files in it meanwhile.
fn remove(directory: &Path) {
    let names = fs::read_dir(directory).into_iter().flatten().flatten();
    names.for_each(|name| drop(fs::remove_file(name.path())));
    let _ = fs::remove_dir(directory);
}

fn remove_memory(test_dir: &TestDirectory) {
    let removed = incarnations(test_dir);
    assert!(!removed.is_empty(), "there is memory");
    removed.iter().for_each(|directory| remove(directory));
}

fn append(stream: &Stream, number: u64) {
    let lsn = stream.append(&payload(number, 1 + (number as usize * 37) % 3000)).expect("append");
    stream.sync(lsn).expect("sync");
}

fn expected(numbers: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    numbers.map(|number| payload(number, 1 + (number as usize * 37) % 3000)).collect()
}

/// Waits for something that another thread or process does, for at most a minute.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn open(test_dir: &TestDirectory) -> Log {
    Log::open(test_dir.log(), &test_dir.options()).expect("open")
}

#[test]
fn a_process_goes_on_in_new_memory() {
    on_both(|test_dir| {
        let log = open(test_dir);
        let stream = log.stream("a").expect("stream");
        let mut appended = Vec::new();
        append_synced(&stream, &mut appended);
        let header = [7; 64];
        stream.set_header(&header);
        let mark = stream.append(b"not synced").expect("append");
        appended.push(b"not synced".to_vec());
        for round in 0..3 {
            remove_memory(test_dir);
            // New streams, new chunks, drains and readers need files of the memory.
            log.stream(&format!("new-{round}")).expect("new stream");
            append_synced(&stream, &mut appended);
            stream.sync(mark).expect("sync");
            stream.flush().expect("flush");
            assert!(records(&stream) == appended, "round {round}");
            assert_eq!(stream.header().expect("header"), header);
            assert_eq!(incarnations(test_dir).len(), 1);
        }
        // Another user of the log finds the same memory.
        let other = open(test_dir);
        assert!(records(&other.stream("a").expect("stream")) == appended);
        drop((stream, log, other));
        test_dir.reboot();
        assert!(records(&open(test_dir).stream("a").expect("stream")) == appended);
    });
}

#[test]
fn an_idle_process_leaves_for_one_that_joins() {
    on_both(|test_dir| {
        let idle = open(test_dir);
        let stream = idle.stream("a").expect("stream");
        append(&stream, 0);
        stream.release();
        remove_memory(test_dir);
        let log = open(test_dir);
        let same = log.stream("a").expect("stream");
        append(&same, 1);
        same.release();
        append(&stream, 2);
        assert_eq!(records(&same), expected(0..3));
    });
}

#[test]
fn a_log_whose_memory_was_removed_is_closed() {
    on_both(|test_dir| {
        let log = open(test_dir);
        append(&log.stream("a").expect("stream"), 0);
        log.stream("a").expect("stream").append(b"not synced").expect("append");
        remove_memory(test_dir);
        log.close().expect("close");
        assert_eq!(incarnations(test_dir).len(), 0);
        assert_eq!(records(&open(test_dir).stream("a").expect("stream")).len(), 2);
    });
}

#[test]
fn a_lease_is_held_on_unless_another_process_appends() {
    let test_dir = &TestDirectory::new(false);
    let (log, other) = (open(test_dir), open(test_dir));
    let (stream, same) = (log.stream("a").expect("stream"), other.stream("a").expect("stream"));
    stream.acquire().expect("lease");
    append(&stream, 0);
    let before = incarnations(test_dir);
    remove_memory(test_dir);
    wait_until("new memory", || incarnations(test_dir).iter().any(|now| !before.contains(now)));
    append(&stream, 1);
    assert!(matches!(same.append(b"x"), Err(LogError::Busy(_))), "it is leased");
    // The next time, the other one is faster.
    remove_memory(test_dir);
    wait_until("the lease", || same.acquire().is_ok());
    append(&same, 2);
    let refused = stream.append(b"x");
    assert!(matches!(refused, Err(LogError::Busy(_))), "{refused:?}");
    same.set_header(&[2; 64]);
    stream.set_header(&[1; 64]);
    same.release();
    let refused = stream.append(b"x");
    assert!(matches!(refused, Err(LogError::Busy(_))), "it was not taken again: {refused:?}");
    stream.acquire().expect("lease");
    assert_eq!(stream.header().expect("header"), [2; 64]);
    append(&stream, 3);
    assert_eq!(records(&stream), expected(0..4));
}

/// The flush worker makes new memory between an append of the lessee and the header that it leaves.
#[test]
fn regression_a_header_set_after_new_memory_was_made_is_kept() {
    let test_dir = &TestDirectory::new(false);
    let (log, other) = (open(test_dir), open(test_dir));
    let stream = log.stream("a").expect("stream");
    stream.acquire().expect("lease");
    append(&stream, 0);
    stream.set_header(&[1; 64]);
    append(&stream, 1);
    let before = incarnations(test_dir);
    remove_memory(test_dir);
    wait_until("new memory", || incarnations(test_dir).iter().any(|now| !before.contains(now)));
    stream.set_header(&[2; 64]);
    assert_eq!(stream.header().expect("header"), [2; 64]);
    stream.release();
    let same = other.stream("a").expect("stream");
    assert_eq!(same.header().expect("header"), [2; 64]);
    assert_eq!(records(&same), expected(0..2));
}

/// A process of the tests below: appends records to a stream, and says which ones are synced, until
/// its input ends.
#[test]
#[ignore = "a process of the other tests"]
fn writer() {
    let Some(directory) = std::env::var_os("REMOVED_LOG") else { return };
    let memory = PathBuf::from(std::env::var_os("REMOVED_MEMORY").expect("given"));
    let options: Options =
        Options { memory, pool_bytes: 1 << 20, group_bytes: 1 << 20, ..Options::default() };
    let log = Log::open(directory, &options).expect("open");
    let stream = log.stream(&std::env::var("REMOVED_STREAM").expect("given")).expect("stream");
    let ended = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    for number in 0.. {
        append(&stream, number);
        println!("\nsynced {number}");
        if ended.is_finished() {
            break;
        }
    }
    drop(stream);
    log.close().expect("close");
}

struct Writer {
    child: Child,
    synced: BufReader<std::process::ChildStdout>,
}

impl Writer {
    fn start(test_dir: &TestDirectory, stream: &str) -> Writer {
        let mut command: Command = onejournal_testing::again(module_path!(), "writer");
        command.env("REMOVED_LOG", test_dir.log()).env("REMOVED_MEMORY", test_dir.memory.path());
        command.env("REMOVED_STREAM", stream).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("start");
        let synced = BufReader::new(child.stdout.take().expect("piped"));
        Writer { child, synced }
    }

    /// The next number that it has synced; `None` at its end.
    fn next(&mut self) -> Option<u64> {
        loop {
            let mut line = String::new();
            if self.synced.read_line(&mut line).expect("read") == 0 {
                return None;
            }
            if let Some(number) = line.trim().strip_prefix("synced ") {
                return Some(number.parse().expect("a number"));
            }
        }
    }

    /// Lets it end. Returns how many records it has synced.
    fn end(mut self) -> u64 {
        drop(self.child.stdin.take());
        let count = std::iter::from_fn(|| self.next()).last().expect("some") + 1;
        assert!(self.child.wait().expect("wait").success());
        count
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal");
    }
}

/// Several processes write. Their memory is removed again and again, at any moment.
#[test]
fn processes_lose_nothing_and_fail_never() {
    let mut rng = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
    let test_dir = &TestDirectory::new(false);
    let log = open(test_dir);
    let mut writers = ["a", "b", "c"].map(|name| Writer::start(test_dir, name));
    let own = log.stream("own").expect("stream");
    let mut own_count = 0;
    for _ in 0..tier::count(15) {
        for _ in 0..rng.u64(..30) {
            append(&own, own_count);
            own_count += 1;
        }
        // Each of them goes on.
        for writer in &mut writers {
            writer.next().expect("it goes on");
        }
        incarnations(test_dir).iter().for_each(|directory| remove(directory));
    }
    let counts = writers.map(Writer::end);
    drop((log, own));
    test_dir.reboot();
    let log = open(test_dir);
    for (name, count) in
        ["a", "b", "c", "own"].into_iter().zip(counts.into_iter().chain([own_count]))
    {
        let found = records(&log.stream(name).expect("stream"));
        assert!(found.len() as u64 >= count, "{name}: {} of {count}", found.len());
        assert!(found == expected(0..found.len() as u64), "{name}");
    }
}

#[test]
fn a_stopped_process_that_has_the_old_memory_is_named() {
    let test_dir = &TestDirectory::new(false);
    let log = open(test_dir);
    let stream = log.stream("own").expect("stream");
    append(&stream, 0);
    let mut writer = Writer::start(test_dir, "a");
    writer.next().expect("it writes");
    writer.signal(Signal::STOP);
    remove_memory(test_dir);
    let refused =
        log.stream("new").err().expect("the other process has the old memory").to_string();
    let is_named = refused.contains("clients/001") && refused.contains("fuser");
    assert!(is_named, "{refused}");
    writer.signal(Signal::CONT);
    // No error lasts: the next call works when the process goes on.
    wait_until("it goes on", || stream.append(b"x").and_then(|lsn| stream.sync(lsn)).is_ok());
    writer.end();
    log.stream("new").expect("new memory");
}
