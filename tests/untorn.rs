//! Untorn writes, mounted: what the mount and its files say about them, the declaration that a file
//! needs them, and everything that would break it. That they are never torn is tested in
//! `write_requests.rs`, `crates/ext4/tests/it/untorn.rs` and by crash enumeration.

use crate::support;

use std::fs::{self, File};
use std::path::Path;

use onejournal_testing::has_program;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde_json::Value;
use support::{Loop, Scratch, TempMount, onejournal, system, text};

const OPERATIONAL: i32 = 8;
const USAGE: i32 = 16;
const DECLARED: &str = "user.onejournal.atomic";
const HOLDS: &str = "user.onejournal.atomic_write_bytes";
const OF_VOLUME: &str = "user.onejournal.atomic_volume";
const MODE: &str = "user.onejournal.data";

/// A volume whose regions hold 1 MiB wherever its blocks are, not mounted.
fn scratch() -> Option<Scratch> {
    with_journal("32M")
}

fn with_journal(size: &str) -> Option<Scratch> {
    let scratch = Scratch::empty()?;
    let image = scratch.image();
    onejournal(["mkfs", "--size", "128M", "--journal-size", size, text(&image)]).good();
    Some(scratch)
}

fn mounted(options: &str) -> Option<Scratch> {
    let mut scratch = scratch()?;
    scratch.mount(options);
    Some(scratch)
}

fn attribute(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = [0; 100];
    let len_bytes = rustix::fs::getxattr(path, name, value.as_mut_slice())?;
    Ok(String::from_utf8(value[..len_bytes].to_vec()).unwrap())
}

fn set_attribute(path: &Path, name: &str, value: &str) -> Result<(), Errno> {
    rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty())
}

/// What `get-mode` shows of the file.
#[track_caller]
fn mode_of(path: &Path) -> String {
    let shown = onejournal(["get-mode", text(path)]).good();
    shown.split('\t').next().unwrap().to_string()
}

#[track_caller]
fn file_stat(path: &Path) -> Value {
    serde_json::from_str(&onejournal(["stat", "--json", text(path)]).good()).unwrap()
}

#[track_caller]
fn declare(scratch: &Scratch, size: &str, name: &str) {
    onejournal(["set-mode", &format!("--atomic={size}"), text(&scratch.path(name))]).good();
}

/// The mount is refused, and says `words`; the volume stays clean.
#[track_caller]
fn refused_mount(scratch: &Scratch, options: &str, words: &[&str]) {
    let (image, dir) = (scratch.image(), scratch.dir());
    let ran = onejournal(["mount", "-o", options, text(&image), text(&dir)]);
    words.iter().for_each(|word| ran.refused(OPERATIONAL, word));
    // After a crash, the recovery has a line before it.
    let line = ran.err.trim_end().lines().last().unwrap_or_default();
    assert!(line.starts_with(&format!("onejournal: {}: files on it", image.display())), "{line}");
    scratch.check();
}

#[test]
fn the_mount_and_its_files_say_which_writes_are_atomic() {
    let Some(mut scratch) = scratch() else { return };
    for (options, bytes, words) in [
        ("order=history", 512 << 10, "aligned writes of up to 512 KiB"),
        ("order=history,data=delta", 512 << 10, "aligned writes of up to 512 KiB"),
        ("order=history,regions=16", 256 << 10, "aligned writes of up to 256 KiB"),
        ("order=history,data=ordered", 0, "none by default (data=ordered)"),
        ("order=sync", 0, "none (order=sync)"),
    ] {
        scratch.mount(options);
        fs::write(scratch.path("file"), "x").unwrap();
        assert_eq!(scratch.counter("atomic_write_bytes"), bytes, "{options}");
        assert_eq!(scratch.counter("atomic_declared_bytes"), 0, "{options}");
        let summary = onejournal(["stat", text(&scratch.dir())]).good();
        assert!(summary.contains(words), "{options}: {summary}");
        for name in ["file", "."] {
            let shown = attribute(&scratch.path(name), HOLDS).unwrap();
            assert_eq!(shown, bytes.to_string(), "{options}, {name}");
        }
        assert_eq!(file_stat(&scratch.path("file"))["atomic_write_bytes"], bytes, "{options}");
        // It is not listed, and cannot be set.
        assert_eq!(set_attribute(&scratch.path("file"), HOLDS, "4096"), Err(Errno::PERM));
        assert_eq!(rustix::fs::removexattr(scratch.path("file"), HOLDS), Err(Errno::PERM));
        let mut names = [0; 100];
        let len_bytes = rustix::fs::listxattr(scratch.path("file"), &mut names).unwrap();
        assert_eq!(len_bytes, 0, "{options}");
        scratch.umount();
    }
    scratch.mount("ro,order=history");
    assert_eq!(scratch.counter("atomic_write_bytes"), 0);
    assert_eq!(attribute(&scratch.path("file"), HOLDS).unwrap(), "0");
    scratch.close_and_check();
}

