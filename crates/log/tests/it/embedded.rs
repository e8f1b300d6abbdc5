//! A service without a daemon: what was appended is read back, also after the processes, the
//! machine or a writer went away.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::common;

use common::{
    TestDirectory, append_every_size, append_synced, check_every_size, on_both, payload, records,
};
use onejournal::{Log, LogError, Lsn, Options, Stream};

/// Opens the service.
trait Embedded {
    fn open(&self) -> Log;
}

impl Embedded for TestDirectory {
    fn open(&self) -> Log {
        Log::open(self.root.path(), &self.options()).expect("open")
    }
}

#[test]
fn synced_records_are_read_back_at_once_later_and_after_a_reboot() {
    on_both(|test_dir| {
        let mut expected = Vec::new();
        for round in 0..6 {
            let log = test_dir.open();
            let stream = log.stream("a").expect("stream");
            assert_eq!(records(&stream), expected, "round {round}");
            append_synced(&stream, &mut expected);
            assert_eq!(records(&stream), expected, "round {round}");
            drop((stream, log));
            if round % 2 == 1 {
                test_dir.reboot();
            }
        }
    });
}

#[test]
fn a_log_that_cannot_be_leaves_nothing() {
    let test_dir = TestDirectory::new(true);
    let refused = |directory: &std::path::Path, options: &Options| {
        let before = std::fs::read_dir(test_dir.root.path()).expect("directory").count();
        let told = Log::open(directory, options).map(drop).expect_err("refused").to_string();
        let after = std::fs::read_dir(test_dir.root.path()).expect("directory").count();
        assert_eq!(after, before, "{told}");
        told
    };
    let missing = test_dir.root.path().join("no/such/log");
    let parent = missing.parent().expect("parent").display().to_string();
    let told = refused(&missing, &test_dir.options());
    assert!(told.contains(&format!("there is no directory {parent}")), "{told}");
    let directory = test_dir.root.path().join("log");
    let no_nvram = Options { nvram: Some(missing.clone()), ..test_dir.options() };
    let told = refused(&directory, &no_nvram);
    assert!(told.contains(&missing.display().to_string()), "{told}");
    // Ordinary memory, which is durable for its processes only, has to be asked for by that name.
    refused(&directory, &Options { durability: None, ..test_dir.options() });
    // A class without a medium: of a directory, and of a daemon, whose medium the client does not
    // choose.
    for path in [&directory, &test_dir.root.path().join("socket")] {
        let told = refused(path, &Options { nvram: None, ..test_dir.options() });
        assert!(told.contains("durability=process without an NVRAM directory"), "{told}");
    }
    Log::open(&directory, &test_dir.options()).expect("as it should be");
}

#[test]
fn records_of_every_size() {
    on_both(|test_dir| {
        let test_dir = &TestDirectory::new(test_dir.is_nvram);
        let mut options = test_dir.options();
        options.pool_bytes = 64 << 20;
        let log = Log::open(test_dir.root.path(), &options).expect("open");
        let stream = log.stream("sizes").expect("stream");
        append_every_size(&stream);
        drop((stream, log));
        test_dir.reboot();
        let log = Log::open(test_dir.root.path(), &options).expect("open");
        check_every_size(&log.stream("sizes").expect("stream"));
    });
}

#[test]
fn last_close_leaves_nothing_in_memory() {
    on_both(|test_dir| {
        let left = || -> usize {
            let is_nvram = |path: &std::path::Path| path.ends_with("nvram");
            let entries = std::fs::read_dir(test_dir.memory.path()).expect("memory");
            entries.filter(|entry| !is_nvram(&entry.as_ref().expect("entry").path())).count()
        };
        let mut expected = Vec::new();
        for round in 0..4u64 {
            let (log, other) = (test_dir.open(), test_dir.open());
            let stream = log.stream("a").expect("stream");
            assert_eq!(records(&stream), expected, "round {round}");
            for number in 0..20 {
                stream.append(&payload(number, 9000)).expect("append");
                expected.push(payload(number, 9000));
            }
            if round == 3 {
                // Its streams keep the memory, and go on.
                log.close().expect("close");
                stream.append(&payload(7, 70)).expect("append");
                stream.flush().expect("flush");
                expected.push(payload(7, 70));
                assert_eq!(records(&stream), expected);
                drop((stream, other));
                continue;
            }
            drop(stream);
            log.close().expect("close");
            assert_eq!((left(), other.stat().lent_bytes), (1, 0), "another uses it");
            let its = other.stream("a").expect("stream");
            its.append(&payload(round, 100)).expect("it is nobody's");
            expected.push(payload(round, 100));
            drop(its);
            other.close().expect("close");
            assert_eq!(left(), 0, "round {round}");
        }
        let log = test_dir.open();
        assert_eq!(records(&log.stream("a").expect("stream")), expected);
    });
}

