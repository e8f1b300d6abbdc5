//! Hostile clients: messages that are no requests, and garbage in the words and chunks of their own
//! lanes.
//!
//! The daemon goes on, and other streams keep their records. The tests are seeded; a failure prints
//! the seed.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use fastrand::Rng;
use onejournal_testing::{test_name, tier};
use zerocopy::IntoBytes;

use super::{Server, ServerOptions};
use crate::client::{Patience, receive_answer};
use crate::format::chunk;
use crate::format::record::Identity;
use crate::test_directory::TestDirectory;
use crate::wire::protocol::{
    DATA_BYTES_MAX, Kind, REPLY_BYTES, REQUEST_BYTES, Reply, Request, accepted,
};
use crate::wire::transport;
use crate::words::LaneWords;
use crate::{Log, LogError, Lsn, Result, Stream, StreamId, Usn};

pub(super) fn test_directory(is_nvram: bool) -> TestDirectory {
    let mut test_dir = TestDirectory::with(is_nvram);
    test_dir.options.group_bytes = 1 << 20;
    test_dir.options.full_wait = Duration::from_secs(1);
    test_dir
}

pub(super) fn serve(test_dir: &TestDirectory) -> Server {
    let server = ServerOptions::at(test_dir.socket());
    Server::start(test_dir.path(), &test_dir.options, &server).expect("serve")
}

/// A connection that sends what it likes.
pub(super) struct Raw(pub(super) OwnedFd);

impl Raw {
    pub(super) fn connect(test_dir: &TestDirectory) -> Raw {
        let patience = Duration::from_secs(60);
        Raw(transport::connect(&test_dir.socket(), patience).expect("connect"))
    }

    fn ask(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>)> {
        transport::send(&self.0, request.encode().as_bytes(), &[]).expect("send");
        let received = receive_answer(&self.0, request.kind, Patience::default());
        let (reply, files) = received.expect("an answer");
        Ok((accepted(reply)?, files))
    }
}

/// A lane of a hostile client that knows the layout.
struct Lane {
    raw: Raw,
    identity: Identity,
    token: u64,
    position: u64,
    words: File,
    chunk: File,
    chunk_bytes: u64,
}

impl Lane {
    fn take(test_dir: &TestDirectory, name: &str) -> Result<Lane> {
        let raw = Raw::connect(test_dir);
        let (hello, _) = raw.ask(&Request::new(Kind::Hello))?;
        let request = Request { name: name.into(), count: 1, ..Request::new(Kind::Open) };
        let stream = raw.ask(&request)?.0.values[0] as u32;
        let (reply, mut files) = raw.ask(&Request { stream, ..Request::new(Kind::Lease) })?;
        let [token, position, salt, ..] = reply.values;
        let identity = Identity { stream: StreamId(stream), salt };
        let words = File::from(files.remove(0));
        let chunk_bytes = hello.values[0];
        let chunk = Lane::allocate(&raw, stream, token, position / chunk_bytes)?;
        Ok(Lane { raw, identity, token, position, words, chunk, chunk_bytes })
    }

    fn allocate(raw: &Raw, stream: u32, token: u64, at: u64) -> Result<File> {
        let request = Request { stream, token, at, ..Request::new(Kind::Allocate) };
        let (_, mut files) = raw.ask(&request)?;
        Ok(files.remove(0).into())
    }

    fn ask(&self, kind: Kind, at: u64, count: u32) -> Result<(Reply, Vec<OwnedFd>)> {
        let (stream, token) = (self.identity.stream.0, self.token);
        self.raw.ask(&Request { stream, token, at, count, ..Request::new(kind) })
    }

    fn set_word(&self, index: usize, word: u64) {
        self.words.write_all_at(&word.to_ne_bytes(), index as u64 * 8).expect("write");
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        let offset = chunk::DATA_OFFSET + at % self.chunk_bytes;
        self.chunk.write_all_at(bytes, offset).expect("write");
    }

    /// Appends a record as a client should.
    fn append(&mut self) {
        let header = self.identity.seal(Lsn(self.position), Usn(1), b"abcd", 0);
        self.store(self.position, &[&header[..], b"abcd"].concat());
        self.position += 28;
        self.set_word(LaneWords::APPENDED, self.position);
    }

