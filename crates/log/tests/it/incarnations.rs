//! Which shared memory and which NVRAM are a log's own: copies, other memory, other logs, other
//! users.

use crate::common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use common::{TestDirectory, on_both, payload, records};
use onejournal::{Log, LogError, Options};

fn open(path: &Path, options: &Options) -> Log {
    Log::open(path, options).expect("open")
}

fn refusal(path: &Path, options: &Options) -> String {
    match Log::open(path, options) {
        Err(error @ LogError::Incompatible(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is opened"),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("directory");
    for entry in fs::read_dir(from).expect("directory") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), &target).expect("copy")),
        }
    }
}

/// Appends records with these numbers and forgets the stream; the log is left.
fn append(log: &Log, numbers: std::ops::Range<u64>, is_synced: bool) {
    let stream = log.stream("a").expect("stream");
    for number in numbers {
        let lsn = stream.append(&payload(number, 500)).expect("append");
        if is_synced {
            stream.sync(lsn).expect("sync");
        }
    }
}

fn numbers(log: &Log) -> Vec<u64> {
    let stream = log.stream("a").expect("stream");
    // Records that are only in memory are not read.
    stream.flush().expect("flush");
    let found = records(&stream);
    let number = |bytes: &Vec<u8>| (0..256).find(|number| *bytes == payload(*number, 500));
    found.iter().map(|bytes| number(bytes).expect("one that was appended")).collect()
}

fn range(numbers: std::ops::Range<u64>) -> Vec<u64> {
    numbers.collect()
}

/// The directories of shared memory in `memory`.
fn incarnations(memory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(memory).expect("memory");
    let paths = entries.map(|entry| entry.expect("entry").path());
    paths.filter(|path| !path.ends_with("nvram")).collect()
}

#[test]
fn a_copy_of_a_directory_has_memory_of_its_own() {
    let test_dir = &TestDirectory::new(false);
    let options = test_dir.options();
    let log = open(test_dir.root.path(), &options);
    append(&log, 0..20, true);
    let twin = tempfile::tempdir().expect("directory");
    let twin = twin.path().join("twin");
    copy(test_dir.root.path(), &twin);
    let other = open(&twin, &options);
    assert_eq!(numbers(&other), range(0..20), "what was synced");
    std::thread::scope(|scope| {
        scope.spawn(|| append(&log, 20..60, true));
        scope.spawn(|| append(&other, 100..120, true));
    });
    drop((log, other));
    assert_eq!(incarnations(test_dir.memory.path()).len(), 2);
    for is_again in [false, true] {
        let both = (open(test_dir.root.path(), &options), open(&twin, &options));
        assert_eq!(numbers(&both.0), range(0..60), "{is_again}");
        assert_eq!(numbers(&both.1), [range(0..20), range(100..120)].concat(), "{is_again}");
        drop(both);
        test_dir.reboot();
    }
}

#[test]
fn a_copy_of_a_directory_whose_chunks_are_on_nvram_is_refused() {
    let test_dir = &TestDirectory::new(true);
    let options = test_dir.options();
    let log = open(test_dir.root.path(), &options);
    append(&log, 0..20, true);
    log.stream("a").expect("stream").flush().expect("flush");
    append(&log, 20..30, true);
    let twin = tempfile::tempdir().expect("directory");
    let twin = twin.path().join("twin");
    copy(test_dir.root.path(), &twin);
    let error = refusal(&twin, &options);
    assert!(error.contains("is a copy of that"), "{error}");
    append(&log, 30..40, true);
    drop(log);
    test_dir.reboot();
    refusal(&twin, &options);
    // Another log, that begins with what is in the files.
    let settings = twin.join("service.json");
    let text = fs::read_to_string(&settings).expect("settings");
    let name = text.split('"').rfind(|word| word.len() == 32).expect("nvram_name").to_owned();
    let nvram = options.nvram.clone().expect("NVRAM");
    let new = "0123456789abcdef0123456789abcdef";
    fs::write(&settings, text.replace(&name, new)).expect("write");
    let error = refusal(&twin, &options);
    assert!(error.contains("is missing") && error.contains("mkdir -m 700"), "{error}");
    fs::create_dir(nvram.join(format!("onejournal-{new}"))).expect("directory");
    let other = open(&twin, &options);
    // The flush worker may have brought records there, too.
    let found = numbers(&other);
    assert!(found.len() >= 20 && found == range(0..found.len() as u64), "{found:?}");
    append(&other, 100..110, true);
    let log = open(test_dir.root.path(), &options);
    assert_eq!(numbers(&log), range(0..40));
    drop((log, other));
    // The log itself, moved.
    let moved = twin.with_extension("moved");
    copy(test_dir.root.path(), &moved);
    refusal(&moved, &options);
    fs::remove_file(nvram.join(format!("onejournal-{name}/owner"))).expect("owner");
    assert_eq!(numbers(&open(&moved, &options)), range(0..40));
    let error = refusal(test_dir.root.path(), &options);
    assert!(error.contains(&moved.display().to_string()), "{error}");
}

