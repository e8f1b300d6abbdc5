//! `onejournal probe`: what it measures and refuses, and that nothing of it is left.
//!
//! Nothing here depends on how fast a disk is. What the figures mean is tested beside the code that
//! judges them.

use crate::support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use onejournal_testing::{Need, has_program, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::probing::{SHORT, check_empty, end_by, parsed, probe};
use support::{
    ONEJOURNAL, Scratch, TempMount, can_mount, onejournal, run, scratch_dir, spawn, text, tmpfs_dir,
};

const NOT_SUITABLE: i32 = 1;
const OPERATIONAL: i32 = 8;
const USAGE: i32 = 16;
const INTERRUPTED: i32 = 130;

#[test]
fn a_directory_is_measured_and_nothing_is_left() {
    let dir = scratch_dir();
    let ran = probe([text(dir.path())]);
    for words in ["at most", "an area of 4 MiB was filled once"] {
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    let json = parsed(&ran.good());
    check_empty(dir.path());
    assert_eq!((&json["path"], &json["kind"]), (&text(dir.path()).into(), &"directory".into()));
    let lens: Vec<u64> = json["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| size["len_bytes"].as_u64().unwrap())
        .collect();
    assert!(lens.ends_with(&[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]), "{lens:?}");
    for size in json["sizes"].as_array().unwrap() {
        for way in ["write", "flush", "write_and_flush", "durable_write"] {
            let ns = |name: &str| {
                size[way][name].as_u64().unwrap_or_else(|| panic!("{way} {name}: {size}"))
            };
            assert!(
                ns("count") > 0 && ns("p50_ns") <= ns("p99_ns") && ns("p99_ns") <= ns("max_ns"),
                "{size}"
            );
        }
    }
    let threads: Vec<&Value> =
        json["parallel"].as_array().unwrap().iter().map(|of| &of["thread_count"]).collect();
    assert_eq!(threads, [1, 2, 4, 8, 16]);
    for way in ["durable_write", "write_and_flush"] {
        assert_eq!(json["parallel"][0][way]["speed_up"], 1.0);
        assert!(json["parallel"][4][way]["per_s"].as_f64() > Some(0.0), "{json}");
        assert!(json["parallel"][4][way]["count"].as_u64() >= Some(16), "{json}");
    }
    assert_eq!(json["append_sync"]["len_bytes"], 2300);
    assert!(json["written_bytes"].as_u64() > Some(4 << 20), "{json}");
    let commits: Vec<&Value> =
        json["commits"].as_array().unwrap().iter().map(|of| &of["commit"]).collect();
    assert_eq!(commits, ["overwrite", "append", "sqlite_rollback"]);
    let counts = |system: &str| {
        (&json["commits"][1][system]["write_count"], &json["commits"][1][system]["flush_count"])
    };
    assert_eq!(counts("ext4"), (&3.into(), &2.into()));
    assert_eq!(counts("onejournal"), (&1.into(), &1.into()));
}

#[test]
fn the_report_for_people_fits_a_terminal() {
    let dir = scratch_dir();
    let shown = onejournal(["probe", "--seconds", "0.2", "--size", "4M", text(dir.path())]).good();
    for words in [
        "durable write",
        "speed-up",
        "Flushes: ",
        "etcd: ",
        "PostgreSQL: ",
        "SQLite: ",
        " observation",
    ] {
        assert!(shown.replace('\n', " ").contains(words), "no {words} in {shown}");
    }
    // Only the path may be longer.
    for line in shown.lines().skip(1) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    check_empty(dir.path());
}

#[test]
fn the_exit_code_says_what_the_report_says() {
    let dir = scratch_dir();
    for program in ["etcd", "postgresql", "sqlite"] {
        let ran = probe(["--for", program, text(dir.path())]);
        let is_suitable = parsed(&ran.out)["suitable"][program]["is_suitable"].as_bool().unwrap();
        assert_eq!(ran.code, Some(if is_suitable { 0 } else { NOT_SUITABLE }), "{ran:?}");
    }
    probe(["--for", "mongodb", text(dir.path())]).refused(USAGE, "etcd, postgresql, sqlite");
    check_empty(dir.path());
}

#[test]
fn memory_is_suitable_for_nothing() {
    let dir = tmpfs_dir();
    let ran = probe(["--for", "sqlite", text(dir.path())]);
    ran.ended(NOT_SUITABLE);
    let json = parsed(&ran.out);
    assert_eq!((&json["durability"], &json["write_cache"]), (&"process".into(), &"memory".into()));
    assert_eq!(json["flushes"]["verdict"], "nothing_durable");
    assert_eq!(json["suitable"]["sqlite"]["obstacles"][0], "nothing_durable");
    // No promise of a data sheet helps.
    let ran = probe(["--for", "sqlite", "--protected-cache", text(dir.path())]);
    ran.ended(NOT_SUITABLE);
    let shown = onejournal(["probe", "--seconds", "0.1", "--size", "4M", text(dir.path())]).good();
    assert!(shown.contains("Nothing is durable here"), "{shown}");
    onejournal(["probe", "--watch", text(dir.path())]).refused(OPERATIONAL, "is on no disk");
    check_empty(dir.path());
}

#[test]
fn a_place_that_cannot_be_measured_is_named() {
    let dir = scratch_dir();
    let (file, none) = (dir.path().join("file"), dir.path().join("none"));
    fs::write(&file, "kept").unwrap();
    for words in [&["probe"][..], &["probe", "--watch"]] {
        let with = |path: &'static str| onejournal(words.iter().copied().chain([path]));
        let at = |path: &Path| onejournal(words.iter().copied().chain([text(path)]));
        at(&none).refused(OPERATIONAL, "none: does not exist; name a directory or a block device");
        at(&file).refused(OPERATIONAL, "file: is a file; name the directory");
        with("/dev/null")
            .refused(OPERATIONAL, "/dev/null: is neither a directory nor a block device");
    }
    assert_eq!(fs::read(&file).unwrap(), b"kept");
}

#[test]
fn command_lines_that_make_no_sense_are_usage_errors() {
    let dir = scratch_dir();
    let refused = |words: &[&str], why: &str| {
        let words = ["probe"].iter().chain(words).copied().chain([text(dir.path())]);
        onejournal(words).refused(USAGE, why);
    };
    refused(&["--destroy"], "leave --destroy out");
    refused(&["--force"], "--destroy");
    refused(&["--size", "1M"], "4M to 16G");
    refused(&["--seconds", "0"], "0.1 to 3600");
    refused(&["--tbw", "600"], "--watch");
    refused(&["--interval", "1"], "--watch");
    refused(&["--watch", "--destroy"], "cannot be used with");
    refused(&["--watch", "--for", "etcd"], "cannot be used with");
    refused(&["--watch", "--count", "0"], "--count");
    check_empty(dir.path());
}

#[test]
fn a_file_system_without_room_is_not_filled() {
    if !can_mount() {
        return;
    }
    let place = scratch_dir();
    let mount = TempMount::new(&["-t", "tmpfs", "-o", "size=16M", "none"], &place.path().join("m"));
    let refused = onejournal(["probe", "--seconds", "0.1", "--size", "64M", text(&mount.dir)]);
    refused.refused(OPERATIONAL, "give a smaller --size");
    assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    check_empty(&mount.dir);
    let room = || rustix::fs::statvfs(&mount.dir).unwrap().f_bavail;
    let before = room();
    probe([text(&mount.dir)]).good();
    assert_eq!(room(), before, "a file without a name still has its space");
}

#[test]
fn a_directory_that_cannot_be_written_to_is_refused() {
    if !can_mount() {
        return;
    }
    let place = scratch_dir();
    let mount = TempMount::new(&["-t", "tmpfs", "-o", "ro", "none"], &place.path().join("m"));
    probe([text(&mount.dir)]).refused(OPERATIONAL, "its file system is read-only");
    if !has_program("setpriv") {
        return;
    }
    let program = place.path().join("onejournal");
    fs::copy(ONEJOURNAL, &program).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    let ran = run(command.args(SHORT).arg(place.path()));
    ran.refused(OPERATIONAL, "has to be allowed to make files in it");
}

/// Whether this process, and so the command, does not ignore a signal.
fn is_caught(signal: &Signal) -> bool {
    !ignored_signals("self").contains(&signal.as_raw())
}

/// The signals that a process ignores.
fn ignored_signals(process: &str) -> Vec<i32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 1).collect()
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let dir = scratch_dir();
    let mut command = Command::new("nohup");
    command.args([ONEJOURNAL, "probe", "--seconds", "3600", "--size", "4M", text(dir.path())]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command).unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("at most"), "{line}");
    let is_ignored = ignored_signals(&child.id().to_string()).contains(&Signal::HUP.as_raw());
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(is_ignored, "nohup does not help");
}

