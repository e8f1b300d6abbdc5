//! `onejournal probe`: what it measures and refuses, and that nothing of it is left.
//!
//! Nothing here depends on how fast a disk is. What the figures mean is tested beside the code that judges them.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{
    Loop, ONEJOURNAL, Scratch, TempMount, can_mount, has, onejournal, run, scratch_dir, spawn,
    system, text, tmpfs_dir,
};

const NOT_SUITABLE: i32 = 1;
const OPERATIONAL: i32 = 8;
const USAGE: i32 = 16;
const INTERRUPTED: i32 = 130;

/// The shortest measurement: everything once, and not much more.
const SHORT: [&str; 6] = ["probe", "--seconds", "0.2", "--size", "4M", "--json"];

fn probe<'a>(words: impl IntoIterator<Item = &'a str>) -> support::Ran {
    onejournal(SHORT.into_iter().chain(words))
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Nothing is in the directory, and no file without a name holds its space.
#[track_caller]
fn check_empty(dir: &Path) {
    let left: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_directory_is_measured_and_nothing_is_left() {
    let dir = scratch_dir();
    let ran = probe([text(dir.path())]);
    assert!(ran.err.contains("at most") && ran.err.contains("an area of 4 MiB"), "{}", ran.err);
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
    assert_eq!(json["parallel"][0]["in_the_time_of_one"], 1.0);
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
    for words in
        ["durable write", "in the time of one", "Flushes: ", "etcd: ", "PostgreSQL: ", "SQLite: "]
    {
        assert!(shown.contains(words), "no {words} in {shown}");
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
    assert_eq!(ran.code, Some(NOT_SUITABLE), "{ran:?}");
    let json = parsed(&ran.out);
    assert_eq!((&json["durability"], &json["write_cache"]), (&"process".into(), &"memory".into()));
    assert_eq!(json["flushes"]["verdict"], "nothing_durable");
    assert_eq!(json["suitable"]["sqlite"]["obstacles"][0], "nothing_durable");
    // No promise of a data sheet helps.
    let ran = probe(["--for", "sqlite", "--protected-cache", text(dir.path())]);
    assert_eq!(ran.code, Some(NOT_SUITABLE), "{ran:?}");
    let shown = onejournal(["probe", "--seconds", "0.1", "--size", "4M", text(dir.path())]).good();
    assert!(shown.contains("Nothing is durable here"), "{shown}");
    onejournal(["probe", "--watch", text(dir.path())]).refused(OPERATIONAL, "is on no disk");
    check_empty(dir.path());
}

#[test]
fn what_cannot_be_measured_is_named() {
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
    if !has("setpriv") {
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

/// Ends a long measurement by `signal`, after it has begun. Its exit code, and what it says then.
fn end_by(signal: Signal, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(ONEJOURNAL);
    command.args(["probe", "--seconds", "3600", "--size", "4M"]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command).unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // It has its files when it has said what it will write.
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("at most"), "{line}");
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    (child.wait().unwrap().code(), rest)
}

#[test]
fn a_measurement_that_is_ended_leaves_nothing() {
    let dir = scratch_dir();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (code, said) = end_by(signal, &[text(dir.path())]);
        assert_eq!(code, Some(INTERRUPTED), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        check_empty(dir.path());
    }
    assert_eq!(end_by(Signal::KILL, &[text(dir.path())]), (None, String::new()));
    check_empty(dir.path());
}

#[test]
fn buffered_writes_are_marked_as_such() {
    if !can_mount() {
        return;
    }
    let place = scratch_dir();
    // ramfs has no direct I/O, no fallocate and no number of free blocks.
    let mount = TempMount::new(&["-t", "ramfs", "none"], &place.path().join("m"));
    let json = parsed(&probe([text(&mount.dir)]).good());
    assert_eq!((&json["direct_io"], &json["durability"]), (&false.into(), &"process".into()));
    let shown = onejournal(["probe", "--seconds", "0.1", "--size", "4M", text(&mount.dir)]).good();
    assert!(shown.contains("Direct I/O is refused") && shown.contains("buffered I/O"), "{shown}");
    check_empty(&mount.dir);
}

/// An image of 16 MiB whose every byte is 7.
fn image(dir: &Path) -> std::path::PathBuf {
    let image = dir.join("image");
    fs::write(&image, vec![7; 16 << 20]).unwrap();
    image
}

#[test]
fn a_device_is_overwritten_only_if_asked() {
    if !can_mount() {
        return;
    }
    let dir = scratch_dir();
    let image = image(dir.path());
    let device = Loop::attach(&image);
    probe([text(&device.path)])
        .refused(OPERATIONAL, &format!("probe --destroy {}", text(&device.path)));
    let all_sevens = |from: usize| fs::read(&image).unwrap()[from..].iter().all(|byte| *byte == 7);
    assert!(all_sevens(0), "it was written to without --destroy");
    let forced = format!("probe --destroy --force {}", text(&device.path));
    let refused = probe(["--destroy", text(&device.path)]);
    refused.refused(
        OPERATIONAL,
        &format!("is not empty; to overwrite what it holds: onejournal {forced}"),
    );
    assert!(all_sevens(0), "it was written to without --force");
    let json = parsed(&probe(["--destroy", "--force", text(&device.path)]).good());
    assert_eq!((&json["kind"], &json["area_bytes"]), (&"device".into(), &(4 << 20).into()));
    assert!(json["file_system"].is_null(), "{json}");
    // The bytes after the area are as they were.
    system("blockdev", ["--flushbufs", text(&device.path)]).good();
    let mut first = [7; 512];
    File::open(&image).unwrap().read_exact_at(&mut first, 0).unwrap();
    assert!(first != [7; 512], "nothing was written");
    assert!(all_sevens(4 << 20), "it wrote behind its area");
    // Nothing is lost by another measurement.
    probe(["--destroy", text(&device.path)]).good();
}

#[test]
fn what_a_device_holds_is_named_before_it_is_lost() {
    if !can_mount() {
        return;
    }
    let dir = scratch_dir();
    let (image, journal) = (image(dir.path()), dir.path().join("journal"));
    let device = Loop::attach(&image);
    let refused = |about: &str| {
        let before = fs::read(&image).unwrap();
        let ran = probe(["--destroy", text(&device.path)]);
        ran.refused(OPERATIONAL, about);
        ran.refused(OPERATIONAL, "onejournal probe --destroy --force /dev/loop");
        assert!(fs::read(&image).unwrap() == before, "it was written to: {about}");
    };
    let clear = || fs::write(&image, vec![0; 16 << 20]).unwrap();
    clear();
    probe(["--destroy", text(&device.path)]).good();
    system("mke2fs", ["-q", "-F", "-t", "ext4", text(&device.path)]).good();
    refused("is not empty: it has the ext4 volume ");
    let volume = dir.path().join("volume");
    fs::File::create(&journal).and_then(|file| file.set_len(16 << 20)).unwrap();
    let words = ["mkfs", "--size", "16M", "--journal", text(&journal), text(&volume)];
    onejournal(words).good();
    fs::copy(&journal, &image).unwrap();
    system("blockdev", ["--flushbufs", text(&device.path)]).good();
    refused("with all changes that this volume may still need");
    clear();
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .write_all_at(b"GPT", (16 << 20) - 512)
        .unwrap();
    system("blockdev", ["--flushbufs", text(&device.path)]).good();
    refused("is not empty; to overwrite");
}

#[test]
fn an_interrupted_measurement_of_a_device_is_marked_as_such() {
    if !can_mount() {
        return;
    }
    let dir = scratch_dir();
    let device = Loop::attach(&image(dir.path()));
    let words = ["--destroy", "--force", text(&device.path)];
    let (code, said) = end_by(Signal::TERM, &words);
    assert_eq!(code, Some(INTERRUPTED), "{said}");
    assert!(said.contains("the beginning of the device is overwritten"), "{said}");
    probe(["--destroy", text(&device.path)]).good();
}

#[test]
fn a_device_that_is_too_small_or_in_use_is_refused() {
    if !can_mount() {
        return;
    }
    let dir = scratch_dir();
    let image = image(dir.path());
    let small = dir.path().join("small");
    fs::write(&small, vec![7; 1 << 20]).unwrap();
    let small = Loop::attach(&small);
    probe(["--destroy", "--force", text(&small.path)]).refused(OPERATIONAL, "is too small");
    system("mke2fs", ["-q", "-F", "-t", "ext4", text(&image)]).good();
    let device = Loop::attach(&image);
    let before = fs::read(&image).unwrap();
    let mount = TempMount::new(&["-o", "ro", text(&device.path)], &dir.path().join("m"));
    probe(["--destroy", text(&device.path)]).refused(OPERATIONAL, "in use");
    assert!(fs::read(&image).unwrap() == before, "it was written to while it was mounted");
    drop(mount);
    probe(["--destroy", "--force", text(&device.path)]).good();
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
        return eprintln!("skipped: {}", ran.err);
    }
    let shown = ran.good();
    let lines: Vec<Value> = shown.lines().map(parsed).collect();
    let of_first = lines.iter().filter(|line| line["disk"] == lines[0]["disk"]).count();
    assert_eq!(of_first, 2, "{shown}");
    for line in &lines {
        assert!(line["seconds"].as_f64() >= Some(0.1), "{line}");
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
