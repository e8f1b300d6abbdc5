//! `onejournal fsck` and `mkfs` on volumes that are damaged, torn by a power cut, or half made.

use crate::support;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use onejournal_testing::has_namespaces;
use support::{
    LET_GO, Loop, ONEJOURNAL, Scratch, check_clean, onejournal, run, scratch_dir, system, text,
};

/// Mounted before, with a file in it; closed.
fn closed_volume() -> Option<Scratch> {
    let mut scratch = Scratch::mounted("")?;
    fs::write(scratch.path("kept"), "kept").unwrap();
    scratch.umount();
    Some(scratch)
}

fn damage(image: &Path, command: &str) {
    system("debugfs", ["-w", "-R", command, text(image)]).good();
}

fn assert_nothing_left_mounted() {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!table.contains(&format!("onejournal-fsck-{}", std::process::id())), "{table}");
}

#[test]
fn a_cleared_root_is_refused_and_repaired() {
    let Some(scratch) = closed_volume() else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    damage(&image, "clri <2>");
    let before = fs::read(&image).unwrap();
    let command = format!("run: onejournal fsck -y {}", text(&image));
    let mounted = onejournal(["mount", text(&image), text(&dir)]);
    mounted.refused(8, "root directory: i_mode");
    mounted.refused(8, &command);
    let looked = onejournal(["fsck", "-n", text(&image)]);
    assert!(looked.code.unwrap() & 4 == 4, "{looked:?}");
    assert!(fs::read(&image).unwrap() == before, "a refusal changes nothing");
    // Only -y makes repairs that are not safe.
    let left = onejournal(["fsck", text(&image)]);
    assert!(left.code.unwrap() & 4 == 4, "{left:?}");
    let repaired = onejournal(["fsck", "-y", text(&image)]);
    repaired.ended(1);
    assert!(
        repaired.out.contains(text(&image)) && !repaired.out.contains("/proc/"),
        "{repaired:?}"
    );
    check_clean(&image);
    assert!(fs::read(&image).unwrap() != before);
    let after = fs::read(&image).unwrap();
    onejournal(["fsck", text(&image)]).good();
    assert!(fs::read(&image).unwrap() == after, "fsck wrote to a clean volume");
    assert_nothing_left_mounted();
}

#[test]
fn a_damaged_journal_inode_is_repaired() {
    let Some(scratch) = closed_volume() else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    damage(&image, "clri <8>");
    let mounted = onejournal(["mount", text(&image), text(&dir)]);
    mounted.refused(8, "journal inode: ");
    let repaired = onejournal(["fsck", "-y", text(&image)]);
    repaired.ended(1);
    check_clean(&image);
    onejournal(["mount", text(&image), text(&dir)]).good();
    assert_eq!(fs::read(dir.join("kept")).unwrap(), b"kept");
    onejournal(["umount", text(&dir)]).good();
}

/// What e2fsck changes is kept in a directory that has room for two blocks.
#[test]
fn regression_a_repair_that_finds_no_room_changes_nothing() {
    if !has_namespaces() {
        return;
    }
    let Some(scratch) = closed_volume() else { return };
    let image = scratch.image();
    damage(&image, "clri <2>");
    let before = fs::read(&image).unwrap();
    let temporary = scratch_dir();
    let script = format!(r#"{LET_GO} mount -t tmpfs -o size=16k none "$TMPDIR" && exec "$@""#);
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh", ONEJOURNAL]);
    command.args(["fsck", "-y", text(&image)]).env("TMPDIR", temporary.path());
    let ran = run(&mut command);
    ran.refused(8, "nothing was changed");
    ran.refused(8, &format!("TMPDIR=DIR onejournal fsck -y {}", text(&image)));
    assert!(fs::read(&image).unwrap() == before);
    onejournal(["fsck", "-y", text(&image)]);
    check_clean(&image);
}

#[test]
fn a_block_device_is_repaired() {
    let Some(scratch) = closed_volume() else { return };
    let image = scratch.image();
    damage(&image, "ssv free_blocks_count 1");
    let device = Loop::attach(&image);
    let repaired = onejournal(["fsck", text(&device.path)]);
    repaired.ended(1);
    drop(device);
    check_clean(&image);
}

/// As a cut in the middle of closing leaves it: the sector with the mark, and the one with the
/// checksum, are from different writes.
#[test]
fn a_superblock_with_a_torn_mark_is_mended_by_fsck() {
    let Some(mut scratch) = Scratch::mounted("commit=300") else { return };
    fs::write(scratch.path("kept"), "kept").unwrap();
    fs::File::open(scratch.path("kept")).unwrap().sync_all().unwrap();
    let image = scratch.image();
    let mounted = fs::read(&image).unwrap();
    scratch.umount();
    let closed = fs::read(&image).unwrap();
    // Beside the mark only times and counts differ; they are in the same sector as the mark.
    let mut marked = closed[1024..2048].to_vec();
    marked[0x60] |= 4;
    marked[0x63] |= 0x40;
    let sum = !crc32c(&marked[..1020]);
    marked[1020..].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(mounted[1024 + 0x63] & 0x40, 0x40);
    let torn = [
        [&marked[..512], &closed[1536..2048]].concat(),
        [&closed[1024..1536], &marked[512..]].concat(),
    ];
    for superblock in torn {
        let file = OpenOptions::new().write(true).open(&image).unwrap();
        file.write_all_at(&closed, 0).unwrap();
        file.write_all_at(&superblock, 1024).unwrap();
        drop(file);
        let looked = onejournal(["fsck", "-n", text(&image)]);
        looked.ended(4);
        assert!(looked.out.contains("torn"), "{looked:?}");
        let mended = onejournal(["fsck", text(&image)]);
        mended.ended(1);
        check_clean(&image);
    }
    scratch.mount("");
    assert_eq!(fs::read(scratch.path("kept")).unwrap(), b"kept");
    scratch.close_and_check();
}

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let each = |state: u32, byte: &u8| {
        (0..8).fold(state ^ u32::from(*byte), |state, _| {
            if state & 1 == 1 { state >> 1 ^ 0x82F6_3B78 } else { state >> 1 }
        })
    };
    !bytes.iter().fold(!0, each)
}