#[test]
fn a_file_of_another_mode_says_so() {
    let Some(scratch) = mounted("order=history,data=ordered") else { return };
    let file = scratch.path("file");
    fs::write(&file, "x").unwrap();
    for (mode, bytes) in [("delta", "524288"), ("selective", "0"), ("auto", "524288")] {
        onejournal(["set-mode", mode, text(&file)]).good();
        assert_eq!(attribute(&file, HOLDS).unwrap(), bytes, "{mode}");
    }
    scratch.close_and_check();
}

#[test]
fn a_declaration_is_inherited_shown_and_durable() {
    let Some(mut scratch) = mounted("order=history,commit=300") else { return };
    fs::create_dir(scratch.path("db")).unwrap();
    declare(&scratch, "16K", "db");
    scratch.kill();
    scratch.mount("order=history");
    fs::create_dir(scratch.path("db/below")).unwrap();
    fs::write(scratch.path("db/below/file"), "x").unwrap();
    fs::write(scratch.path("beside"), "x").unwrap();
    for name in ["db", "db/below", "db/below/file"] {
        assert_eq!(mode_of(&scratch.path(name)), "auto atomic=16384", "{name}");
        assert_eq!(attribute(&scratch.path(name), DECLARED).unwrap(), "16384", "{name}");
    }
    assert_eq!(mode_of(&scratch.path("beside")), "auto");
    assert_eq!(attribute(&scratch.path("beside"), DECLARED), Err(Errno::NODATA));
    assert_eq!(file_stat(&scratch.path("db/below/file"))["atomic_declared_bytes"], 16384);
    let shown = onejournal(["stat", text(&scratch.path("db/below/file"))]).good();
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).map(str::to_string);
    for (name, bytes) in [("atomic_write_bytes", "524288"), ("atomic_declared_bytes", "16384")] {
        assert!(line(name).is_some_and(|line| line.ends_with(bytes)), "{shown}");
    }
    assert_eq!(file_stat(&scratch.path("beside"))["atomic_declared_bytes"], 0);
    assert_eq!(scratch.counter("atomic_declared_bytes"), 16384);
    let summary = onejournal(["stat", text(&scratch.dir())]).good();
    assert!(summary.contains("files were declared to need 16 KiB"), "{summary}");
    // Without a size it is enough for any database.
    onejournal(["set-mode", "--atomic", text(&scratch.path("beside"))]).good();
    assert_eq!(mode_of(&scratch.path("beside")), "auto atomic=65536");
    onejournal(["set-mode", "--no-atomic", text(&scratch.path("beside"))]).good();
    onejournal(["set-mode", "--no-atomic", text(&scratch.path("beside"))]).good();
    assert_eq!(mode_of(&scratch.path("beside")), "auto");
    scratch.close_and_check();
}

