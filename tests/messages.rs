//! What the command says when it cannot: the path it is about once, what to do, with the real path
//! in it.

use crate::support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{
    ONEJOURNAL, Ran, onejournal, scratch_dir, spawn, system, text, tmpfs_dir, unread_pipe,
};

const OPERATIONAL: i32 = 8;
const USAGE: i32 = 16;

/// One failure: the words of the command, what it is about, what it says to do, and its exit code.
struct Case<'a> {
    words: Vec<&'a str>,
    about: &'a str,
    what_to_do: String,
    code: i32,
}

/// "onejournal: PATH: why; what to do", on one line. A command in it may have the path again.
#[track_caller]
fn check(case: &Case<'_>) -> Ran {
    let ran = onejournal(&case.words);
    ran.refused(case.code, &case.what_to_do);
    let subject = format!("{}: ", case.about);
    assert_eq!(ran.err.matches(&subject).count(), 1, "the path once: {}", ran.err);
    assert_eq!(ran.err.trim_end().lines().count(), 1, "one line: {}", ran.err);
    for placeholder in ["TARGET", "<", ">"] {
        assert!(!ran.err.contains(placeholder), "the real path: {}", ran.err);
    }
    ran
}

/// Makes an ext4 volume by mke2fs with `arguments`.
fn mke2fs(path: &Path, arguments: &[&str]) {
    let mut command = vec!["-q", "-F", "-t", "ext4"];
    command.extend(arguments);
    command.extend([text(path), "16M"]);
    system("mke2fs", command).good();
}

#[test]
fn volumes_that_cannot_be_mounted_say_what_to_do() {
    let place = scratch_dir();
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("mnt")).unwrap();
    // What mke2fs is given, and the features by which tune2fs makes it a volume of ours, where it
    // can.
    let ext2 = "^has_journal,^extent,^huge_file,^dir_nlink,^extra_isize,^64bit,^metadata_csum";
    let made: [(&str, &[&str], &str); 9] = [
        ("blocks", &["-b", "1024"], ""),
        ("inodes", &["-b", "4096", "-I", "512"], ""),
        ("clusters", &["-b", "4096", "-O", "bigalloc"], ""),
        ("unknown", &["-b", "4096", "-I", "256", "-O", "inline_data"], ""),
        ("quota", &["-b", "4096", "-I", "256", "-O", "quota"], "^quota"),
        ("quotas", &["-b", "4096", "-I", "256", "-O", "quota,project,mmp"], "^mmp,^quota,^project"),
        ("journal", &["-b", "4096", "-I", "256", "-O", "^has_journal"], "has_journal"),
        (
            "ext2",
            &["-b", "4096", "-I", "256", "-O", ext2],
            "has_journal,extent,huge_file,dir_nlink,extra_isize",
        ),
        (
            "both",
            &["-b", "4096", "-I", "256", "-O", "quota,^has_journal,^huge_file"],
            "^quota,has_journal,huge_file",
        ),
    ];
    for (name, arguments, features) in made {
        let path = at(name);
        mke2fs(&path, arguments);
        let is_anew = features.is_empty();
        let what_to_do = match is_anew {
            true => format!("mkfs.ext4 -b 4096 -I 256 {}", path.display()),
            false => format!("tune2fs -O {features} {}", path.display()),
        };
        for words in [vec!["mount", text(&path), text(&at("mnt"))], vec!["fsck", text(&path)]] {
            check(&Case {
                words,
                about: text(&path),
                what_to_do: what_to_do.clone(),
                code: OPERATIONAL,
            });
        }
        if !is_anew {
            // What it says to do is done, as it is said.
            let mut words = what_to_do.split(' ');
            let program = words.next().unwrap();
            system(program, words).good();
            assert_eq!(onejournal(["fsck", "-y", text(&path)]).code.map(|code| code & !1), Some(0));
        }
    }
}

