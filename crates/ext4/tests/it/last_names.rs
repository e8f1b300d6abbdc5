//! Files that lose their last name: while they are open, cut, looked up, or cannot be freed.

use crate::support;

use std::sync::atomic::{AtomicBool, Ordering};

use onejournal_ext4::{
    Error, InodeNo, NewNode, OpenOptions, Owner, Pin, RenameHow, RootVolume, SetAttr,
};
use support::{Image, lookup, make};

const ROOT: InodeNo = InodeNo::ROOT;

/// A file whose blocks take several operations to free: groups of 1 MiB.
fn with_a_large_file() -> (Image, RootVolume, InodeNo) {
    let image = Image::new(160, &["-g", "256", "-O", "^resize_inode"]);
    let volume = image.open();
    let ino = make(&volume, ROOT, b"large", NewNode::Regular).unwrap().ino;
    let piece = vec![7; 1 << 20];
    for at in 0..120 {
        assert_eq!(volume.write(ino, at << 20, &piece).unwrap(), piece.len());
    }
    volume.sync().unwrap();
    (image, volume, ino)
}

/// A file that is cut in steps while it has no name stays on the orphan list: it is not freed yet.
#[test]
fn regression_a_file_without_a_name_that_is_cut() {
    for is_closed in [false, true] {
        let (image, volume, ino) = with_a_large_file();
        assert_eq!(volume.lookup(ROOT, b"large").unwrap().ino, ino);
        volume.unlink(ROOT, b"large").unwrap();
        volume.set_attr(ino, &SetAttr { size_bytes: Some(0), ..SetAttr::default() }).unwrap();
        volume.write(ino, 0, b"more").unwrap();
        volume.sync().unwrap();
        match is_closed {
            true => volume.close().unwrap(),
            // As after a crash.
            false => {
                drop(volume);
                image.open().close().unwrap();
            }
        }
        image.check("a file that was cut without a name");
    }
}

/// Only a file that was made without a name may get a first one, and only while that name was not
/// taken away again. The kernel refuses the others, too, before it asks.
#[test]
fn a_name_that_was_taken_away_is_not_given_back() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let unnamed = volume.make_unnamed(ROOT, 0o600, 0, Owner::default()).unwrap().ino;
    let named = make(&volume, ROOT, b"named", NewNode::Regular).unwrap().ino;
    assert_eq!(lookup(&volume, ROOT, b"named").unwrap().ino, named);
    assert_eq!(volume.lookup(ROOT, b"named").unwrap().ino, named, "pinned");
    let free_count = volume.stat_fs().unwrap().free_inode_count;
    assert_eq!(volume.link(unnamed, ROOT, b"first").unwrap().link_count, 1);
    volume.unlink(ROOT, b"first").unwrap();
    volume.unlink(ROOT, b"named").unwrap();
    for ino in [unnamed, named] {
        let error = volume.link(ino, ROOT, b"back").expect_err("it has no name any more");
        assert!(matches!(error, Error::NotFound), "{error}");
    }
    assert!(matches!(lookup(&volume, ROOT, b"back"), Err(Error::NotFound)));
    // Both are freed with their last pin.
    volume.forget(unnamed, 2);
    volume.forget(named, 1);
    assert_eq!(volume.stat_fs().unwrap().free_inode_count, free_count + 2);
    volume.close().unwrap();
    image.check("files without names");
}

/// A file of an older ext4, which maps its blocks otherwise, is freed with its last name: one that
/// could not be would keep the volume from being closed.
#[test]
fn regression_the_last_name_of_a_file_without_extents() {
    for is_replaced in [false, true] {
        let image = Image::new(64, &[]);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        image.debugfs(&format!("write {source} old"));
        let blocks = image.debugfs("blocks /old");
        let block = blocks.split_whitespace().next().expect("its only block");
        let map = std::iter::once(block).chain(["0"; 5]).enumerate();
        image.debugfs("set_inode_field /old flags 0");
        map.for_each(|(n, block)| {
            drop(image.debugfs(&format!("set_inode_field /old block[{n}] {block}")))
        });
        let image = image.loaded();
        let volume = image.open();
        let old = lookup(&volume, ROOT, b"old").unwrap().ino;
        let free_count = volume.stat_fs().unwrap().free_block_count;
        make(&volume, ROOT, b"new", NewNode::Regular).unwrap();
        volume.link(old, ROOT, b"other").unwrap();
        volume.forget(old, 1);
        volume.unlink(ROOT, b"old").unwrap();
        assert_eq!(volume.stat_fs().unwrap().free_block_count, free_count);
        match is_replaced {
            true => volume.rename(ROOT, b"new", ROOT, b"other", RenameHow::Replace).unwrap(),
            false => volume.unlink(ROOT, b"other").unwrap(),
        }
        assert_eq!(volume.stat_fs().unwrap().free_block_count, free_count + 1);
        volume.close().unwrap();
        image.check("a file without extents");
        image.open().close().unwrap();
    }
}

