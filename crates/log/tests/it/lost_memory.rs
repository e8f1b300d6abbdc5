//! Another process makes a file of the shared memory shorter while processes use it: they get
//! errors, none is killed by SIGBUS, and nothing that was synced is lost. In a program of its own:
//! it starts others.

use crate::common;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use common::{TestDirectory, payload, records};
use onejournal::{ConnectOptions, Log, LogError, Options, Server, ServerOptions, Stream};

/// A process of the tests below: appends and syncs until something fails, and says how far it came.
#[test]
#[ignore = "a process of the other tests"]
fn a_writer() {
    let Some(directory) = std::env::var_os("LOST_LOG") else { return };
    let options: Options = Options {
        memory: PathBuf::from(std::env::var_os("LOST_MEMORY").expect("given")),
        pool_bytes: 1 << 20,
        group_bytes: 1 << 20,
        ..Options::default()
    };
    let directory = PathBuf::from(directory);
    let log = match onejournal::names_socket(&directory) {
        true => Log::connect_with(&directory, &ConnectOptions::default()),
        false => Log::open(&directory, &options),
    };
    let stream = log.expect("open").stream("stream").expect("stream");
    let failed = write_until_it_fails(&stream);
    println!("failed: {failed}");
    // Nothing of it works, and nothing ends the process.
    for _ in 0..3 {
        let appended = stream.append(b"more").and_then(|lsn| stream.sync(lsn));
        appended.expect_err("it is gone");
    }
    println!("it lives");
}

fn write_until_it_fails(stream: &Stream) -> LogError {
    for number in 0.. {
        let bytes = payload(number, 100 + (number as usize * 37) % 3000);
        let synced = stream.append(&bytes).and_then(|lsn| stream.sync(lsn));
        if let Err(e) = synced {
            return e;
        }
        println!("synced {number}");
    }
    unreachable!("a number for each record")
}

fn start(log: &Path, memory: &Path) -> Child {
    onejournal_testing::again(module_path!(), "a_writer")
        .env("LOST_LOG", log)
        .env("LOST_MEMORY", memory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("start")
}

/// Cuts the file when the writer has synced a hundred records; how many it had synced in the end,
/// and what it said.
fn cut_under(mut writer: Child, cut: impl FnOnce()) -> (u64, String) {
    let lines = BufReader::new(writer.stdout.take().expect("piped")).lines();
    let (mut synced, mut rest, mut cut) = (0, String::new(), Some(cut));
    for line in lines {
        let line = line.expect("read");
        match line.strip_prefix("synced ") {
            Some(number) => synced = number.parse::<u64>().expect("a number") + 1,
            None => rest.push_str(&format!("{line}\n")),
        }
        if synced == 100
            && let Some(cut) = cut.take()
        {
            cut();
        }
    }
    let status = writer.wait().expect("wait");
    assert_eq!(status.signal(), None, "{rest}");
    assert!(rest.contains("it lives"), "{status}: {rest}");
    assert!(cut.is_none(), "{rest}");
    (synced, rest)
}

/// The files of the memory whose names begin so.
fn files(memory: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(memory).expect("memory") {
        let path = entry.expect("entry").path();
        match path.is_dir() {
            true => found.extend(files(&path, name)),
            false => {
                let file = path.file_name().and_then(|name| name.to_str()).expect("a name");
                found.extend(file.starts_with(name).then(|| path.clone()));
            }
        }
    }
    found
}

fn cut_all(memory: &Path, name: &str) {
    let found = files(memory, name);
    assert!(!found.is_empty(), "there is {name}");
    for path in found {
        let file = OpenOptions::new().write(true).open(path).expect("open");
        file.set_len(0).expect("cut");
    }
}

/// Checks that all synced records are there after a restart.
fn check_kept(test_dir: &TestDirectory, directory: &Path, synced: u64) {
    test_dir.reboot();
    let log = Log::open(directory, &test_dir.options()).expect("open");
    let found = records(&log.stream("stream").expect("stream"));
    assert!(found.len() as u64 >= synced, "{} of {synced}", found.len());
    for (number, record) in (0..synced).zip(found) {
        assert_eq!(record, payload(number, 100 + (number as usize * 37) % 3000));
    }
}

#[test]
fn a_process_outlives_its_memory_and_keeps_its_promises() {
    for name in ["control", "lane-", "chunk-"] {
        let test_dir = TestDirectory::new(false);
        let directory = test_dir.root.path().join("log");
        let writer = start(&directory, test_dir.memory.path());
        let (synced, said) = cut_under(writer, || cut_all(test_dir.memory.path(), name));
        println!("{name}: {synced} synced, {said}");
        check_kept(&test_dir, &directory, synced);
    }
}

#[test]
fn a_client_of_a_daemon_does_too() {
    for name in ["client-", "chunk-"] {
        let test_dir = TestDirectory::new(false);
        let directory = test_dir.root.path().join("log");
        let socket = test_dir.root.path().join("socket");
        let server = ServerOptions::at(socket.clone());
        let server = Server::start(&directory, &test_dir.options(), &server).expect("serve");
        let writer = start(&socket, test_dir.memory.path());
        let (synced, said) = cut_under(writer, || cut_all(test_dir.memory.path(), name));
        println!("{name}: {synced} synced, {said}");
        drop(server);
        check_kept(&test_dir, &directory, synced);
    }
}
