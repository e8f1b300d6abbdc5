//! `chattr +S` and `+D`: a change of such a file or directory is durable when it returns.

use crate::common;

use std::sync::Arc;

use common::{Image, make, open_in, read_all};
use onejournal_ext4::{
    Allocate, DataMode, InodeNo, NewNode, Owner, RenameHow, RootVolume, SetAttr, XattrFlags,
};
use onejournal_testing::{SimDevice, Survival};

const SYNC: u32 = 0x8;
const DIRSYNC: u32 = 0x1_0000;
const NODUMP: u32 = 0x40;

fn set_flag(volume: &RootVolume, ino: InodeNo, flag: u32) {
    let flags = Some(volume.get_attr(ino).unwrap().flags | flag);
    volume.set_attr(ino, &SetAttr { flags, ..SetAttr::default() }).unwrap();
    volume.sync().unwrap();
}

/// The volume after a power cut now.
fn after_crash(device: &SimDevice, mode: DataMode) -> RootVolume {
    open_in(Arc::new(SimDevice::from_image(device.crash(Survival::Nothing), 512)), mode)
}

fn content_after_crash(device: &SimDevice, mode: DataMode) -> Vec<u8> {
    let volume = after_crash(device, mode);
    read_all(&volume, volume.lookup(InodeNo::ROOT, b"f").unwrap().ino)
}

fn accepted_early(_: usize) {
    panic!("answered before it is durable");
}

#[test]
fn changes_of_a_file_with_s_are_durable_when_they_return() {
    for mode in DataMode::ALL {
        let device = Image::new(&[], "32M").sim_device();
        let volume = open_in(device.clone(), mode);
        let file = make(&volume, "f");
        set_flag(&volume, file, SYNC);
        let mut expected = Vec::new();
        // New, small; overwritten in place; large enough to be accepted early, new and old.
        for (offset, len, byte) in
            [(0, 5000, 1), (100, 3000, 2), (4096, 300_000, 3), (0, 300_000, 4), (8192, 4096, 5)]
        {
            let data = vec![byte; len];
            let written = volume.write_accepting(file, offset, &data, false, &mut accepted_early);
            assert_eq!(written.unwrap(), len);
            let (from, to) = (offset as usize, offset as usize + len);
            expected.resize(expected.len().max(to), 0);
            expected[from..to].fill(byte);
            assert!(content_after_crash(&device, mode) == expected, "{mode:?} {offset} {len}");
        }
        if volume.atomic_block_limit() > 0 {
            let pieces: [(u64, &[u8]); 2] = [(1, b"x"), (5000, b"y")];
            volume.write_atomic(file, &pieces).unwrap();
            (expected[1], expected[5000]) = (b'x', b'y');
            assert!(content_after_crash(&device, mode) == expected, "{mode:?} several pieces");
        }
        volume.fallocate(file, Allocate::PunchHole, 0, 8192).unwrap();
        expected[..8192].fill(0);
        assert!(content_after_crash(&device, mode) == expected, "{mode:?} hole");
        let size_bytes = Some(1000);
        volume.set_attr(file, &SetAttr { size_bytes, ..SetAttr::default() }).unwrap();
        expected.truncate(1000);
        assert!(content_after_crash(&device, mode) == expected, "{mode:?} truncate");
    }
}

