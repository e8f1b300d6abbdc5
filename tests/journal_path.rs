//! `-o journal=PATH`: the journal on NVRAM (a file on tmpfs here) or on another device or file.

use crate::support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use onejournal_testing::has_program;
use support::{Loop, Partition, Scratch, has_nodes, onejournal, system, text};
use tempfile::TempDir;

/// A path on tmpfs, in a directory that is removed in the end.
struct OnTmpfs {
    path: PathBuf,
    _dir: TempDir,
}

impl OnTmpfs {
    fn new() -> OnTmpfs {
        let dir = support::tmpfs_dir();
        OnTmpfs { path: dir.path().join("journal"), _dir: dir }
    }

    fn options(&self) -> String {
        let path = self.path.display();
        format!("journal={path},journal_size=8M,durability=process,commit=300,data=journal")
    }
}

fn mount(scratch: &Scratch, options: &str) -> support::Ran {
    let (image, dir) = (scratch.image(), scratch.dir());
    onejournal(["mount", "-o", options, image.to_str().unwrap(), dir.to_str().unwrap()])
}

fn fsck(image: &Path, more: &[&str]) -> support::Ran {
    let mut arguments = vec!["fsck"];
    arguments.extend_from_slice(more);
    arguments.push(image.to_str().unwrap());
    onejournal(arguments)
}

#[test]
fn a_killed_mount_is_recovered_from_nvram() {
    let Some(mut scratch) = Scratch::new() else { return };
    let journal = OnTmpfs::new();
    scratch.mount(&journal.options());
    let home_flushes = scratch.counter("device_flushes");
    for index in 0..20 {
        scratch.write_synced(&format!("f{index}"));
    }
    assert_eq!(scratch.stat()["durability"], "process");
    assert_eq!(scratch.counter("device_flushes"), home_flushes, "no flush of the volume");
    scratch.kill();

    let image = scratch.image();
    let before = fs::read(&image).unwrap();
    mount(&scratch, "commit=300").refused(8, "-o journal=PATH");
    let other = OnTmpfs::new();
    mount(&scratch, &other.options()).refused(8, "the journal given is empty");
    fsck(&image, &[]).refused(8, "--journal PATH");
    for how in ["-fn", "-fp", "-fy"] {
        assert!(system("e2fsck", [how, image.to_str().unwrap()]).code.unwrap() >= 8);
    }
    assert!(fs::read(&image).unwrap() == before, "somebody has written");

    scratch.mount(&journal.options());
    for index in 0..20 {
        let name = format!("f{index}");
        assert_eq!(fs::read_to_string(scratch.path(&name)).unwrap(), name);
    }
    scratch.umount();
    scratch.check();
    // An ordinary volume: without the journal, too.
    scratch.mount("commit=300");
    assert!(scratch.path("f19").exists());
    scratch.close_and_check();
}

#[test]
fn a_read_only_mount_becomes_writable_with_the_journal_that_it_was_given() {
    let Some(mut scratch) = Scratch::new() else { return };
    let journal = OnTmpfs::new();
    scratch.mount(&format!("ro,{}", journal.options()));
    fs::write(scratch.path("f"), "f").unwrap_err();
    mount(&scratch, "remount,rw").good();
    let home_flushes = scratch.counter("device_flushes");
    scratch.write_synced("f");
    assert_eq!(scratch.counter("device_flushes"), home_flushes, "no flush of the volume");
    scratch.kill();
    mount(&scratch, "commit=300").refused(8, "-o journal=PATH");
    scratch.mount(&journal.options());
    assert_eq!(fs::read_to_string(scratch.path("f")).unwrap(), "f");
    scratch.close_and_check();
}

#[test]
fn fsck_and_dump_take_the_journal() {
    let Some(mut scratch) = Scratch::new() else { return };
    let journal = OnTmpfs::new();
    scratch.mount(&journal.options());
    scratch.write_synced("f");
    scratch.kill();
    let (image, path) = (scratch.image(), journal.path.to_str().unwrap());
    let dumped = onejournal(["dump", "--journal", path, image.to_str().unwrap()]).good();
    assert!(dumped.contains("transaction "), "{dumped}");
    onejournal(["dump", image.to_str().unwrap()]).refused(8, "elsewhere");
    fsck(&image, &["-n", "--journal", path]).ended(4);
    fsck(&image, &["--journal", path]).ended(1);
    scratch.mount("commit=300");
    assert_eq!(fs::read_to_string(scratch.path("f")).unwrap(), "f");
    scratch.close_and_check();
}

