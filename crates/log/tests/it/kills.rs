//! SIGKILL of clients, of the daemon and of all of them, at random points: every record that was
//! acknowledged is there, none that was not appended, in order. Seeded; a failure prints the seed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use device::Durability;
use fastrand::Rng;
use onejournal::{ConnectOptions, Log, LogError, Lsn, Options, Server, ServerOptions, Stream};
use onejournal_testing::{test_name, tier};

const CLIENTS: usize = 2;
/// A process that takes longer than this is stuck.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);

/// One test after the other: a process that is being started has, for a moment, all descriptors of
/// this one, and with them the locks that say who lives.
static ALONE: Mutex<()> = Mutex::new(());

struct TestDirectory {
    root: PathBuf,
    memory: PathBuf,
    is_nvram: bool,
}

impl TestDirectory {
    fn of_environment() -> Option<TestDirectory> {
        let get = |name| std::env::var_os(name).map(PathBuf::from);
        let is_nvram = std::env::var_os("KILLS_NVRAM")? == "1";
        Some(TestDirectory { root: get("KILLS_ROOT")?, memory: get("KILLS_MEMORY")?, is_nvram })
    }

    fn options(&self) -> Options {
        Options {
            nvram: self.is_nvram.then(|| self.memory.join("nvram")),
            durability: self.is_nvram.then_some(Durability::Process),
            pool_bytes: 1 << 20,
            segment_bytes: 256 << 10,
            group_bytes: 1 << 20,
            full_wait: STALL_TIMEOUT,
            memory: self.memory.clone(),
            ..Options::default()
        }
    }

    fn directory(&self) -> PathBuf {
        self.root.join("log")
    }

    fn socket(&self) -> PathBuf {
        self.root.join("socket")
    }

    fn acks(&self, client: usize) -> PathBuf {
        self.root.join(format!("acks-{client}"))
    }

    /// This test binary again, as another process of the service.
    fn spawn(&self, role: &str) -> Child {
        onejournal_testing::again(module_path!(), "a_process_of_the_service")
            .env("KILLS_ROLE", role)
            .env("KILLS_ROOT", &self.root)
            .env("KILLS_MEMORY", &self.memory)
            .env("KILLS_NVRAM", if self.is_nvram { "1" } else { "0" })
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start")
    }
}

fn payload(client: usize, number: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(number ^ (client as u64) << 32);
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + rng.usize(0..3000), number as u8);
    bytes
}

fn acknowledged(test_dir: &TestDirectory, client: usize) -> u64 {
    let mut bytes = [0; 8];
    match File::open(test_dir.acks(client)) {
        Ok(file) => file.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes)),
        Err(_) => 0,
    }
}

/// Checks that the stream holds the records that its client appends, in order. Returns their
/// number.
fn check(stream: &Stream, client: usize) -> u64 {
    let mut number = 0;
    for record in stream.read_from(Lsn(0)).expect("reader") {
        let found = record.expect("record").payload;
        assert!(found == payload(client, number), "client {client}: record {number}");
        number += 1;
    }
    number
}

