//! A volume with its own journal on another device: `mkfs --journal`, `set-journal`, and what
//! happens if the journal is lost, replaced, copied, full, or wanted by others.

use crate::support;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};

use mount::MountHandle;
use onejournal_testing::drive::{Disk, Emulator, Mounted, Parameters};
use onejournal_testing::has_program;
use rustix::fs::{Mode, OFlags};
use support::{
    Loop, ONEJOURNAL, Partition, Ran, Scratch, TempMount, check_clean, has_nodes, onejournal, run,
    system, text,
};

const OPERATIONAL: i32 = 8;
const USAGE: i32 = 16;
const OPTIONS: &str = "commit=300";

/// A volume in an image, and its journal on a loop device.
struct World {
    scratch: Scratch,
    journal: Option<Loop>,
}

impl World {
    #[track_caller]
    fn new() -> Option<World> {
        let scratch = Scratch::empty()?;
        let journal = device(&scratch, "journal", 8);
        let made = mkfs(&scratch, &["--journal", text(&journal.path)]).good();
        assert!(made.contains(&format!("MiB on {}", journal.path.display())), "{made}");
        Some(World { scratch, journal: Some(journal) })
    }

    fn journal(&self) -> &Path {
        &self.journal.as_ref().expect("it is attached").path
    }

    fn journal_file(&self) -> PathBuf {
        self.scratch.root().join("journal")
    }

    /// The journal's device is gone, and its bytes are not.
    fn detach(&mut self) {
        self.journal = None;
    }

    fn attach(&mut self) {
        self.journal = Some(Loop::attach(&self.journal_file()));
    }

    /// Mounts with no option about the journal; the journal is used.
    #[track_caller]
    fn mount(&mut self) {
        self.scratch.mount(OPTIONS);
        assert_eq!(self.scratch.stat()["journal_target"], text(self.journal()));
    }

    /// A synced file, and then the daemon is killed.
    #[track_caller]
    fn crash_with(&mut self, name: &str) {
        self.mount();
        self.scratch.write_synced(name);
        self.scratch.kill();
    }

    /// Mounts and finds the files.
    #[track_caller]
    fn has(&mut self, names: &[&str]) {
        self.mount();
        for name in names {
            assert_eq!(fs::read_to_string(self.scratch.path(name)).unwrap(), *name);
        }
        self.scratch.umount();
        self.scratch.check();
    }

    /// The refusal of a mount with no option about the journal. The image is not written to.
    #[track_caller]
    fn refused(&self, word: &str) -> Ran {
        let image = self.scratch.image();
        let before = fs::read(&image).unwrap();
        let ran = mount(&self.scratch, &image, OPTIONS);
        ran.refused(OPERATIONAL, word);
        assert!(ran.err.starts_with(&format!("onejournal: {}: ", image.display())), "{}", ran.err);
        assert!(!ran.err.contains("TARGET"), "{}", ran.err);
        assert!(fs::read(&image).unwrap() == before, "it was written to");
        ran
    }

    fn on_image(&self, words: &[&str]) -> Ran {
        let image = self.scratch.image();
        onejournal(words.iter().copied().chain([text(&image)]))
    }

    fn set_journal(&self, words: &[&str]) -> Ran {
        let image = self.scratch.image();
        onejournal(["set-journal", text(&image)].iter().copied().chain(words.iter().copied()))
    }
}

/// A loop device of zeros.
fn device(scratch: &Scratch, name: &str, size_mib: u64) -> Loop {
    let file = scratch.root().join(name);
    File::create(&file).unwrap().set_len(size_mib << 20).unwrap();
    Loop::attach(&file)
}

/// `mkfs` of the scratch image.
fn mkfs(scratch: &Scratch, more: &[&str]) -> Ran {
    let image = scratch.image();
    let words = ["mkfs", "--size", "64M"].iter().copied().chain(more.iter().copied());
    onejournal(words.chain([text(&image)]))
}

fn mount(scratch: &Scratch, target: &Path, options: &str) -> Ran {
    onejournal(["mount", "-o", options, text(target), text(&scratch.dir())])
}

