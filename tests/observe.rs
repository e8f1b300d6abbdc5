//! What can be seen of a mounted volume: `onejournal stat`, once and watched.

use crate::support;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use onejournal_testing::has_program;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Logd, ONEJOURNAL, Scratch, onejournal, run, spawn, unread_pipe};
use tempfile::TempDir;

/// Longer than any test: nothing is committed but by a sync.
/// Each write of a program is one of the volume's.
const OPTIONS: &str = "commit=300,order=history";

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// Writes and syncs `count` lines of 100 bytes.
fn append(file: &mut File, count: usize) {
    for _ in 0..count {
        file.write_all(&[b'x'; 100]).unwrap();
        file.sync_data().unwrap();
    }
}

#[test]
fn every_commit_is_in_the_histograms() {
    let Some(scratch) = Scratch::mounted(OPTIONS) else { return };
    let mut file = File::create(scratch.path("f")).unwrap();
    let before = number(&scratch.stat()["opening_bytes"]);
    append(&mut file, 25);
    let stat = scratch.stat();
    for name in ["commit_latency_ns", "syncs_per_commit"] {
        let spread = &stat[name];
        assert_eq!(spread["count"], stat["commits"], "{name}");
        let buckets = spread["buckets"].as_array().unwrap();
        let sum: u64 = buckets.iter().map(|bucket| number(&bucket[1])).sum();
        assert_eq!(sum, number(&stat["commits"]), "{name}");
        assert!(number(&spread["p50"]) <= number(&spread["max"]), "{name}");
    }
    assert!(number(&stat["commits"]) >= 25);
    assert!(number(&stat["commit_latency_ns"]["p50"]) >= 1000, "below a microsecond");
    let forms = stat["journal_bytes_by_form"].as_object().unwrap();
    assert!(forms.values().map(number).sum::<u64>() > 0);
    let blocks = stat["logged_blocks_by_form"].as_object().unwrap();
    assert_eq!(blocks.values().map(number).sum::<u64>(), number(&stat["logged_blocks"]));
    for (form, bytes) in forms {
        assert_eq!(number(bytes) > 0, number(&blocks[form]) > 0, "{form}");
    }
    assert!(before > 4 << 20, "the journal was new and made of zeros: {before}");
    let written = (number(&stat["device_bytes_written"]) - before) as f64;
    let amplification = stat["write_amplification"].as_f64().unwrap();
    assert!((amplification - written / 2500.0).abs() < 0.01, "{amplification}");
    let text = onejournal(["stat", "--all", scratch.dir().to_str().unwrap()]).good();
    assert!(text.lines().any(|line| line.starts_with("commit_latency_ns.p99 ")), "{text}");
    drop(file);
    scratch.close_and_check();
}

#[test]
fn the_first_lines_are_for_people() {
    let Some(scratch) = Scratch::mounted(OPTIONS) else { return };
    let mut file = File::create(scratch.path("f")).unwrap();
    append(&mut file, 1);
    let dir = scratch.dir();
    let text = onejournal(["stat", dir.to_str().unwrap()]).good();
    let line = |label: &str| {
        let found = text.lines().find(|line| line.trim_start().starts_with(label));
        found.unwrap_or_else(|| panic!("no {label} in {text}"))
    };
    assert_eq!(text.lines().next(), Some(scratch.image().to_str().unwrap()));
    assert!(line("served by").ends_with(&format!("mounted on {}", dir.display())), "{text}");
    assert!(line("mounted ").ends_with("read-write"), "{text}");
    assert!(line("durability").contains("power ("), "{text}");
    assert!(line("atomic writes").ends_with("aligned writes of up to 64 KiB"), "{text}");
    // One write of 100 bytes.
    assert!(line("write amplification").contains("  - ("), "{text}");
    assert!(line("write amplification").contains("100 B written by programs"), "{text}");
    // One more where the kernel tells the volume of the syncfs at the mount.
    let flushes = if scratch.counter("syncfs") > 0 { "2 flushes" } else { "1 flush" };
    assert!(line("flushes per fsync").contains(&format!("({flushes}, 1 fsync")), "{text}");
    // The journal of 4 MiB was filled with zeros, which are in no other number.
    assert!(line("written while mounting").contains("4.2 MB"), "{text}");
    assert!(line("written since the mount").contains("B to the device"), "{text}");
    let watch = format!("probe --watch {}", scratch.root().display());
    assert!(line("not counted").ends_with(&watch), "{text}");
    // Every number that is not 0 is in a group.
    let stat = scratch.stat();
    // These are in the first lines only.
    let is_left_out = ["mount_time_s", "write_amplification", "atomic_write_bytes"];
    for (name, value) in stat.as_object().unwrap() {
        let is_shown = value.as_u64().is_some_and(|number| number > 0)
            || value.get("count").and_then(Value::as_u64).is_some_and(|count| count > 0);
        if is_shown && !is_left_out.contains(&name.as_str()) {
            assert!(text.contains(&format!("\n  {name} ")), "{name} is in no group: {text}");
        }
    }
    append(&mut file, 11_000);
    let text = onejournal(["stat", scratch.image().to_str().unwrap()]).good();
    let ratio_of = |label: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(label)).unwrap();
        line.trim_start()[label.len()..].split_whitespace().next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(ratio_of("flushes per fsync"), 1.0, "{text}");
    assert!((1.0..20.0).contains(&ratio_of("write amplification")), "{text}");
    drop(file);
    scratch.close_and_check();
}

