//! Attributes of inodes: setting them, what flags forbid, what new inodes inherit from directories,
//! limits.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common;
use onejournal_ext4::{
    Clock, Error, FileKind, InodeNo, NewNode, OpenOptions, Owner, RenameHow, RootVolume, SetAttr,
    SetTime, Timestamp, XattrFlags,
};
use support::{Image, make};

const ROOT: InodeNo = InodeNo::ROOT;
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const NOATIME: u32 = 0x80;
const DIRSYNC: u32 = 0x1_0000;

fn set_flags(volume: &RootVolume, ino: InodeNo, add: u32) {
    let flags = Some(volume.get_attr(ino).unwrap().flags | add);
    volume.set_attr(ino, &SetAttr { flags, ..SetAttr::default() }).expect("a flag for users");
}

fn is_not_permitted<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::NotPermitted))
}

#[test]
fn attributes_that_are_set_are_read_back_and_survive() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let ino = make(&volume, ROOT, b"file", NewNode::Regular).unwrap().ino;
    let time = |seconds| Timestamp { seconds, nanoseconds: 123_456_789 };
    let set = SetAttr {
        mode: Some(0o4751),
        uid: Some(0x12_3456),
        gid: Some(0xfedc_ba98),
        atime: Some(SetTime::To(time(-5))),
        mtime: Some(SetTime::To(time(5_000_000_000))),
        ctime: Some(time(77)),
        ..SetAttr::default()
    };
    let attr = volume.set_attr(ino, &set).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o10_4751, 0x12_3456, 0xfedc_ba98));
    assert_eq!((attr.atime, attr.mtime, attr.ctime), (time(-5), time(5_000_000_000), time(77)));
    let set = SetAttr { kill_suid_sgid: true, size_bytes: Some(9000), ..SetAttr::default() };
    let attr = volume.set_attr(ino, &set).unwrap();
    assert_eq!((attr.mode, attr.size_bytes), (0o10_0751, 9000));
    volume.close().unwrap();
    image.check("attributes");
    let volume = image.open();
    assert_eq!(volume.get_attr(ino).unwrap(), attr);
}

#[test]
fn reading_sets_the_access_time_once_and_not_with_noatime() {
    for noatime in [false, true] {
        let image = Image::new(16, &[]);
        let volume = image.open_with(OpenOptions { noatime, ..common::options() });
        let ino = make(&volume, ROOT, b"file", NewNode::Regular).unwrap().ino;
        volume.write(ino, 0, b"text").unwrap();
        let read = || {
            assert_eq!(volume.read(ino, 0, &mut [0; 4]).unwrap(), 4);
            volume.get_attr(ino).unwrap()
        };
        let (before, first) = (volume.get_attr(ino).unwrap(), read());
        assert_eq!(first.atime > before.atime, !noatime, "{before:?} {first:?}");
        assert_eq!(read().atime, first.atime, "nothing was written since");
        volume.close().unwrap();
    }
}

#[test]
fn a_new_owner_is_not_trusted() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let ino = make(&volume, ROOT, b"file", NewNode::Regular).unwrap().ino;
    let name = b"security.capability";
    volume.set_xattr(ino, name, &[1; 20], XattrFlags::Any).unwrap();
    let set = SetAttr { mode: Some(0o2640), ..SetAttr::default() };
    volume.set_attr(ino, &set).unwrap();
    assert!(volume.get_xattr(ino, name).is_ok(), "chmod keeps capabilities");
    let set = SetAttr { uid: Some(5), kill_suid_sgid: true, ..SetAttr::default() };
    // Without execute permission for the group its bit means something else.
    assert_eq!(volume.set_attr(ino, &set).unwrap().mode & 0o7777, 0o2640);
    assert!(matches!(volume.get_xattr(ino, name), Err(Error::NoAttribute)));
}

#[test]
fn immutable_and_append_only() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let dir = make(&volume, ROOT, b"dir", NewNode::Directory).unwrap().ino;
    let file = make(&volume, dir, b"file", NewNode::Regular).unwrap().ino;
    set_flags(&volume, dir, APPEND);
    make(&volume, dir, b"more", NewNode::Regular).expect("names may be added");
    assert!(is_not_permitted(volume.unlink(dir, b"file")));
    let rename = |from: &[u8], how| volume.rename(dir, from, ROOT, b"moved", how);
    assert!(is_not_permitted(rename(b"file", RenameHow::Replace)));
    set_flags(&volume, dir, IMMUTABLE);
    assert!(is_not_permitted(make(&volume, dir, b"again", NewNode::Regular)));
    assert!(is_not_permitted(volume.rmdir(ROOT, b"dir")));
    set_flags(&volume, file, IMMUTABLE);
    let chmod = SetAttr { mode: Some(0), ..SetAttr::default() };
    assert!(is_not_permitted(volume.set_attr(file, &chmod)));
    assert!(is_not_permitted(volume.set_xattr(file, b"user.a", b"1", XattrFlags::Any)));
    assert!(is_not_permitted(volume.link(file, ROOT, b"link")));
    let flags = Some(volume.get_attr(file).unwrap().flags & !IMMUTABLE);
    volume.set_attr(file, &SetAttr { flags, ..SetAttr::default() }).expect("the way back");
    volume.set_attr(file, &chmod).expect("a file that may change again");
    let extents = SetAttr { flags: Some(0), ..SetAttr::default() };
    assert!(matches!(volume.set_attr(file, &extents), Err(Error::NotSupported)));
    volume.close().unwrap();
    image.check("flags");
}