#[test]
fn logs_share_an_nvram_directory_and_nothing_else() {
    let (test_dir, other) = (&TestDirectory::new(true), &TestDirectory::new(true));
    let options = test_dir.options();
    std::thread::scope(|scope| {
        for (root, from) in [(&test_dir.root, 0), (&other.root, 100)] {
            let options = &options;
            scope.spawn(move || append(&open(root.path(), options), from..from + 100, true));
        }
    });
    for _ in 0..2 {
        assert_eq!(numbers(&open(test_dir.root.path(), &options)), range(0..100));
        assert_eq!(numbers(&open(other.root.path(), &options)), range(100..200));
        test_dir.reboot();
    }
}

#[test]
fn nvram_that_is_not_mounted_is_no_empty_one() {
    let test_dir = &TestDirectory::new(true);
    let options = test_dir.options();
    let log = open(test_dir.root.path(), &options);
    append(&log, 0..20, true);
    drop(log);
    test_dir.reboot();
    let nvram = options.nvram.clone().expect("NVRAM");
    let aside = nvram.with_file_name("aside").join("nvram");
    fs::create_dir(aside.parent().expect("directory")).expect("directory");
    fs::rename(&nvram, &aside).expect("unmount");
    fs::create_dir(&nvram).expect("its mount point");
    let error = refusal(test_dir.root.path(), &options);
    assert!(error.contains("Is it mounted?"), "{error}");
    fs::remove_dir(&nvram).expect("nothing was made in it");
    fs::rename(&aside, &nvram).expect("mount");
    assert_eq!(numbers(&open(test_dir.root.path(), &options)), range(0..20));
}

#[test]
fn log_opened_with_other_memory_uses_the_existing_memory() {
    on_both(|test_dir| {
        let options = test_dir.options();
        let other = tempfile::tempdir_in("/dev/shm").expect("shared memory");
        let elsewhere = Options { memory: other.path().to_owned(), ..options.clone() };
        let log = open(test_dir.root.path(), &options);
        append(&log, 0..20, false);
        let joined = open(test_dir.root.path(), &elsewhere);
        assert_eq!(numbers(&joined), range(0..20));
        drop((log, joined));
        append(&open(test_dir.root.path(), &elsewhere), 20..30, false);
        assert_eq!(numbers(&open(test_dir.root.path(), &options)), range(0..30));
        assert_eq!(incarnations(other.path()).len(), 0);
        // Released, it is made where the next one wants it.
        open(test_dir.root.path(), &options).close().expect("close");
        append(&open(test_dir.root.path(), &elsewhere), 30..40, false);
        assert_eq!(
            (incarnations(other.path()).len(), incarnations(test_dir.memory.path()).len()),
            (1, 0)
        );
        assert_eq!(numbers(&open(test_dir.root.path(), &options)), range(0..40));
    });
}