#[test]
fn a_mode_that_tears_is_refused_at_every_door() {
    let Some(scratch) = mounted("order=history") else { return };
    let file = scratch.path("file");
    fs::write(&file, "x").unwrap();
    fs::create_dir(scratch.path("dir")).unwrap();
    for name in ["file", "dir"] {
        let path = scratch.path(name);
        declare(&scratch, "8K", name);
        for mode in ["ordered", "selective", "writeback"] {
            let ran = onejournal(["set-mode", mode, text(&path)]);
            ran.refused(OPERATIONAL, &format!("set-mode --no-atomic {}", path.display()));
            ran.refused(OPERATIONAL, "8192 bytes");
            assert_eq!(set_attribute(&path, MODE, mode), Err(Errno::OPNOTSUPP), "{mode}");
        }
        for mode in ["journal", "wasteless", "delta", "auto", "default"] {
            onejournal(["set-mode", mode, text(&path)]).good();
        }
        assert_eq!(mode_of(&path), "auto atomic=8192");
    }
    // Under `chattr +j` the attribute does not count. When the flag goes, it would.
    onejournal(["set-mode", "--no-atomic", text(&file)]).good();
    onejournal(["set-mode", "ordered", text(&file)]).good();
    system("chattr", ["+j", text(&file)]).good();
    declare(&scratch, "8K", "file");
    assert_eq!(mode_of(&file), "journal atomic=8192");
    assert_ne!(system("chattr", ["-j", text(&file)]).code, Some(0));
    assert_eq!(mode_of(&file), "journal atomic=8192");
    onejournal(["set-mode", "default", text(&file)]).good();
    system("chattr", ["-j", text(&file)]).good();
    assert_eq!(mode_of(&file), "auto atomic=8192");
    scratch.close_and_check();
}

/// A default that tears is not for them.
#[test]
fn a_declared_file_keeps_the_promise_whatever_the_default_is() {
    let Some(mut scratch) = mounted("order=history") else { return };
    fs::create_dir(scratch.path("db")).unwrap();
    fs::write(scratch.path("other"), "x").unwrap();
    declare(&scratch, "64K", "db");
    for mode in ["ordered", "selective", "writeback", "journal"] {
        scratch.remount(&format!("order=history,data={mode}"));
        let file = scratch.path(&format!("db/{mode}"));
        fs::write(&file, "x").unwrap();
        let kept = if mode == "journal" { "journal" } else { "auto" };
        assert_eq!(mode_of(&file), format!("{kept} atomic=65536"));
        assert_eq!(attribute(&file, HOLDS).unwrap(), "524288", "{mode}");
        assert_eq!(mode_of(&scratch.path("other")), mode);
        onejournal(["set-mode", "--no-atomic", text(&file)]).good();
        assert_eq!(mode_of(&file), mode);
    }
    scratch.close_and_check();
}

#[test]
fn a_size_that_does_not_hold_cannot_be_declared() {
    let Some(mut scratch) = with_journal("4M") else { return };
    scratch.mount("order=sync");
    let file = scratch.path("file");
    fs::write(&file, "x").unwrap();
    let atomic = |size: &str| onejournal(["set-mode", &format!("--atomic={size}"), text(&file)]);
    atomic("4K").refused(OPERATIONAL, "mount with order=history");
    assert_eq!(set_attribute(&file, DECLARED, "4096"), Err(Errno::OPNOTSUPP));
    assert_eq!(attribute(&file, DECLARED), Err(Errno::NODATA));
    scratch.remount("order=history");
    assert_eq!(scratch.counter("atomic_declared_bytes"), 0, "nothing was declared");
    atomic("64K").good();
    atomic("128K").refused(OPERATIONAL, "fewer regions= or a larger journal");
    atomic("128K").refused(OPERATIONAL, "declare less: --atomic=65536");
    atomic("1M").refused(OPERATIONAL, "at most 524288 bytes");
    assert_eq!(mode_of(&file), "auto atomic=65536", "as before");
    onejournal(["set-mode", "--no-atomic", text(&file)]).good();
    onejournal(["set-mode", "ordered", text(&file)]).good();
    atomic("4K").refused(OPERATIONAL, &format!("set-mode auto {}", file.display()));
    for size in ["5000", "2K", "2M", "x"] {
        atomic(size).refused(USAGE, "atomic");
    }
    for value in ["", "4K", "yes", "12288"] {
        assert_eq!(set_attribute(&file, DECLARED, value), Err(Errno::INVAL), "{value:?}");
    }
    onejournal(["set-mode", "--atomic", text(&std::env::temp_dir())])
        .refused(OPERATIONAL, "is not on a mounted OneJournal volume");
    onejournal(["set-mode", "--atomic", "--no-atomic", text(&file)])
        .refused(USAGE, "cannot be used");
    onejournal(["set-mode", "delta"]).refused(USAGE, "files");
    scratch.close_and_check();
}