#[test]
fn new_inodes_inherit_group_flags_and_set_group_id() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let dir = make(&volume, ROOT, b"dir", NewNode::Directory).unwrap().ino;
    let set = SetAttr { mode: Some(0o2775), gid: Some(42), ..SetAttr::default() };
    volume.set_attr(dir, &set).unwrap();
    set_flags(&volume, dir, NOATIME | DIRSYNC | APPEND);
    let owner = Owner { uid: 7, gid: 8 };
    let born = |name: &[u8], node| {
        let attr = volume.make(dir, name, node, 0o777, 0o027, owner).unwrap();
        volume.forget(attr.ino, 1);
        (attr.mode & 0o7777, attr.gid, attr.flags & (NOATIME | DIRSYNC | APPEND))
    };
    assert_eq!(born(b"file", NewNode::Regular), (0o750, 42, NOATIME));
    assert_eq!(born(b"sub", NewNode::Directory), (0o2750, 42, NOATIME | DIRSYNC));
    assert_eq!(born(b"link", NewNode::Symlink(b"x")), (0o777, 42, NOATIME));
    let fifo = NewNode::Special(FileKind::Fifo, 0);
    assert_eq!(born(b"fifo", fifo), (0o750, 42, NOATIME));
    volume.close().unwrap();
    image.check("inheritance");
}

#[test]
fn limits_of_names_and_links() {
    let image = Image::new(64, &[]);
    let volume = image.open();
    let file = make(&volume, ROOT, b"file", NewNode::Regular).unwrap().ino;
    for n in 1..65_000 {
        volume.link(file, ROOT, format!("{n}").as_bytes()).expect("a link");
        volume.forget(file, 1);
    }
    assert!(matches!(volume.link(file, ROOT, b"one more"), Err(Error::TooManyLinks)));
    let regular = |name: &[u8]| make(&volume, ROOT, name, NewNode::Regular);
    regular(&[b'n'; 255]).expect("a long name");
    assert!(matches!(regular(&[b'n'; 256]), Err(Error::NameTooLong)));
    assert!(matches!(regular(b""), Err(Error::InvalidArgument)));
    assert!(matches!(regular(b".."), Err(Error::Exists)));
    let link = |target: &[u8]| make(&volume, ROOT, b"link", NewNode::Symlink(target));
    assert!(matches!(link(&[b't'; 4096]), Err(Error::NameTooLong)));
    assert!(matches!(link(b""), Err(Error::InvalidArgument)));
    link(&[b't'; 4095]).expect("the longest target");
    assert!(matches!(volume.rmdir(ROOT, b"."), Err(Error::InvalidArgument)));
    volume.close().unwrap();
    image.check("limits");
}

/// Each time is later than the one before, and the coarse clock makes no step.
#[derive(Default)]
struct StillClock(AtomicU32);

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: 0, nanoseconds: self.0.fetch_add(1, Ordering::Relaxed) }
    }

    fn about_now(&self) -> Timestamp {
        Timestamp::default()
    }
}

/// The clock costs system calls. So a write asks it only if a program has seen the time before.
#[test]
fn attributes_that_no_program_sees_do_not_make_the_next_write_ask_the_clock() {
    let image = Image::new(16, &[]);
    let clock = Arc::new(StillClock::default());
    let options = OpenOptions { clock: clock.clone(), ..common::options() };
    let volume = image.open_with(options);
    let ino = make(&volume, ROOT, b"file", NewNode::Regular).unwrap().ino;
    let asked = || {
        let before = clock.0.load(Ordering::Relaxed);
        volume.write(ino, 0, b"data").unwrap();
        clock.0.load(Ordering::Relaxed) - before
    };
    asked();
    volume.peek_attr(ino).unwrap();
    assert_eq!(asked(), 0);
    volume.get_attr(ino).unwrap();
    assert_eq!(asked(), 1);
    volume.close().unwrap();
}