#[test]
fn a_pool_that_is_too_small_makes_writers_wait_and_loses_nothing() {
    on_both(|test_dir| {
        let log = test_dir.open();
        let bytes = payload(1, 10_000);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let stream = log.stream(&format!("s{number}")).expect("stream");
                let bytes = &bytes;
                scope.spawn(move || {
                    for _ in 0..400 {
                        let lsn = stream.append(bytes).expect("append");
                        if number % 2 == 0 {
                            stream.sync(lsn).expect("sync");
                        }
                    }
                    let end = stream.appended();
                    stream.flush().expect("flush");
                    assert_eq!(stream.end(), end);
                });
            }
        });
        for number in 0..4 {
            let found = records(&log.stream(&format!("s{number}")).expect("stream"));
            assert_eq!(found.len(), 400);
            assert!(found.iter().all(|found| *found == bytes));
        }
    });
}

#[test]
fn truncation_frees_whole_files_and_keeps_positions() {
    on_both(|test_dir| {
        let log = test_dir.open();
        let stream = log.stream("t").expect("stream");
        let mut lsns = Vec::new();
        for number in 0..300 {
            lsns.push(stream.append(&payload(number, 10_000)).expect("append"));
            // A file is as large as what is written to it at once, if that is more than a segment.
            if number % 10 == 9 {
                stream.flush().expect("flush");
            }
        }
        let before = stream.stat().expect("stat").file_bytes;
        stream.truncate_before(lsns[250]).expect("truncate");
        assert!(stream.stat().expect("stat").file_bytes < before / 2);
        assert_eq!(stream.head(), lsns[250]);
        assert_eq!(records(&stream).len(), 50);
        let error = stream.read_from(lsns[249]).err().expect("gone");
        let is_there = |at: &Lsn, head: &Lsn| (*at, *head) == (lsns[249], lsns[250]);
        let is_told = matches!(&error, LogError::Truncated { at, head, .. } if is_there(at, head));
        assert!(is_told, "{error}");
        drop((stream, log));
        test_dir.reboot();
        let log = test_dir.open();
        let stream = log.stream("t").expect("stream");
        assert_eq!(stream.head(), lsns[250], "kept, unless the power fails");
        assert_eq!(records(&stream)[0], payload(250, 10_000));
    });
}

/// Two threads append in turn, each to its own stream, as fast as one can tell the other. In turn
/// is what counts: appends that overlap may have the same number.
#[test]
fn an_append_that_began_later_has_a_larger_number_in_any_stream() {
    const ROUNDS: u64 = 20_000;
    let test_dir = TestDirectory::new(true);
    let log = test_dir.open();
    let turn = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (first, name) in [(0, "even"), (1, "odd")] {
            let (log, turn) = (&log, &turn);
            scope.spawn(move || {
                let stream = log.stream(name).expect("stream");
                for number in (first..ROUNDS).step_by(2) {
                    while turn.load(std::sync::atomic::Ordering::Acquire) != number {
                        std::thread::yield_now();
                    }
                    stream.append(&number.to_le_bytes()).expect("append");
                    turn.store(number + 1, std::sync::atomic::Ordering::Release);
                }
            });
        }
    });
    let mut usns = Vec::new();
    for name in ["even", "odd"] {
        let stream = log.stream(name).expect("stream");
        for record in stream.read_from(stream.head()).expect("reader") {
            let record = record.expect("record");
            usns.push((record.payload, record.usn));
        }
    }
    usns.sort_by_key(|(payload, _)| u64::from_le_bytes(payload[..].try_into().expect("8 bytes")));
    assert_eq!(usns.len(), ROUNDS as usize);
    assert!(usns.is_sorted_by(|(_, one), (_, next)| one < next));
}