#[test]
fn a_measurement_that_is_ended_leaves_nothing() {
    let dir = scratch_dir();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP].into_iter().filter(is_caught) {
        let (code, said) = end_by(signal, &[text(dir.path())]);
        assert_eq!(code, Some(INTERRUPTED), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        check_empty(dir.path());
    }
    assert_eq!(end_by(Signal::KILL, &[text(dir.path())]), (None, String::new()));
    check_empty(dir.path());
}

#[test]
fn a_limit_of_the_file_size_is_an_error() {
    if !has_program("prlimit") {
        return;
    }
    let dir = scratch_dir();
    let mut command = Command::new("prlimit");
    command.args(["--fsize=1048576", ONEJOURNAL]).args(SHORT).arg(dir.path());
    run(&mut command).refused(OPERATIONAL, "give a smaller --size");
    check_empty(dir.path());
}

#[test]
fn a_volume_is_measured_as_what_it_is() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let json = parsed(&probe([text(&scratch.dir())]).good());
    assert_eq!(json["is_onejournal_volume"], true, "{json}");
    assert!(json["commits"].is_null(), "{json}");
    assert_eq!(json["file_system"], "fuseblk.onejournal");
    let onejournal = onejournal(["probe", "--destroy", text(&scratch.image())]);
    onejournal.refused(OPERATIONAL, "is a file");
    scratch.close_and_check();
}