#[test]
fn a_mount_that_would_tear_is_refused() {
    let Some(mut scratch) = mounted("order=history") else { return };
    fs::write(scratch.path("file"), "x").unwrap();
    declare(&scratch, "512K", "file");
    scratch.umount();
    refused_mount(
        &scratch,
        "order=sync",
        &["mount with order=history", "may_tear", "524288 bytes"],
    );
    refused_mount(&scratch, "order=sync,noxattr", &["mount with order=history"]);
    refused_mount(&scratch, "order=history,regions=16", &["regions=", "gives 262144"]);
    // There is nothing to tear.
    scratch.mount("ro,order=sync");
    assert_eq!(mode_of(&scratch.path("file")), "auto atomic=524288");
    scratch.umount();
    scratch.mount("order=history,data=writeback");
    scratch.umount();
    // A volume that was not closed is refused, too, and can be mounted as it has to be.
    scratch.mount("order=history");
    scratch.write_synced("synced");
    scratch.kill();
    refused_mount(&scratch, "order=sync", &["mount with order=history"]);
    scratch.mount("order=history");
    assert_eq!(fs::read(scratch.path("synced")).unwrap(), b"synced");
    scratch.close_and_check();
}

/// The journal is elsewhere, and smaller than the one in the volume that the file was declared
/// with.
#[test]
fn a_smaller_journal_elsewhere_is_refused() {
    let Some(mut scratch) = mounted("order=history") else { return };
    fs::write(scratch.path("file"), "x").unwrap();
    declare(&scratch, "512K", "file");
    scratch.umount();
    let nvram = support::tmpfs_dir();
    let journal = |name: &str, size: &str| {
        let path = nvram.path().join(name);
        format!("durability=process,journal={},journal_size={size}", path.display())
    };
    let words = ["larger journal", "gives 262144", "may_tear"];
    refused_mount(&scratch, &journal("small", "8M"), &words);
    // Neither the refusal nor its new journal stays with the volume.
    scratch.mount("order=history");
    scratch.remount(&journal("large", "32M"));
    assert_eq!(scratch.counter("atomic_write_bytes"), 512 << 10);
    assert_eq!(file_stat(&scratch.path("file"))["atomic_write_bytes"], 512 << 10);
    scratch.remount(&format!("{},may_tear", journal("small", "8M")));
    assert_eq!(scratch.counter("atomic_write_bytes"), 256 << 10);
    scratch.umount();
    let small = scratch.root().join("small");
    File::create(&small).unwrap().set_len(8 << 20).unwrap();
    let device = Loop::attach(&small);
    onejournal(["set-journal", text(&scratch.image()), text(&device.path)]).good();
    refused_mount(&scratch, "order=history", &words);
    scratch.mount("order=history,journal=internal");
    assert_eq!(scratch.counter("atomic_write_bytes"), 512 << 10);
    scratch.close_and_check();
}

/// A name is no way to another mode: the inode keeps what it has.
#[test]
fn renames_and_links_change_no_declaration() {
    let Some(scratch) = mounted("order=history") else { return };
    for name in ["db", "ordered"] {
        fs::create_dir(scratch.path(name)).unwrap();
    }
    declare(&scratch, "16K", "db");
    onejournal(["set-mode", "ordered", text(&scratch.path("ordered"))]).good();
    for name in ["db/file", "db/linked", "db/replaced", "ordered/file", "plain"] {
        fs::write(scratch.path(name), "x").unwrap();
    }
    let rename = |from: &str, to: &str| fs::rename(scratch.path(from), scratch.path(to)).unwrap();
    rename("db/file", "ordered/moved");
    fs::hard_link(scratch.path("db/linked"), scratch.path("ordered/linked")).unwrap();
    rename("ordered/file", "db/replaced");
    rename("plain", "db/plain");
    for (name, expected) in [
        ("ordered/moved", "auto atomic=16384"),
        ("ordered/linked", "auto atomic=16384"),
        ("db/replaced", "ordered"),
        ("db/plain", "auto"),
    ] {
        assert_eq!(mode_of(&scratch.path(name)), expected, "{name}");
    }
    assert_eq!(attribute(&scratch.path("ordered/moved"), HOLDS).unwrap(), "524288");
    assert_eq!(attribute(&scratch.path("db/replaced"), HOLDS).unwrap(), "0");
    // A directory that is moved takes its declaration along, for its new files as well.
    rename("db", "ordered/db");
    fs::write(scratch.path("ordered/db/new"), "x").unwrap();
    assert_eq!(mode_of(&scratch.path("ordered/db/new")), "auto atomic=16384");
    scratch.close_and_check();
}