#[test]
fn memory_that_comes_back_behind_other_memory_is_not_used() {
    let test_dir = &TestDirectory::new(false);
    let options = test_dir.options();
    let log = open(test_dir.root.path(), &options);
    append(&log, 0..20, true);
    let [incarnation] = &incarnations(test_dir.memory.path())[..] else {
        panic!("one incarnation")
    };
    // As in a container with a /dev/shm of its own.
    let hidden = tempfile::tempdir_in("/dev/shm").expect("shared memory");
    let hidden = hidden.path().join("incarnation");
    fs::rename(incarnation, &hidden).expect("hide");
    let error = refusal(test_dir.root.path(), &options);
    assert!(error.contains("cannot be seen from here"), "{error}");
    drop(log);
    let inside = open(test_dir.root.path(), &options);
    assert_eq!(numbers(&inside), range(0..20), "what was synced");
    append(&inside, 20..60, true);
    drop(inside);
    for incarnation in incarnations(test_dir.memory.path()) {
        fs::remove_dir_all(incarnation).expect("the container ends");
    }
    fs::rename(&hidden, incarnation).expect("show");
    assert_eq!(numbers(&open(test_dir.root.path(), &options)), range(0..60));
}

#[test]
fn memory_on_a_disk_is_none_after_a_restart() {
    let test_dir = &TestDirectory::new(false);
    let options = test_dir.options();
    let log = open(test_dir.root.path(), &options);
    append(&log, 0..20, true);
    drop(log);
    let before = incarnations(test_dir.memory.path());
    let incarnation = test_dir.root.path().join("incarnation");
    let mut text: serde_json::Value =
        serde_json::from_slice(&fs::read(&incarnation).expect("incarnation")).expect("JSON");
    text["boot"] = "another".into();
    fs::write(&incarnation, text.to_string()).expect("write");
    // After a power cut, memory that was on a disk may have any content.
    let control = before[0].join("control");
    let len_bytes = fs::metadata(&control).expect("control").len();
    fs::write(&control, vec![0; len_bytes as usize]).expect("write");
    assert_eq!(numbers(&open(test_dir.root.path(), &options)), range(0..20));
    assert!(!before[0].exists(), "it is removed");
    assert_eq!(incarnations(test_dir.memory.path()).len(), 1);
}

#[test]
fn others_may_not_enter() {
    let test_dir = &TestDirectory::new(true);
    let directory = test_dir.root.path().join("log");
    let options = test_dir.options();
    let log = open(&directory, &options);
    append(&log, 0..1, true);
    let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
    // A process may listen at a socket in it.
    assert_eq!(mode(&directory) & !0o711, 0);
    for name in ["clients", "streams", "lock"] {
        assert_eq!(mode(&directory.join(name)) & 0o077, 0, "{name}");
    }
    let [incarnation] = &incarnations(test_dir.memory.path())[..] else {
        panic!("one incarnation")
    };
    assert_eq!(mode(incarnation), 0o700);
    let nvram = fs::read_dir(options.nvram.as_ref().expect("NVRAM")).expect("NVRAM");
    let own: Vec<PathBuf> = nvram.map(|entry| entry.expect("entry").path()).collect();
    assert_eq!((own.len(), mode(&own[0])), (1, 0o700));
    // Memory that others could have changed is none.
    drop(log);
    fs::set_permissions(incarnation, std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("chmod");
    let error = refusal(&directory, &options);
    assert!(error.contains("can be written by other users"), "{error}");
}

#[test]
fn a_life_that_names_something_else_removes_nothing() {
    let test_dir = &TestDirectory::new(false);
    let options = test_dir.options();
    drop(open(test_dir.root.path(), &options));
    let precious = tempfile::tempdir().expect("directory");
    fs::write(precious.path().join("file"), b"precious").expect("file");
    let incarnation = test_dir.root.path().join("incarnation");
    let mut text: serde_json::Value =
        serde_json::from_slice(&fs::read(&incarnation).expect("incarnation")).expect("JSON");
    text["memory"] = precious.path().display().to_string().into();
    fs::write(&incarnation, text.to_string()).expect("write");
    refusal(test_dir.root.path(), &options);
    assert_eq!(fs::read(precious.path().join("file")).expect("file"), b"precious");
    // What a power cut may leave of it: its memory is gone, too.
    for left in ["", "nothing", "\0\0\0\0"] {
        fs::write(&incarnation, left).expect("write");
        drop(open(test_dir.root.path(), &options));
    }
    // Not while a process uses the memory that it named.
    let _log = open(test_dir.root.path(), &options);
    fs::write(&incarnation, "").expect("write");
    let error = refusal(test_dir.root.path(), &options);
    assert!(error.contains("a process uses it with other shared memory"), "{error}");
}