#[test]
fn a_reader_follows_the_writer() {
    on_both(|test_dir| {
        let log = test_dir.open();
        let stream = log.stream("r").expect("stream");
        let mut reader = stream.read_from(Lsn(0)).expect("reader");
        let mut usn = onejournal::Usn(0);
        for number in 0..500 {
            let bytes = payload(number, 2000);
            let lsn = stream.append(&bytes).expect("append");
            stream.sync(lsn).expect("sync");
            let record = reader.next_record().expect("read").expect("one");
            assert_eq!((record.lsn, &record.payload), (lsn, &bytes));
            assert!(record.usn > usn);
            usn = record.usn;
            assert_eq!(reader.next_record().expect("read"), None);
        }
        let error = stream.read_from(Lsn(4)).expect("a position").next_record();
        assert!(matches!(error, Err(LogError::Damaged { .. })), "no record begins there");
    });
}

#[test]
fn batches_are_whole_and_in_order() {
    on_both(|test_dir| {
        let log = test_dir.open();
        let stream = log.stream("b").expect("stream");
        let parts: Vec<Vec<u8>> = (0..50).map(|number| payload(number, 5000)).collect();
        let batch: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let last = stream.append_batch(&batch).expect("append");
        stream.sync(last).expect("sync");
        assert_eq!(records(&stream), parts);
        let big = vec![0; 300 << 10];
        let error = stream.append_batch(&[&big, &big]).expect_err("more than half the pool");
        assert!(matches!(error, LogError::TooLarge { .. }), "{error}");
    });
}

#[test]
fn damage_is_told_from_a_torn_end() {
    on_both(|test_dir| {
        let log = test_dir.open();
        let stream = log.stream("d").expect("stream");
        for number in 0..20 {
            let lsn = stream.append(&payload(number, 100)).expect("append");
            stream.sync(lsn).expect("sync");
        }
        stream.flush().expect("flush");
        stream.release();
        stream.flush().expect("free the chunk");
        drop((stream, log));
        test_dir.reboot();
        // What the group log held is repaired by this process, and not known in the next one any
        // more.
        drop(test_dir.open());
        test_dir.reboot();
        let path = test_dir.root.path().join("streams/d/0000000000000000.seg");
        let whole = std::fs::read(&path).expect("log file");
        let mut damaged = whole.clone();
        damaged[64 + 5 * 124 + 30] ^= 1;
        std::fs::write(&path, &damaged).expect("damage");
        let log = test_dir.open();
        let error = log.stream("d").err().expect("damaged");
        assert!(matches!(error, LogError::Damaged { at: Lsn(620), .. }), "{error}");
        drop(log);
        test_dir.reboot();
        let mut torn = whole.clone();
        torn[64 + 19 * 124 + 30] ^= 1;
        std::fs::write(&path, &torn).expect("tear");
        let log = test_dir.open();
        assert_eq!(records(&log.stream("d").expect("torn is no damage")).len(), 19);
        drop(log);
        test_dir.reboot();
        let mut headless = whole.clone();
        headless[3] ^= 1;
        let no_header = [&[0; 64], &whole[64..]].concat();
        for damaged in [headless, no_header] {
            std::fs::write(&path, &damaged).expect("damage");
            let error = test_dir.open().stream("d").err().expect("a file that holds records");
            assert!(error.to_string().contains("header"), "{error}");
            assert!(std::fs::read(&path).expect("log file") == damaged, "nothing is removed");
            test_dir.reboot();
        }
        std::fs::write(&path, &whole).expect("repair");
        assert_eq!(records(&test_dir.open().stream("d").expect("sound")).len(), 20);
    });
}