#[test]
fn a_mount_with_may_tear_may_tear_declared_files() {
    let Some(mut scratch) = mounted("order=history") else { return };
    fs::write(scratch.path("file"), "x").unwrap();
    declare(&scratch, "16K", "file");
    scratch.umount();
    let (image, dir) = (scratch.image(), scratch.dir());
    let ran = onejournal(["mount", "-o", "order=sync,may_tear", text(&image), text(&dir)]);
    scratch.adopt();
    assert!(ran.err.contains("mounted with may_tear"), "it warns: {ran:?}");
    ran.good();
    assert_eq!(attribute(&scratch.path("file"), HOLDS).unwrap(), "0");
    // Nothing else changes: the file stays declared, and its rules hold.
    assert_eq!(mode_of(&scratch.path("file")), "auto atomic=16384");
    onejournal(["set-mode", "ordered", text(&scratch.path("file"))])
        .refused(OPERATIONAL, "--no-atomic");
    scratch.umount();
    refused_mount(&scratch, "order=sync", &["may_tear"]);
    // Where nothing is torn, the option changes nothing.
    scratch.mount("order=history,may_tear");
    assert_eq!(attribute(&scratch.path("file"), HOLDS).unwrap(), "524288");
    scratch.close_and_check();
}

#[test]
fn a_volume_forgets_when_it_is_told_to() {
    let Some(mut scratch) = mounted("order=history") else { return };
    let (file, root) = (scratch.path("file"), scratch.dir());
    fs::write(&file, "x").unwrap();
    declare(&scratch, "16K", "file");
    onejournal(["set-mode", "--no-atomic", text(&file)]).good();
    scratch.umount();
    refused_mount(&scratch, "order=sync", &["may_tear"]);
    scratch.mount("order=history");
    assert_eq!(attribute(&root, OF_VOLUME).unwrap(), "16384");
    assert_eq!(set_attribute(&root, OF_VOLUME, "4096"), Err(Errno::PERM));
    if let Some(mut peer) = support::Peer::as_user(&root, 1000, 1000) {
        std::os::unix::fs::chown(&file, Some(1000), Some(1000)).unwrap();
        // The owner of a file, another user than the owner of the root directory.
        peer.fails(Errno::PERM, &format!("os.removexattr('file', '{OF_VOLUME}')"));
    }
    onejournal(["set-mode", "--forget-atomic", text(&root)]).good();
    assert_eq!(attribute(&root, OF_VOLUME), Err(Errno::NODATA));
    assert_eq!(scratch.counter("atomic_declared_bytes"), 0);
    scratch.remount("order=sync");
    scratch.close_and_check();
}

/// Any user who may write a file could make the volume refuse another user's mounts.
#[test]
fn regression_only_the_owner_of_the_volume_declares_a_size_first() {
    use std::os::unix::fs::chown;
    let Some(mut scratch) = mounted("order=history") else { return };
    let (file, other, root) = (scratch.path("file"), scratch.path("other"), scratch.dir());
    fs::write(&file, "x").unwrap();
    fs::write(&other, "x").unwrap();
    chown(&file, Some(1000), Some(1000)).unwrap();
    let set = |bytes: u64| format!("os.setxattr('file', '{DECLARED}', b'{bytes}')");
    let Some(mut peer) = support::Peer::as_user(&root, 1000, 1000) else { return };
    peer.fails(Errno::PERM, &set(4096));
    if has_program("setpriv") {
        // It may enter the directories of the program and of the test.
        let capabilities = ["--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"];
        let ids = ["--reuid=1000", "--regid=1000", "--clear-groups"];
        let program = [support::ONEJOURNAL, "set-mode", "--atomic=64K", text(&file)];
        system("setpriv", ids.into_iter().chain(capabilities).chain(program))
            .refused(OPERATIONAL, "the owner of the volume's root directory");
    }
    peer.fails(Errno::INVAL, &set(5000));
    drop(peer);
    assert_eq!(scratch.counter("atomic_declared_bytes"), 0);
    scratch.remount("order=sync");
    scratch.remount("order=history");
    // Users may declare a size that the volume remembers anyway.
    declare(&scratch, "16K", "other");
    let mut peer = support::Peer::as_user(&root, 1000, 1000).unwrap();
    peer.good(&set(16_384));
    peer.fails(Errno::PERM, &set(32_768));
    assert_eq!(mode_of(&file), "auto atomic=16384");
    // The owner of the root directory is the owner of the volume.
    chown(&root, Some(1000), Some(1000)).unwrap();
    peer.good(&set(32_768));
    drop(peer);
    assert_eq!(scratch.counter("atomic_declared_bytes"), 32_768);
    scratch.close_and_check();
}