#[test]
fn a_reader_that_goes_ends_the_command_without_a_word() {
    let Some(scratch) = Scratch::mounted(OPTIONS) else { return };
    for arguments in [&["stat"][..], &["stat", "--all"], &["stat", "--json"], &["top", "-b"]] {
        let mut command = Command::new(ONEJOURNAL);
        command.args(arguments).stdout(unread_pipe()).stderr(Stdio::piped());
        if arguments[0] == "stat" {
            command.arg(scratch.dir());
        }
        let output = spawn(&mut command).unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(128 + 13), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
    scratch.close_and_check();
}

#[test]
fn the_files_for_which_most_was_written_come_first() {
    let Some(scratch) = Scratch::mounted(OPTIONS) else { return };
    std::fs::create_dir(scratch.path("d")).unwrap();
    for (name, count) in [("little", 1), ("d/much", 50), ("some", 10)] {
        let mut file = File::create(scratch.path(name)).unwrap();
        append(&mut file, count);
    }
    std::fs::write(scratch.path("empty"), "").unwrap();
    let files: Value = serde_json::from_str(&attribute(&scratch, "user.onejournal.files")).unwrap();
    let bytes: Vec<u64> =
        files.as_array().unwrap().iter().map(|file| number(&file["app_bytes"])).collect();
    assert_eq!(bytes, [5_000, 1_000, 100]);
    // The list does not say which writes are atomic.
    let mut much = file_stat(&scratch, "d/much");
    for name in ["atomic_write_bytes", "atomic_declared_bytes"] {
        assert!(much.as_object_mut().unwrap().remove(name).is_some(), "{name}");
    }
    assert_eq!(files[0], much);
    let mut command = Command::new(ONEJOURNAL);
    let text = run(command.args(["top", "-b", "-n", "1"]).env("COLUMNS", "200")).good();
    let volume = text.lines().find(|line| line.starts_with(scratch.dir().to_str().unwrap()));
    assert!(volume.is_some_and(|line| line.contains("read-write")), "{text}");
    // With other volumes on the machine these need not be the first one's.
    if text.contains(&format!("Files of {} ", scratch.dir().display())) {
        let place =
            |name: &str| text.find(&format!("\n{name} ")).unwrap_or_else(|| panic!("{text}"));
        assert!(place("d/much") < place("some") && place("some") < place("little"), "{text}");
    }
    scratch.close_and_check();
}

/// A virtual attribute of the root directory.
fn attribute(scratch: &Scratch, name: &str) -> String {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::getxattr(scratch.dir(), name, value.as_mut_slice()).unwrap();
    String::from_utf8(value[..len].to_vec()).unwrap()
}

/// `onejournal stat --watch`, and its lines.
struct Watch {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Watch {
    fn start(arguments: &[&str], scratch: &Scratch) -> Watch {
        let mut command = Command::new(ONEJOURNAL);
        command.arg("stat").args(arguments).arg(scratch.dir()).stdout(Stdio::piped());
        let mut child = spawn(&mut command).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Watch { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("it goes on").unwrap()
    }

    fn end(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{signal:?}");
    }
}

#[test]
fn watching_shows_each_interval_and_ends_on_a_signal() {
    let Some(scratch) = Scratch::mounted(OPTIONS) else { return };
    let mut file = File::create(scratch.path("f")).unwrap();
    let mut watch = Watch::start(&["--json", "--watch=0.2"], &scratch);
    watch.line(); // it has its first sample
    append(&mut file, 10);
    // However slow the machine is: the rates times the intervals add up to what was done.
    let (mut commits, mut bytes) = (0.0, 0.0);
    for _ in 0..300 {
        let rates: Value = serde_json::from_str(&watch.line()).unwrap();
        let seconds = rates["seconds"].as_f64().unwrap();
        commits += rates["commits_per_s"].as_f64().unwrap() * seconds;
        bytes += rates["app_bytes_per_s"].as_f64().unwrap() * seconds;
        let has_commits = rates["commits_per_s"].as_f64().unwrap() > 0.0;
        assert_eq!(rates["commit_p99_ns"].is_u64(), has_commits, "{rates}");
        if commits > 9.0 {
            break;
        }
    }
    assert!(
        (9.5..10.5).contains(&commits) && (950.0..1050.0).contains(&bytes),
        "{commits} {bytes}"
    );
    watch.end(Signal::INT);
    let mut watch = Watch::start(&["--watch=0.2"], &scratch);
    assert!(watch.line().contains("commits/s"));
    assert!(watch.line().contains("0.0"));
    watch.end(Signal::TERM);
    drop(file);
    scratch.close_and_check();
}

#[test]
fn a_watch_needs_an_interval_and_a_volume_and_ends_with_it() {
    let Some(scratch) = Scratch::mounted(OPTIONS) else { return };
    onejournal(["stat", "--watch=0", scratch.dir().to_str().unwrap()]).refused(16, "seconds");
    let elsewhere = scratch.root().to_str().unwrap();
    onejournal(["stat", "--watch", elsewhere]).refused(8, "not on a mounted");
    // A watcher does not keep the volume mounted, and ends with it.
    let mut watch = Watch::start(&["--watch=1"], &scratch);
    watch.line();
    scratch.close_and_check();
    assert_eq!(watch.child.wait().unwrap().code(), Some(8));
}

/// The counters of one file.
fn file_stat(scratch: &Scratch, name: &str) -> Value {
    let text = onejournal(["stat", "--json", scratch.path(name).to_str().unwrap()]).good();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_file_is_told_what_was_written_for_it() {
    let Some(mut scratch) = Scratch::mounted(OPTIONS) else { return };
    let block = [7; 4096];
    let mut file = File::create(scratch.path("f")).unwrap();
    file.write_all(&block.repeat(3)).unwrap();
    file.sync_all().unwrap();
    std::fs::write(scratch.path("other"), "x").unwrap();
    let stat = file_stat(&scratch, "f");
    assert_eq!((number(&stat["app_bytes"]), number(&stat["fsyncs"])), (3 * 4096, 1));
    // Three whole blocks and their tags; inodes, bitmaps and directories count for no file.
    let journal_bytes = number(&stat["journal_bytes"]);
    assert!((3 * 4096..3 * 4096 + 100).contains(&journal_bytes), "{stat}");
    assert_eq!(stat["journal_bytes_by_form"]["block"], stat["journal_bytes"]);
    assert_eq!((number(&stat["home_bytes"]), number(&stat["in_place_bytes"])), (0, 0));
    assert_eq!(stat["write_amplification"].as_f64(), Some(1.0));
    let other = file_stat(&scratch, "other");
    assert_eq!((number(&other["app_bytes"]), number(&other["journal_bytes"])), (1, 0));
    let of_all = number(&scratch.stat()["journal_bytes_by_form"]["block"]);
    assert!(of_all >= journal_bytes, "{of_all} of all files");
    drop(file);
    // The name goes to a new file, and perhaps the inode's number as well.
    std::fs::remove_file(scratch.path("f")).unwrap();
    File::open(scratch.dir()).unwrap().sync_all().unwrap();
    File::create(scratch.path("f")).unwrap();
    assert_eq!(number(&file_stat(&scratch, "f")["app_bytes"]), 0);
    let attribute = rustix::fs::setxattr(
        scratch.path("f"),
        "user.onejournal.file",
        b"x",
        rustix::fs::XattrFlags::empty(),
    );
    assert!(attribute.is_err());
    scratch.remount("commit=300,data=ordered");
    for len_bytes in [4096, 1 << 20] {
        std::fs::write(scratch.path("f"), vec![1; len_bytes]).unwrap();
        File::open(scratch.path("f")).unwrap().sync_all().unwrap();
    }
    let stat = file_stat(&scratch, "f");
    assert_eq!(number(&stat["in_place_bytes"]), 4096 + (1 << 20), "{stat}");
    assert_eq!(number(&stat["journal_bytes"]), 0, "{stat}");
    scratch.close_and_check();
}

#[test]
fn bytes_that_checkpoints_bring_home_count_for_their_file() {
    let Some(scratch) = Scratch::mounted("commit=300,regions=4,data=journal") else { return };
    let mut file = File::create(scratch.path("f")).unwrap();
    // Several times what the journal of 4 MiB holds.
    for _ in 0..24 {
        file.write_all(&vec![1; 1 << 20]).unwrap();
        file.sync_data().unwrap();
    }
    let stat = file_stat(&scratch, "f");
    let home_bytes = number(&stat["home_bytes"]);
    assert!(number(&stat["journal_bytes"]) >= 24 << 20, "{stat}");
    assert!((16 << 20..=24 << 20).contains(&home_bytes), "{stat}");
    assert!(home_bytes <= number(&scratch.stat()["home_bytes"]), "{stat}");
    assert!(stat["write_amplification"].as_f64().unwrap() > 1.6, "{stat}");
    drop(file);
    scratch.close_and_check();
}

/// Listens at a loopback address that belongs to this process's test `test` (0 to 7): the port is
/// unused by others when it is free for a moment.
fn listen(test: u32) -> (TcpListener, SocketAddr) {
    let [_, a, b, c] = (std::process::id() << 3 | test).to_be_bytes();
    let listener = TcpListener::bind((Ipv4Addr::new(127, a, b, c), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The answer to a request for the metrics of this host: its head and its body.
fn ask_for(host: &str, address: SocketAddr) -> (String, String) {
    let mut client = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The page of the metrics.
fn page_of(address: SocketAddr) -> String {
    let (head, body) = ask_for(&address.to_string(), address);
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    body
}

/// The metrics, as (name with labels, value).
fn scrape(address: SocketAddr) -> Vec<(String, f64)> {
    let page = page_of(address);
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.map(|line| line.rsplit_once(' ').unwrap());
    samples.map(|(name, value)| (name.to_string(), value.parse().unwrap())).collect()
}

#[test]
fn metrics_are_served_while_it_is_mounted() {
    let (taken, address) = listen(0);
    let Some(mut scratch) = Scratch::new() else { return };
    let options = format!("{OPTIONS},metrics={address}");
    let (image, dir) = (scratch.image(), scratch.dir());
    let mount = ["mount", "-o", &options, image.to_str().unwrap(), dir.to_str().unwrap()];
    onejournal(mount).refused(8, "in use");
    drop(taken);
    scratch.mount(&options);
    let mut file = File::create(scratch.path("f")).unwrap();
    append(&mut file, 7);
    let metrics = scrape(address);
    let value = |wanted: &str| {
        let found = metrics.iter().find(|(name, _)| name == wanted);
        found.unwrap_or_else(|| panic!("no {wanted} in {metrics:?}")).1
    };
    assert_eq!(value("onejournal_app_bytes_total"), 700.0);
    let commits = value("onejournal_commits_total");
    assert!(commits >= 7.0);
    assert_eq!(value("onejournal_commit_latency_seconds_count"), commits);
    assert_eq!(value("onejournal_commit_latency_seconds_bucket{le=\"+Inf\"}"), commits);
    assert_eq!(value("onejournal_syncs_per_commit_bucket{le=\"1\"}"), commits);
    assert!(value("onejournal_commit_latency_seconds_sum") > 0.0);
    assert!(value("onejournal_journal_bytes_total{form=\"delta\"}") > 0.0);
    let mut counts = Vec::new();
    for (name, value) in &metrics {
        if name.starts_with("onejournal_commit_latency_seconds_bucket") {
            counts.push(*value);
        }
    }
    assert!(counts.len() > 20 && counts.is_sorted(), "{counts:?}");
    drop(file);
    // A page from elsewhere whose name was made to lead here.
    let (head, body) = ask_for(&format!("evil.example:{}", address.port()), address);
    assert!(head.starts_with("HTTP/1.0 421 "), "{head}");
    assert!(body.contains("ask for them at localhost") && body.lines().count() == 1, "{body}");
    // A client that says nothing does not keep the daemon from ending, nor the port.
    let _silent = TcpStream::connect(address).unwrap();
    scratch.umount();
    scratch.mount(&options);
    assert!(!scrape(address).is_empty());
    scratch.close_and_check();
    assert!(TcpStream::connect(address).is_err(), "somebody still listens");
}

/// The process that has the volume has the port, too.
#[test]
fn a_volume_in_use_is_named_before_its_port_of_metrics() {
    let (_, address) = listen(6);
    let Some(mut scratch) = Scratch::mounted(&format!("metrics={address}")) else { return };
    let open = File::create(scratch.path("f")).unwrap();
    rustix::mount::unmount(scratch.dir(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let (image, dir) = (scratch.image(), scratch.dir());
    let options = format!("metrics={address}");
    let ran = onejournal(["mount", "-o", &options, image.to_str().unwrap(), dir.to_str().unwrap()]);
    ran.refused(8, "onejournal mount");
    assert!(!ran.err.contains("metrics="), "{ran:?}");
    drop(open);
    scratch.expect_closed();
    let mut logd = Logd::start(&["--metrics", &address.to_string()]);
    let again = onejournal([
        "logd",
        "--dir",
        logd.dir().to_str().unwrap(),
        "--metrics",
        &address.to_string(),
    ]);
    again.ended(8);
    assert!(!again.err.contains("metrics="), "{again:?}");
    logd.end();
    scratch.check();
}

/// Names of an object, those of objects in it but not in distributions included.
fn names(value: &Value, into: &mut Vec<String>) {
    for (name, inner) in value.as_object().unwrap() {
        into.push(name.clone());
        if inner.is_object() {
            names(inner, into);
        }
    }
}

#[test]
fn every_number_is_explained() {
    let (_, address) = listen(1);
    let metrics = format!("commit=300,metrics={address}");
    let Some(mut scratch) = Scratch::mounted(&metrics) else { return };
    for kind in ["", "block", "nvram"] {
        let journal = journal_of(&scratch, kind);
        scratch.remount(&format!("{metrics}{}", journal.options));
        std::fs::write(scratch.path("f"), "x").unwrap();
        assert_explained(&scratch, address);
    }
    scratch.close_and_check();
}

fn assert_explained(scratch: &Scratch, address: SocketAddr) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    // A part of an object stands behind a dot.
    let is_explained =
        |name: &str| page.contains(&format!("`{name}`")) || page.contains(&format!(".{name}`"));
    let mut all = Vec::new();
    names(&scratch.stat(), &mut all);
    names(&file_stat(scratch, "f"), &mut all);
    all.retain(|name| !is_explained(name));
    assert!(all.is_empty(), "not in docs/reference/metrics.md: {all:?}");
    for (metric, _) in scrape(address) {
        let name = metric.split('{').next().unwrap();
        let suffixes = ["_bucket", "_sum", "_count"];
        let name = suffixes.iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
        let counter = name.strip_prefix("onejournal_").and_then(|name| name.strip_suffix("_total"));
        let in_page = counter.is_some_and(is_explained) || page.contains(&format!("`{name}"));
        assert!(in_page, "not in docs/reference/metrics.md: {metric}");
    }
}

/// A journal on a medium of its own, removed in the end.
struct OwnJournal {
    options: String,
    _dir: Option<TempDir>,
}

/// A journal in a file, on tmpfs, or none.
fn journal_of(scratch: &Scratch, kind: &str) -> OwnJournal {
    let tmpfs = (kind == "nvram").then(support::tmpfs_dir);
    let dir = tmpfs.as_ref().map_or(scratch.root(), TempDir::path);
    let path = dir.join("journal");
    let options = match kind {
        "" => String::new(),
        _ => format!(",journal={},journal_size=8M,durability=process", path.display()),
    };
    OwnJournal { options, _dir: tmpfs }
}

#[test]
fn a_journal_elsewhere_is_counted_apart_from_the_device() {
    let (_, address) = listen(2);
    let Some(mut scratch) = Scratch::mounted(OPTIONS) else { return };
    assert!(scratch.stat()["journal_medium"].is_null());
    for (kind, [writes, bytes, flushes], metric) in [
        ("block", ["writes", "bytes_written", "flushes"], "flushes"),
        ("nvram", ["stores", "bytes_stored", "fences"], "fences"),
    ] {
        let journal = journal_of(&scratch, kind);
        scratch.remount(&format!("{OPTIONS},metrics={address}{}", journal.options));
        let mut file = File::create(scratch.path("f")).unwrap();
        let before = scratch.stat();
        assert_eq!(before["journal_medium"]["kind"], kind);
        append(&mut file, 5);
        let after = scratch.stat();
        let count =
            |name| number(&after["journal_medium"][name]) - number(&before["journal_medium"][name]);
        assert_eq!((count(writes), count(flushes)), (5, 5), "{kind}: one of each for a sync");
        let logged = number(&after["journal_bytes"]) - number(&before["journal_bytes"]);
        assert_eq!(count(bytes), logged, "{kind}");
        for name in ["device_writes", "device_flushes"] {
            assert_eq!(after[name], before[name], "{kind}: {name}");
        }
        let name = format!("onejournal_journal_medium_{metric}_total");
        let found = scrape(address).into_iter().find(|(found, _)| *found == name);
        assert_eq!(found.unwrap().1 as u64, number(&after["journal_medium"][flushes]));
        let text = onejournal(["stat", "--all", scratch.dir().to_str().unwrap()]).good();
        assert!(text.contains(&format!("journal_medium.{flushes} ")), "{text}");
        drop(file);
    }
    scratch.close_and_check();
}

/// The words of a text that begin as our metrics do.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("onejournal_")).map(str::to_owned).collect()
}

fn exported(address: SocketAddr) -> impl Iterator<Item = String> {
    let samples = scrape(address).into_iter();
    samples.map(|(name, _)| name.split('{').next().unwrap().to_owned())
}

#[test]
fn dashboard_rules_and_queries_use_metrics_that_there_are() {
    let ((_, of_volume), (_, of_log)) = (listen(3), listen(4));
    let options = format!("commit=300,metrics={of_volume}");
    let Some(mut scratch) = Scratch::mounted(&options) else { return };
    let mut all = BTreeSet::new();
    for kind in ["", "block", "nvram"] {
        let journal = journal_of(&scratch, kind);
        scratch.remount(&format!("{options}{}", journal.options));
        all.extend(exported(of_volume));
    }
    scratch.close_and_check();
    let mut logd = Logd::start(&["--metrics", &of_log.to_string()]);
    all.extend(exported(of_log));
    logd.end();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
    let page = read("docs/reference/metrics.md");
    let queries = read("docs/how-to/metrics.md");
    let queries: Vec<&str> = queries.lines().filter(|line| line.contains("[5m]")).collect();
    assert_eq!(queries.len(), 3, "{queries:?}");
    let rules = read("dist/prometheus/onejournal.rules.yml");
    let dashboard = read("dist/grafana/onejournal.json");
    serde_json::from_str::<Value>(&dashboard).unwrap();
    for (place, text) in [("docs", queries.concat()), ("rules", rules), ("dashboard", dashboard)] {
        let used = metrics_in(&text);
        assert!(used.len() > 3, "{place}: {used:?}");
        let missing: Vec<_> = used.difference(&all).collect();
        assert!(missing.is_empty(), "{place}: not exported: {missing:?}");
    }
    for name in all.iter().filter(|name| name.starts_with("onejournal_log_")) {
        assert!(page.contains(&format!("`{name}`")), "not in docs/reference/metrics.md: {name}");
    }
}

#[test]
fn prometheus_takes_the_rules_and_the_metrics() {
    if !has_program("promtool") {
        return;
    }
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/prometheus");
    let promtool = |arguments: &[&str]| {
        run(Command::new("promtool").args(arguments).current_dir(rules)).good();
    };
    promtool(&["check", "rules", "onejournal.rules.yml"]);
    promtool(&["test", "rules", "onejournal.test.yml"]);
    let (_, address) = listen(5);
    let Some(scratch) = Scratch::mounted(&format!("commit=300,metrics={address}")) else { return };
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = spawn(check.stderr(Stdio::piped())).unwrap();
    child.stdin.take().unwrap().write_all(page_of(address).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    // It would also complain about names.
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    scratch.close_and_check();
}