#[test]
fn a_group_log_that_is_gone_is_no_new_one() {
    let test_dir = &TestDirectory::new(false);
    let log = test_dir.open();
    let stream = log.stream("a").expect("stream");
    let lsn = stream.append(b"acknowledged").expect("append");
    stream.sync(lsn).expect("sync");
    std::mem::drop((stream, log));
    test_dir.reboot();
    let path = test_dir.root.path().join("group.log");
    let whole = std::fs::read(&path).expect("group log");
    let refused = |found: Option<&[u8]>| {
        match found {
            Some(bytes) => std::fs::write(&path, bytes).expect("damage"),
            None => std::fs::remove_file(&path).expect("remove"),
        }
        let opened = Log::open(test_dir.root.path(), &test_dir.options());
        let error = opened.err().expect("refused").to_string();
        assert!(error.contains("group"), "{error}");
        assert_eq!(std::fs::read(&path).ok().as_deref(), found, "nothing is made");
        test_dir.reboot();
    };
    refused(None);
    refused(Some(&whole[..whole.len() / 2]));
    refused(Some(&[&[0; 8192], &whole[8192..]].concat()));
    std::fs::write(&path, &whole).expect("repair");
    assert_eq!(records(&test_dir.open().stream("a").expect("stream")), [b"acknowledged"]);
}

#[test]
fn emptied_group_log_gets_the_records_in_memory_again() {
    let test_dir = &TestDirectory::new(false);
    for number in 0..2 {
        let log = test_dir.open();
        let stream = log.stream("a").expect("stream");
        let lsn = stream.append(&payload(number, 100)).expect("append");
        stream.sync(lsn).expect("sync");
        drop((stream, log));
        if number == 0 {
            let path = test_dir.root.path().join("group.log");
            let len_bytes = std::fs::metadata(&path).expect("group log").len();
            std::fs::write(&path, vec![0; len_bytes as usize]).expect("empty it");
        }
    }
    test_dir.reboot();
    let expected = [payload(0, 100), payload(1, 100)];
    assert_eq!(records(&test_dir.open().stream("a").expect("stream")), expected);
}

/// The limit of descriptors is that of its process.
#[test]
#[ignore = "a process of regression_a_moment_without_descriptors_is_no_end"]
fn process_without_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    if std::env::var_os("ONEJOURNAL_LOG_NO_DESCRIPTORS").is_none() {
        return;
    }
    on_both(|test_dir| {
        let log = test_dir.open();
        let stream = log.stream("a").expect("stream");
        let mut expected = Vec::new();
        let mut append = |number| {
            expected.push(payload(number, 100_000));
            stream.append(&payload(number, 100_000)).expect("append")
        };
        append(0);
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).expect("limit");
        stream.flush().expect_err("nothing can be opened");
        setrlimit(Resource::Nofile, before).expect("limit");
        let lsn = append(1);
        stream.sync(lsn).expect("sync");
        stream.flush().expect("flush");
        stream.release();
        stream.flush().expect("free the chunk");
        assert_eq!((records(&stream), log.stat().lent_bytes), (expected, 0));
    });
}

#[test]
fn regression_a_moment_without_descriptors_is_no_end() {
    let child = onejournal_testing::again(module_path!(), "process_without_descriptors")
        .env("ONEJOURNAL_LOG_NO_DESCRIPTORS", "1")
        .output()
        .expect("start");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}

#[test]
fn streams_are_listed_and_removed() {
    on_both(|test_dir| {
        let log = test_dir.open();
        for name in ["two", "one"] {
            log.stream(name).expect("stream").append(b"x").expect("append");
        }
        let names = |log: &Log| -> Vec<String> {
            log.stream_names().expect("names").iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(&log), ["one", "two"]);
        log.remove_stream("two").expect("remove");
        assert_eq!(names(&log), ["one"]);
        assert!(matches!(log.remove_stream("two"), Err(LogError::NotFound(_))));
        assert!(log.existing_stream("two").expect("look").is_none());
        let again = log.stream("two").expect("made anew");
        assert_eq!(records(&again), Vec::<Vec<u8>>::new());
        drop((again, log));
        test_dir.reboot();
        assert_eq!(records(&test_dir.open().stream("two").expect("stream")), Vec::<Vec<u8>>::new());
    });
}

