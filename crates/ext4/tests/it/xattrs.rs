//! Extended attributes against a model, access control lists, and both against Linux's own ext4.

use crate::support;

use std::collections::BTreeMap;

use onejournal_ext4::{Error, FileKind, InodeNo, NewNode, Owner, RootVolume, SetAttr, XattrFlags};
use onejournal_testing::{test_name, tier};
use support::{Image, make};

const ROOT: InodeNo = InodeNo::ROOT;

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

fn all(volume: &RootVolume, ino: InodeNo) -> Attributes {
    let names = volume.list_xattr(ino).expect("a list");
    let value = |name: &Vec<u8>| volume.get_xattr(ino, name).expect("a listed attribute");
    names.iter().map(|name| (name.clone(), value(name))).collect()
}

fn play(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let image = Image::new(16, &[]);
    let volume = image.open();
    let mut files = Vec::new();
    for n in 0..6 {
        let node = if n % 3 == 0 { NewNode::Directory } else { NewNode::Regular };
        let ino = make(&volume, ROOT, format!("f{n}").as_bytes(), node).expect("a file").ino;
        files.push((ino, Attributes::new()));
    }
    let free_before = volume.stat_fs().expect("numbers").free_block_count;
    for step in 0..800 {
        let file = random.usize(..files.len());
        let (ino, model) = &mut files[file];
        let prefix = ["user.", "trusted.", "security."][random.usize(..3)];
        let name = format!("{prefix}{}", "name".repeat(random.usize(1..8))).into_bytes();
        let what = format!("seed {seed} step {step}");
        if random.u8(..3) == 0 {
            let expected = model.remove(&name);
            let real = volume.remove_xattr(*ino, &name);
            match expected {
                Some(_) => real.unwrap_or_else(|error| panic!("{what}: {error}")),
                None => assert!(matches!(real, Err(Error::NoAttribute)), "{what}"),
            }
        } else {
            let longest = if random.u8(..4) == 0 { 3000 } else { 60 };
            let value: Vec<u8> = (0..random.usize(..longest)).map(|_| random.u8(..)).collect();
            let how = [XattrFlags::Any, XattrFlags::Create, XattrFlags::Replace][random.usize(..3)];
            let exists = model.contains_key(&name);
            match (volume.set_xattr(*ino, &name, &value, how), how) {
                (Err(Error::Exists), XattrFlags::Create) => assert!(exists, "{what}"),
                (Err(Error::NoAttribute), XattrFlags::Replace) => assert!(!exists, "{what}"),
                (Err(Error::AttributeTooLarge), _) => {
                    let bytes: usize = model.values().map(Vec::len).sum();
                    assert!(bytes + value.len() > 2500, "{what}: it had room");
                }
                (Ok(()), how) => {
                    assert!(how != XattrFlags::Create || !exists, "{what}");
                    assert!(how != XattrFlags::Replace || exists, "{what}");
                    model.insert(name, value);
                }
                (Err(error), _) => panic!("{what}: {error}"),
            }
        }
        assert_eq!(all(&volume, *ino), *model, "{what}");
    }
    volume.close().expect("a clean end");
    image.check(&format!("seed {seed}"));
    let volume = image.open();
    for (ino, model) in &files {
        assert_eq!(all(&volume, *ino), *model, "seed {seed}, opened again");
        model.keys().for_each(|name| volume.remove_xattr(*ino, name).expect("it is there"));
    }
    volume.sync().expect("a commit");
    assert_eq!(volume.stat_fs().expect("numbers").free_block_count, free_before);
    volume.close().expect("a clean end");
    image.check(&format!("seed {seed}, removed"));
}

#[test]
fn random_attributes_match_the_model() {
    tier::seeds(test_name!(), 6).for_each(play);
}

#[test]
fn attributes_go_with_their_file() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let free_before = volume.stat_fs().expect("numbers").free_block_count;
    for n in 0..20 {
        let name = format!("f{n}").into_bytes();
        let ino = make(&volume, ROOT, &name, NewNode::Regular).expect("a file").ino;
        volume.set_xattr(ino, b"user.large", &[7; 2000], XattrFlags::Any).expect("room");
        volume.unlink(ROOT, &name).expect("a file");
    }
    volume.sync().expect("a commit");
    assert_eq!(volume.stat_fs().expect("numbers").free_block_count, free_before);
    volume.close().expect("a clean end");
    image.check("attributes of removed files");
}

