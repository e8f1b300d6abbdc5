//! What the log costs through the daemon: `daemon_cost DIR [PART]`, a directory on the disk to measure. Lanes and
//! NVRAM are directories in /dev/shm. PART is latency, two, worker,
//! sustained, xlog or recovery. Both sides of each comparison take turns; prints medians and ratios.
//!
//! Daemon and second client are this program again, as other processes.

mod xlog;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use device::Durability;
use log::{Log, Lsn, Options, Server, ServerOptions, Stream};

type Failure = Box<dyn std::error::Error>;

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Where everything lies.
struct Place {
    disk: PathBuf,
    memory: PathBuf,
}

impl Place {
    fn options(&self) -> Options {
        let nvram = Some(self.memory.join("nvram"));
        let (durability, memory) = (Some(Durability::Process), self.memory.clone());
        Options { nvram, durability, memory, ..Options::default() }
    }

    fn log(&self) -> PathBuf {
        self.disk.join("log")
    }

    fn socket(&self) -> PathBuf {
        self.memory.join("socket")
    }

    fn plain(&self, name: &str) -> Result<File, Failure> {
        let path = self.disk.join(name);
        Ok(OpenOptions::new().create(true).write(true).truncate(true).open(path)?)
    }

    fn spawn(&self, role: &str) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(&self.disk).arg(role).arg(&self.memory);
        Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match &arguments[..] {
        [disk] | [disk, _] => {
            std::fs::create_dir_all(disk)?;
            let disk = disk.canonicalize()?.join("daemon-cost");
            std::fs::create_dir_all(&disk)?;
            let memory = PathBuf::from(format!("/dev/shm/daemon-cost-{}", std::process::id()));
            std::fs::create_dir_all(memory.join("nvram"))?;
            let place = Place { disk, memory };
            let part = arguments.get(1).and_then(|part| part.to_str());
            let measured = measure(&place, part);
            std::fs::remove_dir_all(&place.memory)?;
            std::fs::remove_dir_all(&place.disk)?;
            measured
        }
        [disk, role, memory] => {
            let place = Place { disk: disk.clone(), memory: memory.clone() };
            play(&place, role.to_str().ok_or("a role")?)
        }
        _ => Err("usage: daemon_cost DIR [PART]".into()),
    }
}

/// What another process does.
fn play(place: &Place, role: &str) -> Result<(), Failure> {
    let mut lines = std::io::stdin().lines();
    if role == "daemon" {
        let options = ServerOptions::at(place.socket());
        let server = Server::start(place.log(), &place.options(), &options)?;
        println!("ready");
        lines.next();
        server.stop()?;
        return Ok(());
    }
    let log = Log::connect(place.socket())?;
    let stream = log.stream(role)?;
    stream.append(b"begin")?;
    println!("ready");
    while let Some(line) = lines.next().transpose()? {
        let (work, begin) = line.split_once(' ').ok_or("what, and when")?;
        println!("{}", count_from(&stream, work == "append", begin.parse()?)?);
    }
    Ok(())
}

/// How many appends of 100 bytes, or checksums of so many, are made in a millisecond and a half: less than wakes
/// the flush worker, which has no core of its own here.
fn count_from(stream: &Stream, is_append: bool, begin_ns: u128) -> Result<u64, Failure> {
    let (payload, mut count) = ([7; 100], 0);
    while now_ns() < begin_ns {
        std::hint::spin_loop();
    }
    while now_ns() < begin_ns + 1_500_000 {
        for _ in 0..50 {
            match is_append {
                true => drop(stream.append(&payload)?),
                false => drop(std::hint::black_box(crc32c::crc32c(std::hint::black_box(&payload)))),
            }
        }
        count += 50;
    }
    Ok(count)
}

/// Of a clock that all processes share.
fn now_ns() -> u128 {
    std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos()
}

/// A process that plays a role and answers lines.
struct Other {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(place: &Place, role: &str) -> Result<Other, Failure> {
        let mut child = place.spawn(role)?;
        let answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut other = Other { child, answers };
        other.hear()?;
        Ok(other)
    }