/// Without extended attributes nothing can be declared. What was declared holds.
#[test]
fn declarations_hold_without_extended_attributes() {
    let Some(mut scratch) = mounted("order=history") else { return };
    fs::create_dir(scratch.path("db")).unwrap();
    declare(&scratch, "16K", "db");
    scratch.remount("order=history,noxattr,data=ordered");
    let (file, other) = (scratch.path("db/file"), scratch.path("other"));
    fs::write(&file, "x").unwrap();
    fs::write(&other, "x").unwrap();
    assert_eq!(mode_of(&file), "auto atomic=16384");
    assert_eq!(mode_of(&other), "ordered");
    assert_eq!(file_stat(&file)["atomic_write_bytes"], 512 << 10);
    assert_eq!(volume_client::virtual_attribute(&file, HOLDS), Ok(b"524288".to_vec()));
    assert_eq!(volume_client::virtual_attribute(&other, DECLARED), Err(Errno::NODATA));
    onejournal(["set-mode", "--atomic", text(&other)])
        .refused(OPERATIONAL, "mount without noxattr");
    scratch.remount("order=history");
    assert_eq!(attribute(&file, DECLARED).unwrap(), "16384");
    scratch.close_and_check();
}

/// A copy of a file takes its declaration along, if the other place can keep it.
#[test]
fn copies_are_declared_where_the_promise_holds() {
    let (Some(source), Some(mut target)) = (mounted("order=history"), scratch()) else { return };
    fs::write(source.path("file"), "content").unwrap();
    declare(&source, "16K", "file");
    let file = source.path("file");
    target.mount("order=sync");
    system("cp", ["-a", text(&file), text(&target.path("quiet"))]).good();
    let asked = system("cp", ["--preserve=xattr", text(&file), text(&target.path("asked"))]);
    assert!(asked.code != Some(0) && asked.err.contains("not supported"), "{asked:?}");
    for name in ["quiet", "asked"] {
        assert_eq!(fs::read(target.path(name)).unwrap(), b"content");
        assert_eq!(mode_of(&target.path(name)), "auto");
    }
    target.remount("order=history");
    system("cp", ["-a", text(&file), text(&target.path("copy"))]).good();
    assert_eq!(mode_of(&target.path("copy")), "auto atomic=16384");
    // A copy of all files does not make the copy's own directory anything.
    fs::create_dir(target.path("all")).unwrap();
    let all = format!("{}/.", source.dir().display());
    system("cp", ["-a", &all, text(&target.path("all"))]).good();
    assert_eq!(mode_of(&target.path("all")), "auto");
    target.umount();
    refused_mount(&target, "order=sync", &["may_tear"]);
    source.close_and_check();
}

#[test]
fn the_kernel_and_e2fsck_leave_declarations_alone() {
    let Some(mut scratch) = mounted("order=history") else { return };
    fs::write(scratch.path("file"), "x").unwrap();
    declare(&scratch, "16K", "file");
    scratch.umount();
    let dir = scratch.root().join("kernel");
    let kernel = TempMount::new(&["-t", "ext4", "-o", "loop", text(&scratch.image())], &dir);
    assert_eq!(attribute(&kernel.dir.join("file"), DECLARED).unwrap(), "16384");
    fs::write(kernel.dir.join("file"), "torn").unwrap();
    fs::write(kernel.dir.join("new"), "x").unwrap();
    File::open(kernel.dir.join("new")).unwrap().sync_all().unwrap();
    drop(kernel);
    let checked = system("e2fsck", ["-fyD", text(&scratch.image())]);
    assert!(checked.code.is_some_and(|code| code <= 1), "{checked:?}");
    refused_mount(&scratch, "order=sync", &["may_tear"]);
    scratch.mount("order=history");
    assert_eq!(mode_of(&scratch.path("file")), "auto atomic=16384");
    scratch.close_and_check();
}