    /// Does something bad.
    fn misbehave(&self, rng: &mut Rng) {
        let at = self.position;
        let record = |lsn: u64, usn: u64| {
            let header = self.identity.seal(Lsn(lsn), Usn(usn), b"abcd", 0);
            [&header[..], b"abcd"].concat()
        };
        match rng.u8(0..10) {
            0 => self.set_word(LaneWords::APPENDED, rng.u64(..)),
            1 => self.set_word(LaneWords::APPENDED, at.wrapping_sub(rng.u64(0..200))),
            2 => self.set_word(LaneWords::APPENDED, at + 4 * rng.u64(0..5000)),
            3 => (0..LaneWords::COUNT).for_each(|index| self.set_word(index, rng.u64(..))),
            4 => {
                let garbage: Vec<u8> = (0..1000).map(|_| rng.u8(..)).collect();
                self.store(at, &garbage);
                self.set_word(LaneWords::APPENDED, at + 1000);
            }
            5 => {
                self.store(at, &record(at, u64::MAX));
                self.set_word(LaneWords::LAST_USN, u64::MAX);
                self.set_word(LaneWords::APPENDED, at + 28);
            }
            6 => {
                self.store(at, &record(at + 4, 1));
                self.set_word(LaneWords::APPENDED, at + 28);
            }
            7 => self.words.set_len(rng.u64(0..8192)).expect("cut"),
            8 => {
                self.store(at, &record(at, 1));
                self.set_word(LaneWords::APPENDED, at + 28);
                self.chunk.set_len(rng.u64(0..8192)).expect("cut");
            }
            _ => self.chunk.set_len(1 << 30).expect("grow"),
        }
        for file in [&self.words, &self.chunk] {
            let append = rustix::fs::OFlags::APPEND;
            rustix::fs::fcntl_setfl(file, append).expect("flags");
        }
    }

    /// Asks for something, with sense or without.
    fn ask_something(&self, rng: &mut Rng) {
        const KINDS: [Kind; 8] = [
            Kind::Sync,
            Kind::Flush,
            Kind::Allocate,
            Kind::Read,
            Kind::Stat,
            Kind::Truncate,
            Kind::StreamHeader,
            Kind::ExtendUsn,
        ];
        let near = self.position.wrapping_add(rng.u64(0..100)).wrapping_sub(50);
        let at = [near, 0, 1, u64::MAX, rng.u64(..)][rng.usize(0..5)];
        let kind = KINDS[rng.usize(0..KINDS.len())];
        // Whether it is refused is its own affair.
        let _ = self.ask(kind, at, [0, 1, 8, u32::MAX][rng.usize(0..4)]);
    }
}

/// Appends, also if the pool is full for longer than the service waits here: the disk may be slow.
fn append(stream: &Stream, payload: &[u8]) -> Lsn {
    loop {
        match stream.append(payload) {
            Ok(lsn) => return lsn,
            Err(LogError::Full { .. }) => {}
            Err(e) => panic!("{}: {e}", stream.name()),
        }
    }
}

/// A client whose records must not change.
pub(super) struct Innocent {
    stream: Stream,
    count: u64,
}

impl Innocent {
    pub(super) fn new(log: &Log, name: &str) -> Innocent {
        Innocent { stream: log.stream(name).expect("stream"), count: 0 }
    }

    pub(super) fn go_on(&mut self) {
        for _ in 0..5 {
            let bytes = [self.count.to_le_bytes(); 100].concat();
            let lsn = append(&self.stream, &bytes);
            self.stream.sync(lsn).expect("sync");
            self.count += 1;
        }
    }

    pub(super) fn check(&self) {
        let mut number = 0u64;
        for record in self.stream.read_from(Lsn(0)).expect("reader") {
            let payload = record.expect("record").payload;
            assert!(payload == [number.to_le_bytes(); 100].concat(), "record {number}");
            number += 1;
        }
        assert_eq!(number, self.count);
    }
}

#[test]
fn garbage_in_a_lane_harms_its_own_stream_alone() {
    for is_nvram in [false, true] {
        let test_dir = test_directory(is_nvram);
        let mut server = serve(&test_dir);
        let log = Log::connect(test_dir.socket()).expect("connect");
        let mut innocent = Innocent::new(&log, "innocent");
        for seed in tier::seeds(test_name!(), 60) {
            let mut rng = Rng::with_seed(seed);
            // Most streams are spoiled three times.
            let name = format!("bad-{}", seed % tier::count(20) as u64);
            let lane = match Lane::take(&test_dir, &name) {
                Ok(lane) => lane,
                // Spoiled in an earlier round: given up, by decision.
                Err(LogError::Aborted(_) | LogError::Damaged { .. }) => {
                    log.discard_damaged(&name).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                    Lane::take(&test_dir, &name).unwrap_or_else(|e| panic!("seed {seed}: {e}"))
                }
                Err(e) => panic!("seed {seed}: {e}"),
            };
            for _ in 0..rng.usize(1..4) {
                lane.misbehave(&mut rng);
                innocent.go_on();
                lane.ask_something(&mut rng);
            }
            if seed % 10 == 9 {
                // The next daemon finds what this one left.
                drop(server);
                server = serve(&test_dir);
            }
            drop(lane);
        }
        innocent.go_on();
        innocent.check();
        server.stop().unwrap_or_else(|e| panic!("stop: {e}"));
        let log = Log::open(test_dir.path(), &test_dir.options).expect("open");
        Innocent { stream: log.stream("innocent").expect("stream"), ..innocent }.check();
    }
}