/// As on ext4; a change of permissions and owner there is not durable even so.
#[test]
fn attributes_of_a_file_with_s_are_durable_when_they_return() {
    const NAME: &[u8] = b"user.a";
    for mode in DataMode::ALL {
        let device = Image::new(&[], "32M").sim_device();
        let volume = open_in(device.clone(), mode);
        let [file, other] = ["f", "other"].map(|name| make(&volume, name));
        set_flag(&volume, file, SYNC);
        // Permissions, owner and flags, and whether the attribute is there.
        let found = |name: &[u8]| {
            let volume = after_crash(&device, mode);
            let attr = volume.lookup(InodeNo::ROOT, name).unwrap();
            let has_it = volume.get_xattr(attr.ino, NAME).is_ok();
            (attr.mode & 0o777, attr.uid, attr.flags & NODUMP != 0, has_it)
        };
        let set = |ino, change: SetAttr| volume.set_attr(ino, &change).unwrap();
        let flags = Some(volume.get_attr(file).unwrap().flags | NODUMP);
        set(file, SetAttr { mode: Some(0o600), ..SetAttr::default() });
        assert_eq!(found(b"f"), (0o600, 0, false, false), "{mode:?}");
        set(file, SetAttr { uid: Some(7), ..SetAttr::default() });
        assert_eq!(found(b"f"), (0o600, 7, false, false), "{mode:?}");
        set(file, SetAttr { flags, ..SetAttr::default() });
        assert_eq!(found(b"f"), (0o600, 7, true, false), "{mode:?}");
        volume.set_xattr(file, NAME, b"1", XattrFlags::Any).unwrap();
        assert_eq!(found(b"f"), (0o600, 7, true, true), "{mode:?}");
        volume.remove_xattr(file, NAME).unwrap();
        assert_eq!(found(b"f"), (0o600, 7, true, false), "{mode:?}");
        // The data mode, for which the content is locked.
        volume.set_xattr(file, b"user.onejournal.mode", b"ordered", XattrFlags::Any).unwrap();
        // A file without the flag: the canary of the others.
        let before = found(b"other");
        set(other, SetAttr { mode: Some(0o600), uid: Some(7), ..SetAttr::default() });
        volume.set_xattr(other, NAME, b"1", XattrFlags::Any).unwrap();
        assert_eq!(found(b"other"), before, "{mode:?}");
    }
}

/// The names in the directories `a` and `b` after a power cut now.
fn names_after_crash(device: &SimDevice) -> Vec<String> {
    let volume = after_crash(device, DataMode::Auto);
    let mut names = Vec::new();
    for dir in ["a", "b"] {
        let ino = volume.lookup(InodeNo::ROOT, dir.as_bytes()).unwrap().ino;
        let each = &mut |entry: onejournal_ext4::DirEntry<'_>| {
            if !entry.name.starts_with(b".") {
                names.push(format!("{dir}/{}", String::from_utf8_lossy(entry.name)));
            }
            true
        };
        volume.read_dir(ino, 0, each).unwrap();
    }
    names.sort();
    names
}

#[test]
fn changes_of_names_in_a_directory_with_d_or_s_are_durable_when_they_return() {
    for flag in [SYNC, DIRSYNC] {
        let device = Image::new(&[], "32M").sim_device();
        let volume = open_in(device.clone(), DataMode::Auto);
        let (owner, root) = (Owner::default(), InodeNo::ROOT);
        let new = |parent, name: &[u8], node| {
            volume.make(parent, name, node, 0o755, 0, owner).unwrap().ino
        };
        let [a, b] = [b"a", b"b"].map(|name| new(root, name, NewNode::Directory));
        set_flag(&volume, a, flag);
        let file = new(a, b"file", NewNode::Regular);
        assert_eq!(names_after_crash(&device), ["a/file"]);
        new(a, b"dir", NewNode::Directory);
        assert_eq!(names_after_crash(&device), ["a/dir", "a/file"]);
        new(a, b"to", NewNode::Symlink(b"file"));
        volume.link(file, a, b"link").unwrap();
        assert_eq!(names_after_crash(&device), ["a/dir", "a/file", "a/link", "a/to"]);
        volume.unlink(a, b"to").unwrap();
        volume.rmdir(a, b"dir").unwrap();
        assert_eq!(names_after_crash(&device), ["a/file", "a/link"]);
        volume.rename(a, b"link", b, b"moved", RenameHow::Replace).unwrap();
        assert_eq!(names_after_crash(&device), ["a/file", "b/moved"]);
        volume.rename(b, b"moved", a, b"file2", RenameHow::Replace).unwrap();
        assert_eq!(names_after_crash(&device), ["a/file", "a/file2"]);
        // A directory without the flag: the canary of the others.
        new(b, b"lost", NewNode::Regular);
        assert_eq!(names_after_crash(&device), ["a/file", "a/file2"]);
    }
}
