//! A service with a daemon: what its clients append is there, also after clients and daemon were
//! ended and started again.

use crate::common;

use std::time::Duration;

use common::{
    TestDirectory, append_every_size, append_synced, check_every_size, on_both, payload, records,
};
use onejournal::{
    ConnectOptions, Effect, Limits, Log, LogError, Lsn, Options, Server, ServerOptions,
};

/// A daemon that serves the test_dir, and its clients.
trait Served {
    fn serve_with(&self, limits: Limits) -> Server;
    fn serve(&self) -> Server;
    fn connect(&self) -> Log;
}

impl Served for TestDirectory {
    fn serve_with(&self, limits: Limits) -> Server {
        let server = ServerOptions { limits, ..ServerOptions::at(self.socket()) };
        Server::start(self.log(), &self.options(), &server).expect("serve")
    }

    fn serve(&self) -> Server {
        self.serve_with(Limits::default())
    }

    fn connect(&self) -> Log {
        Log::connect(self.socket()).expect("connect")
    }
}

#[test]
fn synced_records_are_read_back_by_any_client_and_after_a_reboot() {
    on_both(|test_dir| {
        let mut expected = Vec::new();
        for round in 0..6 {
            let server = test_dir.serve();
            let log = test_dir.connect();
            let stream = log.stream("a").expect("stream");
            assert_eq!(records(&stream), expected, "round {round}");
            append_synced(&stream, &mut expected);
            assert_eq!(records(&stream), expected, "round {round}");
            if round % 3 == 0 {
                drop((stream, log));
                server.stop().expect("stop");
            } else {
                drop(server);
            }
            if round % 2 == 1 {
                test_dir.reboot();
            }
        }
        let log = Log::open(test_dir.log(), &test_dir.options()).expect("open");
        assert_eq!(records(&log.stream("a").expect("stream")), expected, "without a daemon");
    });
}

#[test]
fn records_of_every_size() {
    on_both(|test_dir| {
        let server = ServerOptions::at(test_dir.socket());
        let options = Options { pool_bytes: 64 << 20, ..test_dir.options() };
        let _server = Server::start(test_dir.log(), &options, &server).expect("serve");
        let log = test_dir.connect();
        let stream = log.stream("sizes").expect("stream");
        append_every_size(&stream);
        check_every_size(&stream);
    });
}

#[test]
fn streams_are_listed_read_truncated_and_removed() {
    on_both(|test_dir| {
        let _server = test_dir.serve();
        let log = test_dir.connect();
        let stream = log.stream("t").expect("stream");
        let mut lsns = Vec::new();
        for number in 0..300 {
            lsns.push(stream.append(&payload(number, 10_000)).expect("append"));
        }
        stream.flush().expect("flush");
        let before = stream.stat().expect("stat");
        assert_eq!((before.record_count, before.appended), (300, stream.appended().0));
        stream.truncate_before(lsns[250]).expect("truncate");
        assert!(stream.stat().expect("stat").file_bytes < before.file_bytes / 2);
        assert_eq!(stream.head(), lsns[250]);
        assert_eq!(records(&stream).len(), 50);
        let error = stream.read_from(lsns[249]).err().expect("gone");
        let is_there = |at: &Lsn, head: &Lsn| (*at, *head) == (lsns[249], lsns[250]);
        let is_told = matches!(&error, LogError::Truncated { at, head, .. } if is_there(at, head));
        assert!(is_told, "{error}");
        let error = stream.read_from(Lsn(stream.end().0 + 4)).err().expect("behind the end");
        assert!(matches!(error, LogError::PastEnd { .. }), "{error}");
        let mut reader = stream.read_from(Lsn(lsns[250].0 + 4)).expect("a position");
        assert!(matches!(reader.next_record(), Err(LogError::Damaged { .. })), "none begins there");
        log.stream("other").expect("stream");
        let names: Vec<String> =
            log.stream_names().expect("names").iter().map(ToString::to_string).collect();
        assert_eq!(names, ["other", "t"]);
        let error = log.remove_stream("t").expect_err("it has a writer");
        assert!(matches!(error, LogError::Busy(_)), "{error}");
        stream.release();
        log.remove_stream("t").expect("remove");
        assert!(log.existing_stream("t").expect("look").is_none());
        assert!(matches!(stream.append(b"x"), Err(LogError::NotFound(_))));
        assert!(records(&log.stream("t").expect("made anew")).is_empty());
        assert_eq!(log.stat().pool_bytes, 1 << 20);
    });
}

