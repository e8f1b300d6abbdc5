//! Repairs of e2fsck that reach the volume through our journal, cut at every write (in the gate at
//! a fifth of them). A cut leaves the volume as it was, or repaired, and the next fsck can
//! continue.

use crate::common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{Image, open, options};
use device::{BlockDevice, MemoryDevice};
use onejournal_ext4::{Error, InodeNo, NewNode, NoVolume, OpenOptions, Owner, RootVolume, Survey};
use onejournal_testing::{Event, SimDevice, Survival, test_name, tier};

const BLOCK: usize = 4096;

/// A volume with some files and directories. Small groups give it several copies of the superblock.
fn volume(arguments: &[&str]) -> Image {
    let image = Image::new(&[&["-J", "size=4", "-N", "512"], arguments].concat(), "10M");
    let device = image.device();
    let volume = open(&device).unwrap();
    let make = |parent, name: String, node| {
        let made = volume.make(parent, name.as_bytes(), node, 0o755, 0, Owner::default());
        made.unwrap().ino
    };
    for number in 0..8 {
        let dir = make(InodeNo::ROOT, format!("d{number}"), NewNode::Directory);
        for file in 0..40 {
            let ino = make(dir, format!("a rather long name of file {file}"), NewNode::Regular);
            volume.write(ino, 0, &vec![number; 100 * file]).unwrap();
        }
    }
    volume.close().unwrap();
    image.assert_clean(&device);
    image
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn changed(before: &[u8], after: &[u8]) -> BTreeSet<u64> {
    let pairs = before.chunks(BLOCK).zip(after.chunks(BLOCK)).enumerate();
    pairs.filter(|(_, (old, new))| old != new).map(|(block, _)| block as u64).collect()
}

/// What e2fsck makes of the image.
fn repaired(image: &Image, damaged: &[u8]) -> Vec<u8> {
    image.put(damaged);
    let (code, text) = image.e2fsck("-fy");
    assert!(code & !3 == 0, "e2fsck: {code}: {text}");
    image.bytes()
}

/// What `onejournal fsck` does before it runs e2fsck.
fn recover(device: &Arc<dyn BlockDevice>) -> onejournal_ext4::Result<()> {
    match Survey::take(device, None) {
        Err(Error::Corrupt { .. }) if onejournal_ext4::can_be_repaired(device)? => return Ok(()),
        Err(error) => return Err(error),
        Ok(survey) if survey.is_torn => onejournal_ext4::mend_superblock(device)?,
        Ok(_) => {}
    }
    let survey = Survey::take(device, None)?;
    let options = OpenOptions { background: false, ..options() };
    if !survey.needs_recovery {
        return Ok(());
    }
    if survey.has_errors {
        return onejournal_ext4::recover_only(device, &options);
    }
    match RootVolume::open(device.clone(), options.clone()) {
        Ok(volume) => volume.close(),
        Err(Error::Corrupt { .. }) => onejournal_ext4::recover_only(device, &options),
        Err(error) => Err(error),
    }
}

/// Brings a repair to the volume.
type Apply =
    fn(&Arc<dyn BlockDevice>, &Arc<dyn BlockDevice>, &BTreeSet<u64>) -> onejournal_ext4::Result<()>;

fn apply_repair(
    device: &Arc<dyn BlockDevice>,
    repaired: &Arc<dyn BlockDevice>,
    changed: &BTreeSet<u64>,
) -> onejournal_ext4::Result<()> {
    onejournal_ext4::apply_repair(device, repaired, changed, None)
}

/// Applies the repair on a simulated device and cuts it everywhere, or with a seed where the tier
/// says; for each crash that differs `judge` gets what recovery makes of it. An error when there is
/// none.
fn cut_everywhere(
    apply: Apply,
    damaged: &[u8],
    repaired: &[u8],
    sector_bytes: usize,
    seed: Option<u64>,
    judge: &mut dyn FnMut(&str, &[u8]),
) -> Result<(), String> {
    let device = Arc::new(SimDevice::from_bytes(damaged, sector_bytes));
    device.start_trace();
    let view: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(repaired.to_vec(), 512));
    let as_device: Arc<dyn BlockDevice> = device.clone();
    apply(&as_device, &view, &changed(damaged, repaired)).unwrap();
    let trace = device.take_trace();
    let mut cursor = trace.cursor();
    let mut seen: Vec<onejournal_testing::Image> = Vec::new();
    // A journal that e2fsck made again is written block by block.
    let is_last = |cut: usize| cut + 20 >= trace.events.len();
    let is_wanted = |cut: &usize| *cut < 20 || cut.is_multiple_of(61) || is_last(*cut);
    let is_taken = |at| at == 0 || seed.is_none_or(|seed| tier::takes(seed, at));
    let cuts = trace.cuts().filter(is_wanted).enumerate();
    for (_, cut) in cuts.filter(|(at, _)| is_taken(*at)) {
        cursor.advance_to(cut);
        // The superblock is torn in every way.
        let is_superblock = match trace.events.get(cut) {
            Some(Event::Write { offset, .. } | Event::DurableWrite { offset, .. }) => *offset == 0,
            _ => false,
        };
        let random = (0..if is_superblock { 60 } else { 4 }).map(Survival::Random);
        for survival in Survival::EXTREMES.into_iter().chain(random) {
            let what = format!("cut {cut} of {}, {survival:?}", trace.events.len());
            let image = cursor.crash(survival);
            if seen.contains(&image) {
                continue;
            }
            seen.push(image.clone());
            let crashed = Arc::new(SimDevice::from_image(image, sector_bytes));
            let as_device: Arc<dyn BlockDevice> = crashed.clone();
            recover(&as_device).map_err(|error| format!("{what}: {error}"))?;
            judge(&what, &crashed.image().to_bytes());
        }
    }
    judge("not cut", &device.image().to_bytes());
    Ok(())
}

