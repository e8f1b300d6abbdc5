//! Inodes that map their blocks as ext2 and ext3 did. They are read and shortened as they are, and
//! get an extent tree before they grow. The kernel writes such files and reads them back; e2fsck
//! checks the volume.

use crate::common;

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use common::{Image, Mounted, open, options, read_all, run, text};
use device::MemoryDevice;
use onejournal_ext4::{
    Allocate, Error, FileKind, InodeNo, NewNode, OpenOptions, Owner, RenameHow, RootVolume, SeekTo,
    SetAttr, XattrFlags,
};
use onejournal_testing::{SimDevice, Survival, can_mount_ext4, test_name, tier};

const ROOT: InodeNo = InodeNo::ROOT;
const BLOCK: u64 = 4096;
/// First logical blocks of the branches with one, two and three levels.
const BRANCHES: [u64; 3] = [12, 12 + 1024, 12 + 1024 + 1024 * 1024];
/// Pieces of a file with a hole after each: more than one node of extents holds.
const PIECES: u64 = 400;
const EXTENTS_FLAG: u32 = 0x8_0000;

/// A volume on which mke2fs made everything with block maps, the journal and the root directory
/// too.
fn image_without_extents(options: &[&str], size: &str) -> Image {
    let features = ["-O", "^extent,^64bit", "-g", "2048", "-N", "2048"];
    Image::new(&[&features[..], options].concat(), size)
}

/// From now on new files have extents, and we open the volume.
fn turn_on_extents(image: &Image) {
    let output = run("tune2fs", &["-O", "extent", text(&image.path())]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(image.e2fsck("-fn").0, 0);
}

/// Bytes that differ from block to block.
fn pattern(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| ((at / BLOCK).wrapping_mul(31) + at % 251 + seed) as u8 | 1).collect()
}

fn lookup(
    volume: &RootVolume,
    parent: InodeNo,
    name: &str,
) -> onejournal_ext4::Result<onejournal_ext4::Attr> {
    let attr = volume.lookup(parent, name.as_bytes())?;
    volume.forget(attr.ino, 1);
    Ok(attr)
}

fn has_extents(volume: &RootVolume, ino: InodeNo) -> bool {
    volume.get_attr(ino).unwrap().flags & EXTENTS_FLAG != 0
}

/// A name and its content.
type Files = BTreeMap<String, Vec<u8>>;

/// Files of every shape that the kernel writes without extents: each branch of the map, and holes.
fn write_files(dir: &Path) -> Files {
    let mut files = Files::new();
    for (name, len) in [
        ("empty", 0),
        ("byte", 1),
        ("direct", 12 * BLOCK),
        ("one", 13 * BLOCK - 7),
        ("two", (12 + 1024 + 30) * BLOCK + 5),
    ] {
        files.insert(name.into(), pattern(len, len));
        std::fs::write(dir.join(name), &files[name]).unwrap();
    }
    let mut holes = vec![0; (BRANCHES[1] as usize + 2000) * BLOCK as usize];
    let file = std::fs::File::create(dir.join("holes")).unwrap();
    file.set_len(holes.len() as u64).unwrap();
    for at in [0, 5, 11, 12, 700, 1035, 1036, 1500, 2059, 2060, 3000] {
        let data = pattern(at, BLOCK + 100);
        file.write_all_at(&data, at * BLOCK).unwrap();
        holes[(at * BLOCK) as usize..][..data.len()].copy_from_slice(&data);
    }
    files.insert("holes".into(), holes);
    for (name, step) in [("a", 2), ("b", 3)] {
        let mut content = vec![0; (PIECES * step * BLOCK) as usize];
        let file = std::fs::File::create(dir.join(name)).unwrap();
        file.set_len(content.len() as u64).unwrap();
        for at in (0..PIECES).map(|piece| piece * step) {
            let data = pattern(at, BLOCK);
            file.write_all_at(&data, at * BLOCK).unwrap();
            content[(at * BLOCK) as usize..][..data.len()].copy_from_slice(&data);
        }
        files.insert(name.into(), content);
    }
    files
}

