//! Images made for an attack: bytes of directories, index blocks and attribute blocks are changed
//! at random on a volume without checksums. Every operation then ends with an answer or an error,
//! and never with a panic.

use crate::support;

use std::sync::Arc;

use crate::common::options;
use device::MemoryDevice;
use onejournal_ext4::{InodeNo, NewNode, RenameHow, RootVolume, XattrFlags};
use onejournal_testing::{test_name, tier};
use support::{Image, lookup, make};

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: usize = 4096;

struct Target {
    bytes: Vec<u8>,
    /// Byte offsets of the blocks to damage.
    blocks: Vec<usize>,
    many: InodeNo,
    file: InodeNo,
}

fn numbers(text: &str) -> Vec<usize> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn target() -> Target {
    let image = Image::new(24, &["-O", "^metadata_csum"]);
    let volume = image.open();
    let many = make(&volume, ROOT, b"many", NewNode::Directory).unwrap().ino;
    let file = make(&volume, ROOT, b"file", NewNode::Regular).unwrap().ino;
    for n in 0..9000 {
        // Long names: an index of two levels in few entries.
        volume.link(file, many, format!("{n:04}{}", "n".repeat(251)).as_bytes()).unwrap();
        volume.forget(file, 1);
    }
    make(&volume, many, b"sub", NewNode::Directory).unwrap();
    for n in 0..5 {
        volume.set_xattr(file, format!("user.{n}").as_bytes(), &[n; 300], XattrFlags::Any).unwrap();
    }
    volume.close().unwrap();
    image.save();
    // Root and nodes of the index, some leaves, the root directory, the attribute block.
    let all = numbers(&image.debugfs("blocks /many"));
    let mut blocks: Vec<usize> = all.iter().take(4).copied().collect();
    let index_blocks = all.iter().filter(|block| is_index_node(&image, **block));
    blocks.extend(index_blocks);
    blocks.extend(numbers(&image.debugfs("blocks /")));
    let stat = image.debugfs("stat /file");
    let acl = stat.lines().find_map(|line| line.strip_prefix("File ACL: ")).unwrap();
    blocks.extend(numbers(acl));
    blocks.iter_mut().for_each(|block| *block *= BLOCK);
    Target { bytes: onejournal_testing::read_sparse(&image.path()).unwrap(), blocks, many, file }
}

fn is_index_node(image: &Image, block: usize) -> bool {
    use std::os::unix::fs::FileExt;
    let mut head = [0; 8];
    std::fs::File::open(image.path())
        .unwrap()
        .read_exact_at(&mut head, (block * BLOCK) as u64)
        .unwrap();
    head == [0, 0, 0, 0, 0, 16, 0, 0]
}

/// Everything that walks names and attributes.
fn use_it(volume: &RootVolume, target: &Target, random: &mut fastrand::Rng) {
    let name = |n: u32| format!("{n:04}{}", "n".repeat(251)).into_bytes();
    for dir in [target.many, ROOT] {
        let mut left = 20_000;
        let _ = volume.read_dir(dir, random.u64(..) >> random.u32(1..64), &mut |_| {
            left -= 1;
            left > 0
        });
        for n in 0..8 {
            let _ = lookup(volume, dir, &name(random.u32(..9000)));
            let _ = make(volume, dir, format!("new{n}").as_bytes(), NewNode::Directory);
            let _ = volume.unlink(dir, &name(random.u32(..9000)));
            let to = format!("moved{n}").into_bytes();
            let _ = volume.rename(dir, &name(random.u32(..9000)), ROOT, &to, RenameHow::Exchange);
            let _ = volume.rename(dir, &name(random.u32(..9000)), ROOT, &to, RenameHow::Replace);
            let _ = volume.rename(
                dir,
                format!("new{n}").as_bytes(),
                target.many,
                &to,
                RenameHow::Replace,
            );
        }
        for name in [&b"sub"[..], b"many", b"lost+found", b"moved1"] {
            let _ = lookup(volume, dir, name);
            let _ = lookup(volume, dir, b"..");
            let _ = volume.rmdir(dir, name);
        }
    }
    let _ = volume.list_xattr(target.file);
    let _ = volume.get_xattr(target.file, b"user.3");
    let _ = volume.set_xattr(target.file, b"user.4", &[1; 200], XattrFlags::Any);
    let _ = volume.remove_xattr(target.file, b"user.1");
}

#[test]
fn damaged_directories_never_panic_and_never_hang() {
    let target = target();
    assert!(target.blocks.len() >= 8, "an index of two levels: {:?}", target.blocks);
    for seed in tier::seeds(test_name!(), 150) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = target.bytes.clone();
        for _ in 0..random.usize(1..4) {
            let block = target.blocks[random.usize(..target.blocks.len())];
            let len = if random.bool() { 64 } else { BLOCK };
            for _ in 0..random.usize(1..20) {
                bytes[block + random.usize(..len)] = random.u8(..);
            }
        }
        let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
        let volume = RootVolume::open(device, options()).expect("the damage is elsewhere");
        use_it(&volume, &target, &mut random);
        drop(volume);
    }
}

#[test]
fn the_same_damage_is_noticed_by_checksums() {
    let image = Image::new(24, &[]);
    let volume = image.open();
    make(&volume, ROOT, b"file", NewNode::Regular).unwrap();
    volume.close().unwrap();
    image.save();
    let block = numbers(&image.debugfs("blocks /"))[0];
    let mut bytes = onejournal_testing::read_sparse(&image.path()).unwrap();
    // The inode number of `file` becomes another one; nothing else is wrong with the block.
    let name = bytes[block * BLOCK..].windows(4).position(|four| four == b"file").unwrap();
    bytes[block * BLOCK + name - 8] ^= 1;
    let volume =
        RootVolume::open(Arc::new(MemoryDevice::from_bytes(bytes, 512)), options()).unwrap();
    let error = lookup(&volume, ROOT, b"file").unwrap_err();
    assert!(error.to_string().contains("checksum"), "{error}");
}
