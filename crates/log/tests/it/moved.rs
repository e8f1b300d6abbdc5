//! A log whose directory got another name: it goes on where it was, and nothing is lost.

use crate::common;

use std::path::Path;

use common::{TestDirectory, on_both, records};
use onejournal::{Log, Options, Outcome, Server, ServerOptions, Stream, collect_orphans};

fn append(stream: &Stream, text: &str) {
    stream.append(text.as_bytes()).expect("append");
}

fn texts(stream: &Stream) -> Vec<String> {
    let texts = records(stream).into_iter().map(|record| String::from_utf8(record).expect("text"));
    texts.collect()
}

/// Opens the log, appends without a sync, and leaves as a killed process does: the records are in
/// shared memory.
fn leave(directory: &Path, options: &Options, text: &str) {
    let log = Log::open(directory, options).expect("open");
    let stream = log.stream("one").expect("stream");
    append(&stream, text);
    drop((stream, log));
}

fn renamed(test_dir: &TestDirectory, from: &str, to: &str) -> std::path::PathBuf {
    let new = test_dir.root.path().join(to);
    std::fs::rename(test_dir.root.path().join(from), &new).expect("rename");
    new
}

#[test]
fn a_moved_log_goes_on_with_what_is_in_memory() {
    on_both(|test_dir| {
        let options = test_dir.options();
        leave(&test_dir.root.path().join("old"), &options, "first");
        let new = renamed(test_dir, "old", "new");
        let log = Log::open(&new, &options).expect("open");
        let stream = log.stream("one").expect("stream");
        append(&stream, "second");
        stream.flush().expect("flush");
        assert_eq!(texts(&stream), ["first", "second"]);
        drop((stream, log));
        // After a restart of the machine, too: NVRAM knows its log by the directory, whatever its
        // name.
        test_dir.reboot();
        let newer = renamed(test_dir, "new", "newer");
        let log = Log::open(&newer, &options).expect("open");
        assert_eq!(texts(&log.stream("one").expect("stream")), ["first", "second"]);
    });
}

#[test]
fn a_log_is_moved_while_a_process_uses_it() {
    on_both(|test_dir| {
        let options = test_dir.options();
        let log = Log::open(test_dir.root.path().join("old"), &options).expect("open");
        let stream = log.stream("one").expect("stream");
        append(&stream, "first");
        let new = renamed(test_dir, "old", "new");
        append(&stream, "second");
        let other = Log::open(&new, &options).expect("open");
        append(&other.stream("two").expect("stream"), "third");
        stream.flush().expect("flush");
        assert_eq!(texts(&other.stream("one").expect("stream")), ["first", "second"]);
        drop(other);
        drop(stream);
        log.close().expect("close");
        let log = Log::open(&new, &options).expect("open");
        assert_eq!(texts(&log.stream("one").expect("stream")), ["first", "second"]);
        let two = log.stream("two").expect("stream");
        two.flush().expect("flush");
        assert_eq!(texts(&two), ["third"]);
    });
}

#[test]
fn a_daemon_serves_a_moved_log() {
    on_both(|test_dir| {
        let options = test_dir.options();
        let serve = |directory: &Path| {
            let at = ServerOptions::at(directory.join("socket"));
            Server::start(directory, &options, &at).expect("serve")
        };
        leave(&test_dir.root.path().join("old"), &options, "first");
        let old = test_dir.root.path().join("old");
        let server = serve(&old);
        let log = Log::open(old.join("socket"), &Options::default()).expect("connect");
        let stream = log.stream("one").expect("stream");
        append(&stream, "second");
        drop((stream, log));
        server.stop().expect("stop");
        let new = renamed(test_dir, "old", "new");
        let server = serve(&new);
        let log = Log::connect(new.join("socket")).expect("connect");
        let stream = log.stream("one").expect("stream");
        append(&stream, "third");
        stream.flush().expect("flush");
        assert_eq!(texts(&stream), ["first", "second", "third"]);
        drop((stream, log));
        server.stop().expect("stop");
    });
}

/// The shared memory holds the log's path, which a process that opens the moved log updates.
#[test]
fn regression_what_a_moved_log_left_is_brought_home() {
    on_both(|test_dir| {
        let options = test_dir.options();
        leave(&test_dir.root.path().join("old"), &options, "first");
        let new = renamed(test_dir, "old", "new");
        leave(&new, &options, "second");
        let found = collect_orphans(test_dir.memory.path(), &[], |_| false).expect("looked at");
        let new = std::fs::canonicalize(new).expect("path");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].outcome, Outcome::BroughtHome(new.clone()));
        let log = Log::open(&new, &options).expect("open");
        assert_eq!(texts(&log.stream("one").expect("stream")), ["first", "second"]);
    });
}