    fn tell(&mut self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.child.stdin.as_ref().ok_or("no input")?, "{line}")?)
    }

    fn hear(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn end(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

fn measure(place: &Place, part: Option<&str>) -> Result<(), Failure> {
    let is_wanted = |name| part.is_none_or(|part| part == name);
    let daemon = Other::start(place, "daemon")?;
    let log = Log::connect(place.socket())?;
    if is_wanted("latency") {
        append_against_sync(place, &log)?;
    }
    if is_wanted("two") {
        two_against_one(place)?;
    }
    if is_wanted("worker") {
        worker_cost(&daemon, &log)?;
    }
    if is_wanted("sustained") {
        sustained(place, &log)?;
    }
    drop(log);
    daemon.end()?;
    if is_wanted("xlog") {
        xlog_cost(place)?;
    }
    match is_wanted("recovery") {
        true => recovery(place),
        false => Ok(()),
    }
}

fn append_against_sync(place: &Place, log: &Log) -> Result<(), Failure> {
    println!("append through the daemon (lane on tmpfs, the daemon flushing) / write + fdatasync");
    println!("{:>8} {:>12} {:>14} {:>8}", "bytes", "append ns", "write+sync ns", "ratio");
    let stream = log.stream("latency")?;
    for len_bytes in [100, 1000, 10_000, 100_000] {
        let payload = vec![7; len_bytes];
        let file = place.plain("plain")?;
        let (mut ours, mut theirs, mut at) = (Vec::new(), Vec::new(), 0);
        for _ in 0..20 {
            for _ in 0..2000.min(5_000_000 / len_bytes) {
                let begin = Instant::now();
                stream.append(&payload)?;
                ours.push(begin.elapsed().as_nanos() as u64);
            }
            for _ in 0..10 {
                let begin = Instant::now();
                file.write_all_at(&payload, at)?;
                file.sync_data()?;
                theirs.push(begin.elapsed().as_nanos() as u64);
                at += len_bytes as u64;
            }
        }
        let (ours, theirs) = (median(ours), median(theirs));
        println!("{len_bytes:>8} {ours:>12} {theirs:>14} {:>8.1}", theirs as f64 / ours as f64);
    }
    Ok(())
}

fn two_against_one(place: &Place) -> Result<(), Failure> {
    let (mut one, mut two) = (Other::start(place, "one")?, Other::start(place, "two")?);
    let mut ratios = [Vec::new(), Vec::new()];
    for _ in 0..31 {
        for (work, ratios) in ["append", "checksum"].into_iter().zip(&mut ratios) {
            let order = || format!("{work} {}", now_ns() + 2_000_000);
            one.tell(&order())?;
            let alone: f64 = one.hear()?.parse()?;
            std::thread::sleep(Duration::from_millis(150));
            let order = order();
            one.tell(&order)?;
            two.tell(&order)?;
            let both: f64 = one.hear()?.parse::<f64>()? + two.hear()?.parse::<f64>()?;
            std::thread::sleep(Duration::from_millis(150));
            ratios.push(both / alone);
        }
    }
    let [appends, checksums] = ratios.map(|mut ratios| {
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    });
    println!("two clients / one, bursts of 100-byte appends: {appends:.2} (median of 31)");
    println!("the same for work that shares nothing: {checksums:.2}");
    one.end()?;
    two.end()
}

/// Nanoseconds of CPU that the daemon's threads of that name have used.
fn cpu_ns(daemon: &Other, name: &str) -> Result<u64, Failure> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{}/task", daemon.child.id()))? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == name {
            let text = std::fs::read_to_string(task.join("schedstat"))?;
            sum += text.split(' ').next().ok_or("no time")?.parse::<u64>()?;
        }
    }
    Ok(sum)
}

/// CPU of the flush worker and of the threads that lend chunks, which does not depend on who else is busy.
fn worker_cost(daemon: &Other, log: &Log) -> Result<(), Failure> {
    println!("CPU of the daemon per record, ns: flush worker, lending (medians of 5 x 20 MB)");
    for len_bytes in [100usize, 1000, 10_000] {
        let stream = log.stream(&format!("worker-{len_bytes}"))?;
        let (payload, count) = (vec![7; len_bytes], 20_000_000 / len_bytes as u64);
        let mut costs = [Vec::new(), Vec::new()];
        for _ in 0..5 {
            let before = [cpu_ns(daemon, "log-flush")?, cpu_ns(daemon, "log-client")?];
            for _ in 0..count {
                stream.append(&payload)?;
            }
            // The worker finds it idle and drains the rest.
            while stream.stat()?.drained < stream.appended().0 {
                std::thread::sleep(Duration::from_millis(20));
            }
            let after = [cpu_ns(daemon, "log-flush")?, cpu_ns(daemon, "log-client")?];
            for (cost, (after, before)) in costs.iter_mut().zip(after.iter().zip(before)) {
                cost.push((after - before) / count);
            }
            stream.truncate_before(stream.appended())?;
        }
        let [worker, lending] = costs.map(median);
        println!("{len_bytes:>8} bytes {worker:>8} {lending:>8}");
    }
    Ok(())
}