#[test]
fn common_failures_say_what_to_do() {
    let place = scratch_dir();
    let at = |name: &str| place.path().join(name);
    let (missing, empty, full, zeros) = (at("missing"), at("empty"), at("full"), at("zeros"));
    let (dir, no_dir, volume) = (at("dir"), at("no-dir"), at("volume"));
    fs::create_dir(&dir).unwrap();
    fs::write(&empty, "").unwrap();
    fs::write(&full, vec![7; 16 << 20]).unwrap();
    fs::File::create(&zeros).and_then(|file| file.set_len(16 << 20)).unwrap();
    onejournal(["mkfs", "--size", "16M", "--journal-size", "4M", text(&volume)]).good();
    let journal = format!("journal={}", missing.display());
    let with = |start: &str, path: &Path| format!("{start}{}", path.display());
    let mounted = || "onejournal ls".to_owned();
    let cases: Vec<(Vec<&str>, &Path, String, i32)> = vec![
        (vec!["mkfs", text(&missing)], &missing, with("mkfs --size 256M ", &missing), OPERATIONAL),
        (vec!["mkfs", text(&empty)], &empty, with("mkfs --size 256M ", &empty), OPERATIONAL),
        (vec!["mkfs", text(&full)], &full, with("mkfs --force ", &full), OPERATIONAL),
        (vec!["mkfs", text(&dir)], &dir, "name a file or a block device".into(), OPERATIONAL),
        (
            vec!["mount", text(&missing), text(&dir)],
            &missing,
            with("mkfs --size 256M ", &missing),
            OPERATIONAL,
        ),
        (
            vec!["mount", text(&volume), text(&no_dir)],
            &no_dir,
            with("mkdir -p ", &no_dir),
            OPERATIONAL,
        ),
        (vec!["mount", text(&volume), text(&full)], &full, "give an empty one".into(), OPERATIONAL),
        (
            vec!["mount", text(&zeros), text(&dir)],
            &zeros,
            with("mkfs --force ", &zeros),
            OPERATIONAL,
        ),
        (
            vec!["mount", "-o", &journal, text(&volume), text(&dir)],
            &missing,
            with("-o journal=", &missing) + ",journal_size=64M",
            OPERATIONAL,
        ),
        (vec!["fsck", text(&missing)], &missing, with("mkfs --size 256M ", &missing), OPERATIONAL),
        (vec!["fsck", text(&zeros)], &zeros, with("mkfs --force ", &zeros), OPERATIONAL),
        (vec!["dump", text(&volume)], &volume, with("onejournal mount ", &volume), OPERATIONAL),
        (vec!["umount", text(&dir)], &dir, mounted(), OPERATIONAL),
        (vec!["umount", text(&volume)], &volume, mounted(), OPERATIONAL),
        (vec!["stat", text(&dir)], &dir, mounted(), OPERATIONAL),
        (vec!["get-mode", text(&full)], &full, mounted(), OPERATIONAL),
        (
            vec!["probe", text(&no_dir)],
            &no_dir,
            "name a directory or a block device".into(),
            OPERATIONAL,
        ),
        (vec!["probe", text(&full)], &full, "name the directory that it is in".into(), OPERATIONAL),
        (vec!["probe", "--destroy", text(&dir)], &dir, "leave --destroy out".into(), USAGE),
        (vec!["log", "ls", "--dir", text(&dir)], &dir, "give the directory".into(), OPERATIONAL),
        (
            vec!["log", "ls", "--dir", text(&no_dir)],
            &no_dir,
            "give the directory".into(),
            OPERATIONAL,
        ),
    ];
    for (words, about, what_to_do, code) in cases {
        check(&Case { words, about: text(about), what_to_do, code });
    }
}