#[test]
fn a_removed_stream_leaves_nothing() {
    on_both(|test_dir| {
        let (log, other) = (test_dir.open(), test_dir.open());
        let stream = log.stream("short").expect("stream");
        let its = other.stream("short").expect("the same stream");
        let lsn = stream.append(&payload(1, 50_000)).expect("append");
        stream.sync(lsn).expect("sync");
        assert!(log.stat().lent_bytes > 0);
        assert!(matches!(other.remove_stream("short"), Err(LogError::Busy(_))), "it is written");
        log.remove_stream("short").expect("remove");
        assert_eq!(log.stat().lent_bytes, 0);
        for gone in [stream, its] {
            let error = gone.append(b"lost").expect_err("removed");
            assert!(error.to_string().contains("removed"), "{error}");
            assert!(gone.flush().is_err());
        }
        assert_eq!(records(&other.stream("short").expect("made anew")), Vec::<Vec<u8>>::new());
    });
}

#[test]
fn a_chunk_that_begins_in_the_middle_of_its_span_hides_nothing_that_was_drained() {
    on_both(|test_dir| {
        let log = test_dir.open();
        let stream = log.stream("m").expect("stream");
        let mut expected = Vec::new();
        for number in 0..10 {
            let bytes = payload(number, 500);
            let lsn = stream.append(&bytes).expect("append");
            stream.sync(lsn).expect("sync");
            expected.push(bytes);
            stream.flush().expect("flush");
            stream.release();
            stream.flush().expect("free the chunk");
        }
        let lsn = stream.append(b"last").expect("append");
        stream.sync(lsn).expect("sync");
        expected.push(b"last".to_vec());
        drop((stream, log));
        test_dir.reboot();
        assert_eq!(records(&test_dir.open().stream("m").expect("stream")), expected);
    });
}

/// The chunk of an idle stream goes back to the pool; the next one for the same span is zeros
/// before what is appended then, and recovery took those for the stream's.
#[test]
fn regression_a_chunk_lent_in_the_middle_of_its_span_hides_nothing() {
    on_both(|test_dir| {
        let mut expected = Vec::new();
        for number in 0..4 {
            let log = test_dir.open();
            let stream = log.stream("a").expect("stream");
            for _ in 0..2 {
                let bytes = payload(number, 100);
                let lsn = stream.append(&bytes).expect("append");
                stream.sync(lsn).expect("sync");
                expected.push(bytes);
                stream.release();
                if expected.len() % 2 == 1 {
                    stream.flush().expect("flush");
                }
            }
            drop((stream, log));
            test_dir.reboot();
        }
        let log = test_dir.open();
        assert_eq!(records(&log.stream("a").expect("stream")), expected);
    });
}

#[test]
fn regression_a_removal_that_was_cut_does_not_spoil_the_name() {
    on_both(|test_dir| {
        let log = test_dir.open();
        let stream = log.stream("cut").expect("stream");
        let lsn = stream.append(b"old").expect("append");
        stream.sync(lsn).expect("sync");
        stream.flush().expect("flush");
        drop((stream, log));
        std::fs::remove_file(test_dir.root.path().join("streams/cut/stream.json")).expect("cut");
        test_dir.reboot();
        let log = test_dir.open();
        assert!(log.stream_names().expect("names").is_empty());
        let stream = log.stream("cut").expect("made anew");
        assert_eq!(records(&stream), Vec::<Vec<u8>>::new());
        assert_eq!(stream.append(b"new").expect("append"), Lsn(0));
    });
}

#[test]
fn a_damaged_stream_is_refused_alone_whatever_the_group_log_holds_of_it() {
    let test_dir = &TestDirectory::new(false);
    let append = |stream: &Stream, count: u64| {
        for number in 0..count {
            let lsn = stream.append(&payload(number, 100)).expect("append");
            stream.sync(lsn).expect("sync");
        }
    };
    let log = test_dir.open();
    append(&log.stream("d").expect("stream"), 20);
    drop(log);
    test_dir.reboot();
    let log = test_dir.open();
    append(&log.stream("d").expect("stream"), 5);
    append(&log.stream("other").expect("stream"), 5);
    drop(log);
    test_dir.reboot();
    let path = test_dir.root.path().join("streams/d/0000000000000000.seg");
    let mut bytes = std::fs::read(&path).expect("log file");
    bytes[64 + 5 * 124 + 30] ^= 1;
    std::fs::write(&path, &bytes).expect("damage");
    for round in 0..2 {
        let log = test_dir.open();
        assert_eq!(records(&log.stream("other").expect("sound")).len(), 5, "round {round}");
        let error = log.stream("d").err().expect("damaged");
        assert!(matches!(error, LogError::Damaged { at: Lsn(620), .. }), "{error}");
        drop(log);
        test_dir.reboot();
    }
    // Once the file is repaired, the records that were in the group log are there, too.
    bytes = std::fs::read(&path).expect("log file");
    bytes[64 + 5 * 124 + 30] ^= 1;
    std::fs::write(&path, &bytes).expect("repair");
    assert_eq!(records(&test_dir.open().stream("d").expect("sound")).len(), 25);
}