/// What a process that was started by [`TestDirectory::spawn`] does, until it is killed.
#[test]
#[ignore = "a process of the other test"]
fn a_process_of_the_service() {
    let Some(test_dir) = TestDirectory::of_environment() else { return };
    let role = std::env::var("KILLS_ROLE").expect("a role");
    if role == "daemon" {
        let server = ServerOptions::at(test_dir.socket());
        let _server =
            Server::start(test_dir.directory(), &test_dir.options(), &server).expect("serve");
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let client: usize = role.parse().expect("a number");
    let log = connect(&test_dir);
    let stream = log.stream(&format!("c{client}")).expect("stream");
    // What the process before appended and did not sync is there, and counts.
    stream.flush().expect("flush");
    let mut number = check(&stream, client);
    let mut options = File::options();
    let acks = options.create(true).truncate(false).write(true).open(test_dir.acks(client));
    let acks = acks.expect("acks");
    loop {
        match stream.append(&payload(client, number)) {
            Ok(lsn) => {
                stream.sync(lsn).expect("sync");
                number += 1;
                acks.write_all_at(&number.to_le_bytes(), 0).expect("acknowledge");
                if number.is_multiple_of(16) {
                    // All of it is read again and again.
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            // The previous process had the lease, and the daemon has not ended that lease yet.
            Err(LogError::Busy(_)) => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => panic!("append: {e}"),
        }
    }
}

fn kill(child: &mut Child) {
    child.kill().expect("kill");
    child.wait().expect("wait");
}

/// Connects to the daemon, which may have to be started again first.
fn connect(test_dir: &TestDirectory) -> Log {
    let options = ConnectOptions { retry: STALL_TIMEOUT, ..ConnectOptions::default() };
    Log::connect_with(test_dir.socket(), &options).unwrap_or_else(|e| panic!("{e}"))
}

/// Waits until every client has more acknowledged than `before`.
fn wait_for_progress(test_dir: &TestDirectory, before: &[u64], seed: u64) {
    let begin = Instant::now();
    while (0..CLIENTS).any(|client| acknowledged(test_dir, client) <= before[client]) {
        assert!(begin.elapsed() < STALL_TIMEOUT, "seed {seed}: a client does not go on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn check_all(
    open: impl Fn(&str) -> Stream,
    test_dir: &TestDirectory,
    seed: u64,
    when: &str,
) -> u64 {
    let mut sum = 0;
    for client in 0..CLIENTS {
        let acknowledged = acknowledged(test_dir, client);
        let found = check(&open(&format!("c{client}")), client);
        assert!(
            found >= acknowledged,
            "seed {seed}, {when}: client {client} has {found} of {acknowledged} records"
        );
        sum += acknowledged;
    }
    sum
}

fn run(is_nvram: bool, seed: u64) {
    let root = tempfile::tempdir().expect("directory");
    let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
    std::fs::create_dir(memory.path().join("nvram")).expect("directory");
    let test_dir =
        TestDirectory { root: root.path().into(), memory: memory.path().into(), is_nvram };
    let mut rng = Rng::with_seed(seed);
    let mut daemon = test_dir.spawn("daemon");
    drop(connect(&test_dir));
    let mut clients: Vec<Child> = (0..CLIENTS).map(|n| test_dir.spawn(&n.to_string())).collect();
    // Every other one waits for progress.
    let round_count = tier::count(25).max(2);
    for round in 0..round_count {
        // Every other time clients are killed at their work, else also before they got to it.
        if round % 2 == 1 {
            let before: Vec<u64> =
                (0..CLIENTS).map(|client| acknowledged(&test_dir, client)).collect();
            wait_for_progress(&test_dir, &before, seed);
        }
        std::thread::sleep(Duration::from_micros(rng.u64(1000..60_000)));
        let victims = rng.u8(1..8);
        if victims & 4 != 0 {
            kill(&mut daemon);
        }
        for (number, client) in clients.iter_mut().enumerate() {
            if victims & 1 << number != 0 {
                kill(client);
            }
        }
        if victims & 4 != 0 {
            // Clients that live wait for it, or append meanwhile.
            std::thread::sleep(Duration::from_micros(rng.u64(0..20_000)));
            daemon = test_dir.spawn("daemon");
        }
        let log = connect(&test_dir);
        let open = |name: &str| log.stream(name).expect("stream");
        check_all(open, &test_dir, seed, &format!("round {round}"));
        for (number, client) in clients.iter_mut().enumerate() {
            if victims & 1 << number != 0 {
                *client = test_dir.spawn(&number.to_string());
            }
        }
    }
    clients.iter_mut().for_each(kill);
    kill(&mut daemon);
    let open_directory = || Log::open(test_dir.directory(), &test_dir.options()).expect("open");
    let log = open_directory();
    let sum = check_all(|name| log.stream(name).expect("stream"), &test_dir, seed, "directory");
    assert!(
        sum >= (round_count / 2 * CLIENTS) as u64,
        "seed {seed}: only {sum} records were acknowledged"
    );
    drop(log);
    reboot(memory.path());
    let log = open_directory();
    check_all(|name| log.stream(name).expect("stream"), &test_dir, seed, "after a reboot");
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).expect("ours");
}

/// Only the daemon leads group commits and drains. A client that is stopped at any point holds only
/// its own stream and its chunks.
#[test]
fn stopped_client_does_not_hold_up_another_client() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for is_nvram in [true, false] {
        let root = tempfile::tempdir().expect("directory");
        let memory = tempfile::tempdir_in("/dev/shm").expect("shared memory");
        std::fs::create_dir(memory.path().join("nvram")).expect("directory");
        let test_dir =
            TestDirectory { root: root.path().into(), memory: memory.path().into(), is_nvram };
        let server = ServerOptions::at(test_dir.socket());
        let server =
            Server::start(test_dir.directory(), &test_dir.options(), &server).expect("serve");
        let mut clients: Vec<Child> =
            (0..CLIENTS).map(|n| test_dir.spawn(&n.to_string())).collect();
        let log = connect(&test_dir);
        let mine = log.stream("mine").expect("stream");
        let seed = tier::seed_of(test_name!());
        let mut rng = Rng::with_seed(seed);
        let mut count = 0;
        wait_for_progress(&test_dir, &[0; CLIENTS], seed);
        for _ in 0..tier::count(40) {
            clients.iter().for_each(|child| signal(child, rustix::process::Signal::STOP));
            // More than the pool in all, so that it has to be drained too.
            for _ in 0..10 {
                let lsn = mine.append(&[3; 10_000]).expect("append");
                mine.sync(lsn).expect("sync");
                count += 1;
            }
            clients.iter().for_each(|child| signal(child, rustix::process::Signal::CONT));
            std::thread::sleep(Duration::from_micros(rng.u64(0..5000)));
        }
        clients.iter_mut().for_each(kill);
        assert_eq!(mine.read_from(Lsn(0)).expect("reader").count(), count);
        drop((mine, log));
        server.stop().expect("stop");
    }
}

/// The machine restarts: memory is lost, but for NVRAM.
fn reboot(memory: &Path) {
    for entry in std::fs::read_dir(memory).expect("memory") {
        let path = entry.expect("entry").path();
        if !path.ends_with("nvram") {
            std::fs::remove_dir_all(path).expect("remove");
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seed = tier::seed_of(test_name!());
    run(true, seed);
    run(false, seed ^ 1);
}