#[test]
fn impossible_report_of_a_client_is_not_taken_over() {
    let test_dir = test_directory(true);
    let _server = serve(&test_dir);
    let lies: [fn(u64) -> u64; 5] =
        [|_| u64::MAX, |at| at + (1 << 30), |at| at + 30, |at| at - 4, |_| 0];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut lane = Lane::take(&test_dir, &format!("s{number}")).expect("lease");
        lane.append();
        lane.ask(Kind::Flush, 0, 0).expect("an honest one");
        lane.append();
        let before = lane.ask(Kind::Stat, 0, 0).expect("stat").0.values;
        lane.set_word(LaneWords::APPENDED, lie(lane.position));
        assert!(lane.ask(Kind::Flush, 0, 0).is_err(), "lie {number}");
        let after = lane.ask(Kind::Stat, 0, 0).expect("stat").0.values;
        assert_eq!((after[3], after[7]), (before[3], 1), "lie {number}: aborted where it was");
    }
}

#[test]
fn last_records_of_a_client_are_there_for_the_next_client() {
    let test_dir = test_directory(true);
    let _server = serve(&test_dir);
    let mut end = 0;
    for _ in 0..20 {
        let mut lane = Lane::take(&test_dir, "s").expect("lease");
        assert_eq!(lane.position, end);
        lane.append();
        end = lane.position;
    }
}

