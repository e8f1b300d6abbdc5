//! A volume whose journal is not empty is left alone by the kernel's ext4 and by e2fsck.

use crate::support;

use std::fs;
use std::path::Path;

use rustix::mount::{MountFlags, mount, unmount};
use support::{Loop, Scratch, check_clean, onejournal, system, text};

/// The kernel's ext4 and e2fsck, asked in every way, refuse `target` and change no byte of it.
#[track_caller]
fn everybody_refuses(scratch: &Scratch, target: &Path) {
    let before = fs::read(target).unwrap();
    for how in ["-n", "-p", "-y", "-fn", "-fp", "-fy"] {
        let ran = system("e2fsck", [how, target.to_str().unwrap()]);
        assert!(ran.code.unwrap() >= 4, "e2fsck {how}: {ran:?}");
        assert!(fs::read(target).unwrap() == before, "e2fsck {how} has written: {ran:?}");
    }
    let device = Loop::attach(target);
    let dir = scratch.root().join("kernel");
    fs::create_dir_all(&dir).unwrap();
    for flags in [MountFlags::empty(), MountFlags::RDONLY] {
        let mounted = mount(&device.path, &dir, "ext4", flags, None);
        if mounted.is_ok() {
            unmount(&dir, rustix::mount::UnmountFlags::empty()).unwrap();
        }
        assert!(mounted.is_err(), "the kernel has mounted it, {flags:?}");
        assert!(fs::read(target).unwrap() == before, "the kernel has written, {flags:?}");
    }
}

/// A copy of the image as a power cut would leave it now.
fn copy(scratch: &Scratch) -> std::path::PathBuf {
    let copy = scratch.root().join("copy");
    fs::copy(scratch.image(), &copy).unwrap();
    copy
}

#[track_caller]
fn kernel_reads(scratch: &Scratch, target: &Path, name: &str) {
    let device = Loop::attach(target);
    let kernel = scratch.root().join("kernel");
    let mounted = support::TempMount::new(&["-t", "ext4", device.path.to_str().unwrap()], &kernel);
    assert_eq!(fs::read_to_string(mounted.dir.join(name)).unwrap(), name);
    fs::write(mounted.dir.join("kernel"), "was here").unwrap();
}

/// Mounting it read-only would have to recover it, which writes.
#[test]
fn an_unclosed_volume_that_cannot_be_written_is_refused_with_a_way_out() {
    let Some(mut scratch) = Scratch::mounted("commit=300") else { return };
    scratch.write_synced("f");
    scratch.kill();
    let (image, dir) = (scratch.image(), scratch.dir());
    let before = fs::read(&image).unwrap();
    let device = Loop::with(&["--read-only", text(&image)]);
    let (name, dir) = (text(&device.path), text(&dir));
    let way_out = format!("blockdev --setrw {name}");
    onejournal(["mount", name, dir])
        .refused(8, &format!("{way_out}; or mount it read-only (-o ro)"));
    let ran = onejournal(["mount", "-o", "ro", name, dir]);
    ran.refused(8, &format!("{name}: it was not closed, and has to be recovered first"));
    assert!(ran.err.contains(&way_out) && ran.err.contains("mount a copy"), "{}", ran.err);
    onejournal(["fsck", name]).refused(8, &way_out);
    assert!(fs::read(&image).unwrap() == before, "it was written");
    drop(device);
    // A volume that was closed is mounted.
    onejournal(["fsck", text(&image)]).ended(1);
    let device = Loop::with(&["--read-only", text(&image)]);
    onejournal(["mount", "-o", "ro", text(&device.path), dir]).good();
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"f");
    onejournal(["umount", dir]).good();
}

#[test]
fn a_mounted_volume_is_refused() {
    let Some(mut scratch) = Scratch::mounted("commit=300") else { return };
    everybody_refuses(&scratch, &scratch.image());
    scratch.write_synced("f");
    everybody_refuses(&scratch, &scratch.image());
    everybody_refuses(&scratch, &copy(&scratch));
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"f");
    scratch.umount();
    scratch.check();
    kernel_reads(&scratch, &scratch.image(), "f");
    scratch.check();
}

#[test]
fn a_crashed_volume_is_refused_until_it_is_recovered() {
    for options in ["commit=300", "commit=300,data=ordered"] {
        let Some(mut scratch) = Scratch::mounted(options) else { return };
        scratch.write_synced("f");
        scratch.kill();
        let image = scratch.image();
        everybody_refuses(&scratch, &image);
        let recovered = onejournal(["fsck", image.to_str().unwrap()]);
        recovered.ended(1);
        scratch.check();
        system("e2fsck", ["-fy", image.to_str().unwrap()]).good();
        kernel_reads(&scratch, &image, "f");
        // And back: the kernel's clean volume is ours again.
        scratch.mount(options);
        assert_eq!(fs::read(scratch.path("kernel")).unwrap(), b"was here");
        scratch.close_and_check();
    }
}

#[test]
fn a_crashed_volume_whose_journal_is_elsewhere_is_refused_like_any_other() {
    let Some(mut scratch) = Scratch::new() else { return };
    let journal = scratch.root().join("journal");
    let options = format!("commit=300,journal={},journal_size=8M", journal.display());
    scratch.mount(&options);
    scratch.write_synced("f");
    everybody_refuses(&scratch, &scratch.image());
    scratch.kill();
    let image = scratch.image();
    everybody_refuses(&scratch, &image);
    let given = ["fsck", "--journal", journal.to_str().unwrap(), image.to_str().unwrap()];
    onejournal(given).ended(1);
    scratch.check();
    kernel_reads(&scratch, &image, "f");
    scratch.mount(&options);
    assert_eq!(fs::read(scratch.path("kernel")).unwrap(), b"was here");
    scratch.close_and_check();
}

#[test]
fn a_power_cut_at_any_time_of_a_mount_is_refused_or_clean() {
    let Some(mut scratch) = Scratch::mounted("commit=300") else { return };
    for name in ["a", "b", "c"] {
        scratch.write_synced(name);
        let copy = copy(&scratch);
        everybody_refuses(&scratch, &copy);
        // The daemon lives, so the copy has to be called one.
        onejournal(["fsck", copy.to_str().unwrap()]).refused(8, "has it open");
        onejournal(["fsck", "--takeover", copy.to_str().unwrap()]).ended(1);
        check_clean(&copy);
        kernel_reads(&scratch, &copy, name);
    }
    scratch.umount();
    check_clean(&copy(&scratch));
}
