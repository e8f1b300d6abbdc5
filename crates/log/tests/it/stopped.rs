//! A process that writes another stream of the log is stopped, in the middle of whatever it does:
//! syncs of the other streams go on. Only the stopped process's own stream waits for it.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use onejournal::{Log, Options, Stream};
use onejournal_testing::{test_name, tier};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::common::{TestDirectory, payload, records};

/// A wait for a stopped process takes longer than a test may take.
const NEVER: Duration = Duration::from_secs(100_000);

/// The streams of the process that is stopped.
const OTHERS: [&str; 2] = ["other", "drained"];

fn options(memory: PathBuf) -> Options {
    Options {
        memory,
        pool_bytes: 1 << 20,
        group_bytes: 1 << 20,
        full_wait: NEVER,
        ..Options::default()
    }
}

fn append(stream: &Stream, number: u64) {
    let lsn = stream.append(&payload(number, 1 + (number as usize * 37) % 3000)).expect("append");
    stream.sync(lsn).expect("sync");
}

/// Appends and syncs until it is killed. One of its two threads also drains its stream each time.
/// So the process is nearly always the leader of a group commit and the drainer of a stream.
#[test]
#[ignore = "a process of the other tests"]
fn writer() {
    let Some(directory) = std::env::var_os("STOPPED_LOG") else { return };
    let memory = PathBuf::from(std::env::var_os("STOPPED_MEMORY").expect("given"));
    let log = Log::open(directory, &options(memory)).expect("open");
    let [other, drained] = OTHERS.map(|name| log.stream(name).expect("stream"));
    println!("\nready");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                append(&other, number);
            }
        });
        for number in 0.. {
            append(&drained, number);
            drained.flush().expect("flush");
        }
    });
}

struct Writer {
    child: Child,
    /// Kept open: the test's own messages go there, too.
    _output: BufReader<ChildStdout>,
}

impl Writer {
    fn start(test_dir: &TestDirectory) -> Writer {
        let mut child = onejournal_testing::again(module_path!(), "writer")
            .env("STOPPED_LOG", test_dir.log())
            .env("STOPPED_MEMORY", test_dir.memory.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let is_ready = output.by_ref().lines().map_while(Result::ok).any(|line| line == "ready");
        assert!(is_ready, "it ended");
        Writer { child, _output: output }
    }

    /// Stops it, and returns when it is stopped.
    fn stop(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).expect("signal");
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("stopped");
    }

    fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("signal");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_stopped_process_holds_up_no_other_stream() {
    let mut rng = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
    let test_dir = &TestDirectory::new(false);
    let log = Log::open(test_dir.log(), &options(test_dir.memory.path().into())).expect("open");
    let stream = log.stream("own").expect("stream");
    let writer = Writer::start(test_dir);
    let mut count = 0;
    for _ in 0..tier::count(20) {
        let both = rng.u64(..40);
        for number in count..count + both {
            append(&stream, number);
        }
        count += both;
        // While it works alone, it leads nearly all the time.
        std::thread::sleep(Duration::from_micros(rng.u64(..3_000)));
        writer.stop();
        // More than the group log holds, so that it needs a new round.
        for number in count..count + 20 {
            append(&stream, number);
        }
        count += 20;
        writer.go_on();
    }
    drop(writer);
    let expected =
        |count| (0..count).map(|number| payload(number, 1 + (number as usize * 37) % 3000));
    assert!(records(&stream).into_iter().eq(expected(count)));
    drop((log, stream));
    test_dir.reboot();
    let log = Log::open(test_dir.log(), &options(test_dir.memory.path().into())).expect("open");
    let found = |name: &str| records(&log.stream(name).expect("stream"));
    assert!(found("own").into_iter().eq(expected(count)));
    for name in OTHERS {
        let other = found(name);
        assert!(other.iter().cloned().eq(expected(other.len() as u64)), "{name}");
    }
}
