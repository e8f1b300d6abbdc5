//! A file that is cut while a volume on it, or with its journal in it, is mounted: what it held is
//! lost, so nothing is accepted any more, and the file is not made long again.

use crate::support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use support::{Loop, Ran, Scratch, onejournal, text, tmpfs_dir};

const OPTIONS: &str = "commit=300";

fn sync_new_file(scratch: &Scratch, name: &str) -> std::io::Result<()> {
    let mut file = File::create(scratch.path(name))?;
    std::io::Write::write_all(&mut file, name.as_bytes())?;
    file.sync_all()
}

fn cut(path: &Path, len_bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(len_bytes).unwrap();
}

/// Nothing can be synced, the reason is shown, and unmounting does not report success.
#[track_caller]
fn assert_stopped(scratch: &mut Scratch, shrunk: &Path, len_bytes: u64) -> Ran {
    for name in ["second", "third"] {
        let error = sync_new_file(scratch, name).expect_err("it must not be acknowledged");
        assert!(
            [Some(Errno::IO.raw_os_error()), Some(Errno::ROFS.raw_os_error())]
                .contains(&error.raw_os_error()),
            "{error}"
        );
    }
    let stat = scratch.stat();
    let why = stat["last_error"].as_str().unwrap_or_default();
    assert!(why.contains("become shorter"), "{stat}");
    let ran = onejournal(["umount", text(&scratch.dir())]);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    scratch.expect_ended();
    assert_eq!(fs::metadata(shrunk).unwrap().len(), len_bytes, "it was made long again");
    ran
}

#[test]
fn an_image_that_is_cut_stops_the_volume() {
    let Some(mut scratch) = Scratch::new() else { return };
    scratch.mount(OPTIONS);
    sync_new_file(&scratch, "first").unwrap();
    let image = scratch.image();
    cut(&image, 40 << 20);
    assert_stopped(&mut scratch, &image, 40 << 20);
}

/// As after a disk was pulled.
#[test]
fn a_failed_volume_that_is_gone_does_not_unmount_well() {
    let Some(mut scratch) = Scratch::new() else { return };
    scratch.mount(OPTIONS);
    let image = scratch.image();
    cut(&image, 40 << 20);
    sync_new_file(&scratch, "first").expect_err("it must not be acknowledged");
    fs::remove_file(&image).unwrap();
    let ran = onejournal(["umount", text(&scratch.dir())]);
    ran.refused(8, "unmounted, but not closed");
    ran.refused(8, "it is gone");
    scratch.expect_ended();
}

#[test]
fn an_image_that_is_cut_under_a_loop_device_stops_the_volume() {
    let Some(mut scratch) = Scratch::new() else { return };
    let image = scratch.image();
    let device = Loop::attach(&image);
    scratch.mount_target(&device.path, OPTIONS);
    sync_new_file(&scratch, "first").unwrap();
    cut(&image, 40 << 20);
    assert_stopped(&mut scratch, &image, 40 << 20);
    let ran = onejournal(["fsck", text(&device.path)]);
    ran.refused(8, "was made shorter");
    ran.refused(8, "losetup --set-capacity");
}

/// The kernel reads zeros there.
#[test]
fn reading_what_is_lost_under_a_loop_device_stops_the_volume() {
    let Some(mut scratch) = Scratch::new() else { return };
    let image = scratch.image();
    let device = Loop::attach(&image);
    scratch.mount_target(&device.path, OPTIONS);
    fs::write(scratch.path("large"), vec![7; 30 << 20]).unwrap();
    scratch.umount();
    scratch.mount_target(&device.path, OPTIONS);
    cut(&image, 8 << 20);
    fs::read(scratch.path("large")).expect_err("it is lost");
    assert_stopped(&mut scratch, &image, 8 << 20);
}

#[test]
fn an_idle_volume_whose_image_is_cut_does_not_unmount_well() {
    let Some(mut scratch) = Scratch::new() else { return };
    scratch.mount(OPTIONS);
    sync_new_file(&scratch, "first").unwrap();
    let image = scratch.image();
    cut(&image, 40 << 20);
    let ran = onejournal(["umount", text(&scratch.dir())]);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    scratch.expect_ended();
    assert_eq!(fs::metadata(&image).unwrap().len(), 40 << 20, "it was made long again");
}

/// e2fsck cannot repair it, so the message does not send the user there.
#[test]
fn an_image_that_was_cut_says_how_to_go_on() {
    let Some(mut scratch) = Scratch::mounted(OPTIONS) else { return };
    sync_new_file(&scratch, "first").unwrap();
    scratch.umount();
    let (image, dir) = (scratch.image(), scratch.dir());
    let whole_bytes = fs::metadata(&image).unwrap().len();
    cut(&image, 40 << 20);
    let command = format!("truncate -s {whole_bytes} {} ", text(&image));
    onejournal(["mount", text(&image), text(&dir)]).refused(8, &command);
    for how in ["-n", "-p", "-y"] {
        onejournal(["fsck", how, text(&image)]).refused(8, &command);
    }
    assert_eq!(fs::metadata(&image).unwrap().len(), 40 << 20, "a refusal changes nothing");
    cut(&image, whole_bytes);
    let repaired = onejournal(["fsck", "-y", text(&image)]);
    assert!(matches!(repaired.code, Some(0 | 1)), "{repaired:?}");
    scratch.mount(OPTIONS);
    assert_eq!(fs::metadata(scratch.path("first")).unwrap().len(), 5);
    scratch.close_and_check();
}

fn check_journal(path: PathBuf, more: &str) {
    let Some(mut scratch) = Scratch::new() else { return };
    scratch.mount(&format!("journal={},journal_size=8M,{OPTIONS}{more}", path.display()));
    sync_new_file(&scratch, "first").unwrap();
    cut(&path, 6 << 20); // All that was written to it is kept.
    let ran = assert_stopped(&mut scratch, &path, 6 << 20);
    // The commands that recover it need the journal.
    let image = scratch.image();
    ran.refused(8, &format!("onejournal fsck --journal PATH {}", text(&image)));
    assert!(!ran.err.contains("the next mount recovers it"), "{ran:?}");
}

#[test]
fn a_journal_file_that_is_cut_stops_the_volume() {
    let dir = support::scratch_dir();
    check_journal(dir.path().join("journal"), "");
}

#[test]
fn a_journal_in_memory_that_is_cut_stops_the_volume() {
    let dir = tmpfs_dir();
    check_journal(dir.path().join("journal"), ",durability=process");
}