#[test]
fn a_wrong_command_line_says_what_can_be_said() {
    let place = scratch_dir();
    let (volume, dir) = (place.path().join("v"), place.path().join("d"));
    let mount = |options| onejournal(["mount", "-o", options, text(&volume), text(&dir)]);
    mount("frobnicate").refused(USAGE, "onejournal mount -o help");
    mount("journal_frobnicate=1").refused(USAGE, "onejournal mount -o help");
    mount("atomic_writes,ro").refused(USAGE, "leave one of them out");
    let which = onejournal(["log", "ls"]);
    which.refused(USAGE, "--dir DIR");
    which.refused(USAGE, "--socket DIR/socket");
    let help = onejournal(["mount", "-o", "help"]).good();
    let starts = ["Usual options:\nro, rw  ", "Expert options:\n", "Options for measurements:\n"];
    let places: Vec<_> = starts.iter().map(|start| help.find(start)).collect();
    assert!(places.is_sorted() && places[0] == Some(0), "{help}");
    let options: Vec<&str> =
        help.lines().filter(|line| !line.is_empty() && !line.ends_with(':')).collect();
    assert!(options.len() > 20 && options.iter().all(|line| line.contains("  ")), "{help}");
    for option in ["data=", "commit=", "journal=", "takeover", "metrics=", "journal_latency="] {
        assert_eq!(help.lines().filter(|line| line.starts_with(option)).count(), 1, "{help}");
    }
}

/// Makes a log with one stream, `there`, of one record; its shared memory goes away with the
/// result.
fn make_log(dir: &Path) -> tempfile::TempDir {
    let memory = tmpfs_dir();
    let options = log::Options { memory: memory.path().into(), ..log::Options::default() };
    let log = log::Log::open(dir, &options).unwrap();
    let stream = log.stream("there").unwrap();
    let lsn = stream.append(b"record").unwrap();
    stream.sync(lsn).unwrap();
    memory
}

#[test]
fn a_stream_that_is_missing_names_the_command_that_lists_them() {
    let place = scratch_dir();
    let dir = place.path().join("log");
    let _memory = make_log(&dir);
    let list = format!("onejournal log ls --dir {}", dir.display());
    for command in ["cat", "tail", "stat", "rm", "discard-damaged"] {
        let ran = onejournal(["log", command, "--dir", text(&dir), "none"]);
        ran.refused(OPERATIONAL, &list);
    }
}

/// Runs the command with a standard output that has no reader, as `| head` leaves it.
fn unread(words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(ONEJOURNAL);
    command.args(words).stdin(Stdio::null()).stdout(unread_pipe()).stderr(Stdio::piped());
    let child = spawn(&mut command).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_reader_that_has_seen_enough_hears_no_complaint() {
    let place = scratch_dir();
    let (dir, volume) = (place.path().join("log"), place.path().join("volume"));
    let _memory = make_log(&dir);
    for words in [
        vec!["log", "ls", "--dir", text(&dir)],
        vec!["log", "cat", "--dir", text(&dir), "there"],
        vec!["log", "stat", "--dir", text(&dir)],
    ] {
        assert_eq!(unread(&words), (Some(128 + 13), String::new()), "{words:?}");
    }
    // These commands do their work all the same.
    let words = ["mkfs", "--size", "16M", "--journal-size", "4M", text(&volume)];
    assert_eq!(unread(&words), (Some(0), String::new()));
    assert_eq!(unread(&["fsck", text(&volume)]), (Some(0), String::new()));
    assert_eq!(unread(&["mount", "-o", "help"]), (Some(0), String::new()));
}

#[test]
fn mkfs_says_what_it_made_and_warns_of_missing_room() {
    let place = scratch_dir();
    let volume = place.path().join("volume");
    let said =
        onejournal(["mkfs", "--size", "64M", "--journal-size", "8M", "-L", "data", text(&volume)]);
    assert!(!said.err.contains("warning"), "{said:?}");
    let said = said.good();
    for word in ["64 MiB", "4 KiB", "label data", &format!("onejournal mount {}", volume.display())]
    {
        assert!(said.contains(word), "no {word} in {said}");
    }
    let room = rustix::fs::statvfs(place.path()).unwrap();
    let too_large = ((room.f_bavail * room.f_frsize) >> 20) * 2;
    let volume = place.path().join("sparse");
    let ran = onejournal(["mkfs", "--size", &format!("{too_large}M"), text(&volume)]);
    ran.ended(0);
    let take = format!("fallocate -l {} {}", too_large << 20, volume.display());
    assert!(ran.err.contains("warning") && ran.err.contains(&take), "{ran:?}");
}