#[test]
fn attributes_that_the_kind_of_inode_forbids_are_refused() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let link = make(&volume, ROOT, b"l", NewNode::Symlink(b"target")).expect("a link").ino;
    let fifo = NewNode::Special(FileKind::Fifo, 0);
    let fifo = make(&volume, ROOT, b"p", fifo).expect("a FIFO").ino;
    let set = |ino, name: &[u8], value: &[u8]| volume.set_xattr(ino, name, value, XattrFlags::Any);
    assert!(matches!(set(link, b"user.a", b"1"), Err(Error::NotPermitted)));
    assert!(matches!(set(fifo, b"user.a", b"1"), Err(Error::NotPermitted)));
    set(link, b"trusted.a", b"1").expect("trusted attributes are for all kinds");
    assert!(matches!(set(fifo, b"other.a", b"1"), Err(Error::NotSupported)));
    assert!(matches!(set(fifo, b"trusted.a", &[0; 5000]), Err(Error::AttributeTooLarge)));
    assert!(matches!(set(link, ACCESS, &acl(&SHARED)), Err(Error::NotSupported)));
    assert!(matches!(set(fifo, DEFAULT, &acl(&SHARED)), Err(Error::NotPermitted)));
    volume.close().expect("a clean end");
    image.check("kinds");
}

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const NO_ID: u32 = u32::MAX;

/// u::rwx, u:1000:rwx, g::r-x, g:50:rw-, m::rwx, o::r-x.
const SHARED: [(u16, u16, u32); 6] =
    [(1, 7, NO_ID), (2, 7, 1000), (4, 5, NO_ID), (8, 6, 50), (0x10, 7, NO_ID), (0x20, 5, NO_ID)];

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn with_mode(owner: u16, mask: u16, other: u16) -> Vec<u8> {
    let mut entries = SHARED;
    (entries[0].1, entries[4].1, entries[5].1) = (owner, mask, other);
    acl(&entries)
}

#[test]
fn access_lists_mode_and_inheritance() {
    let image = Image::new(16, &[]);
    let volume = image.open();
    let any = XattrFlags::Any;
    let file = make(&volume, ROOT, b"file", NewNode::Regular).expect("a file").ino;
    volume.set_xattr(file, ACCESS, &acl(&SHARED), any).expect("a list");
    assert_eq!(volume.get_attr(file).unwrap().mode & 0o7777, 0o775);
    let chmod = SetAttr { mode: Some(0o640), ..SetAttr::default() };
    assert_eq!(volume.set_attr(file, &chmod).unwrap().mode & 0o7777, 0o640);
    assert_eq!(volume.get_xattr(file, ACCESS).unwrap(), with_mode(6, 4, 0));
    let minimal = acl(&[(1, 6, NO_ID), (4, 4, NO_ID), (0x20, 4, NO_ID)]);
    volume.set_xattr(file, ACCESS, &minimal, any).expect("a list that is a mode");
    assert_eq!(volume.get_attr(file).unwrap().mode & 0o7777, 0o644);
    assert!(matches!(volume.get_xattr(file, ACCESS), Err(Error::NoAttribute)));

    let dir = make(&volume, ROOT, b"dir", NewNode::Directory).expect("a directory").ino;
    volume.set_xattr(dir, DEFAULT, &acl(&SHARED), any).expect("a list");
    let born = |name: &[u8], node, permissions| {
        let attr = volume.make(dir, name, node, permissions, 0o077, Owner::default()).unwrap();
        volume.forget(attr.ino, 1);
        (attr.ino, attr.mode & 0o7777)
    };
    let (child, mode) = born(b"child", NewNode::Regular, 0o666);
    assert_eq!(mode, 0o664, "the umask does not count");
    assert_eq!(volume.get_xattr(child, ACCESS).unwrap(), with_mode(6, 6, 4));
    assert!(matches!(volume.get_xattr(child, DEFAULT), Err(Error::NoAttribute)));
    let (below, mode) = born(b"below", NewNode::Directory, 0o750);
    assert_eq!(mode, 0o750);
    assert_eq!(volume.get_xattr(below, ACCESS).unwrap(), with_mode(7, 5, 0));
    assert_eq!(volume.get_xattr(below, DEFAULT).unwrap(), acl(&SHARED));
    let (link, _) = born(b"link", NewNode::Symlink(b"x"), 0o777);
    assert!(volume.list_xattr(link).unwrap().is_empty());
    volume.close().expect("a clean end");
    image.check("access lists");
}
