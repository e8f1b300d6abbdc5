//! Data modes: per volume, per file, and what they cost.

use crate::support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use support::{Scratch, onejournal, system, text};

const MODES: [&str; 7] =
    ["ordered", "writeback", "journal", "wasteless", "selective", "delta", "auto"];
const ATTRIBUTE: &str = "user.onejournal.data";
/// Exit code of a command line that makes no sense.
const USAGE: i32 = 16;
const OPERATIONAL: i32 = 8;

fn mode_of(path: &Path) -> String {
    let shown = onejournal(["get-mode", text(path)]).good();
    shown.split('\t').next().unwrap().to_string()
}

#[test]
fn a_mode_is_set_shown_inherited_and_given_up() {
    let Some(mut scratch) = Scratch::mounted("data=ordered") else { return };
    let file = scratch.path("f");
    fs::write(&file, "x").unwrap();
    assert_eq!(mode_of(&file), "ordered");
    for mode in MODES {
        onejournal(["set-mode", mode, text(&file)]).good();
        assert_eq!(mode_of(&file), mode);
        fs::write(&file, mode).unwrap();
    }
    let dir = scratch.path("d");
    fs::create_dir(&dir).unwrap();
    onejournal(["set-mode", "wasteless", text(&dir)]).good();
    fs::create_dir(dir.join("below")).unwrap();
    fs::write(dir.join("below/f"), "x").unwrap();
    scratch.remount("");
    assert_eq!(mode_of(&scratch.path("d/below/f")), "wasteless");
    assert_eq!(mode_of(&scratch.path("f")), "auto", "as it was set last");
    onejournal(["set-mode", "default", text(&scratch.path("d/below/f"))]).good();
    assert_eq!(mode_of(&scratch.path("d/below/f")), "auto", "the volume's");
    assert_eq!(fs::read(scratch.path("f")).unwrap(), b"auto");
    scratch.close_and_check();
}

#[test]
fn an_unknown_mode_or_a_file_elsewhere_is_refused() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let file = scratch.path("f");
    fs::write(&file, "x").unwrap();
    onejournal(["set-mode", "fast", text(&file)]).refused(USAGE, "there are ordered");
    onejournal(["set-mode", "delta", text(&std::env::temp_dir())])
        .refused(OPERATIONAL, "is not on a mounted OneJournal volume");
    let flags = rustix::fs::XattrFlags::empty();
    let refused = rustix::fs::setxattr(&file, ATTRIBUTE, b"fast", flags);
    assert_eq!(refused, Err(rustix::io::Errno::INVAL));
    assert_eq!(mode_of(&file), "auto");
    scratch.close_and_check();
}

#[test]
fn chattr_sets_a_mode_and_an_ioctl_tells_it() {
    let Some(scratch) = Scratch::mounted("") else { return };
    let file = scratch.path("f");
    fs::write(&file, "x").unwrap();
    system("chattr", ["+j", text(&file)]).good();
    assert_eq!(mode_of(&file), "journal");
    assert!(system("lsattr", [text(&file)]).good().contains('j'));
    system("chattr", ["-j", text(&file)]).good();
    assert_eq!(mode_of(&file), "auto");
    let program = "\
import fcntl, struct, sys
with open(sys.argv[1]) as f:
    print(struct.unpack('I', fcntl.ioctl(f, 0x80044fe0, bytes(4)))[0])
";
    let told = || system("python3", ["-c", program, text(&file)]).good();
    assert_eq!(told(), "7\n");
    onejournal(["set-mode", "delta", text(&file)]).good();
    assert_eq!(told(), "6\n");
    scratch.close_and_check();
}

/// Whatever the mode and whatever else is there: what was synced survives.
#[test]
fn files_of_all_modes_survive_a_crash_side_by_side() {
    let Some(mut scratch) = Scratch::with_size("256M") else { return };
    scratch.mount("commit=300");
    let large = vec![3; 2 << 20];
    for mode in MODES {
        let path = scratch.path(mode);
        let file = File::create(&path).unwrap();
        onejournal(["set-mode", mode, text(&path)]).good();
        file.write_all_at(&large, 0).unwrap();
        file.write_all_at(mode.as_bytes(), 5000).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(b"again", 1 << 20).unwrap();
        file.sync_data().unwrap();
    }
    scratch.kill();
    scratch.mount("");
    for mode in MODES {
        let mut expected = large.clone();
        expected[5000..5000 + mode.len()].copy_from_slice(mode.as_bytes());
        expected[1 << 20..(1 << 20) + 5].copy_from_slice(b"again");
        assert!(fs::read(scratch.path(mode)).unwrap() == expected, "{mode}");
    }
    scratch.close_and_check();
}

/// DJFS' own codec and checkpoints, through a crash.
#[test]
fn deltas_as_djfs_writes_them_survive_a_crash() {
    let options = "commit=300,delta=xor-lzo,checkpoint=early";
    let Some(mut scratch) = Scratch::mounted(options) else { return };
    let file = File::create(scratch.path("f")).unwrap();
    let mut page: Vec<u8> = (0..4096).map(|n| (n * 7 % 251) as u8).collect();
    for step in 0..300u32 {
        let at = (step as usize * 37) % 4000;
        page[at..at + 4].copy_from_slice(&step.to_le_bytes());
        file.write_all_at(&page, u64::from(step % 3) * 4096).unwrap();
        file.sync_data().unwrap();
    }
    assert!(scratch.stat()["journal_bytes_by_form"]["xor_lzo"].as_u64().unwrap() > 0);
    drop(file);
    scratch.kill();
    scratch.mount("");
    let found = fs::read(scratch.path("f")).unwrap();
    assert!(found[(299 % 3) * 4096..][..4096] == page);
    scratch.close_and_check();
}

fn count(scratch: &Scratch, name: &str) -> u64 {
    scratch.stat()[name].as_u64().unwrap()
}

#[test]
fn auto_writes_a_large_file_once_and_small_changes_as_deltas() {
    let Some(mut scratch) = Scratch::with_size("256M") else { return };
    scratch.mount("commit=300");
    let len_bytes: u64 = 64 << 20;
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .read(true)
        .open(scratch.path("f"))
        .unwrap();
    let piece: Vec<u8> =
        (0..1 << 20).map(|n: u32| n.wrapping_mul(n).wrapping_shr(7) as u8).collect();
    for _ in 0..len_bytes >> 20 {
        file.write_all(&piece).unwrap();
    }
    file.sync_all().unwrap();
    assert_eq!(count(&scratch, "in_place_bytes"), len_bytes);
    assert!(count(&scratch, "journal_bytes") < len_bytes / 50);
    let before = count(&scratch, "journal_bytes");
    for step in 0..20u64 {
        // A page of which a hundred bytes change, as a database writes it.
        let mut page = vec![0; 4096];
        file.read_exact_at(&mut page, step * 4096).unwrap();
        page[100..200].fill(step as u8);
        file.write_all_at(&page, step * 4096).unwrap();
        file.sync_data().unwrap();
        file.write_all_at(&page, step * 4096).unwrap();
        page[300] ^= 1;
        file.write_all_at(&page, step * 4096).unwrap();
        file.sync_data().unwrap();
    }
    // The first change of a block that is not in memory is logged whole, the second as what
    // differs.
    let journal_bytes = count(&scratch, "journal_bytes") - before;
    assert!(journal_bytes < 20 * (4096 + 512 + 2 * 512), "{journal_bytes} bytes");
    assert_eq!(count(&scratch, "in_place_bytes"), len_bytes);
    drop(file);
    scratch.close_and_check();
}