#[test]
fn a_volume_of_an_interrupted_mkfs_is_refused_and_made_anew() {
    let Some(scratch) = Scratch::empty() else { return };
    let (image, dir) = (scratch.image(), scratch.dir());
    onejournal(["mkfs", "--size", "160M", text(&image)]).good();
    check_clean(&image);
    let made = fs::read(&image).unwrap();
    let under_way = b"(onejournal mkfs is under way)";
    assert!(!made.windows(under_way.len()).any(|window| window == under_way), "it has ended");
    // Cut at the end of mke2fs.
    fs::remove_file(&image).unwrap();
    let word = std::str::from_utf8(under_way).unwrap();
    let arguments = ["-q", "-F", "-t", "ext4", "-b", "4096", "-M", word, text(&image), "160M"];
    system("mke2fs", arguments).good();
    let mounted = onejournal(["mount", text(&image), text(&dir)]);
    mounted.refused(8, &format!("run: onejournal mkfs --force {}", text(&image)));
    onejournal(["mkfs", text(&image)]).good();
    onejournal(["mount", text(&image), text(&dir)]).good();
    onejournal(["umount", text(&dir)]).good();
    check_clean(&image);
}

/// Runs `mkfs` with a program in place of mke2fs. The program ends with `tried` when it is called
/// with `-n`. Otherwise it fails and writes nothing.
fn mkfs_by(scratch: &Scratch, tried: i32) -> support::Ran {
    use std::os::unix::fs::PermissionsExt;
    let program = scratch.root().join("mke2fs");
    fs::write(&program, format!("#!/bin/sh\n[ \"$1\" = -n ] && exit {tried}\nexit 1\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let script =
        r#"mount --bind "$1" "$(readlink -f /usr/sbin/mke2fs)" && exec "$2" mkfs --force "$3""#;
    let arguments = [text(&program), support::ONEJOURNAL, text(&scratch.image())].map(String::from);
    let mut all: Vec<_> =
        ["-m", "--propagation", "private", "sh", "-c", script, "sh"].map(String::from).into();
    all.extend(arguments);
    system("unshare", all)
}

#[test]
fn an_old_volume_is_given_up_when_mke2fs_begins_and_not_before() {
    let Some(mut scratch) = closed_volume().filter(|_| has_namespaces()) else { return };
    let _alone = support::alone();
    let before = fs::read(scratch.image()).unwrap();
    assert_ne!(mkfs_by(&scratch, 1).code, Some(0));
    assert!(fs::read(scratch.image()).unwrap() == before, "mke2fs could not make a volume");
    scratch.mount("");
    assert_eq!(fs::read(scratch.path("kept")).unwrap(), b"kept");
    scratch.umount();
    assert_ne!(mkfs_by(&scratch, 0).code, Some(0));
    let (image, dir) = (scratch.image(), scratch.dir());
    let again = format!("run: onejournal mkfs --force {}", text(&image));
    onejournal(["mount", text(&image), text(&dir)]).refused(8, &again);
    onejournal(["fsck", "-y", text(&image)]).refused(8, &again);
    onejournal(["mkfs", text(&image)]).good();
    scratch.mount("");
    scratch.close_and_check();
}