#[test]
fn directory_is_either_served_by_a_daemon_or_opened_by_processes() {
    on_both(|test_dir| {
        let server = test_dir.serve();
        let error = Log::open(test_dir.log(), &test_dir.options()).err().expect("served");
        assert!(matches!(&error, LogError::InUse(why) if why.contains("/socket")), "{error}");
        let again = ServerOptions::at(test_dir.root.path().join("other"));
        let error = Server::start(test_dir.log(), &test_dir.options(), &again).err();
        assert!(matches!(error, Some(LogError::InUse(_))), "{error:?}");
        server.stop().expect("stop");
        let log = Log::open(test_dir.log(), &test_dir.options()).expect("nobody serves it");
        let server = ServerOptions::at(test_dir.socket());
        let error = Server::start(test_dir.log(), &test_dir.options(), &server).err();
        let error = error.expect("opened");
        let is_said = |why: &String| why.contains("opened it themselves");
        assert!(matches!(&error, LogError::InUse(why) if is_said(why)), "{error}");
        drop(log);
        drop(test_dir.serve());
    });
}

#[test]
fn a_path_says_by_its_name_whether_a_daemon_is_meant() {
    let test_dir = TestDirectory::new(true);
    let server = test_dir.serve();
    let options = test_dir.options();
    Log::open(test_dir.socket(), &options).expect("its socket").stream("a").expect("stream");
    let other = test_dir.root.path().join("other");
    std::fs::hard_link(test_dir.socket(), &other).expect("another name");
    let error = Log::open(&other, &options).err().expect("a socket by another name");
    assert!(matches!(error, LogError::Usage(_)), "{error}");
    Log::connect(&other).expect("said to be one");
    server.stop().expect("stop");
    let retry = Duration::from_millis(10);
    let brief = ConnectOptions { retry, ..ConnectOptions::default() };
    let error = Log::connect_with(test_dir.socket(), &brief).err().expect("gone");
    assert!(error.to_string().contains("onejournal logd"), "{error}");
    let error = Log::open(test_dir.socket(), &options).err().expect("gone");
    assert!(matches!(error, LogError::Daemon(_)), "{error}");
    assert!(!test_dir.socket().exists(), "no log was made in its place");
    let directory = test_dir.root.path().join("log.sock");
    std::fs::create_dir(&directory).expect("directory");
    let error = Log::open(&directory, &options).err().expect("a directory named like a socket");
    assert!(matches!(error, LogError::Usage(_)), "{error}");
}

#[test]
fn a_client_that_closes_has_brought_everything_home() {
    on_both(|test_dir| {
        let _server = test_dir.serve();
        let (log, other) = (test_dir.connect(), test_dir.connect());
        let stream = log.stream("a").expect("stream");
        stream.append(&payload(1, 50_000)).expect("append");
        log.close().expect("close");
        let rival = other.stream("a").expect("stream");
        let stat = rival.stat().expect("stat");
        assert_eq!((stat.drained, stat.record_count), (stat.appended, 1));
        rival.acquire().expect("the lease was released");
        assert_eq!(other.stat().lent_bytes, 0);
        drop(stream);
    });
}

#[test]
fn one_client_writes_a_stream_at_a_time() {
    on_both(|test_dir| {
        let _server = test_dir.serve();
        let (one, other) = (test_dir.connect(), test_dir.connect());
        let (first, second) = (one.stream("s").expect("one"), one.stream("s").expect("the same"));
        first.append(b"1").expect("append");
        second.append(b"2").expect("the same process");
        first.set_header(&[7; onejournal::STREAM_HEADER_BYTES]);
        let rival = other.stream("s").expect("stream");
        assert!(matches!(rival.append(b"3"), Err(LogError::Busy(_))));
        assert_eq!(rival.header().expect("header"), [7; onejournal::STREAM_HEADER_BYTES]);
        assert!(matches!(rival.acquire(), Err(LogError::Busy(_))));
        first.release();
        assert_eq!(rival.header().expect("header"), [7; onejournal::STREAM_HEADER_BYTES]);
        rival.acquire().expect("it was released");
        assert!(matches!(first.acquire(), Err(LogError::Busy(_))), "without an append too");
        let lsn = rival.append(b"3").expect("it was released");
        rival.sync(lsn).expect("sync");
        assert!(matches!(second.append(b"4"), Err(LogError::Busy(_))));
        drop((rival, other));
        let lsn = second.append(b"4").expect("its client is gone");
        second.sync(lsn).expect("sync");
        assert_eq!(records(&first), [b"1", b"2", b"3", b"4"]);
    });
}