/// The journal's header has the number of regions. A new incarnation makes as many as have room.
#[test]
fn a_small_journal_is_recovered_with_any_number_of_regions() {
    let Some(mut scratch) = Scratch::new() else { return };
    let journal = OnTmpfs::new();
    let path = journal.path.to_str().unwrap();
    let made = File::create(&journal.path).unwrap();
    made.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    made.set_len(2 << 20).unwrap(); // Room for three regions.
    let options = format!("journal={path},durability=process,commit=300");
    for (regions, by_fsck) in [("2", true), ("2", false), ("3", true), ("3", false)] {
        let name = format!("{regions}-{by_fsck}");
        scratch.mount(&format!("{options},regions={regions}"));
        scratch.write_synced(&name);
        scratch.kill();
        let dumped = onejournal(["dump", "--journal", path, text(&scratch.image())]).good();
        assert!(dumped.contains(&format!("regions     {regions} of")), "{dumped}");
        if by_fsck {
            let ran = fsck(&scratch.image(), &["--journal", path]);
            ran.ended(1);
            scratch.check();
        }
        scratch.mount(&options);
        assert_eq!(fs::read_to_string(scratch.path(&name)).unwrap(), name);
        scratch.umount();
        scratch.check();
    }
}

#[test]
fn a_lost_journal_can_be_given_up() {
    let Some(mut scratch) = Scratch::new() else { return };
    let journal = OnTmpfs::new();
    scratch.mount(&journal.options());
    scratch.write_synced("f");
    scratch.kill();
    fs::remove_file(&journal.path).unwrap();
    let image = scratch.image();
    fsck(&image, &["-y"]).refused(8, "--journal-lost");
    fsck(&image, &["--journal-lost"]).refused(16, "-y");
    let given_up = fsck(&image, &["-y", "--journal-lost"]);
    given_up.ended(1);
    scratch.check();
    scratch.mount("commit=300");
    assert!(!scratch.path("f").exists());
    scratch.close_and_check();
}

#[test]
fn an_old_copy_of_the_journal_is_refused() {
    let Some(mut scratch) = Scratch::new() else { return };
    let (journal, copy) = (OnTmpfs::new(), OnTmpfs::new());
    scratch.mount(&journal.options());
    scratch.write_synced("old");
    fs::copy(&journal.path, &copy.path).unwrap();
    scratch.umount();
    scratch.mount(&journal.options());
    fs::remove_file(scratch.path("old")).unwrap();
    scratch.write_synced("new");
    scratch.kill();
    let (image, path) = (scratch.image(), copy.path.to_str().unwrap());
    mount(&scratch, &copy.options()).refused(8, "old copy");
    fsck(&image, &["--journal", path]).refused(8, "fsck -y --journal-lost");
    onejournal(["dump", "--journal", path, image.to_str().unwrap()]).refused(8, "old copy");
    scratch.mount(&journal.options());
    assert!(scratch.path("new").exists() && !scratch.path("old").exists());
    scratch.close_and_check();
}

#[test]
fn a_journal_in_a_file_and_on_a_device() {
    let Some(mut scratch) = Scratch::new() else { return };
    let file = scratch.root().join("journal");
    let of_file = format!("journal={},journal_size=8M,commit=300", file.display());
    let on_device = scratch.root().join("device");
    File::create(&on_device).unwrap().set_len(8 << 20).unwrap();
    let device = Loop::attach(&on_device);
    let of_device = format!("journal={},commit=300", device.path.display());
    for (options, name, is_found) in [(of_file, "a", false), (of_device, "b", true)] {
        scratch.mount(&options);
        scratch.write_synced(name);
        scratch.kill();
        // One on a device is found, and then serves the next mount, too.
        let next = if is_found { "commit=300" } else { &options };
        if !is_found {
            mount(&scratch, "commit=300").refused(8, "elsewhere");
        }
        scratch.mount(next);
        assert_eq!(fs::read_to_string(scratch.path(name)).unwrap(), name);
        scratch.umount();
        scratch.check();
        // It is the journal of one mount, and the volume was closed.
        scratch.mount("commit=300");
        assert!(scratch.stat()["journal_target"].is_null());
        scratch.umount();
    }
}

#[test]
fn a_file_that_is_not_this_volumes_journal_is_refused() {
    let (Some(mut scratch), Some(another)) = (Scratch::new(), Scratch::new()) else { return };
    let journal = OnTmpfs::new();
    scratch.mount(&journal.options());
    mount(&another, &journal.options()).refused(8, "in use");
    scratch.umount();
    mount(&another, &journal.options()).refused(8, "belongs to volume");
    another.check();

    let options = |path: &Path, more: &str| format!("journal={}{more}", path.display());
    let image = another.image();
    mount(&scratch, &options(&image, "")).refused(8, "not a journal of OneJournal");
    another.check();
    let missing = scratch.root().join("missing");
    mount(&scratch, &options(&missing, "")).refused(8, "journal_size=");
    mount(&scratch, &options(&missing, ",journal_size=8M,journal_latency=100"))
        .refused(8, "not NVRAM");
    assert!(!missing.exists());
    let unsaid = OnTmpfs::new();
    mount(&scratch, &options(&unsaid.path, ",journal_size=8M")).refused(8, "durability=process");
    assert!(!unsaid.path.exists());
    scratch.check();
}