#[test]
fn a_volume_finds_its_journal() {
    let Some(mut world) = World::new() else { return };
    check_clean(&world.scratch.image());
    world.crash_with("first");
    // All that need the journal find it.
    world.on_image(&["fsck", "-n"]).ended(4);
    let dumped = world.on_image(&["dump"]).good();
    let place = format!("journal     on {}", world.journal().display());
    assert!(dumped.contains(&place) && dumped.contains("transaction "), "{dumped}");
    let fsck = world.on_image(&["fsck"]);
    assert!(fsck.code == Some(1) && fsck.out.contains("recovered"), "{fsck:?}");
    world.crash_with("second");
    world.has(&["first", "second"]);
    let dumped = world.on_image(&["dump", "--json"]).good();
    let dumped: serde_json::Value = serde_json::from_str(&dumped).unwrap();
    assert_eq!(dumped["journal"], text(world.journal()));
    // To the kernel it is ext4 as any other. What the kernel writes keeps the record.
    let (image, dir) = (world.scratch.image(), world.scratch.root().join("kernel"));
    let kernel = TempMount::new(&["-t", "ext4", "-o", "loop", text(&image)], &dir);
    fs::write(dir.join("third"), "third").unwrap();
    drop(kernel);
    world.has(&["first", "second", "third"]);
}

#[test]
fn mount_and_fsck_of_the_system_find_it() {
    let Some(mut world) = World::new() else { return };
    let helper = |name: &str| {
        let link = world.scratch.root().join(name);
        symlink(ONEJOURNAL, &link).unwrap();
        link
    };
    let (mount, fsck) = (helper("mount.onejournal"), helper("fsck.onejournal"));
    let (image, dir) = (world.scratch.image(), world.scratch.dir());
    let with_journal = format!("noatime,x-systemd.requires={}", world.journal().display());
    let mount_it =
        || run(Command::new(&mount).args([text(&image), text(&dir), "-o", &with_journal]));
    mount_it().good();
    world.scratch.adopt();
    world.scratch.write_synced("f");
    world.scratch.kill();
    let recovered = run(Command::new(&fsck).args(["-a", text(&image)]));
    recovered.ended(1);
    mount_it().good();
    world.scratch.adopt();
    assert_eq!(world.scratch.stat()["journal_target"], text(world.journal()));
    world.scratch.umount();
    // A check at boot does not need the journal of a volume that was closed.
    world.detach();
    run(Command::new(&fsck).args(["-a", text(&image)])).ended(0);
    mount_it().refused(32, "no block device has its journal");
}

