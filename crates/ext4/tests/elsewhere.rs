//! A journal on a medium of its own: which one a volume takes, and what a crash leaves.

mod common;

use std::sync::Arc;

use common::{Image, options};
use device::{BlockDevice, MappedNvram, MemoryDevice, SimClock, SimDevice, SimNvram, Survival};
use ext4::{InodeNo, NewNode, OpenOptions, Owner, Survey, Volume};
use journal::Medium;

const JOURNAL_BYTES: u64 = 4 << 20;

fn nvram() -> Medium {
    Medium::Nvram(Arc::new(MappedNvram::in_memory(JOURNAL_BYTES as usize).unwrap()))
}

fn open<D: BlockDevice + 'static>(
    device: &Arc<D>,
    journal: Option<&Medium>,
) -> ext4::Result<Volume> {
    let options = OpenOptions { journal: journal.cloned(), region_count: 2, ..options() };
    Volume::open(device.clone(), options)
}

/// The refusal, after which neither volume nor journal has been written to.
#[track_caller]
fn refused(device: &Arc<MemoryDevice>, journal: Option<&Medium>, word: &str) {
    let (volume_before, journal_before) = (device.to_bytes(), journal.map(bytes_of));
    let error = open(device, journal).err().expect("it must be refused").to_string();
    assert!(error.contains(word), "no {word:?} in {error:?}");
    assert!(device.to_bytes() == volume_before && journal.map(bytes_of) == journal_before);
}

fn bytes_of(medium: &Medium) -> Vec<u8> {
    let mut bytes = vec![0; medium.len_bytes() as usize];
    match medium {
        Medium::Block(device) => device.read(0, &mut bytes).unwrap(),
        Medium::Nvram(nvram) => nvram.read(0, &mut bytes).unwrap(),
    }
    bytes
}

fn make_synced(volume: &Volume, name: &str) {
    let name = name.as_bytes();
    volume.make(InodeNo::ROOT, name, NewNode::Regular, 0o644, 0, Owner::default()).unwrap();
    volume.sync().unwrap();
}

fn has(volume: &Volume, name: &str) -> bool {
    volume.lookup(InodeNo::ROOT, name.as_bytes()).is_ok()
}

