//! The allocators through the volume's interface: many groups, uninitialised groups, the last block
//! and the last inode.

use crate::common;

use common::{Image, open};
use onejournal_ext4::{Error, FileKind, InodeNo, NewNode, Owner, RootVolume};

/// Small groups, so that there are many, on a medium that is not zeros.
const VARIANTS: [&[&str]; 6] = [
    &["-g", "2048", "-N", "1024"],
    &["-g", "2048", "-N", "1024", "-G", "4", "-O", "metadata_csum_seed,orphan_file"],
    &["-g", "2048", "-N", "1024", "-O", "^metadata_csum,uninit_bg"],
    &["-g", "2048", "-N", "1024", "-O", "^metadata_csum,^64bit,^flex_bg,^resize_inode"],
    &["-g", "2048", "-N", "1024", "-O", "sparse_super2"],
    &["-g", "2048", "-N", "1024", "-E", "packed_meta_blocks=1,nodiscard,lazy_itable_init=1"],
];

fn make(
    volume: &RootVolume,
    parent: InodeNo,
    name: &str,
    node: NewNode<'_>,
) -> onejournal_ext4::Result<InodeNo> {
    let attr = volume.make(parent, name.as_bytes(), node, 0o755, 0, Owner::default())?;
    assert_eq!(attr.kind == FileKind::Directory, matches!(node, NewNode::Directory));
    Ok(attr.ino)
}

/// Makes directories and files in them until there is no inode left.
fn use_up_inodes(volume: &RootVolume) -> Vec<(InodeNo, String, InodeNo)> {
    let mut made = Vec::new();
    let mut parent = InodeNo::ROOT;
    for index in 0.. {
        let is_directory = index % 20 == 0;
        let node = if is_directory { NewNode::Directory } else { NewNode::Regular };
        let place = if is_directory && index % 40 == 0 { InodeNo::ROOT } else { parent };
        let name = format!("n{index}");
        match make(volume, place, &name, node) {
            Ok(ino) => {
                made.push((place, name, ino));
                if is_directory {
                    parent = ino;
                }
            }
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    made
}

#[test]
fn every_inode_can_be_used_and_freed() {
    for arguments in VARIANTS {
        let image = Image::on_garbage(arguments, 64);
        let device = image.device();
        let volume = open(&device).unwrap();
        let before = volume.stat_fs().unwrap();
        let made = use_up_inodes(&volume);
        assert_eq!(made.len() as u64, before.free_inode_count, "{arguments:?}");
        assert_eq!(volume.stat_fs().unwrap().free_inode_count, 0);
        volume.close().unwrap();
        image.assert_clean(&device);

        let volume = open(&device).unwrap();
        for (parent, name, _) in made.iter().rev() {
            let kind = volume.lookup(*parent, name.as_bytes()).unwrap();
            volume.forget(kind.ino, 1);
            match kind.kind {
                FileKind::Directory => volume.rmdir(*parent, name.as_bytes()).unwrap(),
                _ => volume.unlink(*parent, name.as_bytes()).unwrap(),
            }
        }
        assert_eq!(volume.stat_fs().unwrap().free_inode_count, before.free_inode_count);
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

#[test]
fn every_block_can_be_used_and_freed() {
    for arguments in VARIANTS {
        let image = Image::on_garbage(arguments, 64);
        let device = image.device();
        let volume = open(&device).unwrap();
        let before = volume.stat_fs().unwrap();
        let file = make(&volume, InodeNo::ROOT, "all", NewNode::Regular).unwrap();
        let chunk = vec![9; 256 << 10];
        let mut offset = 0;
        while let Ok(count) = volume.write(file, offset, &chunk) {
            offset += count as u64;
        }
        while let Ok(count) = volume.write(file, offset, &chunk[..4096]) {
            offset += count as u64;
        }
        // The remaining blocks are the pool for nodes of extent trees: 2 %.
        let left = volume.stat_fs().unwrap().free_block_count;
        let pool = (64 << 20) / 4096 / 50;
        assert_eq!(left, pool, "{arguments:?}");
        volume.close().unwrap();
        image.assert_clean(&device);

        let volume = open(&device).unwrap();
        let mut back = vec![0; 4096];
        assert_eq!(volume.read(file, offset - 4096, &mut back).unwrap(), 4096);
        assert!(back.iter().all(|byte| *byte == 9));
        volume.unlink(InodeNo::ROOT, b"all").unwrap();
        assert_eq!(volume.stat_fs().unwrap().free_block_count, before.free_block_count);
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

#[test]
fn stat_fs_agrees_with_the_superblock() {
    let image = Image::new(&["-m", "5"], "64M");
    let volume = open(&image.device()).unwrap();
    let stat = volume.stat_fs().unwrap();
    let bytes = image.bytes();
    let word = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
    assert_eq!(stat.free_block_count, word(1024 + 0x0C));
    let pool = word(1024 + 0x04) / 50;
    assert_eq!(stat.available_block_count, word(1024 + 0x0C) - word(1024 + 0x08) - pool);
    assert_eq!(stat.free_inode_count, word(1024 + 0x10));
    assert_eq!(stat.block_count, word(1024 + 0x04) - word(1024 + 0x248));
}