#[test]
fn a_lost_journal_of_a_closed_volume_is_missed_and_nothing_is_lost() {
    let Some(mut world) = World::new() else { return };
    world.crash_with("f");
    world.has(&["f"]);
    world.detach();
    let image = world.scratch.image();
    let said = world.refused("no block device has its journal").err;
    for word in [
        "Nothing is lost",
        "connect its disk",
        "-o journal=PATH",
        &format!("onejournal mount -o journal=internal {} DIR", image.display()),
        &format!("onejournal set-journal {} DEVICE", image.display()),
    ] {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    world.on_image(&["dump"]).refused(OPERATIONAL, "no block device has its journal");
    world.on_image(&["fsck"]).ended(0);
    let given_up = world.on_image(&["fsck", "-y", "--journal-lost"]);
    given_up.refused(OPERATIONAL, "set-journal --internal");
    // Reading needs no journal; for once the one in the volume does.
    world.scratch.mount("ro");
    assert_eq!(fs::read_to_string(world.scratch.path("f")).unwrap(), "f");
    world.scratch.umount();
    world.scratch.mount("commit=300,journal=internal");
    assert!(world.scratch.stat()["journal_target"].is_null());
    world.scratch.write_synced("inside");
    world.scratch.kill();
    // That crash needs no other journal either.
    world.on_image(&["fsck"]);
    check_clean(&image);
    world.refused("no block device has its journal");
    world.attach();
    world.has(&["f", "inside"]);
}

/// `mount -o remount,rw` of the scratch volume.
fn make_writable(scratch: &Scratch) -> Ran {
    mount(scratch, &scratch.image(), "remount,rw")
}

#[test]
fn a_volume_that_was_mounted_read_only_becomes_writable_with_its_journal() {
    let Some(mut world) = World::new() else { return };
    for name in ["first", "second"] {
        world.scratch.mount(&format!("ro,{OPTIONS}"));
        fs::write(world.scratch.path(name), name).unwrap_err();
        make_writable(&world.scratch).good();
        world.scratch.write_synced(name);
        assert_eq!(world.scratch.stat()["journal_target"], text(world.journal()));
        assert!(world.scratch.stat()["journal_medium"]["bytes_written"].as_u64() > Some(0));
        world.scratch.kill();
        // It is recovered from there.
        world.on_image(&["fsck", "-n"]).ended(4);
    }
    world.has(&["first", "second"]);
    // Without it the volume stays as it is, and the journal in the volume is not used.
    world.detach();
    world.scratch.mount("ro");
    make_writable(&world.scratch).refused(OPERATIONAL, "is elsewhere: connect its disk");
    assert_eq!(fs::read_to_string(world.scratch.path("first")).unwrap(), "first");
    fs::write(world.scratch.path("third"), "third").unwrap_err();
    world.scratch.umount();
    world.scratch.mount("ro,journal=internal");
    make_writable(&world.scratch).good();
    world.scratch.write_synced("inside");
    world.scratch.umount();
    world.attach();
    world.has(&["first", "second", "inside"]);
}

#[test]
fn a_read_only_mount_does_without_a_journal_that_another_program_has_open() {
    let Some(mut world) = World::new() else { return };
    world.crash_with("f");
    world.has(&["f"]);
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let program = rustix::fs::open(world.journal(), flags, Mode::empty()).unwrap();
    world.scratch.mount("ro");
    assert_eq!(fs::read_to_string(world.scratch.path("f")).unwrap(), "f");
    make_writable(&world.scratch).refused(OPERATIONAL, "then unmount it, and mount it again");
    drop(program);
    world.scratch.umount();
    world.has(&["f"]);
}

#[test]
fn a_lost_journal_with_changes_is_waited_for_or_given_up() {
    let Some(mut world) = World::new() else { return };
    world.crash_with("kept");
    world.detach();
    let image = world.scratch.image();
    let said = world.refused("its newest changes are in its journal").err;
    let give_up = format!("onejournal fsck -y --journal-lost {}", image.display());
    for word in ["connect its disk", "these changes are lost, too", &give_up] {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    for words in [&["fsck"][..], &["fsck", "-y"], &["fsck", "-n"], &["dump"]] {
        world.on_image(words).refused(OPERATIONAL, &give_up);
    }
    for options in ["journal=internal", "ro"] {
        mount(&world.scratch, &image, options).refused(OPERATIONAL, &give_up);
    }
    world.set_journal(&["--internal"]).refused(OPERATIONAL, "was not closed");
    world.attach();
    world.has(&["kept"]);
    // Now it is lost for good.
    world.crash_with("lost");
    world.detach();
    world.on_image(&["fsck", "-y", "--journal-lost"]).ended(1);
    check_clean(&image);
    world.scratch.mount(OPTIONS);
    assert!(world.scratch.path("kept").exists() && !world.scratch.path("lost").exists());
    world.scratch.umount();
    // The lost one turns up: the volume does not use it, and another journal is attached.
    world.attach();
    world.set_journal(&[text(world.journal())]).refused(OPERATIONAL, "holds changes");
    world.set_journal(&["--force", text(world.journal())]).good();
    world.has(&["kept"]);
}

#[test]
fn another_device_or_an_old_copy_is_not_taken_for_it() {
    let Some(mut world) = World::new() else { return };
    let image = world.scratch.image();
    world.crash_with("old");
    world.has(&["old"]);
    let old_file = world.scratch.root().join("old");
    fs::copy(world.journal_file(), &old_file).unwrap();
    world.crash_with("kept");
    let other = device(&world.scratch, "other", 8);
    let given = |path: &Path| format!("{OPTIONS},journal={}", path.display());
    // Empty ones, in place of it and beside it.
    mount(&world.scratch, &image, &given(&other.path)).refused(OPERATIONAL, "empty");
    world.detach();
    mount(&world.scratch, &image, &given(&other.path)).refused(OPERATIONAL, "empty");
    world.refused("no block device has its journal");
    // The journal of another volume.
    let another = world.scratch.root().join("another");
    let words = ["mkfs", "--size", "16M", "--journal", text(&other.path), text(&another)];
    onejournal(words).good();
    mount(&world.scratch, &image, &given(&other.path)).refused(OPERATIONAL, "belongs to volume");
    world.refused("no block device has its journal");
    // An old copy, which has its UUID.
    let old = Loop::attach(&old_file);
    world.refused("Is one of them an old copy?");
    world.on_image(&["fsck"]).refused(OPERATIONAL, "Is one of them an old copy?");
    drop(old);
    world.attach();
    world.has(&["old", "kept"]);
    mount(&world.scratch, &image, &given(&other.path)).refused(OPERATIONAL, "belongs to volume");
}

#[test]
fn two_copies_of_it_are_named_and_two_ways_to_it_are_none() {
    let Some(mut world) = World::new() else { return };
    world.crash_with("f");
    let copy_file = world.scratch.root().join("copy");
    fs::copy(world.journal_file(), &copy_file).unwrap();
    let copy = Loop::attach(&copy_file);
    let paths = [world.journal().to_owned(), copy.path.clone()];
    let names = |ran: &Ran| {
        assert!(paths.iter().all(|path| ran.err.contains(text(path))), "{}", ran.err);
    };
    names(&world.refused("one of them is a copy: detach the copy"));
    for words in [&["fsck"][..], &["dump"]] {
        let ran = world.on_image(words);
        ran.refused(OPERATIONAL, "one of them is a copy");
        names(&ran);
    }
    let right = format!("{OPTIONS},journal={}", world.journal().display());
    world.scratch.mount(&right);
    assert_eq!(fs::read_to_string(world.scratch.path("f")).unwrap(), "f");
    world.scratch.umount();
    names(&world.refused("one of them is a copy"));
    drop(copy);
    // One file has two devices.
    let second = Loop::attach(&world.journal_file());
    world.scratch.mount(OPTIONS);
    world.scratch.umount();
    drop(second);
    world.has(&["f"]);
}

/// The smallest journal, which is full again and again.
#[test]
fn a_small_journal_is_reused_and_a_smaller_one_is_refused() {
    let Some(mut scratch) = Scratch::empty() else { return };
    let small = device(&scratch, "small", 3);
    mkfs(&scratch, &["--journal", text(&small.path)]).refused(OPERATIONAL, "needs 4M at least");
    let journal = device(&scratch, "journal", 64);
    let path = text(&journal.path);
    let too_small = ["--journal", path, "--journal-size", "2M"];
    mkfs(&scratch, &too_small).refused(USAGE, "at least 4M");
    let too_large = ["--journal", path, "--journal-size", "65M"];
    mkfs(&scratch, &too_large).refused(OPERATIONAL, "too small");
    assert!(!scratch.image().exists(), "it was left");
    mkfs(&scratch, &["--journal", path, "--journal-size", "4M"]).good();
    scratch.mount("commit=300,data=journal");
    // Less the label.
    assert_eq!(scratch.counter("journal_size_bytes"), (4 << 20) - 4096);
    for round in 0..8u8 {
        let file = scratch.path("large");
        fs::write(&file, vec![round; 4 << 20]).unwrap();
        File::open(&file).unwrap().sync_all().unwrap();
    }
    assert!(scratch.counter("checkpoints") > 4 && scratch.counter("home_bytes") > 16 << 20);
    let stat = onejournal(["stat", "--all", text(&scratch.dir())]).good();
    assert!(stat.contains("stalls"), "{stat}");
    scratch.kill();
    scratch.mount(OPTIONS);
    assert!(fs::read(scratch.path("large")).unwrap() == vec![7; 4 << 20]);
    scratch.close_and_check();
}

/// An emulated disk; its file can have a loop device.
struct EmulatedDisk {
    dir: PathBuf,
    handle: MountHandle,
    service: Option<JoinHandle<()>>,
}

impl EmulatedDisk {
    fn new(dir: PathBuf, preset: &str, size_bytes: u64) -> EmulatedDisk {
        fs::create_dir(&dir).unwrap();
        let emulator = Emulator::new(Parameters::preset(preset).unwrap(), Disk::new(size_bytes));
        let mounted = Mounted::new(&dir, "emulated-disk").unwrap();
        let handle = mounted.handle();
        let service = thread::spawn(move || drop(mounted.serve(emulator).unwrap()));
        EmulatedDisk { dir, handle, service: Some(service) }
    }
}

impl Drop for EmulatedDisk {
    fn drop(&mut self) {
        let _ = self.handle.unmount_lazily();
        // The daemon of a test that failed has the disk open, and is ended later.
        if let Some(service) = self.service.take().filter(|_| !thread::panicking()) {
            let _ = service.join();
        }
    }
}

/// A disk with the latency of a tablet's flash, below a volume on a faster one.
#[test]
fn a_journal_on_a_slower_disk_works() {
    let Some(mut scratch) = Scratch::empty() else { return };
    let disk = EmulatedDisk::new(scratch.root().join("slow"), "emmc", 8 << 20);
    let journal = Loop::attach(&disk.dir.join("disk"));
    mkfs(&scratch, &["--journal", text(&journal.path)]).good();
    for name in ["first", "second"] {
        scratch.mount(OPTIONS);
        scratch.write_synced(name);
        let stat = scratch.stat();
        assert_eq!(stat["journal_target"], text(&journal.path));
        assert!(stat["commit_latency_ns"]["p50"].as_u64().unwrap() > 0);
        scratch.kill();
    }
    scratch.mount(OPTIONS);
    for name in ["first", "second"] {
        assert_eq!(fs::read_to_string(scratch.path(name)).unwrap(), name);
    }
    scratch.umount();
    scratch.check();
}

#[test]
fn a_partition_of_the_same_disk_works_and_is_warned_of() {
    let Some(mut scratch) = Scratch::empty().filter(|_| has_program("addpart")) else { return };
    let disk = device(&scratch, "disk", 96);
    let partitions = (Partition::add(&disk.path, 1, 1, 64), Partition::add(&disk.path, 2, 70, 16));
    let (volume, journal) = (partitions.0.path(), partitions.1.path());
    if !has_nodes([&volume, &journal]) {
        return;
    }
    let made = onejournal(["mkfs", "--journal", text(&journal), text(&volume)]);
    assert!(made.err.contains("on the same disk"), "{made:?}");
    made.good();
    for name in ["first", "second"] {
        scratch.mount_target(&volume, OPTIONS);
        assert_eq!(scratch.stat()["journal_target"], text(&journal));
        scratch.write_synced(name);
        scratch.kill();
    }
    scratch.mount_target(&volume, OPTIONS);
    assert!(scratch.path("first").exists() && scratch.path("second").exists());
    scratch.umount();
    check_clean(&volume);
}

/// Ways to name the volume in place of a journal for it.
#[test]
fn the_volume_is_no_journal_of_itself() {
    let Some(scratch) = Scratch::new() else { return };
    let image = scratch.image();
    let (whole, link) = (Loop::attach(&image), scratch.root().join("link"));
    let part = Loop::with(&["--offset", "33554432", text(&image)]);
    symlink(&image, &link).unwrap();
    for journal in [&image, &whole.path, &part.path, &link] {
        let words = ["set-journal", "--force", text(&image), text(journal)];
        onejournal(words).refused(OPERATIONAL, "has bytes in common with the volume");
        mkfs(&scratch, &["--force", "--journal", text(journal)])
            .refused(OPERATIONAL, "has bytes in common with the volume");
        let options = format!("journal={}", journal.display());
        mount(&scratch, &image, &options)
            .refused(OPERATIONAL, "has bytes in common with the volume");
        scratch.check();
    }
}

/// Who else can reach the bytes of a journal, in use and not.
#[test]
fn a_journal_is_kept_from_others() {
    let Some(mut world) = World::new() else { return };
    let another = world.scratch.root().join("another");
    onejournal(["mkfs", "--size", "16M", "--journal-size", "4M", text(&another)]).good();
    let copy = world.scratch.root().join("copy");
    fs::copy(world.scratch.image(), &copy).unwrap();
    let other_dir = world.scratch.root().join("other");
    fs::create_dir(&other_dir).unwrap();
    let journal = world.journal().to_owned();
    let others = |word: &str, forced: &str| {
        onejournal(["mount", text(&journal), text(&other_dir)]).refused(OPERATIONAL, word);
        onejournal(["mkfs", text(&journal)]).refused(OPERATIONAL, word);
        onejournal(["set-journal", text(&another), text(&journal)]).refused(OPERATIONAL, word);
        let words = ["mkfs", "--force", "--journal", text(&journal), text(&another)];
        if !forced.is_empty() {
            onejournal(words).refused(OPERATIONAL, forced);
            onejournal(["mkfs", "--force", text(&journal)]).refused(OPERATIONAL, forced);
        }
    };
    world.mount();
    others("in use", "in use");
    // A copy of the volume names the same journal.
    onejournal(["mount", text(&copy), text(&other_dir)]).refused(OPERATIONAL, "in use");
    let given = format!("journal={}", journal.display());
    onejournal(["mount", "-o", &given, text(&another), text(&other_dir)])
        .refused(OPERATIONAL, "in use");
    let kernels = system("mke2fs", ["-q", "-F", text(&journal)]);
    assert!(kernels.code != Some(0) && kernels.err.contains("in use"), "{kernels:?}");
    world.scratch.write_synced("kept");
    world.scratch.kill();
    others("is the journal of volume", "");
    onejournal(["mount", "-o", &given, text(&another), text(&other_dir)])
        .refused(OPERATIONAL, "belongs to volume");
    // The copy was closed, and does not wait for what the journal holds.
    onejournal(["mount", text(&copy), text(&other_dir)])
        .refused(OPERATIONAL, "holds changes that this volume does not wait for");
    world.has(&["kept"]);
    // A copy of the volume that gets another journal takes nothing from the original.
    onejournal(["set-journal", text(&copy), "--internal"]).good();
    world.has(&["kept"]);
    // By force it becomes another's, and the volume misses its own.
    onejournal(["set-journal", "--force", text(&another), text(&journal)]).good();
    world.refused("no block device has its journal");
    check_clean(&another);
}

#[test]
fn a_journal_moves_to_another_device_and_back_into_the_volume() {
    let Some(mut world) = World::new() else { return };
    let image = world.scratch.image();
    let second = device(&world.scratch, "second", 6);
    world.mount();
    world.set_journal(&[text(&second.path)]).refused(OPERATIONAL, "in use");
    world.scratch.write_synced("first");
    world.scratch.kill();
    world.set_journal(&[text(&second.path)]).refused(OPERATIONAL, "onejournal fsck ");
    world.on_image(&["fsck"]).ended(1);
    let moved = world.set_journal(&[text(&second.path)]).good();
    assert!(moved.contains("which is left as it is"), "{moved}");
    assert!(moved.contains(&format!("on {}", second.path.display())), "{moved}");
    world.scratch.mount(OPTIONS);
    assert_eq!(world.scratch.stat()["journal_target"], text(&second.path));
    world.scratch.write_synced("second");
    world.scratch.kill();
    world.scratch.mount(OPTIONS);
    world.scratch.umount();
    // Back into the volume, with its device missing.
    let second_file = world.scratch.root().join("second");
    drop(second);
    let inside = world.set_journal(&["--internal"]).good();
    assert!(inside.contains("its journal is in the volume from now on"), "{inside}");
    world.scratch.mount(OPTIONS);
    assert!(world.scratch.stat()["journal_target"].is_null());
    for name in ["first", "second"] {
        assert_eq!(fs::read_to_string(world.scratch.path(name)).unwrap(), name);
    }
    world.scratch.umount();
    // The device that was left is a journal of this volume without changes, and taken as it is.
    let second = Loop::attach(&second_file);
    world.set_journal(&[text(&second.path)]).good();
    world.set_journal(&["--internal"]).good();
    let again = world.set_journal(&["--internal"]).good();
    assert!(!again.contains("no more"), "{again}");
    world.set_journal(&[]).refused(USAGE, "JOURNAL");
    world.set_journal(&["--internal", text(&second.path)]).refused(USAGE, "--internal");
    check_clean(&image);
}

#[test]
fn a_full_device_is_overwritten_by_force_only_and_before_the_old_volume_is() {
    let Some(mut scratch) = Scratch::new() else { return };
    scratch.mount(OPTIONS);
    scratch.write_synced("kept");
    scratch.umount();
    let journal = device(&scratch, "journal", 8);
    let file = scratch.root().join("journal");
    system("mke2fs", ["-q", "-F", text(&journal.path)]).good();
    let before = fs::read(&file).unwrap();
    let words = ["--journal", text(&journal.path)];
    let image = scratch.image();
    onejournal(["set-journal", text(&image), text(&journal.path)])
        .refused(OPERATIONAL, "is not empty; to overwrite what it holds: add --force");
    assert!(fs::read(&file).unwrap() == before);
    // The old volume stays until both can be had.
    let made = onejournal(["mkfs", "--size", "64M", words[0], words[1], text(&image)]);
    made.refused(OPERATIONAL, "is not empty");
    scratch.mount(OPTIONS);
    assert!(scratch.path("kept").exists());
    scratch.umount();
    mkfs(&scratch, &[&words[..], &["--force"]].concat()).good();
    scratch.mount(OPTIONS);
    assert!(!scratch.path("kept").exists());
    assert_eq!(scratch.stat()["journal_target"], text(&journal.path));
    scratch.close_and_check();
}

#[test]
fn a_journal_in_a_file_has_to_be_named() {
    let Some(mut scratch) = Scratch::empty() else { return };
    let file = scratch.root().join("journal");
    mkfs(&scratch, &["--journal", text(&file)]).refused(OPERATIONAL, "--journal-size 64M");
    let made = mkfs(&scratch, &["--journal", text(&file), "--journal-size", "8M"]).good();
    let option = format!("-o journal={}", file.display());
    assert!(made.contains(&option), "{made}");
    let image = scratch.image();
    mount(&scratch, &image, OPTIONS)
        .refused(OPERATIONAL, "If it is a file or NVRAM, say where it is");
    let options = format!("{OPTIONS},journal={}", file.display());
    scratch.mount(&options);
    scratch.write_synced("f");
    scratch.kill();
    let fsck = onejournal(["fsck", text(&image)]);
    fsck.refused(OPERATIONAL, "onejournal fsck --journal PATH");
    onejournal(["fsck", "--journal", text(&file), text(&image)]).ended(1);
    // A copy of it on a device is found.
    let device = device(&scratch, "device", 8);
    fs::copy(&file, &device.path).unwrap();
    fs::remove_file(&file).unwrap();
    scratch.mount(OPTIONS);
    assert_eq!(fs::read_to_string(scratch.path("f")).unwrap(), "f");
    scratch.close_and_check();
}

/// With the journal inode, e2fsck makes a volume without the record.
#[test]
fn fsck_says_that_a_repair_has_lost_the_record() {
    let Some(mut world) = World::new() else { return };
    world.crash_with("f");
    world.has(&["f"]);
    let image = world.scratch.image();
    system("debugfs", ["-w", "-R", "freei <11>", text(&image)]).good();
    world.on_image(&["fsck", "-y"]).ended(1);
    world.has(&["f"]);
    system("debugfs", ["-w", "-R", "clri <8>", text(&image)]).good();
    let repaired = world.on_image(&["fsck", "-y"]);
    let advice = format!("set-journal {} {}", image.display(), world.journal().display());
    assert!(repaired.out.contains(&advice), "{repaired:?}");
    world.set_journal(&[text(world.journal())]).good();
    world.has(&["f"]);
}

#[test]
fn a_volume_with_a_new_uuid_gets_its_journal_again() {
    let Some(mut world) = World::new() else { return };
    world.crash_with("f");
    world.has(&["f"]);
    let image = world.scratch.image();
    // tune2fs changes the UUID only of a volume that was checked since its last mount.
    system("e2fsck", ["-fy", text(&image)]).good();
    system("tune2fs", ["-f", "-U", "random", text(&image)]).good();
    world.refused("If this is a copy that got another UUID");
    let journal = text(world.journal()).to_owned();
    world.set_journal(&[&journal]).refused(OPERATIONAL, "is the journal of volume");
    world.set_journal(&["--force", &journal]).good();
    world.has(&["f"]);
}

/// A power cut that left the label and not the record, or a second call: the same journal again.
#[test]
fn the_same_journal_can_be_set_again() {
    let Some(mut world) = World::new() else { return };
    let journal = text(world.journal()).to_owned();
    world.crash_with("f");
    world.has(&["f"]);
    let label = fs::read(world.journal_file()).unwrap()[..4096].to_vec();
    world.set_journal(&[&journal]).good();
    assert_eq!(fs::read(world.journal_file()).unwrap()[..4096], label);
    world.set_journal(&["--journal-size", "4M", &journal]).good();
    assert_ne!(fs::read(world.journal_file()).unwrap()[..4096], label);
    world.has(&["f"]);
}
