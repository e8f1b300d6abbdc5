//! Processes whose clocks disagree, as in a time namespace whose offset cannot be read.

use crate::faults::Fault;
use crate::test_directory::TestDirectory;
use crate::{Log, Options, Server, ServerOptions, Usn};

const FAULTS: [Fault; 2] = [Fault::ClockAhead, Fault::ClockBehind];

/// Appends a record durably. Returns its USN, which must be larger than those before.
fn append(log: &Log, name: &str) -> Usn {
    let stream = log.stream(name).expect("stream");
    let lsn = stream.append(b"record").expect("append");
    stream.sync(lsn).expect("sync");
    let records: Vec<_> = stream.read_from(stream.head()).expect("reader").collect();
    let usns: Vec<Usn> = records.into_iter().map(|record| record.expect("record").usn).collect();
    assert!(usns.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {usns:?}");
    usns[usns.len() - 1]
}

/// The limit that the log keeps, at which the next incarnation begins.
fn kept_limit(test_dir: &TestDirectory) -> u64 {
    let text = std::fs::read_to_string(test_dir.path().join("usn-limit")).expect("a limit");
    text.trim().parse().expect("a number")
}

/// How both processes end.
#[derive(Debug, Clone, Copy)]
enum End {
    UsualLast,
    OtherLast,
    PowerCut,
}

/// One incarnation of the log, with a process of the usual clock and one with another clock.
fn live(test_dir: &TestDirectory, fault: Fault, is_other_first: bool, end: End) {
    let open = || Log::open(test_dir.path(), &test_dir.options).expect("open");
    let early = is_other_first.then(|| fault::with(fault, open));
    let usual = open();
    let other = early.unwrap_or_else(|| fault::with(fault, open));
    let mut last = append(&usual, "usual");
    last = fault::with(fault, || append(&other, "other")).max(last);
    last = append(&usual, "usual").max(last);
    let close_other = |other: Log| fault::with(fault, || other.close().expect("close"));
    match end {
        End::UsualLast => {
            close_other(other);
            usual.close().expect("close");
        }
        End::OtherLast => {
            usual.close().expect("close");
            close_other(other);
        }
        End::PowerCut => {
            drop((usual, other));
            test_dir.reboot();
        }
    }
    let limit = kept_limit(test_dir);
    assert!(last.0 < limit, "{fault:?}, {end:?}: USN {last:?}, limit {limit}");
    assert!(limit < u64::MAX / 2, "{fault:?}, {end:?}: the limit is {limit}");
}

#[test]
fn processes_with_other_clocks_write_a_log_and_the_limit_covers_all_usns() {
    for (fault, end) in FAULTS
        .into_iter()
        .flat_map(|fault| [End::UsualLast, End::OtherLast, End::PowerCut].map(|end| (fault, end)))
    {
        for is_other_first in [false, true] {
            let test_dir = TestDirectory::new();
            (0..3).for_each(|_| live(&test_dir, fault, is_other_first, end));
        }
    }
}

#[test]
fn a_client_with_another_clock_writes_through_the_daemon() {
    for fault in FAULTS {
        let test_dir = TestDirectory::new();
        let options = Options { memory: test_dir.memory().to_owned(), ..Options::default() };
        let at = ServerOptions::at(test_dir.socket());
        for _ in 0..3 {
            let server = Server::start(test_dir.path(), &options, &at).expect("serve");
            let connect = || Log::connect(test_dir.socket()).expect("connect");
            let usual = connect();
            append(&usual, "usual");
            fault::with(fault, || {
                let other = connect();
                append(&other, "other");
                append(&other, "other");
                other.close().expect("close");
            });
            append(&usual, "usual");
            usual.close().expect("close");
            server.stop().expect("stop");
            assert!(kept_limit(&test_dir) < u64::MAX / 2);
        }
    }
}
