//! Changes a volume with any content: a fixed, short list of operations on the inodes that were
//! found.

use ext4::{
    Allocate, FileKind, InodeNo, NewNode, Owner, RenameHow, Result, RootVolume, SetAttr, XattrFlags,
};

use super::walk::Seen;

/// Inodes of each type that are changed.
const CHANGED_COUNT: usize = 4;

/// Performs the operations. Each may fail.
pub(super) fn change(volume: &RootVolume, seen: &Seen) {
    let of = |kind: FileKind| {
        let those = seen.inodes.iter().filter(move |(_, found, _)| *found == kind);
        those.map(|(ino, ..)| *ino).take(CHANGED_COUNT)
    };
    for ino in of(FileKind::Regular) {
        change_file(volume, ino);
    }
    for dir in of(FileKind::Directory) {
        change_directory(volume, dir);
    }
    let _ = volume.sync();
    let _ = volume.journal().checkpoint();
}

fn change_file(volume: &RootVolume, ino: InodeNo) {
    let _ = volume.write(ino, 0, &[1; 100]);
    let _ = volume.write(ino, 13 << 12, &[2; 9000]);
    let _ = volume.fallocate(ino, Allocate::PunchHole, 2 << 12, 3 << 12);
    let _ = volume.fallocate(ino, Allocate::KeepSize, 40 << 12, 8 << 12);
    for n in 0..3 {
        let name = [b"user.new".as_slice(), &[b'0' + n]].concat();
        let _ = volume.set_xattr(ino, &name, &[n; 90], XattrFlags::Any);
    }
    let _ = volume.remove_xattr(ino, b"user.new1");
    let _ = volume.fsync(ino, false);
    let cut = SetAttr { size_bytes: Some(5000), ..SetAttr::default() };
    let _ = volume.set_attr(ino, &cut);
}

fn change_directory(volume: &RootVolume, dir: InodeNo) {
    let long = [b'l'; 250];
    for name in [&b"new"[..], &long, b"other"] {
        let _ = made(volume, dir, name, NewNode::Directory);
    }
    let _ = made(volume, dir, b"link", NewNode::Symlink(&[b's'; 100]));
    if let Ok(file) = made(volume, dir, b"file", NewNode::Regular) {
        let _ = volume.write(file, 0, &[3; 20_000]);
        let _ = volume.link(file, dir, b"file too");
    }
    let _ = volume.rename(dir, b"new", dir, b"other", RenameHow::Replace);
    let _ = volume.rename(dir, b"file", InodeNo::ROOT, b"moved", RenameHow::Exchange);
    let _ = volume.rename(dir, b"file", InodeNo::ROOT, b"moved", RenameHow::NoReplace);
    let _ = volume.rmdir(dir, b"other");
    let mut names = Vec::new();
    let _ = volume.read_dir(dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        names.len() < 6
    });
    for name in names {
        let _ = volume.unlink(dir, &name);
        let _ = volume.rmdir(dir, &name);
    }
}

fn made(volume: &RootVolume, dir: InodeNo, name: &[u8], node: NewNode<'_>) -> Result<InodeNo> {
    let attr = volume.make(dir, name, node, 0o755, 0o022, Owner::default())?;
    volume.forget(attr.ino, 1);
    Ok(attr.ino)
}