/// One thread finds and forgets a file while another opens it, takes its name away and reads it,
/// and a third takes the numbers of inodes that come free.
#[test]
fn regression_a_file_that_is_found_before_it_loses_its_name() {
    let image = Image::new(64, &[]);
    let volume = image.open();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(found) = volume.lookup(ROOT, b"file") {
                    volume.forget(found.ino, 1);
                }
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let other = make(&volume, ROOT, b"other", NewNode::Regular).unwrap().ino;
                volume.write(other, 0, b"other").unwrap();
                volume.unlink(ROOT, b"other").unwrap();
            }
        });
        for round in 0..3000u32 {
            let ino = make(&volume, ROOT, b"file", NewNode::Regular).unwrap().ino;
            volume.write(ino, 0, &round.to_le_bytes()).unwrap();
            assert_eq!(volume.lookup(ROOT, b"file").unwrap().ino, ino);
            volume.unlink(ROOT, b"file").unwrap();
            let mut bytes = [0; 4];
            assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), 4);
            assert_eq!(u32::from_le_bytes(bytes), round);
            volume.forget(ino, 1);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    volume.close().unwrap();
    image.check("files that lost their names");
}

/// The next one who opens the volume has what was pinned, and only that.
#[test]
fn pinned_files_without_a_name_are_handed_over() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let free_count = volume.stat_fs().unwrap().free_inode_count;
    let [deleted, later] = [&b"deleted"[..], b"later"].map(|name| {
        let ino = make(&volume, ROOT, name, NewNode::Regular).unwrap().ino;
        volume.write(ino, 0, name).unwrap();
        assert_eq!(volume.lookup(ROOT, name).unwrap().ino, ino, "pinned");
        ino
    });
    let unnamed = volume.make_unnamed(ROOT, 0o600, 0, Owner::default()).unwrap().ino;
    volume.unlink(ROOT, b"deleted").unwrap();
    let mut pins = volume.hand_over().unwrap();
    pins.sort_unstable_by_key(|pin| pin.ino);
    let expected = [(deleted, false), (later, false), (unnamed, true)];
    let found: Vec<_> = pins.iter().map(|pin| (pin.ino, pin.is_linkable)).collect();
    assert_eq!(found, expected);

    let opened_with = |pins: &[Pin]| {
        let pins = pins.into();
        image.open_with(OpenOptions { pins, ..crate::common::options() })
    };
    let volume = opened_with(&pins);
    let mut bytes = [0; 7];
    assert_eq!(volume.read(deleted, 0, &mut bytes).unwrap(), 7);
    assert_eq!(&bytes, b"deleted");
    volume.link(unnamed, ROOT, b"named").unwrap();
    volume.unlink(ROOT, b"later").unwrap();
    assert_eq!(volume.read(later, 0, &mut bytes).unwrap(), 5, "it is pinned since before");
    let pins = volume.hand_over().unwrap();
    // As after a crash: what was pinned is freed nevertheless when its pins are removed.
    drop(opened_with(&pins));
    let volume = opened_with(&pins);
    assert_eq!(volume.read(later, 0, &mut bytes).unwrap(), 5);
    for pin in pins {
        volume.forget(pin.ino, pin.count);
    }
    volume.unlink(ROOT, b"named").unwrap();
    assert_eq!(volume.stat_fs().unwrap().free_inode_count, free_count);
    volume.close().unwrap();
    image.check("files that were handed over");
}

/// Without the pins, files without a name are freed when the volume is opened.
#[test]
fn files_that_were_handed_over_to_no_one_are_freed() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let free_count = volume.stat_fs().unwrap().free_inode_count;
    volume.make_unnamed(ROOT, 0o600, 0, Owner::default()).unwrap();
    assert_eq!(volume.hand_over().unwrap().len(), 1);
    let volume = image.open();
    assert_eq!(volume.stat_fs().unwrap().free_inode_count, free_count);
    volume.close().unwrap();
    image.check("a file that was handed over to no one");
}
