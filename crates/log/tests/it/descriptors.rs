//! A program that closed its standard descriptors uses a log: no file of the log is on their
//! numbers, and what the program writes there destroys nothing. In a program of its own: the
//! descriptors belong to the process.

use std::path::Path;

use onejournal::{Log, Server, ServerOptions, Stream};
use onejournal_testing::{close_standard_descriptors, own_process};
use rustix::fd::BorrowedFd;

use crate::common::{TestDirectory, append_synced, payload, records};

/// Writes where C programs write, whatever is there.
fn write_garbage() {
    let numbers: [BorrowedFd<'static>; 3] =
        [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    for number in numbers {
        // It is closed, or as good as closed.
        let _ = rustix::io::write(number, &[b'x'; 64 << 10]);
    }
}

/// An error if one of the three numbers has anything but the placeholder, which cannot be written.
fn check_numbers(when: &str) -> Result<(), String> {
    for number in 0..3 {
        match std::fs::read_link(format!("/proc/self/fd/{number}")) {
            Ok(found) if found != Path::new("/") => {
                return Err(format!("{when}: {number} is {}", found.display()));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Makes log files, chunks, readers and another user of the log, and looks after each.
fn use_log(log: &Log, another: &dyn Fn() -> Log) -> Result<Vec<Vec<u8>>, String> {
    check_numbers("opened")?;
    let stream = log.stream("first").expect("stream");
    let mut appended = Vec::new();
    append_synced(&stream, &mut appended);
    check_numbers("appended")?;
    stream.flush().expect("flush");
    check_numbers("drained")?;
    // What the program closes later is not used either.
    close_standard_descriptors();
    fill_chunks(&log.stream("second").expect("stream"));
    check_numbers("new chunks")?;
    close_standard_descriptors();
    let other = another();
    append_synced(&other.stream("third").expect("stream"), &mut Vec::new());
    assert_eq!(records(&stream).len(), 300);
    check_numbers("another user")?;
    write_garbage();
    append_synced(&stream, &mut appended);
    write_garbage();
    check_numbers("in the end")?;
    Ok(appended)
}

/// Appends more than the chunks that the stream has, and does not sync it.
fn fill_chunks(stream: &Stream) {
    for number in 0..40 {
        stream.append(&payload(number, 10_000)).expect("append");
    }
}

/// In a process without standard descriptors: opens the log itself, or through a daemon.
fn use_without_standard(is_nvram: bool, is_served: bool) -> Result<(), String> {
    close_standard_descriptors();
    let test_dir = TestDirectory::new(is_nvram);
    let (directory, options) = (test_dir.log(), test_dir.options());
    let server = ServerOptions::at(test_dir.socket());
    let server = is_served.then(|| Server::start(&directory, &options, &server).expect("serve"));
    let open = || match is_served {
        true => Log::connect(test_dir.socket()).expect("connect"),
        false => Log::open(&directory, &options).expect("open"),
    };
    let log = open();
    let appended = use_log(&log, &open)?;
    log.close().expect("close");
    server.map_or(Ok(()), Server::stop).expect("stop");
    test_dir.reboot();
    let log = Log::open(&directory, &options).expect("open");
    assert_eq!(records(&log.stream("first").expect("stream")), appended);
    check_numbers("opened again")
}

#[test]
fn a_log_uses_no_standard_number() {
    own_process!(silent);
    use_without_standard(false, false).expect("no number below 3");
}

#[test]
fn a_log_on_nvram_uses_no_standard_number() {
    own_process!(silent);
    use_without_standard(true, false).expect("no number below 3");
}

#[test]
fn a_daemon_and_its_clients_use_no_standard_number() {
    own_process!(silent);
    use_without_standard(false, true).expect("no number below 3");
}

#[test]
fn canary_a_log_that_uses_them_is_found() {
    own_process!(silent);
    for is_served in [false, true] {
        let used = || use_without_standard(false, is_served);
        let found = fault::with(host::Fault::UsesStandardNumbers, used);
        found.expect_err("the log's directory is on 0");
    }
}

/// What becomes of 300 acknowledged records when the program writes to these numbers.
fn records_after_garbage() -> usize {
    close_standard_descriptors();
    let test_dir = TestDirectory::new(false);
    let log = Log::open(test_dir.log(), &test_dir.options()).expect("open");
    let stream = log.stream("first").expect("stream");
    for number in 0..300 {
        let lsn = stream.append(&payload(number, 20)).expect("append");
        stream.sync(lsn).expect("sync");
    }
    write_garbage();
    let read = stream.read_from(stream.head()).map(|reader| reader.map_while(Result::ok).count());
    read.unwrap_or(0)
}

#[test]
fn garbage_destroys_no_record() {
    own_process!(silent);
    assert_eq!(records_after_garbage(), 300);
}

#[test]
fn canary_garbage_in_a_chunk_destroys_records() {
    own_process!(silent);
    let found = fault::with(host::Fault::UsesStandardNumbers, records_after_garbage);
    assert!(found < 300, "{found}");
}
