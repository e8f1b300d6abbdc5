//! Processes that are killed at any moment: the others go on, and what was acknowledged is there.
//!
//! The test starts itself again as its workers. A worker writes what was acknowledged to it to a
//! file of its own, after the acknowledgement; the kernel keeps that when it is killed.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use device::Durability;
use onejournal::{Log, LogError, Options, Stream};
use onejournal_testing::{test_name, tier};

const SHARED: [&str; 2] = ["shared-0", "shared-1"];
const WORKER_COUNT: usize = 5;
/// On any machine, a worker gets to do something in less time than this.
const STALL_TIMEOUT: Duration = Duration::from_secs(300);

/// One test after the other: a process that is being started has, for a moment, all descriptors of
/// this one, and with them the locks that say who lives.
static ALONE: Mutex<()> = Mutex::new(());

fn options(memory: &Path, is_nvram: bool) -> Options {
    Options {
        nvram: is_nvram.then(|| memory.join("nvram")),
        durability: is_nvram.then_some(Durability::Process),
        pool_bytes: 1 << 20,
        segment_bytes: 256 << 10,
        group_bytes: 1 << 20,
        full_wait: STALL_TIMEOUT,
        memory: memory.to_owned(),
        ..Options::default()
    }
}

/// A record says who wrote it and which of its appends it was, and is filled with that.
fn payload(worker: u64, number: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = format!("{worker} {number} ").into_bytes();
    let fill = bytes.clone();
    bytes.extend(fill.iter().cycle().take(len_bytes));
    bytes
}

/// What a killed worker does until then.
fn work(root: &Path, memory: &Path, is_nvram: bool, worker: u64) {
    let mut rng = fastrand::Rng::with_seed(tier::seed() ^ worker << 32);
    let log = Log::open(root, &options(memory, is_nvram)).expect("open");
    // Left by a worker that was killed, as a rule.
    let own = log.stream(&format!("own-{}", worker % 24)).expect("stream");
    let shared = SHARED.map(|name| log.stream(name).expect("stream"));
    let path = root.join(format!("acknowledged-{worker}"));
    let mut acknowledged = OpenOptions::new().append(true).create(true).open(path).expect("file");
    for number in 0.. {
        let most = if rng.usize(..20) == 0 { 100_000 } else { 500 };
        let len_bytes = rng.usize(..most);
        let stream = if rng.u8(..4) == 0 { &shared[rng.usize(..2)] } else { &own };
        let lsn = match stream.append(&payload(worker, number, len_bytes)) {
            Ok(lsn) => lsn,
            Err(LogError::Busy(_)) => continue,
            Err(e) => panic!("worker {worker}: append: {e}"),
        };
        if rng.bool() {
            stream.sync(lsn).unwrap_or_else(|e| panic!("worker {worker}: sync: {e}"));
            let line = format!("{} {lsn} {number} {len_bytes}\n", stream.name(), lsn = lsn.0);
            acknowledged.write_all(line.as_bytes()).expect("noted");
        }
        match rng.u8(..30) {
            0 => stream.flush().unwrap_or_else(|e| panic!("worker {worker}: flush: {e}")),
            1 => drop(log.stat()),
            _ => {}
        }
        shared.iter().for_each(Stream::release);
    }
}

#[test]
#[ignore = "a process of killed_processes_lose_nothing"]
fn worker() {
    let Ok(text) = std::env::var("ONEJOURNAL_LOG_WORKER") else { return };
    let [root, memory, is_nvram, worker] = text.split('|').collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    work(Path::new(root), Path::new(memory), is_nvram == "true", worker.parse().expect("number"));
}

struct TestDirectory {
    root: tempfile::TempDir,
    memory: tempfile::TempDir,
    is_nvram: bool,
    next_worker: u64,
}

impl TestDirectory {
    fn new(is_nvram: bool) -> TestDirectory {
        let memory = tempfile::Builder::new()
            .prefix("processes-")
            .tempdir_in("/dev/shm")
            .expect("shared memory");
        fs::create_dir(memory.path().join("nvram")).expect("directory");
        TestDirectory {
            root: tempfile::tempdir().expect("directory"),
            memory,
            is_nvram,
            next_worker: 0,
        }
    }

    fn start(&mut self) -> Worker {
        let number = self.next_worker;
        self.next_worker += 1;
        let (root, memory) = (self.root.path().display(), self.memory.path().display());
        let errors = self.root.path().join(format!("errors-{number}"));
        let child = onejournal_testing::again(module_path!(), "worker")
            .env("ONEJOURNAL_LOG_WORKER", format!("{root}|{memory}|{}|{number}", self.is_nvram))
            .stdout(Stdio::null())
            .stderr(File::create(&errors).expect("file"))
            .spawn()
            .expect("a process");
        Worker { child, errors }
    }

    fn open(&self) -> Log {
        Log::open(self.root.path(), &options(self.memory.path(), self.is_nvram)).expect("open")
    }