#[test]
fn a_file_that_others_can_write_is_refused_with_its_path_and_what_to_do() {
    let test_dir = &TestDirectory::new(false);
    let stream = test_dir.open().stream("d").expect("stream");
    stream.sync(stream.append(b"a record").expect("append")).expect("sync");
    drop(stream);
    test_dir.reboot();
    // Brings the record from the group log to the stream's file.
    drop(test_dir.open().stream("d").expect("stream"));
    let path = test_dir.root.path().join("streams/d/0000000000000000.seg");
    let permit = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode));
    permit(0o664).expect("chmod");
    let error = test_dir.open().stream("d").err().expect("it could be forged").to_string();
    for part in [path.to_str().expect("text"), "could be forged", "chmod go-w", "onejournal logd"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    permit(0o600).expect("chmod");
    test_dir.open().stream("d").expect("its files are safe again");
}

#[test]
fn a_stream_whose_file_has_a_damaged_header_is_refused_alone_and_can_be_given_up() {
    let test_dir = &TestDirectory::new(false);
    let append = |log: &Log, name: &str, count: u64| {
        let stream = log.stream(name).expect("stream");
        for number in 0..count {
            let lsn = stream.append(&payload(number, 100)).expect("append");
            stream.sync(lsn).expect("sync");
        }
    };
    append(&test_dir.open(), "d", 20);
    test_dir.reboot();
    let log = test_dir.open();
    append(&log, "d", 5);
    append(&log, "other", 5);
    drop(log);
    test_dir.reboot();
    let path = test_dir.root.path().join("streams/d/0000000000000000.seg");
    let flip = || {
        let mut bytes = std::fs::read(&path).expect("log file");
        bytes[3] ^= 1;
        std::fs::write(&path, &bytes).expect("write");
    };
    let refused = |round: &str| {
        let log = test_dir.open();
        assert_eq!(records(&log.stream("other").expect("sound")).len(), 5, "{round}");
        let error = log.stream("d").err().expect("damaged").to_string();
        assert!(error.contains("header"), "{error}");
        log
    };
    flip();
    for round in ["first", "second"] {
        drop(refused(round));
        test_dir.reboot();
    }
    // What the group log held was not lost with its end.
    flip();
    assert_eq!(records(&test_dir.open().stream("d").expect("sound")).len(), 25);
    test_dir.reboot();
    flip();
    let log = refused("given up");
    assert_eq!(log.discard_damaged("d").expect("give it up"), Lsn(0));
    append(&log, "d", 3);
    drop(log);
    test_dir.reboot();
    assert_eq!(records(&test_dir.open().stream("d").expect("sound")).len(), 3);
}

#[test]
fn a_lease_can_be_taken_without_appending() {
    on_both(|test_dir| {
        let (one, other) = (test_dir.open(), test_dir.open());
        let (mine, theirs) = (one.stream("a").expect("a"), other.stream("a").expect("a"));
        mine.acquire().expect("free");
        assert!(matches!(theirs.acquire(), Err(LogError::Busy(_))));
        mine.release();
        theirs.acquire().expect("free again");
    });
}

