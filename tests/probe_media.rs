//! `onejournal probe` on devices, and on file systems that are not what they seem.

use crate::support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use support::probing::{check_empty, end_by, end_by_after, parsed, probe};
use support::{Loop, TempMount, can_mount, onejournal, scratch_dir, system, text};

const OPERATIONAL: i32 = 8;
const INTERRUPTED: i32 = 130;

#[test]
fn buffered_writes_are_marked_as_such() {
    if !can_mount() {
        return;
    }
    let place = scratch_dir();
    // ramfs has no direct I/O, no fallocate and no number of free blocks.
    let mount = TempMount::new(&["-t", "ramfs", "none"], &place.path().join("m"));
    let json = parsed(&probe([text(&mount.dir)]).good());
    assert_eq!((&json["direct_io"], &json["durability"]), (&"no".into(), &"process".into()));
    let shown = onejournal(["probe", "--seconds", "0.1", "--size", "4M", text(&mount.dir)]).good();
    assert!(
        shown.contains("There is no direct I/O here") && shown.contains("buffered I/O"),
        "{shown}"
    );
    check_empty(&mount.dir);
}

/// The flushes of the kernel, and the durability, of an overlay of these options.
fn of_overlay(lower: &Path, base: &Path, hide: impl FnOnce(), dir: &Path) -> Value {
    let at = |name: &str| base.join(name);
    fs::create_dir_all(at("upper")).unwrap();
    fs::create_dir_all(at("work")).unwrap();
    let options = [("lowerdir", lower), ("upperdir", &at("upper")), ("workdir", &at("work"))];
    let options = options.map(|(name, path)| format!("{name}={}", text(path))).join(",");
    let mount = TempMount::new(&["-t", "overlay", "-o", &options, "overlay"], dir);
    hide();
    parsed(&probe([text(&mount.dir)]).good())
}

#[test]
fn an_overlay_is_as_durable_as_its_upper_directory() {
    if !can_mount() {
        return;
    }
    let place = scratch_dir();
    let (lower, dir) = (place.path().join("lower"), place.path().join("merged"));
    fs::create_dir(&lower).unwrap();
    let memory = TempMount::new(&["-t", "tmpfs", "none"], &place.path().join("memory"));
    let json = of_overlay(&lower, &memory.dir, || (), &dir);
    assert_eq!((&json["file_system"], &json["durability"]), (&"overlay".into(), &"process".into()));
    assert_eq!(json["flushes"]["verdict"], "nothing_durable");
    assert_eq!(json["suitable"]["etcd"]["is_suitable"], false);
    // A container does not see the upper directory.
    let hide = || {
        system("umount", ["--lazy", text(&memory.dir)]).good();
    };
    let json = of_overlay(&lower, &memory.dir, hide, &dir);
    assert_eq!((&json["durability"], &json["write_cache"]), (&"unknown".into(), &"unknown".into()));
    assert_eq!(json["flushes"]["verdict"], "unknown");
    assert!(json["commits"].is_null(), "{json}");
    let json = of_overlay(&lower, place.path(), || (), &dir);
    let below = parsed(&probe([text(place.path())]).good());
    for name in ["durability", "write_cache", "disks", "direct_io"] {
        assert_eq!(json[name], below[name], "{name}");
    }
}

/// What a measurement finds on ext4 with this option, on a loop device.
fn of_ext4(option: &str) -> Value {
    let dir = scratch_dir();
    let image = dir.path().join("image");
    File::create(&image).and_then(|file| file.set_len(64 << 20)).unwrap();
    system("mke2fs", ["-q", "-F", "-t", "ext4", text(&image)]).good();
    let device = Loop::attach(&image);
    let mount = TempMount::new(&["-o", option, text(&device.path)], &dir.path().join("m"));
    parsed(&probe([text(&mount.dir)]).good())
}

#[test]
fn data_that_go_through_the_journal_of_ext4_are_not_direct() {
    if !can_mount() {
        return;
    }
    let json = of_ext4("data=journal");
    assert_eq!(json["direct_io"], "no", "{json}");
    assert_ne!(json["flushes"]["reason"], "costs_more_than_a_write", "{json}");
    assert!(json["commits"].is_null(), "{json}");
    assert!(of_ext4("data=ordered")["commits"].is_array());
}

#[test]
fn flushes_that_the_kernel_does_not_send_are_missed() {
    if !can_mount() {
        return;
    }
    let json = of_ext4("nobarrier");
    assert_eq!(json["flushes"]["reason"], "not_sent", "{json}");
    assert_eq!(json["suitable"]["sqlite"]["obstacles"][0], "flushes_suspicious");
    assert_ne!(of_ext4("barrier")["flushes"]["reason"], "not_sent");
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
fn probe_names_the_content_of_a_device_before_it_destroys_it() {
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

/// A loop device that is in use is detached when its last user closes it. So its node cannot lead
/// to another file between the check and the writes.
#[test]
fn a_device_that_is_detached_meanwhile_stays_the_same() {
    if !can_mount() {
        return;
    }
    let (dir, other_dir) = (scratch_dir(), scratch_dir());
    let (file, other) = (image(dir.path()), image(other_dir.path()));
    let device = Loop::attach(&file);
    let path = device.path.clone();
    let words = ["--destroy", "--force", text(&path)];
    let mut second = None;
    let (code, said) = end_by_after(Signal::TERM, &words, || {
        system("losetup", ["--detach", text(&path)]).good();
        // From now on the number may be that of another test's device.
        std::mem::forget(device);
        second = Some(Loop::attach(&other));
    });
    assert_eq!(code, Some(INTERRUPTED), "{said}");
    let second = second.expect("it was attached");
    assert_ne!(second.path, path);
    drop(second);
    let is_as_it_was = |file: &Path| fs::read(file).unwrap().iter().all(|byte| *byte == 7);
    assert!(is_as_it_was(&other), "the other file was written to");
    assert!(!is_as_it_was(&file), "nothing was written");
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