/// Bytes written to the device that holds `path`, if the kernel says.
fn written_bytes(path: &Path) -> Option<u64> {
    let device = std::fs::metadata(path).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}

fn sustained(place: &Place, log: &Log) -> Result<(), Failure> {
    println!("sustained, without pauses: bytes written to disk per byte of payload, MB/s");
    println!("{:>8} {:>8} {:>8} {:>14}", "bytes", "daemon", "MB/s", "write+fsync");
    for len_bytes in [100usize, 1000, 10_000] {
        let payload = vec![7; len_bytes];
        let stream = log.stream(&format!("sustained-{len_bytes}"))?;
        rustix::fs::sync();
        let (total_bytes, before, begin) = (100 << 20, written_bytes(&place.disk), Instant::now());
        for _ in 0..total_bytes / len_bytes {
            stream.append(&payload)?;
        }
        stream.flush()?;
        let rate = total_bytes as f64 / begin.elapsed().as_secs_f64() / 1e6;
        rustix::fs::sync();
        let ours = amplification(place, before, total_bytes);
        let file = place.plain("plain")?;
        let (count, before) = (2000, written_bytes(&place.disk));
        for number in 0..count {
            file.write_all_at(&payload, (number * len_bytes) as u64)?;
            file.sync_all()?;
        }
        let theirs = amplification(place, before, count * len_bytes);
        println!("{len_bytes:>8} {ours:>8} {rate:>8.0} {theirs:>14}");
        stream.truncate_before(stream.appended())?;
    }
    Ok(())
}

fn amplification(place: &Place, before: Option<u64>, total_bytes: usize) -> String {
    match (before, written_bytes(&place.disk)) {
        (Some(before), Some(after)) => {
            format!("{:.2}", (after - before) as f64 / total_bytes as f64)
        }
        _ => "unknown".into(),
    }
}

fn xlog_cost(place: &Place) -> Result<(), Failure> {
    println!("xLog's layout, a socket round trip a record");
    println!("{:>8} {:>12}", "bytes", "append ns");
    let socket = place.memory.join("xlog");
    let service = xlog::Xlog::start(&place.memory.join("ring"), &place.disk, &socket, 1);
    let mut client = xlog::XlogClient::connect(&socket);
    for len_bytes in [100, 1000, 10_000, 100_000] {
        let payload = vec![7; len_bytes];
        let mut times = Vec::new();
        for _ in 0..5000.min(20_000_000 / len_bytes) {
            let begin = Instant::now();
            client.append(&payload);
            times.push(begin.elapsed().as_nanos() as u64);
        }
        println!("{len_bytes:>8} {:>12}", median(times));
    }
    rustix::fs::sync();
    let (total_bytes, before) = (20 << 20, written_bytes(&place.disk));
    for _ in 0..total_bytes / 100 {
        client.append(&[7; 100]);
    }
    drop(client);
    service.stop();
    rustix::fs::sync();
    println!("written per byte, 100-byte records: {}", amplification(place, before, total_bytes));
    Ok(())
}

/// The memory is gone, NVRAM is there, and one stream of 64 MiB beside another of 64 MiB is opened.
fn recovery(place: &Place) -> Result<(), Failure> {
    let log = Log::open(place.log(), &place.options())?;
    for name in ["recovered", "other"] {
        let stream = log.stream(name)?;
        for _ in 0..(64 << 20) / 1000 {
            stream.append(&[7; 976])?;
        }
    }
    drop(log);
    for entry in std::fs::read_dir(&place.memory)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("nvram") {
            std::fs::remove_dir_all(path)?;
        }
    }
    let before = read_bytes();
    let begin = Instant::now();
    let log = Log::open(place.log(), &place.options())?;
    let stream = log.stream("recovered")?;
    let (opened, read) = (begin.elapsed(), read_bytes() - before);
    let mut count = 0;
    for record in stream.read_from(Lsn(0))? {
        record?;
        count += 1;
    }
    println!(
        "recovery of a stream of 64 MiB: {:.0} ms, {:.1} MiB read; then {count} records read in {:.0} ms",
        opened.as_secs_f64() * 1e3,
        read as f64 / (1 << 20) as f64,
        (begin.elapsed() - opened).as_secs_f64() * 1e3
    );
    Ok(())
}

/// Bytes that this process has asked its files for.
fn read_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}