#[test]
fn a_volume_is_ordinary_again_after_it_was_closed() {
    let block = Medium::Block(Arc::new(MemoryDevice::new(JOURNAL_BYTES as usize, 512)));
    for (journal, arguments) in [(nvram(), &[][..]), (block, &["-O", "^metadata_csum"][..])] {
        let image = Image::new(arguments, "64M");
        let device = image.device();
        for name in ["first", "second"] {
            let volume = open(&device, Some(&journal)).unwrap();
            make_synced(&volume, name);
            volume.close().unwrap();
            image.assert_clean(&device);
        }
        let volume = open(&device, None).unwrap();
        assert!(has(&volume, "first") && has(&volume, "second"));
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

#[test]
fn a_volume_that_was_not_closed_takes_its_journal_and_no_other() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let (journal, other, empty) = (nvram(), nvram(), nvram());
    open(&device, Some(&other)).unwrap().close().unwrap();
    let volume = open(&device, Some(&journal)).unwrap();
    make_synced(&volume, "kept");
    drop(volume);
    refused(&device, None, "-o journal=PATH");
    refused(&device, Some(&other), "the journal given is ");
    refused(&device, Some(&empty), "empty");
    let device_dyn: Arc<dyn BlockDevice> = device.clone();
    assert!(Survey::take(&device_dyn, None).unwrap().space.is_err());
    assert!(Survey::take(&device_dyn, Some(&journal)).unwrap().space.is_ok());
    image.put(&device.to_bytes());
    assert!(image.e2fsck("-fp").0 >= 8, "e2fsck leaves it alone");
    assert!(image.bytes() == device.to_bytes());
    let volume = open(&device, Some(&journal)).unwrap();
    assert!(has(&volume, "kept"));
    volume.close().unwrap();
    image.assert_clean(&device);
}

#[test]
fn a_crash_with_the_journal_inode_is_recovered_before_the_journal_moves() {
    let image = Image::new(&[], "64M");
    let device = image.device();
    let volume = open(&device, None).unwrap();
    make_synced(&volume, "kept");
    drop(volume);
    let journal = nvram();
    let volume = open(&device, Some(&journal)).unwrap();
    assert!(has(&volume, "kept"));
    make_synced(&volume, "more");
    drop(volume);
    refused(&device, None, "elsewhere");
    let volume = open(&device, Some(&journal)).unwrap();
    assert!(has(&volume, "more"));
    volume.close().unwrap();
    image.assert_clean(&device);
}

#[test]
fn a_foreign_journal_and_anything_else_is_refused() {
    let (image, another) = (Image::new(&[], "64M"), Image::new(&[], "64M"));
    let (device, foreign) = (image.device(), nvram());
    open(&another.device(), Some(&foreign)).unwrap().close().unwrap();
    refused(&device, Some(&foreign), "belongs to volume");
    let file_system = Medium::Block(another.device());
    refused(&device, Some(&file_system), "not a journal of OneJournal");
}

#[test]
fn a_journal_with_the_history_of_a_copy_is_not_overwritten() {
    let image = Image::new(&[], "64M");
    let (device, journal) = (image.device(), nvram());
    open(&device, Some(&journal)).unwrap().close().unwrap();
    let copy = Arc::new(MemoryDevice::from_bytes(device.to_bytes(), 512));
    make_synced(&open(&device, Some(&journal)).unwrap(), "kept");
    refused(&copy, Some(&journal), "a copy");
    assert!(has(&open(&device, Some(&journal)).unwrap(), "kept"));
}

#[test]
fn a_lost_journal_is_given_up_only_when_asked_for_and_e2fsck_repairs_the_rest() {
    let image = Image::new(&[], "64M");
    let (device, journal) = (image.device(), nvram());
    let as_device: Arc<dyn BlockDevice> = device.clone();
    let volume = open(&device, None).unwrap();
    make_synced(&volume, "before");
    drop(volume);
    let before = device.to_bytes();
    assert!(ext4::give_up_journal(&as_device).is_err(), "its journal is not elsewhere");
    assert!(device.to_bytes() == before);
    let volume = open(&device, Some(&journal)).unwrap();
    make_synced(&volume, "lost");
    drop(volume);
    ext4::give_up_journal(&as_device).unwrap();
    refused(&device, None, "marked as having errors");
    image.put(&device.to_bytes());
    assert!(image.e2fsck("-fy").0 <= 1);
    let volume = open(&image.device(), None).unwrap();
    assert!(has(&volume, "before") && !has(&volume, "lost"));
}

/// The power is cut at every event of a mount, that of opening and closing too.
#[test]
fn at_any_moment_of_a_mount_the_volume_knows_its_journal() {
    let image = Image::new(&[], "64M");
    let clock = SimClock::default();
    let device = Arc::new(SimDevice::from_bytes(&image.bytes(), 512).with_clock(&clock));
    let nvram = Arc::new(SimNvram::new(JOURNAL_BYTES).with_clock(&clock));
    let journal = Medium::Nvram(nvram.clone());
    let volume = open(&device, Some(&journal)).unwrap();
    make_synced(&volume, "before");
    volume.close().unwrap();
    device.start_trace();
    nvram.start_trace();
    let volume = open(&device, Some(&journal)).unwrap();
    make_synced(&volume, "kept");
    device.mark(1);
    volume.close().unwrap();
    let (at_home, in_journal) = (device.take_trace(), nvram.take_trace());
    let mut moments: Vec<u64> = at_home.moments().chain(in_journal.moments()).collect();
    moments.sort_unstable();
    moments.dedup();
    let (mut home, mut memory) = (at_home.cursor(), in_journal.cursor());
    let (mut refused_count, mut state_count) = (0, 0);
    for moment in moments {
        home.advance_to_moment(moment);
        memory.advance_to_moment(moment);
        let is_synced = at_home.marks_before(home.cut()).next().is_some();
        for survival in Survival::EXTREMES.into_iter().chain((0..3).map(Survival::Random)) {
            let power_up = || Arc::new(SimDevice::from_image(home.crash(survival), 512));
            let journal = SimNvram::from_image(memory.crash(survival));
            let what = format!("moment {moment}, {survival:?}");
            // Without its journal the volume is refused, or misses nothing.
            match open(&power_up(), None) {
                Ok(volume) => {
                    assert!(has(&volume, "before") && has(&volume, "kept") >= is_synced, "{what}")
                }
                Err(error) => {
                    assert!(error.to_string().contains("elsewhere"), "{what}: {error}");
                    refused_count += 1;
                }
            }
            let journal = Medium::Nvram(Arc::new(journal));
            let device = power_up();
            let volume = open(&device, Some(&journal));
            let volume = volume.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(has(&volume, "before") && has(&volume, "kept") >= is_synced, "{what}");
            volume.close().unwrap();
            open(&device, None).unwrap().close().unwrap();
            state_count += 1;
        }
    }
    println!("{state_count} states, {refused_count} refused without their journal");
    assert!(refused_count > 20 && refused_count < state_count);
}