#[test]
fn regression_a_stream_header_that_cannot_be_read_is_an_error() {
    let test_dir = TestDirectory::new(true);
    let server = test_dir.serve();
    let retry = std::time::Duration::from_millis(50);
    let options = ConnectOptions { retry, ..ConnectOptions::default() };
    let log = Log::connect_with(test_dir.socket(), &options).expect("connect");
    let stream = log.stream("a").expect("stream");
    assert_eq!(stream.header().expect("header"), [0; onejournal::STREAM_HEADER_BYTES]);
    server.stop().expect("stop");
    assert!(matches!(stream.header(), Err(LogError::Daemon(_))), "zeros would say a restart");
}

#[test]
fn clients_go_on_when_the_daemon_is_back() {
    on_both(|test_dir| {
        let mut server = test_dir.serve();
        let log = test_dir.connect();
        let stream = log.stream("r").expect("stream");
        let mut expected = Vec::new();
        let append = |expected: &mut Vec<Vec<u8>>, count: u64| {
            for number in 0..count {
                let bytes = payload(number, 500);
                expected.push(bytes.clone());
                stream.append(&bytes).expect("append");
            }
        };
        for round in 0..6 {
            append(&mut expected, 200);
            match round % 2 {
                0 => server.stop().expect("stop"),
                _ => drop(server),
            }
            // Without a daemon there is room for these in the last chunk or the next.
            append(&mut expected, 20);
            server = test_dir.serve();
            if round % 3 == 0 {
                append(&mut expected, 100);
            }
            let last = stream.appended();
            stream.sync(Lsn(last.0 - 524)).expect("sync");
            assert_eq!(records(&stream).len(), expected.len(), "round {round}");
        }
        assert!(records(&stream) == expected);
        drop(server);
    });
}

/// The daemon may have carried the call out before it died. So a directory that cannot be opened
/// instead does not make the call a refused one.
#[test]
fn regression_a_lost_daemon_leaves_the_outcome_unknown() {
    on_both(|test_dir| {
        let server = test_dir.serve();
        let retry = Duration::from_millis(100);
        let fallback = Some((test_dir.log(), test_dir.options()));
        let falling = ConnectOptions { retry, fallback, ..ConnectOptions::default() };
        let log = Log::connect_with(test_dir.socket(), &falling).expect("connect");
        server.stop().expect("stop");
        let elsewhere = ServerOptions::at(test_dir.root.path().join("elsewhere"));
        let _server =
            Server::start(test_dir.log(), &test_dir.options(), &elsewhere).expect("serve");
        let error = log.stream("new").map(drop).expect_err("it does not answer");
        assert_eq!(error.effect(), Effect::Unknown, "{error}");
        assert!(error.to_string().contains("/elsewhere"), "{error}");
    });
}

#[test]
fn a_daemon_that_stays_away_is_an_error_or_the_directory_is_used() {
    on_both(|test_dir| {
        let server = test_dir.serve();
        let retry = Duration::from_millis(100);
        let brief = ConnectOptions { retry, ..ConnectOptions::default() };
        let fallback = Some((test_dir.log(), test_dir.options()));
        let falling = ConnectOptions { retry, fallback, ..ConnectOptions::default() };
        let loud = Log::connect_with(test_dir.socket(), &brief).expect("connect");
        let quiet = Log::connect_with(test_dir.socket(), &falling).expect("connect");
        let (heard, kept) = (loud.stream("loud").expect("one"), quiet.stream("kept").expect("two"));
        heard.append(b"x").expect("append");
        let mut expected = Vec::new();
        for number in 0..100 {
            kept.append(&payload(number, 1000)).expect("append");
            expected.push(payload(number, 1000));
        }
        drop(server);
        let error = loop {
            if let Err(e) = heard.append(&[1; 10_000]) {
                break e;
            }
        };
        assert!(matches!(error, LogError::Daemon(_)), "{error}");
        assert!(matches!(loud.stream_names(), Err(LogError::Daemon(_))));
        for number in 100..400 {
            let lsn = kept.append(&payload(number, 1000)).expect("the directory");
            kept.sync(lsn).expect("sync");
            expected.push(payload(number, 1000));
        }
        assert!(records(&kept) == expected);
        assert_eq!(quiet.stream_names().expect("names").len(), 2);
        let again = Log::connect_with(test_dir.socket(), &falling).expect("the directory");
        assert!(records(&again.stream("kept").expect("stream")) == expected);
        assert!(Log::connect_with(test_dir.socket(), &brief).is_err());
    });
}