    fn has_acknowledged(&self) -> bool {
        let mut notes = (0..self.next_worker)
            .map(|worker| self.root.path().join(format!("acknowledged-{worker}")));
        notes.any(|path| path.metadata().is_ok_and(|note| note.len() > 0))
    }

    /// Every acknowledged record is where it was, and each worker's records are in their order.
    fn check(&self, log: &Log) -> usize {
        let mut found: HashMap<(String, u64), Vec<u8>> = HashMap::new();
        for name in log.stream_names().expect("names") {
            let stream = log.stream(name.as_str()).expect("stream");
            let mut newest: HashMap<u64, u64> = HashMap::new();
            let mut usn = onejournal::Usn(0);
            for record in stream.read_from(stream.head()).expect("reader") {
                let record = record.unwrap_or_else(|e| panic!("{name}: {e}"));
                let text = String::from_utf8(record.payload.clone()).expect("text");
                let mut words = text.split(' ').map(|word| word.parse::<u64>());
                let (worker, number) = (words.next(), words.next());
                let (Some(Ok(worker)), Some(Ok(number))) = (worker, number) else {
                    panic!("{name}: {text:.60}");
                };
                let before = newest.insert(worker, number);
                assert!(before.is_none_or(|before| before < number), "{name}: out of order");
                assert!(record.usn > usn, "{name}: USN");
                usn = record.usn;
                found.insert((name.to_string(), record.lsn.0), record.payload);
            }
        }
        self.acknowledged_all(&found)
    }

    fn acknowledged_all(&self, found: &HashMap<(String, u64), Vec<u8>>) -> usize {
        let mut count = 0;
        for worker in 0..self.next_worker {
            let path: PathBuf = self.root.path().join(format!("acknowledged-{worker}"));
            let text = fs::read_to_string(path).unwrap_or_default();
            for line in text.lines() {
                let [name, rest @ ..] = &line.split(' ').collect::<Vec<_>>()[..] else { continue };
                let numbers: Vec<u64> = rest.iter().map(|n| n.parse().expect("number")).collect();
                let bytes =
                    payload(worker, numbers[1], usize::try_from(numbers[2]).expect("small"));
                let record = found.get(&(name.to_string(), numbers[0]));
                assert!(record == Some(&bytes), "worker {worker}: {line} is not there");
                count += 1;
            }
        }
        count
    }
}

struct Worker {
    child: Child,
    errors: PathBuf,
}

impl Worker {
    /// Kills it, if it did not fail before.
    fn kill(mut self) {
        if let Some(status) = self.child.try_wait().expect("ours") {
            panic!("{status}: {}", fs::read_to_string(&self.errors).unwrap_or_default());
        }
        self.child.kill().expect("ours");
        self.child.wait().expect("ours");
    }
}

fn kill_some(is_nvram: bool, seed: u64) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut test_dir = TestDirectory::new(is_nvram);
    let mut workers: Vec<Worker> = (0..WORKER_COUNT).map(|_| test_dir.start()).collect();
    let mut kill_workers = |test_dir: &mut TestDirectory| {
        std::thread::sleep(Duration::from_micros(rng.u64(..60_000)));
        let victim = workers.swap_remove(rng.usize(..workers.len()));
        victim.kill();
        workers.push(test_dir.start());
    };
    (0..tier::count(100)).for_each(|_| kill_workers(&mut test_dir));
    // However slow the machine is: until something was done, too.
    let begin = Instant::now();
    while !test_dir.has_acknowledged() {
        assert!(begin.elapsed() < STALL_TIMEOUT, "nothing is acknowledged");
        kill_workers(&mut test_dir);
    }
    // This process survives all kills, and is then the only one: it brings everything home.
    let log = test_dir.open();
    workers.into_iter().for_each(Worker::kill);
    let count = test_dir.check(&log);
    let begin = Instant::now();
    for name in log.stream_names().expect("names") {
        let stream = log.stream(name.as_str()).expect("stream");
        stream.append(format!("{} 0 ", u64::MAX).as_bytes()).expect("writable again");
        stream.flush().expect("flush");
        stream.release();
        stream.flush().expect("flush");
    }
    let stat = log.stat();
    assert_eq!((stat.lent_bytes, stat.is_aborted), (0, false), "all chunks are free");
    println!(
        "{} workers, {count} records acknowledged, {:?}",
        test_dir.next_worker,
        begin.elapsed()
    );
    assert!(count > 0, "nothing was done");
    drop(log);
    // The machine restarts too.
    for entry in fs::read_dir(test_dir.memory.path()).expect("memory") {
        let path = entry.expect("entry").path();
        if !path.ends_with("nvram") {
            fs::remove_dir_all(path).expect("remove");
        }
    }
    assert_eq!(test_dir.check(&test_dir.open()), count);
}

#[test]
fn killed_processes_lose_nothing() {
    kill_some(false, tier::seed_of(test_name!()));
}

#[test]
fn killed_processes_lose_nothing_on_nvram() {
    kill_some(true, tier::seed_of(test_name!()));
}