/// A few blocks on both sides of where the branch with three levels begins.
const TRIPLE: [u64; 4] = [0, BRANCHES[2] - 1, BRANCHES[2], BRANCHES[2] + 5000];

fn write_triple(dir: &Path) {
    let mut file = std::fs::File::create(dir.join("triple")).unwrap();
    for at in TRIPLE {
        file.seek(SeekFrom::Start(at * BLOCK)).unwrap();
        file.write_all(&pattern(at, BLOCK)).unwrap();
    }
}

/// Names, links and attributes without extents.
fn write_names(dir: &Path) {
    std::fs::create_dir(dir.join("d")).unwrap();
    for n in 0..600 {
        std::fs::write(dir.join(format!("d/{n}{}", "n".repeat(100))), "").unwrap();
    }
    std::fs::create_dir(dir.join("small")).unwrap();
    std::os::unix::fs::symlink("s".repeat(59), dir.join("fast")).unwrap();
    std::os::unix::fs::symlink("s".repeat(60), dir.join("slow")).unwrap();
    let value = [7; 500];
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(dir.join("one"), "user.large", &value, flags).unwrap();
}

/// The bytes of an image, and the files in it.
type Made = (Vec<u8>, Files);

/// Such a volume, made once for each choice of features.
fn kernel_volume(features: &'static [&'static str]) -> Option<(Image, Files)> {
    static MADE: Mutex<BTreeMap<&[&str], Made>> = Mutex::new(BTreeMap::new());
    if !can_mount_ext4() {
        return None;
    }
    let image = image_without_extents(features, "48M");
    let mut made = MADE.lock().unwrap();
    let (bytes, files) = made.entry(features).or_insert_with(|| {
        let mounted = Mounted::new(&image.path(), "rw").expect("the kernel mounts a new volume");
        let files = write_files(&mounted.path(""));
        write_triple(&mounted.path(""));
        write_names(&mounted.path(""));
        drop(mounted);
        turn_on_extents(&image);
        (image.bytes(), files)
    });
    image.put(bytes);
    Some((image, files.clone()))
}

fn count_names(volume: &RootVolume, dir: InodeNo) -> usize {
    let mut count = 0;
    volume
        .read_dir(dir, 0, &mut |_| {
            count += 1;
            true
        })
        .unwrap();
    count
}

const FEATURES: [&[&str]; 2] = [&[], &["-O", "^metadata_csum"]];