#[test]
fn many_clients_share_the_pool_and_lose_nothing() {
    on_both(|test_dir| {
        let _server = test_dir.serve();
        let bytes = payload(1, 10_000);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let bytes = &bytes;
                scope.spawn(move || {
                    let stream = test_dir.connect().stream(&format!("s{number}")).expect("stream");
                    for _ in 0..400 {
                        let lsn = stream.append(bytes).expect("append");
                        if number % 2 == 0 {
                            stream.sync(lsn).expect("sync");
                        }
                    }
                    stream.flush().expect("flush");
                    assert_eq!(stream.end(), stream.appended());
                });
            }
        });
        let log = test_dir.connect();
        for number in 0..4 {
            let found = records(&log.stream(&format!("s{number}")).expect("stream"));
            assert_eq!(found.len(), 400);
            assert!(found.iter().all(|found| *found == bytes));
        }
    });
}

#[test]
fn a_quota_ends_a_stream_and_no_other() {
    on_both(|test_dir| {
        let limits = Limits { stream_bytes: 1 << 20, ..Limits::default() };
        let _server = test_dir.serve_with(limits);
        let log = test_dir.connect();
        let stream = log.stream("q").expect("stream");
        let mut last = Lsn(0);
        let error = loop {
            match stream.append(&[1; 10_000]) {
                Ok(lsn) => last = lsn,
                Err(e) => break e,
            }
        };
        assert!(matches!(error, LogError::Denied(_)), "{error}");
        assert!(last.0 > 900 << 10 && last.0 < 1 << 20, "{last}");
        log.stream("other").expect("stream").append(&[1; 10_000]).expect("append");
        stream.flush().expect("flush");
        stream.truncate_before(last).expect("truncate");
        stream.append(&[1; 10_000]).expect("there is room again");
    });
}

#[test]
fn damage_is_read_up_to_and_given_up_by_decision() {
    on_both(|test_dir| {
        let server = test_dir.serve();
        let log = test_dir.connect();
        let stream = log.stream("d").expect("stream");
        for number in 0..20 {
            let lsn = stream.append(&payload(number, 100)).expect("append");
            stream.sync(lsn).expect("sync");
        }
        drop((stream, log));
        server.stop().expect("stop");
        test_dir.reboot();
        // What the group log held is repaired by this process, and not known in the next one any
        // more.
        drop(test_dir.serve());
        test_dir.reboot();
        let path = test_dir.log().join("streams/d/0000000000000000.seg");
        let mut bytes = std::fs::read(&path).expect("log file");
        bytes[64 + 5 * 124 + 30] ^= 1;
        std::fs::write(&path, &bytes).expect("damage");
        let _server = test_dir.serve();
        let log = test_dir.connect();
        let error = log.stream("d").err().expect("damaged");
        assert!(matches!(error, LogError::Damaged { at: Lsn(620), .. }), "{error}");
        let (before, next) = log.salvage("d", Lsn(0)).expect("salvage");
        assert_eq!((before.len(), next), (5, Lsn(620)));
        assert!(log.salvage("d", next).expect("nothing more").0.is_empty());
        assert_eq!(log.discard_damaged("d").expect("discard"), Lsn(620));
        let stream = log.stream("d").expect("sound");
        assert_eq!(records(&stream).len(), 5);
        let lsn = stream.append(b"more").expect("append");
        stream.sync(lsn).expect("sync");
        assert_eq!(records(&stream).len(), 6);
    });
}