/// A name, what is damaged, and whether the repair is one transaction.
type Damage = (&'static str, fn(&mut [u8]), bool);

const DAMAGES: [Damage; 10] = [
    ("the root is cleared", |bytes| inode(bytes, 2).fill(0), true),
    ("inodes are cleared", |bytes| (14..22).for_each(|number| inode(bytes, number).fill(0)), true),
    ("the block bitmap is empty", |bytes| block(bytes, 4096).fill(0), true),
    ("a piece of the inode bitmap", |bytes| block(bytes, 4096 + 4)[..512].fill(0xA5), true),
    ("half a directory", half_a_directory, true),
    ("counts of the superblock", wrong_counts, true),
    ("the journal inode's blocks", |bytes| inode(bytes, 8)[0x1C..0x20].fill(1), false),
    ("counts of a group", |bytes| bytes[4096 + 12..4096 + 18].fill(7), false),
    ("the journal inode is cleared", |bytes| inode(bytes, 8).fill(0), false),
    ("the journal's superblock", |bytes| block(bytes, journal_at(bytes))[..512].fill(3), false),
];

fn inode(bytes: &mut [u8], number: usize) -> &mut [u8] {
    let at = word(bytes, 4096 + 8) * BLOCK + (number - 1) * 256;
    &mut bytes[at..at + 256]
}

/// Where the number of the journal's first block is.
fn journal_at(bytes: &[u8]) -> usize {
    word(bytes, 4096 + 8) * BLOCK + 7 * 256 + 0x3C
}

/// The block whose number is at `at`.
fn block(bytes: &mut [u8], at: usize) -> &mut [u8] {
    let start = word(bytes, at) * BLOCK;
    &mut bytes[start..start + BLOCK]
}

fn half_a_directory(bytes: &mut [u8]) {
    let name = b"a rather long name of file 30";
    let at = bytes.windows(name.len()).rposition(|window| window == name).unwrap();
    let start = at / 512 * 512;
    bytes[start..start + 512].fill(0);
}

fn wrong_counts(bytes: &mut [u8]) {
    bytes[1024 + 0x0C..1024 + 0x14].fill(1);
    let sum = !crc32c::crc32c(&bytes[1024..1024 + 1020]);
    bytes[1024 + 1020..2048].copy_from_slice(&sum.to_le_bytes());
}

const VARIANTS: [&[&str]; 3] =
    [&[], &["-O", "^metadata_csum,^64bit"], &["-g", "1024", "-O", "orphan_file"]];

/// How often a crash left what.
#[derive(Debug, Default)]
struct Tally {
    old: usize,
    new: usize,
    /// A part of the repair, which e2fsck has to end.
    between: usize,
}

fn check(seed: u64, number: usize, (name, damage, is_one): Damage) -> Tally {
    let arguments = VARIANTS[number % VARIANTS.len()];
    let image = volume(arguments);
    let mut damaged = image.bytes();
    damage(&mut damaged);
    let repaired = repaired(&image, &damaged);
    let blocks = changed(&damaged, &repaired);
    let mut tally = Tally::default();
    let sector_bytes = [512, 4096][number % 2];
    let seed = Some(seed ^ number as u64);
    let judged = cut_everywhere(
        apply_repair,
        &damaged,
        &repaired,
        sector_bytes,
        seed,
        &mut |what, bytes| {
            // Recovery itself counts again, and writes to the superblock.
            let is =
                |other: &[u8]| changed(bytes, other).iter().all(|b| *b == 0 || !blocks.contains(b));
            assert!(!is_one || what != "not cut" || is(&repaired), "{name}: it is not applied");
            match (is(&damaged), is(&repaired)) {
                (true, true) => (tally.old, tally.new) = (tally.old + 1, tally.new + 1),
                (true, _) => tally.old += 1,
                (_, true) => tally.new += 1,
                _ if is_one => panic!("{arguments:?}, {name}, {what}: half done"),
                // The repair is half done, or blocks of the journal differ from both images. The
                // superblock says whether the repair has ended.
                _ => {
                    assert!(what != "not cut" || bytes[1024 + 0x3A] & 2 == 0, "{name}: not ended");
                    let is_ended = bytes[1024 + 0x3A] & 2 == 0;
                    *if is_ended { &mut tally.new } else { &mut tally.between } += 1;
                    image.put(bytes);
                    let (code, text) = image.e2fsck(if is_ended { "-fn" } else { "-fy" });
                    let bad = if is_ended { !0 } else { !3 };
                    assert!(code & bad == 0, "{name}, {what}: e2fsck: {code}: {text}");
                    let (code, text) = image.e2fsck("-fn");
                    assert!(code == 0, "{name}, {what}: still: {code}: {text}");
                    Survey::take(&(image.device() as Arc<dyn BlockDevice>), None).unwrap();
                }
            }
        },
    );
    judged.unwrap_or_else(|why| panic!("{arguments:?}, {name}: {why}"));
    println!("{arguments:?}, {name}: {} blocks, {tally:?}", blocks.len());
    tally
}

#[test]
fn a_repair_that_is_cut_is_done_or_not_begun() {
    let seed = tier::seed_of(test_name!());
    for (number, damage) in DAMAGES.into_iter().enumerate().filter(|(_, damage)| damage.2) {
        let tally = check(seed, number, damage);
        assert!(tally.old > 0 && tally.new > 0, "{}: {tally:?}", damage.0);
    }
}

#[test]
fn a_repair_of_the_journal_itself_that_is_cut_can_be_ended() {
    let (seed, mut between) = (tier::seed_of(test_name!()), 0);
    for (number, damage) in DAMAGES.into_iter().enumerate().filter(|(_, damage)| !damage.2) {
        let tally = check(seed, number, damage);
        assert!(tally.old > 0 && tally.new > 0, "{}: {tally:?}", damage.0);
        between += tally.between;
    }
    println!("{between} cuts in the middle of a repair");
    assert!(between > 10, "{between} cuts in the middle of a repair");
}

/// The canary: what e2fsck does itself.
#[test]
fn a_repair_in_place_that_is_cut_leaves_a_superblock_that_nothing_can_read() {
    let image = volume(&[]);
    let mut damaged = image.bytes();
    wrong_counts(&mut damaged);
    let repaired = repaired(&image, &damaged);
    let in_place: Apply = |device, view, changed| {
        for block in changed {
            let mut bytes = vec![0; BLOCK];
            view.read(block * BLOCK as u64, &mut bytes).unwrap();
            device.write(block * BLOCK as u64, &bytes).unwrap();
        }
        device.flush().unwrap();
        Ok(())
    };
    let why = cut_everywhere(in_place, &damaged, &repaired, 512, None, &mut |_, _| {});
    let why = why.unwrap_err();
    assert!(why.contains("checksum in the superblock"), "{why}");
}

/// What mke2fs puts into the superblock.
const UNDER_WAY: &str = "(onejournal mkfs is under way)";

/// mke2fs overwrites an old volume: it erases the superblock, writes everything else, then the new
/// superblock. The power is cut before its writes are durable.
#[test]
fn a_volume_that_mke2fs_overwrote_in_part_is_not_mounted() {
    let ([usual, plain, orphan_file], seed) = (VARIANTS, tier::seed_of(test_name!()));
    for (arguments, is_closed) in
        [(usual, true), (usual, false), (plain, true), (orphan_file, false)]
    {
        let (image, device) = {
            let image = volume(arguments);
            let device = image.device();
            let volume = open(&device).unwrap();
            volume
                .make(InodeNo::ROOT, b"old", NewNode::Regular, 0o644, 0, Owner::default())
                .unwrap();
            volume.sync().unwrap();
            if is_closed {
                volume.close().unwrap();
            }
            (image, device)
        };
        let old = device.to_bytes();
        drop(image);
        let new =
            Image::new(&[&["-M", UNDER_WAY, "-J", "size=4"], arguments].concat(), "10M").bytes();
        let device = Arc::new(SimDevice::from_bytes(&old, 512));
        device.start_trace();
        onejournal_ext4::begin_mkfs(&*device).unwrap();
        let begun = device.event_count() as usize;
        device.write(1024, &[0; 3072]).unwrap();
        let blocks = changed(&old, &new);
        for block in blocks.iter().rev() {
            let at = *block as usize * BLOCK;
            device.write(at as u64, &new[at..at + BLOCK]).unwrap();
        }
        let trace = device.take_trace();
        let (mut refused, mut mounted) = (0, 0);
        let mut cursor = trace.cursor();
        let is_last = |cut: usize| cut + 2 >= trace.events.len();
        let is_wanted = |cut: &usize| *cut < begun + 3 || cut.is_multiple_of(301) || is_last(*cut);
        // The first cut and the last one always: the one is mounted, the other one refused.
        let is_taken = |at, cut| cut == 0 || is_last(cut) || tier::takes(seed, at);
        let cuts = trace.cuts().filter(is_wanted).enumerate();
        for (_, cut) in cuts.filter(|(at, cut)| is_taken(*at, *cut)) {
            cursor.advance_to(cut);
            for survival in Survival::EXTREMES.into_iter().chain((0..3).map(Survival::Random)) {
                let left = cursor.crash(survival).to_bytes();
                let left = Arc::new(MemoryDevice::from_bytes(left, 512));
                let as_device: Arc<dyn BlockDevice> = left.clone();
                match recover(&as_device).and_then(|()| open(&left)?.close()) {
                    Ok(()) => {
                        assert!(cut < begun, "{arguments:?}, cut {cut}, {survival:?}: mounted");
                        mounted += 1;
                    }
                    Err(Error::NoVolume(_) | Error::Incompatible(_) | Error::Corrupt { .. }) => {
                        refused += 1
                    }
                    Err(error) => panic!("{arguments:?}, cut {cut}, {survival:?}: {error}"),
                }
            }
        }
        assert!(refused > 10 && mounted > 0, "{arguments:?}: {refused} refused, {mounted} mounted");
    }
}

/// Cut at every write of the end of `mkfs`.
#[test]
fn a_mkfs_that_is_cut_leaves_a_volume_or_says_so() {
    for arguments in VARIANTS {
        let image = Image::new(&[&["-M", UNDER_WAY, "-J", "size=4"], arguments].concat(), "10M");
        let device = Arc::new(SimDevice::from_bytes(&image.bytes(), 4096));
        device.start_trace();
        let as_device: Arc<dyn BlockDevice> = device.clone();
        onejournal_ext4::finish_mkfs(&as_device, None).unwrap();
        let trace = device.take_trace();
        let (mut refused, mut made) = (0, 0);
        let mut seen: Vec<onejournal_testing::Image> = Vec::new();
        for cut in trace.cuts() {
            for survival in Survival::EXTREMES.into_iter().chain((0..20).map(Survival::Random)) {
                let left = trace.crash(cut, survival);
                if seen.contains(&left) {
                    continue;
                }
                seen.push(left.clone());
                let crashed = Arc::new(MemoryDevice::from_bytes(left.to_bytes(), 512));
                let as_device: Arc<dyn BlockDevice> = crashed.clone();
                match recover(&as_device) {
                    Err(Error::NoVolume(NoVolume::Unfinished)) => {
                        assert!(onejournal_ext4::is_mkfs_under_way(&*as_device).unwrap());
                        refused += 1;
                    }
                    Err(error) => panic!("{arguments:?}, cut {cut}, {survival:?}: {error}"),
                    Ok(()) => {
                        open(&crashed).unwrap().close().unwrap();
                        image.assert_clean(&crashed);
                        // No copy of the superblock says that mkfs is under way.
                        let find = UNDER_WAY.as_bytes();
                        assert!(!crashed.to_bytes().windows(find.len()).any(|w| w == find));
                        made += 1;
                    }
                }
            }
        }
        assert!(refused > 0 && made > 0, "{arguments:?}: {refused} refused, {made} made");
    }
}