#[test]
fn file_that_a_client_makes_longer_is_cut() {
    for is_nvram in [false, true] {
        let test_dir = test_directory(is_nvram);
        let server = serve(&test_dir);
        let log = Log::connect(test_dir.socket()).expect("connect");
        let mut innocent = Innocent::new(&log, "innocent");
        for (number, is_chunk) in [true, false].into_iter().enumerate() {
            let mut lane = Lane::take(&test_dir, &format!("greedy-{number}")).expect("lease");
            lane.append();
            let file = if is_chunk { &lane.chunk } else { &lane.words };
            let length = || file.metadata().expect("it is open").len();
            let before = length();
            for _ in 0..3 {
                let allocate = rustix::fs::FallocateFlags::empty();
                rustix::fs::fallocate(file, allocate, 0, 16 << 20).expect("as root may");
                innocent.go_on();
                while length() != before {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            let error = lane.ask(Kind::Sync, 0, 0).expect_err("its lease is worth nothing");
            assert!(matches!(error, LogError::Aborted(_)), "{error}");
        }
        innocent.go_on();
        innocent.check();
        server.stop().expect("stop");
    }
}

#[test]
fn two_who_want_most_of_the_pool_both_get_it() {
    let test_dir = test_directory(true);
    let _server = serve(&test_dir);
    let log = || Log::connect(test_dir.socket()).expect("connect");
    std::thread::scope(|scope| {
        for name in ["one", "two", "three"] {
            scope.spawn(move || {
                let stream = log().stream(name).expect("stream");
                let payload = vec![1; 500_000];
                (0..10).for_each(|_| _ = append(&stream, &payload));
            });
        }
    });
}

#[test]
fn messages_that_are_none_close_their_connection_alone() {
    let test_dir = test_directory(true);
    let server = serve(&test_dir);
    let log = Log::connect(test_dir.socket()).expect("connect");
    let mut innocent = Innocent::new(&log, "innocent");
    innocent.go_on();
    for seed in tier::seeds(test_name!(), 400) {
        let mut rng = Rng::with_seed(seed);
        let raw = Raw::connect(&test_dir);
        let kind = rng.u16(0..20).to_le_bytes();
        let mut bytes: Vec<u8> = match rng.bool() {
            true => (0..rng.usize(0..400)).map(|_| rng.u8(..)).collect(),
            false => {
                let names = ["innocent", "", ".", "x", "../x"];
                let name = names[rng.usize(0..names.len())].to_owned();
                let stream = [0, 0, 1, u32::MAX][rng.usize(0..4)];
                let at = [0, 4, rng.u64(..), u64::MAX][rng.usize(0..4)];
                let (token, count) = (rng.u64(..), rng.u32(..));
                let request = Request { kind: Kind::Hello, stream, token, at, count, name };
                request.encode().as_bytes().to_vec()
            }
        };
        // Neither remove nor truncate what root may remove and truncate, nor take what is held.
        if bytes.len() == REQUEST_BYTES && ![13, 14, 17].contains(&kind[0]) {
            bytes[..2].copy_from_slice(&[1, 0]);
            bytes[2..4].copy_from_slice(&kind);
        }
        let file = tempfile::tempfile().expect("file");
        let files = [std::os::fd::AsFd::as_fd(&file)];
        let files = if rng.u8(0..10) == 0 { &files[..] } else { &[] };
        let _ = transport::send(&raw.0, &bytes, files);
        if rng.bool() {
            let timeout = rustix::net::sockopt::Timeout::Recv;
            let limit = Some(Duration::from_secs(120));
            rustix::net::sockopt::set_socket_timeout(&raw.0, timeout, limit).expect("timeout");
            let mut buf = vec![0; REPLY_BYTES + DATA_BYTES_MAX];
            let answered = transport::receive(&raw.0, &mut buf);
            let is_stuck = answered.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
            assert!(!is_stuck || bytes.is_empty(), "seed {seed}: no answer and no end");
        }
    }
    innocent.go_on();
    innocent.check();
    server.stop().expect("stop");
}

/// Descriptors in flight are counted by the kernel for all of the daemon's users.
#[test]
fn regression_a_client_that_reads_no_answer_is_given_no_descriptors() {
    let test_dir = test_directory(true);
    let _server = serve(&test_dir);
    let lane = Lane::take(&test_dir, "silent").expect("lease");
    let (stream, token) = (lane.identity.stream.0, lane.token);
    let at = lane.position / lane.chunk_bytes;
    let request = Request { stream, token, at, ..Request::new(Kind::Allocate) };
    let mut sent = 0;
    while transport::send(&lane.raw.0, request.encode().as_bytes(), &[]).is_ok() {
        sent += 1;
        std::thread::sleep(Duration::from_millis(1));
        assert!(sent < 10_000, "it goes on for ever");
    }
    // The first error may say that it was closed before all requests were received.
    let receive = || receive_answer(&lane.raw.0, Kind::Allocate, Patience::default());
    let answers = (0..4).filter(|_| receive().is_ok()).count();
    assert!(answers <= 1, "{answers} of {sent} requests");
    let log = Log::connect(test_dir.socket()).expect("connect");
    Innocent::new(&log, "innocent").go_on();
}

#[test]
fn a_client_cannot_take_more_than_its_share() {
    let test_dir = test_directory(true);
    let mut options = ServerOptions::at(test_dir.socket());
    options.limits.connection_count = 4;
    let path = test_dir.path();
    let _server = Server::start(path, &test_dir.options, &options).expect("serve");
    let lane = Lane::take(&test_dir, "greedy").expect("lease");
    let first = lane.position / lane.chunk_bytes;
    let mut allocated = 1;
    while lane.ask(Kind::Allocate, first + allocated, 0).is_ok() {
        allocated += 1;
        assert!(allocated < 1000, "there is no end");
    }
    let (far, other) = (first + allocated + 5, first.wrapping_sub(1));
    for at in [far, other, u64::MAX] {
        let error = lane.ask(Kind::Allocate, at, 0).expect_err("not the next one");
        assert!(matches!(error, LogError::Usage(_) | LogError::Full { .. }), "{at}: {error}");
    }
    let stolen = Lane { token: lane.token ^ 1, ..lane };
    assert!(matches!(stolen.ask(Kind::Allocate, first, 0), Err(LogError::Aborted(_))));
    drop(stolen);
    let open: Vec<Raw> = (0..4).map(|_| Raw::connect(&test_dir)).collect();
    let mut buf = [0; REPLY_BYTES];
    let one_more = Raw::connect(&test_dir);
    assert_eq!(transport::receive(&one_more.0, &mut buf).map_or(0, |(count, _)| count), 0);
    drop(open);
}

#[test]
fn a_chunk_that_goes_to_another_shows_nothing_of_it() {
    for is_nvram in [false, true] {
        let test_dir = test_directory(is_nvram);
        let _server = serve(&test_dir);
        let lane = Lane::take(&test_dir, "first").expect("lease");
        let Lane { chunk, words, raw, .. } = lane;
        drop((words, raw));
        let log = Log::connect(test_dir.socket()).expect("connect");
        while log.stat().lent_bytes > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let streams: Vec<Stream> =
            (0..3).map(|number| log.stream(&format!("next-{number}")).expect("stream")).collect();
        for _ in 0..60 {
            for stream in &streams {
                append(stream, &[0xab; 10_000]);
            }
        }
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut &chunk, &mut bytes).expect("read");
        assert!(!bytes.contains(&0xab), "another's records");
        chunk.write_all_at(&[0xcd; 1 << 16], 0).expect("write");
        for stream in &streams {
            stream.flush().expect("its chunks are its own");
            let mut found = stream.read_from(Lsn(0)).expect("reader");
            assert!(found.all(|record| record.expect("record").payload == [0xab; 10_000]));
        }
    }
}
