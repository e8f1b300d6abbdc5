//! Clients that break off: half messages, requests whose answers are not read, and descriptors that
//! no request has. The daemon frees all that they had.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fastrand::Rng;
use onejournal_testing::{own_process, test_name, tier};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown};
use zerocopy::IntoBytes;

use super::Server;
use super::hostile::{Innocent, Raw, serve, test_directory};
use crate::Log;
use crate::wire::protocol::{Kind, REPLY_BYTES, REQUEST_BYTES, Request};
use crate::wire::transport;

/// The most descriptors that the kernel sends with one message.
const FILES_SENT_MAX: usize = 253;

/// Longest that the daemon may take to free what a client had.
const LIMIT: Duration = Duration::from_secs(60);

/// So many more descriptors and threads are no finding: the innocent client has some now and then.
const SLACK: usize = 16;

/// Open descriptors and threads of this process.
fn in_use() -> (usize, usize) {
    let count = |path: &str| std::fs::read_dir(path).expect("of this process").count();
    (count("/proc/self/fd"), count("/proc/self/task"))
}

/// Returns when the daemon has one connection, and the process has hardly more than `before`.
fn wait_until_free(server: &Server, before: (usize, usize)) {
    let begun = Instant::now();
    let (files_max, threads_max) = (before.0.saturating_add(SLACK), before.1.saturating_add(SLACK));
    let is_free = || {
        let (files, threads) = in_use();
        server.connection_count() == 1 && files <= files_max && threads <= threads_max
    };
    while !is_free() {
        let found = (server.connection_count(), in_use());
        assert!(begun.elapsed() < LIMIT, "connections, (descriptors, threads): {found:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a message with these descriptors.
fn send_with_files(raw: &Raw, bytes: &[u8], files: &[BorrowedFd<'_>]) {
    let space_bytes = rustix::cmsg_space!(ScmRights(FILES_SENT_MAX));
    let mut space = vec![MaybeUninit::uninit(); space_bytes];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(files)));
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(&raw.0, &[IoSlice::new(bytes)], &mut control, flags).expect("sent");
}

#[test]
fn descriptors_that_clients_send_are_closed() {
    own_process!();
    let test_dir = test_directory(true);
    let server = serve(&test_dir);
    let log = Log::connect(test_dir.socket()).expect("connect");
    let mut innocent = Innocent::new(&log, "innocent");
    innocent.go_on();
    let (file, before) = (tempfile::tempfile().expect("file"), in_use());
    for count in [1, 8, 9, 64, FILES_SENT_MAX] {
        for len_bytes in [1, REQUEST_BYTES, REQUEST_BYTES + 1, 4096] {
            let raw = Raw::connect(&test_dir);
            send_with_files(&raw, &vec![1; len_bytes], &vec![file.as_fd(); count]);
            let answered = transport::receive(&raw.0, &mut [0; REPLY_BYTES]);
            let is_closed = !matches!(answered, Ok((1.., _)));
            assert!(is_closed, "{count} descriptors with {len_bytes} bytes are answered");
        }
    }
    innocent.go_on();
    innocent.check();
    drop(file);
    wait_until_free(&server, before);
    server.stop().expect("stop");
}

/// Sends some requests, perhaps half of one, and goes.
fn break_off(raw: &Raw, rng: &mut Rng) {
    const KINDS: [Kind; 9] = [
        Kind::Hello,
        Kind::Open,
        Kind::Lease,
        Kind::Allocate,
        Kind::Read,
        Kind::Stat,
        Kind::ServiceStat,
        Kind::Streams,
        Kind::StreamHeader,
    ];
    for _ in 0..rng.usize(0..6) {
        let name = format!("broken-off-{}", rng.u8(0..3));
        let kind = KINDS[rng.usize(0..KINDS.len())];
        let request = Request { stream: rng.u32(0..4), count: 1, name, ..Request::new(kind) };
        let whole = request.encode();
        let is_half = rng.u8(0..5) == 0;
        let len_bytes = if is_half { rng.usize(1..REQUEST_BYTES) } else { REQUEST_BYTES };
        // The daemon may have closed the connection.
        let _ = transport::send(&raw.0, &whole.as_bytes()[..len_bytes], &[]);
    }
    let ends = [Some(Shutdown::Write), Some(Shutdown::Read), Some(Shutdown::Both), None];
    if let Some(end) = ends[rng.usize(0..ends.len())] {
        let _ = rustix::net::shutdown(&raw.0, end);
    }
}

#[test]
fn clients_that_break_off_leave_nothing() {
    own_process!();
    let test_dir = test_directory(true);
    let server = serve(&test_dir);
    let log = Log::connect(test_dir.socket()).expect("connect");
    let mut innocent = Innocent::new(&log, "innocent");
    innocent.go_on();
    UnixStream::connect(test_dir.socket()).expect_err("a socket that keeps no messages apart");
    let attack = |rng: &mut Rng| {
        // Several at a time.
        let clients: Vec<Raw> = (0..rng.usize(1..8)).map(|_| Raw::connect(&test_dir)).collect();
        clients.iter().for_each(|raw| break_off(raw, rng));
    };
    // The daemon keeps the streams once.
    (0..20).for_each(|seed| attack(&mut Rng::with_seed(seed)));
    wait_until_free(&server, (usize::MAX, usize::MAX));
    let before = in_use();
    for seed in tier::seeds(test_name!(), 400) {
        attack(&mut Rng::with_seed(seed));
        innocent.go_on();
    }
    innocent.check();
    wait_until_free(&server, before);
    server.stop().expect("stop");
}

#[test]
fn canary_a_descriptor_that_stays_open_is_found() {
    own_process!();
    let before = in_use();
    let file: File = tempfile::tempfile().expect("file");
    assert!(in_use().0 > before.0);
    drop(file);
    assert_eq!(in_use(), before);
}