#[test]
fn the_last_to_leave_frees_the_memory_of_free_chunks() {
    let test_dir = &TestDirectory::new(false);
    let chunk_files = || {
        let memory = std::fs::read_dir(test_dir.memory.path()).expect("memory");
        let service = memory.map(|entry| entry.expect("entry").path()).find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("onejournal-"))
        });
        let files = std::fs::read_dir(service.expect("shared memory")).expect("files");
        let names = files.map(|entry| entry.expect("entry").file_name());
        names.filter(|name| name.to_string_lossy().starts_with("chunk-")).count()
    };
    let (one, other) = (test_dir.open(), test_dir.open());
    let (idle, busy) = (one.stream("idle").expect("stream"), other.stream("busy").expect("stream"));
    for stream in [&idle, &busy] {
        let lsn = stream.append(&payload(1, 1000)).expect("append");
        stream.sync(lsn).expect("sync");
    }
    idle.release();
    idle.flush().expect("free the chunk");
    drop((idle, one));
    assert_eq!(chunk_files(), 2, "somebody is there");
    drop((busy, other));
    assert_eq!(chunk_files(), 1, "one is allocated");
    let log = test_dir.open();
    for name in ["idle", "busy"] {
        let stream = log.stream(name).expect("stream");
        stream.append(&payload(2, 1000)).expect("append");
        assert_eq!(stream.flush().map(|()| records(&stream).len()).expect("flush"), 2, "{name}");
    }
}

/// A small file system in memory, until it is dropped.
struct SmallMemory(tempfile::TempDir);

impl SmallMemory {
    fn mount() -> SmallMemory {
        let test_dir = tempfile::tempdir().expect("directory");
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "none"])
            .arg(test_dir.path())
            .output()
            .expect("mount");
        assert!(mount.status.success(), "{}", String::from_utf8_lossy(&mount.stderr));
        SmallMemory(test_dir)
    }

    /// Takes all that is left.
    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.0.path().join("filler")).expect("file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for SmallMemory {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn memory_that_is_full_is_an_error_and_no_signal() {
    if !onejournal_testing::can_mount() {
        return;
    }
    let memory = SmallMemory::mount();
    let test_dir = &TestDirectory::new(false);
    let options = Options { memory: memory.0.path().to_owned(), ..test_dir.options() };
    let log = Log::open(test_dir.root.path(), &options).expect("open");
    memory.fill();
    let other = tempfile::tempdir().expect("directory");
    let errors = [log.stream("a").err(), Log::open(other.path(), &options).err()];
    for error in errors {
        let error = error.expect("no memory");
        assert!(matches!(error, LogError::NoMemory(_)), "{error}");
        let (error, directory) = (error.to_string(), memory.0.path().display().to_string());
        assert!(error.contains(&directory) && error.contains("0 KiB of 4096 KiB"), "{error}");
    }
    std::fs::remove_file(memory.0.path().join("filler")).expect("remove");
    let stream = log.stream("a").expect("stream");
    stream.append(b"fits").expect("append");
    stream.flush().expect("flush");
}

#[test]
fn a_service_that_was_closed_has_used_up_no_more_usns_than_it_gave() {
    on_both(|test_dir| {
        let mut before = 0;
        let mut last = onejournal::Usn(0);
        for round in 0..4 {
            let log = test_dir.open();
            let stream = log.stream("a").expect("stream");
            let lsn = stream.append(b"record").expect("append");
            stream.sync(lsn).expect("sync");
            let found = stream.read_from(lsn).expect("reader").next_record().expect("read");
            let usn = found.expect("a record").usn;
            assert!(usn > last, "round {round}");
            last = usn;
            drop(stream);
            log.close().expect("close");
            let limit =
                std::fs::read_to_string(test_dir.root.path().join("usn-limit")).expect("limit");
            let limit: u64 = limit.trim().parse().expect("a number");
            assert!(limit > last.0, "round {round}");
            // They count ns; an hour of them is made good at once.
            assert!(limit - before < 1_800_000_000_000, "round {round}: {before}, then {limit}");
            before = limit;
        }
    });
}

#[test]
fn open_succeeds_while_the_last_user_closes() {
    on_both(|test_dir| {
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                scope.spawn(move || {
                    for number in 0..100 {
                        let log = test_dir.open();
                        let stream = log.stream(name).expect("stream");
                        stream.append(&payload(number, 100)).expect("append");
                        drop(stream);
                        log.close().expect("close");
                    }
                });
            }
        });
        let log = test_dir.open();
        for name in ["a", "b"] {
            assert_eq!(records(&log.stream(name).expect("stream")).len(), 100);
        }
    });
}