#[test]
fn watching_forecasts_and_writes_nothing() {
    let dir = scratch_dir();
    let words = ["probe", "--watch", "--interval", "0.1", "--count", "2", "--tbw", "600"];
    let ran = onejournal(words.into_iter().chain(["--json", text(dir.path())]));
    if ran.err.contains("is on no disk") {
        return skip(Need::Disk, ran.err.trim());
    }
    let shown = ran.good();
    let lines: Vec<Value> = shown.lines().map(parsed).collect();
    let of_first = lines.iter().filter(|line| line["disk"] == lines[0]["disk"]).count();
    assert_eq!(of_first, 2, "{shown}");
    for line in &lines {
        assert!(line["seconds"].as_f64() > Some(0.0), "{line}");
        for name in ["written_bytes", "now_bytes_per_day", "average_bytes_per_day"] {
            assert!(line[name].is_u64(), "{name}: {line}");
        }
        assert!(line["rated_years"].is_null() || line["rated_years"].is_f64(), "{line}");
    }
    check_empty(dir.path());
    let shown = onejournal(words.into_iter().chain([text(dir.path())])).good();
    for words in ["the bytes that this machine sends to it are counted", "years until 600 TB"] {
        assert!(shown.replace('\n', " ").contains(words), "no {words} in {shown}");
    }
    assert!(shown.lines().skip(1).all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn a_signal_ends_the_last_interval_early() {
    let dir = scratch_dir();
    let mut command = Command::new(ONEJOURNAL);
    command.args(["probe", "--watch", "--interval", "3600", text(dir.path())]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command).unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    shown.read_line(&mut line).unwrap();
    if line.is_empty() {
        child.wait().unwrap();
        return skip(Need::Disk, format!("{} is on no disk", dir.path().display()));
    }
    // An interval of less than a second would not be shown.
    std::thread::sleep(Duration::from_millis(1200));
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    let lines: Vec<String> = shown.lines().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let heading = lines.iter().position(|line| line.starts_with("disk  ")).expect("a heading");
    assert!(lines.len() > heading + 1, "no last line: {lines:?}");
}

#[test]
fn a_device_that_is_in_use_can_be_watched() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let device = fs::read_to_string("/proc/self/mounts").unwrap();
    let line =
        device.lines().find(|line| line.split(' ').nth(1) == Some(text(&scratch.dir()))).unwrap();
    let device = line.split(' ').next().unwrap();
    let watch = |path: &str| {
        onejournal(["probe", "--watch", "--interval", "0.1", "--count", "1", "--json", path])
    };
    let disks = |path: &str| -> Vec<Value> {
        let shown = watch(path).good();
        shown.lines().map(|line| parsed(line)["disk"].clone()).collect()
    };
    // The loop device, the volume on it and the image are on the same disks.
    let of_device = disks(device);
    assert_eq!(of_device, disks(text(&scratch.dir())));
    assert_eq!(of_device, disks(text(scratch.root())));
    assert!(
        of_device.iter().all(|disk| !disk.as_str().unwrap().starts_with("loop")),
        "{of_device:?}"
    );
    scratch.close_and_check();
}