#[test]
fn slower_memory_is_slower_and_a_small_journal_is_reused() {
    let Some(mut scratch) = Scratch::new() else { return };
    let journal = OnTmpfs::new();
    scratch.mount(&journal.options()); // Writes the whole journal once, without the latency.
    scratch.remount(&format!("{},regions=2,journal_latency=100000", journal.options()));
    let started = std::time::Instant::now();
    scratch.write_synced("f");
    // At least three lines of a tenth of a millisecond.
    assert!(started.elapsed() >= std::time::Duration::from_micros(300));
    scratch.remount(&format!("{},regions=2", journal.options()));
    for _ in 0..10 {
        fs::write(scratch.path("large"), vec![7; 4 << 20]).unwrap();
        File::open(scratch.path("large")).unwrap().sync_all().unwrap();
    }
    assert!(scratch.counter("checkpoints") > 2);
    scratch.close_and_check();
}

/// Their flushes empty one cache; `crates/journal/tests/it/flushes.rs` has what follows from it.
#[test]
fn a_journal_on_another_partition_of_the_volumes_disk() {
    let Some(mut scratch) = Scratch::empty() else { return };
    if !has_program("addpart") {
        return;
    }
    let file = scratch.root().join("disk");
    File::create(&file).unwrap().set_len(96 << 20).unwrap();
    let disk = Loop::attach(&file);
    let partitions = (Partition::add(&disk.path, 1, 1, 64), Partition::add(&disk.path, 2, 70, 16));
    let (volume, journal) = (partitions.0.path(), partitions.1.path());
    if !has_nodes([&volume, &journal]) {
        return;
    }
    onejournal(["mkfs", volume.to_str().unwrap()]).good();
    let options = format!("journal={},commit=300", journal.display());
    scratch.mount_target(&volume, &options);
    scratch.write_synced("f");
    scratch.kill();
    scratch.mount_target(&volume, &options);
    assert_eq!(fs::read_to_string(scratch.path("f")).unwrap(), "f");
    scratch.umount();
    support::check_clean(&volume);
}

/// A zero-filled file of another user was made the journal, also through a link of theirs: they
/// could then read and change what had been written last.
#[test]
fn regression_a_journal_that_others_made_or_can_write_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
    const STRANGER: Option<u32> = Some(support::OTHER_USER);
    let Some(mut scratch) = Scratch::new() else { return };
    for directory in [scratch.root().to_owned(), support::tmpfs_dir().keep()] {
        let at = |name: &str| directory.join(name);
        let make = |name: &str, owner: Option<u32>, mode: u32| {
            File::create(at(name)).unwrap().set_len(8 << 20).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            chown(at(name), owner, None).unwrap();
        };
        make("strangers", STRANGER, 0o600);
        make("open", None, 0o622);
        make("own", None, 0o600);
        symlink(at("own"), at("link")).unwrap();
        symlink(at("own"), at("strangers-link")).unwrap();
        symlink("strangers-link", at("link-to-it")).unwrap();
        lchown(at("strangers-link"), STRANGER, None).unwrap();
        let options =
            |name: &str| format!("journal={},durability=process,commit=300", at(name).display());
        for (name, why) in [
            ("strangers", "chown 0 "),
            ("open", "chmod go-w "),
            ("strangers-link", "symbolic link of user 65534"),
            ("link-to-it", "symbolic link of user 65534"),
        ] {
            let ran = mount(&scratch, &options(name));
            ran.refused(8, why);
            assert_eq!(ran.err.matches(&format!("onejournal: {}", at(name).display())).count(), 1);
            let journal = at(name);
            fsck(&scratch.image(), &["--journal", journal.to_str().unwrap()]).refused(8, why);
            let bytes = fs::read(at(name)).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0), "{name} was written to");
        }
        // Through one's own link; and the file of him whose image it is.
        scratch.mount(&options("link"));
        scratch.umount();
        chown(scratch.image(), STRANGER, None).unwrap();
        scratch.mount(&options("strangers"));
        scratch.umount();
        chown(scratch.image(), Some(0), None).unwrap();
        scratch.check();
        if directory != scratch.root() {
            fs::remove_dir_all(directory).unwrap();
        }
    }
}