#[test]
fn files_that_the_kernel_wrote_without_extents_are_read() {
    for features in FEATURES {
        let Some((image, files)) = kernel_volume(features) else { return };
        let device = image.device();
        let volume = open(&device).unwrap();
        for (name, content) in &files {
            let ino = lookup(&volume, ROOT, name).unwrap().ino;
            assert!(!has_extents(&volume, ino));
            assert!(read_all(&volume, ino) == *content, "{name}");
        }
        let triple = lookup(&volume, ROOT, "triple").unwrap().ino;
        assert_eq!(volume.seek(triple, 0, SeekTo::Hole).unwrap(), BLOCK);
        let mut next = 0;
        for at in TRIPLE {
            let mut block = vec![0; BLOCK as usize];
            assert_eq!(volume.read(triple, at * BLOCK, &mut block).unwrap(), block.len());
            assert!(block == pattern(at, BLOCK), "block {at}");
            assert_eq!(volume.seek(triple, next, SeekTo::Data).unwrap(), at * BLOCK);
            next = (at + 1) * BLOCK;
        }
        let d = lookup(&volume, ROOT, "d").unwrap().ino;
        assert_eq!(count_names(&volume, d), 602);
        for (name, len) in [("fast", 59), ("slow", 60)] {
            let ino = lookup(&volume, ROOT, name).unwrap().ino;
            assert_eq!(volume.read_link(ino).unwrap(), vec![b's'; len]);
        }
        let one = lookup(&volume, ROOT, "one").unwrap().ino;
        assert_eq!(volume.get_xattr(one, b"user.large").unwrap(), [7; 500]);
        volume.set_xattr(one, b"user.other", &[8; 300], XattrFlags::Create).unwrap();
        assert!(!has_extents(&volume, one), "attributes need no extents");
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

/// Grows, overwrites, shortens, punches and zeroes every file; removes some. The kernel reads what
/// is left.
#[test]
fn they_are_changed_and_the_kernel_reads_them() {
    for features in FEATURES {
        let Some((image, mut files)) = kernel_volume(features) else { return };
        let device = image.device();
        let volume = open(&device).unwrap();
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        for (name, content) in &mut files {
            let ino = lookup(&volume, ROOT, name).unwrap().ino;
            for _ in 0..12 {
                change(&volume, ino, content, &mut random);
            }
            assert!(read_all(&volume, ino) == *content, "{name}");
        }
        for name in ["two", "slow", "fast"] {
            volume.unlink(ROOT, name.as_bytes()).unwrap();
            files.remove(name);
        }
        // One file is cut to nothing as it is, one is replaced.
        let triple = lookup(&volume, ROOT, "triple").unwrap().ino;
        set_size(&volume, triple, 3 * BLOCK);
        assert!(!has_extents(&volume, triple), "shortening needs no extents");
        volume.rename(ROOT, b"a", ROOT, b"b", RenameHow::Replace).unwrap();
        let content = files.remove("a").unwrap();
        files.insert("b".into(), content);
        change_names(&volume);
        volume.close().unwrap();
        image.assert_clean(&device);
        let mounted = Mounted::new(&image.path(), "rw").expect("the kernel mounts a clean volume");
        for (name, content) in &files {
            assert!(std::fs::read(mounted.path(name)).unwrap() == *content, "{name}");
        }
        assert_eq!(std::fs::metadata(mounted.path("triple")).unwrap().len(), 3 * BLOCK);
        assert_eq!(std::fs::read_dir(mounted.path("d")).unwrap().count(), 600 - 100 + 300);
        assert_eq!(std::fs::read_dir(mounted.path("small")).unwrap().count(), 1);
    }
}

fn set_size(volume: &RootVolume, ino: InodeNo, size_bytes: u64) {
    let set = SetAttr { size_bytes: Some(size_bytes), ..SetAttr::default() };
    volume.set_attr(ino, &set).unwrap();
}

fn change_names(volume: &RootVolume) {
    let d = lookup(volume, ROOT, "d").unwrap().ino;
    let small = lookup(volume, ROOT, "small").unwrap().ino;
    let long = |n: usize| format!("{n}{}", "n".repeat(100)).into_bytes();
    (0..100).for_each(|n| volume.unlink(d, &long(n)).unwrap());
    assert!(!has_extents(volume, d), "removing names needs no extents");
    for n in 0..300 {
        let name = format!("new{n}{}", "n".repeat(100)).into_bytes();
        volume.make(d, &name, NewNode::Regular, 0o644, 0, Owner::default()).unwrap();
    }
    assert!(has_extents(volume, d));
    volume.rename(d, &long(100), small, b"moved", RenameHow::NoReplace).unwrap();
    volume.link(lookup(volume, small, "moved").unwrap().ino, d, &long(100)).unwrap();
}

/// One change of a file, and of what it should hold.
fn change(volume: &RootVolume, ino: InodeNo, content: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let size = content.len() as u64;
    let offset = random.u64(..size + 3 * BLOCK);
    let len = random.u64(1..6 * BLOCK);
    let within = |content: &[u8]| {
        let end = (offset + len).min(content.len() as u64);
        offset.min(end) as usize..end as usize
    };
    match random.u8(..7) {
        0 => {
            let small = random.u64(..=size);
            set_size(volume, ino, small);
            content.truncate(small as usize);
        }
        1 | 2 => {
            let data = pattern(random.u64(..), len);
            assert_eq!(volume.write(ino, offset, &data).unwrap(), data.len());
            content.resize(content.len().max((offset + len) as usize), 0);
            content[offset as usize..][..data.len()].copy_from_slice(&data);
        }
        3 | 4 => {
            volume.fallocate(ino, Allocate::PunchHole, offset, len).unwrap();
            let range = within(content);
            content[range].fill(0);
        }
        5 => {
            let how = Allocate::ZeroRange { keep_size: true };
            volume.fallocate(ino, how, offset, len).unwrap();
            let range = within(content);
            content[range].fill(0);
        }
        _ => {
            volume.fallocate(ino, Allocate::Extend, offset, len).unwrap();
            content.resize(content.len().max((offset + len) as usize), 0);
        }
    }
}

/// Punching and shortening work on the map itself, whatever is where in it.
#[test]
fn random_ranges_are_punched_out_of_block_maps() {
    let Some((image, files)) = kernel_volume(&[]) else { return };
    let bytes = image.bytes();
    for seed in tier::seeds(test_name!(), 12) {
        let device = Arc::new(MemoryDevice::from_bytes(bytes.clone(), 512));
        let volume = open(&device).unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        for name in ["holes", "a", "two", "one"] {
            let mut content = files[name].clone();
            let ino = lookup(&volume, ROOT, name).unwrap().ino;
            for _ in 0..6 {
                let offset = random.u64(..content.len() as u64);
                let len = 1 + random.u64(..content.len() as u64) / random.u64(1..40);
                volume.fallocate(ino, Allocate::PunchHole, offset, len).unwrap();
                let end = (offset + len).min(content.len() as u64);
                content[offset as usize..end as usize].fill(0);
            }
            assert!(!has_extents(&volume, ino), "punching needs no extents");
            assert!(read_all(&volume, ino) == content, "seed {seed}, {name}");
        }
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

/// A volume whose `lost+found` is gone and that has a file and a directory without a name.
fn rescued() -> Image {
    let image = Image::new(&[], "32M");
    let device = image.device();
    let volume = open(&device).unwrap();
    let file = volume.make(ROOT, b"f", NewNode::Regular, 0o644, 0, Owner::default()).unwrap();
    volume.write(file.ino, 0, b"rescue me").unwrap();
    volume.make(ROOT, b"d", NewNode::Directory, 0o755, 0, Owner::default()).unwrap();
    volume.close().unwrap();
    image.save(&device);
    for command in ["rmdir lost+found", "unlink f", "unlink d"] {
        image.debugfs(command);
    }
    assert_eq!(image.e2fsck("-fy").0, 1, "e2fsck mends the volume");
    assert_eq!(image.e2fsck("-fn").0, 0);
    image
}

#[test]
fn files_that_e2fsck_rescues_are_reached() {
    let image = rescued();
    let device = image.device();
    let volume = open(&device).unwrap();
    let found = lookup(&volume, ROOT, "lost+found").unwrap().ino;
    assert!(!has_extents(&volume, found), "e2fsck makes it with a block map");
    let mut names = Vec::new();
    let mut each = |entry: onejournal_ext4::DirEntry<'_>| {
        names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.kind));
        true
    };
    volume.read_dir(found, 0, &mut each).unwrap();
    let rescued = |kind| names.iter().find(|(name, k)| name.starts_with('#') && *k == Some(kind));
    let (file, _) = rescued(FileKind::Regular).expect("the file");
    let (dir, _) = rescued(FileKind::Directory).expect("the directory");
    let ino = lookup(&volume, found, file).unwrap().ino;
    assert_eq!(read_all(&volume, ino), b"rescue me");
    volume.rename(found, file.as_bytes(), ROOT, b"f", RenameHow::NoReplace).unwrap();
    volume.rename(found, dir.as_bytes(), ROOT, b"d", RenameHow::NoReplace).unwrap();
    for n in 0..2000 {
        let name = format!("n{n}{}", "n".repeat(100));
        volume.make(found, name.as_bytes(), NewNode::Regular, 0o644, 0, Owner::default()).unwrap();
    }
    volume.close().unwrap();
    image.assert_clean(&device);
}

/// On a full volume, the blocks of the old map make the new tree.
#[test]
fn a_full_volume_is_no_obstacle() {
    let Some((image, files)) = kernel_volume(&[]) else { return };
    let device = image.device();
    let volume = open(&device).unwrap();
    let fill = volume.make(ROOT, b"fill", NewNode::Regular, 0o644, 0, Owner::default()).unwrap();
    let mut size = 0;
    for len in [1 << 20, 4096] {
        while let Ok(written) = volume.write(fill.ino, size, &vec![7; len]) {
            size += written as u64;
        }
    }
    for name in ["two", "a", "holes"] {
        let ino = lookup(&volume, ROOT, name).unwrap().ino;
        assert_eq!(volume.write(ino, 3, b"xyz").unwrap(), 3);
        assert!(has_extents(&volume, ino));
        let mut wanted = files[name].clone();
        wanted[3..6].copy_from_slice(b"xyz");
        assert!(read_all(&volume, ino) == wanted, "{name}");
    }
    volume.close().unwrap();
    image.assert_clean(&device);
}

/// After every cut the file has its old content or the new one.
#[test]
fn conversion_is_atomic() {
    let Some((image, files)) = kernel_volume(&[]) else { return };
    let device = image.sim_device();
    let open_sim = |device: Arc<SimDevice>| RootVolume::open(device, options()).unwrap();
    let volume = open_sim(device.clone());
    let name = "a";
    let ino = lookup(&volume, ROOT, name).unwrap().ino;
    let end = files[name].len() as u64;
    device.start_trace();
    volume.write(ino, end, &pattern(5, 3 * BLOCK)).unwrap();
    volume.sync().unwrap();
    let trace = device.take_trace();
    let new = [files[name].clone(), pattern(5, 3 * BLOCK)].concat();
    let mut cursor = trace.cursor();
    let mut outcomes = [0, 0];
    for cut in trace.cuts() {
        cursor.advance_to(cut);
        for survival in Survival::EXTREMES.into_iter().chain((0..2).map(Survival::Random)) {
            let crashed = Arc::new(SimDevice::from_image(cursor.crash(survival), 512));
            let volume = open_sim(crashed.clone());
            let content = read_all(&volume, lookup(&volume, ROOT, name).unwrap().ino);
            assert!(content == files[name] || content == new, "cut {cut}, {survival:?}");
            outcomes[usize::from(content == new)] += 1;
            volume.close().unwrap();
            image.put(&crashed.image().to_bytes());
            assert_eq!(image.e2fsck("-fn").0, 0, "cut {cut}, {survival:?}");
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

/// Where the inode of a file is, from the start of the image; on a volume without checksums.
fn inode_offset(bytes: &[u8], ino: InodeNo) -> usize {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let per_group = word(1024 + 0x28);
    let index = ino.0 as usize - 1;
    let table = word(4096 + index / per_group * 32 + 8);
    table * 4096 + index % per_group * 256
}

/// Everything that uses a map.
fn use_it(volume: &RootVolume, random: &mut fastrand::Rng) {
    for name in ["two", "holes", "a", "triple", "d"] {
        let Ok(attr) = lookup(volume, ROOT, name) else { continue };
        let ino = attr.ino;
        let _ = volume.read(ino, random.u64(..attr.size_bytes.max(1)), &mut vec![0; 1 << 20]);
        let _ = volume.seek(ino, 0, SeekTo::Hole);
        let _ = volume.read_dir(ino, 0, &mut |_| true);
        let offset = random.u64(..2 << 20);
        let _ = match random.u8(..5) {
            0 => volume.fallocate(ino, Allocate::PunchHole, offset, 1 << 20),
            1 => volume.write(ino, offset, &[1; 9000]).map(drop),
            2 => {
                let set = SetAttr { size_bytes: Some(offset), ..SetAttr::default() };
                volume.set_attr(ino, &set).map(drop)
            }
            3 => volume.unlink(ROOT, name.as_bytes()),
            _ => volume.make(ino, b"n", NewNode::Regular, 0o644, 0, Owner::default()).map(drop),
        };
    }
}

#[test]
fn hostile_block_maps_never_panic_and_never_hang() {
    let Some((image, _)) = kernel_volume(&["-O", "^metadata_csum"]) else { return };
    let volume = open(&image.device()).unwrap();
    let inos =
        ["two", "holes", "a", "triple", "d"].map(|name| lookup(&volume, ROOT, name).unwrap().ino);
    drop(volume);
    let bytes = image.bytes();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    // The pointers of the inodes, and the map blocks that they name.
    let roots = inos.map(|ino| inode_offset(&bytes, ino) + 0x28);
    let mut places: Vec<usize> =
        roots.iter().flat_map(|at| (0..15).map(move |i| at + i * 4)).collect();
    let nodes: Vec<u32> = roots
        .iter()
        .flat_map(|at| (12..15).map(move |i| word(at + i * 4)))
        .filter(|at| *at != 0)
        .collect();
    for node in &nodes {
        places.extend((0..40).map(|i| *node as usize * 4096 + i * 4));
    }
    for seed in tier::seeds(test_name!(), 200) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = bytes.clone();
        for _ in 0..random.usize(1..5) {
            let value = match random.u8(..5) {
                0 => u32::MAX,
                1 => random.u32(..),
                2 => random.u32(..64), // the volume's own metadata
                3 => nodes[random.usize(..nodes.len())], // a cycle
                _ => random.u32(..24_576),
            };
            let at = places[random.usize(..places.len())];
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
        let volume =
            RootVolume::open(device, OpenOptions { read_only: seed % 9 == 0, ..options() })
                .expect("the damage is elsewhere");
        use_it(&volume, &mut random);
        drop(volume);
    }
}

/// The three kinds of nonsense by name.
#[test]
fn hostile_pointers_are_refused() {
    let Some((image, _)) = kernel_volume(&["-O", "^metadata_csum"]) else { return };
    let volume = open(&image.device()).unwrap();
    let ino = lookup(&volume, ROOT, "two").unwrap().ino;
    drop(volume);
    let bytes = image.bytes();
    let root = inode_offset(&bytes, ino) + 0x28;
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let double = word(root + 13 * 4);
    for (value, what) in [(u32::MAX, "out of range"), (1, "a descriptor"), (double, "a cycle")] {
        let mut bytes = bytes.clone();
        bytes[double as usize * 4096..][..4].copy_from_slice(&value.to_le_bytes());
        let device = Arc::new(MemoryDevice::from_bytes(bytes, 512));
        let volume = open(&device).unwrap();
        let refused = |error: onejournal_ext4::Result<usize>| {
            assert!(matches!(error, Err(Error::Corrupt { .. })), "{what}: {error:?}");
        };
        let before = volume.get_attr(ino).unwrap();
        refused(volume.write(ino, 0, b"x"));
        assert_eq!(volume.get_attr(ino).unwrap(), before, "a failed conversion changes nothing");
        if value != double {
            // The first map block is read as data of the second level: that is no error of its own.
            refused(volume.read(ino, BRANCHES[1] * BLOCK, &mut [0; 10]));
        }
        set_size_fails(&volume, ino, what);
    }
}

fn set_size_fails(volume: &RootVolume, ino: InodeNo, what: &str) {
    let set = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
    let error = volume.set_attr(ino, &set).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{what}: {error:?}");
}
