//! A volume's own journal elsewhere: which journal it accepts, what remains of the record, and what
//! a power cut leaves while the journal is made, replaced or given up.

use crate::common;

use std::sync::Arc;

use common::{Image, Mounted, has, make_synced, options, run, text};
use device::{BlockDevice, MemoryDevice};
use journal::{Label, Medium};
use onejournal_ext4::layout::jbd2::Jbd2SuperBlock;
use onejournal_ext4::{
    Error, JournalChoice, NewJournal, NoVolume, OpenOptions, RecordedJournal, RootVolume, Survey,
    WrongJournal, change_journal, recorded_journal,
};
use onejournal_testing::{SimClock, SimDevice, Survival, Traces, can_mount_ext4};
use zerocopy::FromBytes;

const JOURNAL_BYTES: usize = 2 << 20;

fn empty() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new(JOURNAL_BYTES, 512))
}

fn medium<D: BlockDevice + 'static>(device: &Arc<D>) -> Medium {
    Medium::Block(device.clone())
}

fn new_journal<D: BlockDevice + 'static>(device: &Arc<D>) -> NewJournal {
    NewJournal { medium: medium(device), size_bytes: None, force: false }
}

fn open<D: BlockDevice + 'static>(
    device: &Arc<D>,
    journal: JournalChoice,
) -> onejournal_ext4::Result<RootVolume> {
    let options = OpenOptions { journal, region_count: 2, ..options() };
    RootVolume::open(device.clone(), options)
}

fn on<D: BlockDevice + 'static>(device: &Arc<D>) -> JournalChoice {
    JournalChoice::On(medium(device))
}

fn recorded<D: BlockDevice + 'static>(
    device: &Arc<D>,
) -> onejournal_ext4::Result<Option<RecordedJournal>> {
    let device: Arc<dyn BlockDevice> = device.clone();
    recorded_journal(&device)
}

/// Makes `journal` the volume's own.
fn attach<D: BlockDevice + 'static, J: BlockDevice + 'static>(
    device: &Arc<D>,
    journal: &Arc<J>,
) -> onejournal_ext4::Result<[u8; 16]> {
    let device: Arc<dyn BlockDevice> = device.clone();
    let changed = change_journal(&device, Some(&new_journal(journal)), None)?;
    Ok(changed.expect("it has one"))
}

/// The refusal, after which neither volume nor journal has been written to.
#[track_caller]
fn refused(device: &Arc<MemoryDevice>, journal: Option<&Arc<MemoryDevice>>, word: &str) -> Error {
    let before = (device.to_bytes(), journal.map(|journal| journal.to_bytes()));
    let error = open(device, journal.map(medium).into()).err().expect("it must be refused");
    assert!(error.to_string().contains(word), "no {word:?} in {error}");
    assert!((device.to_bytes(), journal.map(|journal| journal.to_bytes())) == before);
    error
}

#[test]
fn a_volume_keeps_its_own_journal_when_it_is_closed() {
    for arguments in [&[][..], &["-O", "^metadata_csum"][..]] {
        let image = Image::new(arguments, "64M");
        let (device, journal) = (image.device(), empty());
        assert_eq!(recorded(&device).unwrap(), None);
        let uuid = attach(&device, &journal).unwrap();
        image.assert_clean(&device);
        for name in ["first", "second"] {
            let volume = open(&device, on(&journal)).unwrap();
            make_synced(&volume, name);
            volume.close().unwrap();
            image.assert_clean(&device);
            let found = recorded(&device).unwrap().expect("it is recorded");
            assert_eq!((found.journal_uuid, found.holds_changes), (uuid, false));
        }
        let error = refused(&device, None, "the journal of the volume, ");
        assert!(matches!(error, Error::JournalMissing { holds_changes: false, .. }), "{error}");
        // Reading needs no journal.
        let volume = RootVolume::open(device.clone(), OpenOptions { read_only: true, ..options() });
        assert!(has(&volume.unwrap(), "second"));
        // Without it for once.
        let volume = open(&device, JournalChoice::Inside).unwrap();
        make_synced(&volume, "third");
        volume.close().unwrap();
        refused(&device, None, "is elsewhere");
        let volume = open(&device, on(&journal)).unwrap();
        assert!(has(&volume, "third"));
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

#[test]
fn only_its_own_journal_is_taken() {
    let image = Image::new(&[], "64M");
    let (device, journal, other) = (image.device(), empty(), empty());
    open(&device, on(&other)).unwrap().close().unwrap();
    attach(&device, &journal).unwrap();
    refused(&device, Some(&other), "but the volume has journal");
    refused(&device, Some(&empty()), "the journal given is empty");
    let volume = open(&device, on(&journal)).unwrap();
    make_synced(&volume, "kept");
    drop(volume);
    refused(&device, Some(&other), "its newest changes are in");
    refused(&device, Some(&empty()), "empty");
    let error = refused(&device, None, "is elsewhere");
    assert!(matches!(error, Error::JournalMissing { holds_changes: true, .. }), "{error}");
    let before = device.to_bytes();
    assert!(matches!(open(&device, JournalChoice::Inside), Err(Error::JournalMissing { .. })));
    let as_device: Arc<dyn BlockDevice> = device.clone();
    let error = change_journal(&as_device, None, None).unwrap_err();
    assert!(error.to_string().contains("was not closed"), "{error}");
    assert!(device.to_bytes() == before);
    let volume = open(&device, on(&journal)).unwrap();
    assert!(has(&volume, "kept"));
    volume.close().unwrap();
    image.assert_clean(&device);
}

/// A crash of a mount without the volume's own journal is recovered from the journal inode.
#[test]
fn a_crash_without_its_own_journal_needs_the_journal_inode_only() {
    for goes_on_with_own in [false, true] {
        let image = Image::new(&[], "64M");
        let (device, journal) = (image.device(), empty());
        attach(&device, &journal).unwrap();
        make_synced(&open(&device, JournalChoice::Inside).unwrap(), "kept");
        let found = recorded(&device).unwrap().expect("it is recorded");
        assert!(!found.holds_changes && !found.is_closed);
        refused(&device, None, "the journal of the volume, ");
        let choice = if goes_on_with_own { on(&journal) } else { JournalChoice::Inside };
        let volume = open(&device, choice).unwrap();
        assert!(has(&volume, "kept"));
        make_synced(&volume, "more");
        drop(volume);
        let found = recorded(&device).unwrap().expect("it is recorded");
        assert_eq!(found.holds_changes, goes_on_with_own);
        let volume = open(&device, on(&journal)).unwrap();
        assert!(has(&volume, "more"));
        volume.close().unwrap();
        image.assert_clean(&device);
    }
}

#[test]
fn a_lost_journal_that_is_given_up_is_forgotten() {
    let image = Image::new(&[], "64M");
    let (device, journal) = (image.device(), empty());
    let as_device: Arc<dyn BlockDevice> = device.clone();
    attach(&device, &journal).unwrap();
    let error = onejournal_ext4::give_up_journal(&as_device, None).unwrap_err();
    assert!(matches!(error, Error::NothingToGiveUp), "{error}");
    make_synced(&open(&device, on(&journal)).unwrap(), "lost");
    onejournal_ext4::give_up_journal(&as_device, None).unwrap();
    image.save(&device);
    assert!(image.e2fsck("-fy").0 <= 1);
    let device = image.device();
    assert_eq!(recorded(&device).unwrap(), None);
    assert!(!has(&open(&device, JournalChoice::Own).unwrap(), "lost"));
}

/// The first block of the journal inode.
fn jbd2_block(image: &Image) -> usize {
    let listed = image.debugfs("bmap <8> 0");
    listed.trim().parse().expect("a block number")
}

/// Changes the record of the journal, on a volume whose JBD2 superblock has no checksum.
fn change_record(device: &MemoryDevice, block: usize, change: impl FnOnce(&mut [u8])) {
    let mut bytes = device.to_bytes();
    let sector = &mut bytes[block * 4096..block * 4096 + 512];
    let (jbd2, _) = Jbd2SuperBlock::read_from_prefix(&[&*sector, &[0; 512]].concat()).unwrap();
    assert!(!jbd2.has_checksum());
    change(&mut sector[0xD0..0xFC]);
    device.write((block * 4096) as u64, sector).unwrap();
}

#[test]
fn a_damaged_record_is_named_and_foreign_bytes_are_left_alone() {
    let image = Image::new(&["-O", "^metadata_csum"], "64M");
    let block = jbd2_block(&image);
    let (device, journal) = (image.device(), empty());
    let uuid = attach(&device, &journal).unwrap();
    change_record(&device, block, |record| record[20] ^= 1);
    for journal in [None, Some(&journal)] {
        let error = refused(&device, journal, "its record of which journal");
        assert!(matches!(error, Error::WrongJournal(WrongJournal::RecordDamaged)), "{error}");
    }
    assert_eq!(attach(&device, &journal).unwrap(), uuid, "the journal is taken as it is");
    open(&device, on(&journal)).unwrap().close().unwrap();
    change_record(&device, block, |record| record.fill(0xA5));
    assert_eq!(recorded(&device).unwrap(), None);
    open(&device, JournalChoice::Own).unwrap().close().unwrap();
}

/// e2fsck writes the JBD2 superblock when it repairs, and the kernel at each mount.
#[test]
fn the_record_survives_e2fsck_and_the_kernel() {
    let image = Image::new(&[], "64M");
    let (device, journal) = (image.device(), empty());
    let uuid = attach(&device, &journal).unwrap();
    let volume = open(&device, on(&journal)).unwrap();
    make_synced(&volume, "ours");
    volume.close().unwrap();
    image.save(&device);
    let still_recorded = |what: &str| {
        let found = recorded(&image.device()).unwrap();
        assert_eq!(found.map(|found| found.journal_uuid), Some(uuid), "{what}");
    };
    image.debugfs("freei <12>");
    assert_eq!(image.e2fsck("-fy").0, 1);
    still_recorded("e2fsck -fy");
    if can_mount_ext4() {
        let mounted = Mounted::new(&image.path(), "sync").unwrap();
        std::fs::write(mounted.path("kernel"), "kernel").unwrap();
        std::fs::rename(mounted.path("ours"), mounted.path("renamed")).unwrap();
        mounted.unmount();
        still_recorded("the kernel");
        let device = image.device();
        let volume = open(&device, on(&journal)).unwrap();
        assert!(has(&volume, "kernel") && has(&volume, "renamed"));
        make_synced(&volume, "again");
        volume.close().unwrap();
        image.assert_clean(&device);
        // e2fsck replays what the kernel's journal holds.
        image.save(&device);
        assert_eq!(image.e2fsck("-fy").0, 0);
        still_recorded("e2fsck after the kernel");
    }
    // With the journal inode the record is lost, and the volume's journal is in the volume.
    for features in ["^has_journal", "has_journal"] {
        let output = run("tune2fs", &["-O", features, text(&image.path())]);
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(recorded(&image.device()).unwrap(), None);
}

#[test]
fn the_content_of_a_medium_decides_whether_it_becomes_a_journal() {
    let (image, another) = (Image::new(&[], "64M"), Image::new(&[], "64M"));
    let (device, journal) = (image.device(), empty());
    let with = |device: &Arc<MemoryDevice>, new: &NewJournal| {
        let device: Arc<dyn BlockDevice> = device.clone();
        change_journal(&device, Some(new), None)
    };
    let uuid = attach(&device, &journal).unwrap();
    let label = Label::read(&medium(&journal)).unwrap().unwrap();
    assert_eq!(u64::from(label.block_count) * 4096, JOURNAL_BYTES as u64);
    // Another volume's journal, and something else.
    let refuse = |new: &NewJournal, word: &str| {
        let before = bytes_of(&new.medium);
        let error = with(&another.device(), new).unwrap_err();
        assert!(matches!(error, Error::WrongJournal(_)), "{error}");
        assert!(error.to_string().contains(word), "{error}");
        assert!(bytes_of(&new.medium) == before);
    };
    refuse(&new_journal(&journal), "is the journal of volume");
    let full = Arc::new(MemoryDevice::from_bytes(vec![7; JOURNAL_BYTES], 512));
    refuse(&new_journal(&full), "is not empty");
    for taken in [&journal, &full] {
        let device = another.device();
        let forced = NewJournal { force: true, ..new_journal(taken) };
        let other = with(&device, &forced).unwrap().unwrap();
        assert_ne!(other, uuid);
        open(&device, on(taken)).unwrap().close().unwrap();
    }
    refused(&device, Some(&journal), "belongs to volume");
    // One's own is taken as it is, or with another size; not with the changes of a copy.
    let journal = empty();
    let uuid = attach(&device, &journal).unwrap();
    assert_eq!(attach(&device, &journal).unwrap(), uuid);
    let smaller = NewJournal { size_bytes: Some(1536 << 10), ..new_journal(&journal) };
    assert_ne!(with(&device, &smaller).unwrap(), Some(uuid));
    assert_eq!(Label::read(&medium(&journal)).unwrap().unwrap().block_count, 384);
    for size_bytes in [8 << 20, 1 << 20] {
        let before = journal.to_bytes();
        let new = NewJournal { size_bytes: Some(size_bytes), ..new_journal(&journal) };
        assert!(with(&device, &new).unwrap_err().to_string().contains("too small"));
        assert!(journal.to_bytes() == before);
    }
    let copy = Arc::new(MemoryDevice::from_bytes(device.to_bytes(), 512));
    make_synced(&open(&copy, on(&journal)).unwrap(), "of the copy");
    let error = with(&device, &new_journal(&journal)).unwrap_err();
    assert!(error.to_string().contains("holds changes"), "{error}");
    refused(&device, Some(&journal), "holds changes");
    with(&device, &NewJournal { force: true, ..new_journal(&journal) }).unwrap();
    open(&device, on(&journal)).unwrap().close().unwrap();
}

fn bytes_of(medium: &Medium) -> Vec<u8> {
    let Medium::Block(device) = medium else { unreachable!("only devices here") };
    let mut bytes = vec![0; usize::try_from(device.size_bytes()).unwrap()];
    device.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_journal_is_not_taken_for_a_volume() {
    let image = Image::new(&[], "64M");
    let journal = empty();
    attach(&image.device(), &journal).unwrap();
    let error = refused(&journal, None, "is the journal of volume");
    assert!(matches!(error, Error::NoVolume(NoVolume::Journal(_))));
}

/// A repair through the journal inode is none of the volume's own journal, and leaves the record.
#[test]
fn a_repair_keeps_the_record() {
    let image = Image::new(&[], "64M");
    let (device, journal) = (image.device(), empty());
    let uuid = attach(&device, &journal).unwrap();
    let repaired = Arc::new(MemoryDevice::from_bytes(device.to_bytes(), 512));
    repaired.write(5000 * 4096, &[7; 4096]).unwrap();
    let as_device: Arc<dyn BlockDevice> = device.clone();
    let repaired: Arc<dyn BlockDevice> = repaired;
    onejournal_ext4::apply_repair(&as_device, &repaired, &[5000].into(), None).unwrap();
    assert_eq!(device.to_bytes()[5000 * 4096], 7);
    assert_eq!(recorded(&device).unwrap().map(|found| found.journal_uuid), Some(uuid));
    assert!(Survey::take(&as_device, None).unwrap().space.is_err());
    assert!(Survey::take(&as_device, Some(&medium(&journal))).unwrap().space.is_ok());
}

/// A volume and two journals, whose power is cut together.
struct Machine {
    home: Arc<SimDevice>,
    journals: [Arc<SimDevice>; 2],
}

type Images = [onejournal_testing::Image; 3];

impl Machine {
    fn new(images: &Images) -> Machine {
        let clock = SimClock::default();
        let device = |image: &onejournal_testing::Image| {
            Arc::new(SimDevice::from_image(image.clone(), 512).with_clock(&clock))
        };
        let [home, first, second] = images.each_ref().map(device);
        Machine { home, journals: [first, second] }
    }

    fn all(&self) -> [&Arc<SimDevice>; 3] {
        [&self.home, &self.journals[0], &self.journals[1]]
    }

    /// Calls `judge` with what a power cut leaves at every moment of `run`. Returns the number of
    /// states, or the first fault that `judge` finds.
    fn cut(
        &self,
        run: impl FnOnce(&Machine),
        mut judge: impl FnMut(&Images) -> Result<(), String>,
    ) -> Result<usize, String> {
        self.all().into_iter().for_each(|device| device.start_trace());
        run(self);
        let traces = Traces(self.all().map(|device| device.take_trace()).into());
        let mut cursor = traces.cursor();
        let mut seen: Vec<Images> = Vec::new();
        for moment in traces.moments() {
            cursor.advance_to_moment(moment);
            for survival in Survival::EXTREMES.into_iter().chain((0..4).map(Survival::Random)) {
                let left = cursor.crash(survival).try_into().expect("three media");
                if !seen.contains(&left) {
                    judge(&left).map_err(|why| format!("moment {moment}, {survival:?}: {why}"))?;
                    seen.push(left);
                }
            }
        }
        Ok(seen.len())
    }
}

/// The volume opens with the journal that it records, which exists, and has lost nothing.
fn opens_with_what_it_records(images: &Images, must_have: &str) -> Result<(), String> {
    let machine = Machine::new(images);
    let recorded = recorded(&machine.home).map_err(|error| error.to_string())?;
    let choice = match recorded {
        None => JournalChoice::Own,
        Some(recorded) => {
            let is_it = |device: &&Arc<SimDevice>| {
                let label = Label::read(&medium(device)).ok().flatten();
                label.is_some_and(|label| label.journal_uuid == recorded.journal_uuid)
            };
            let found = machine.journals.iter().find(is_it);
            on(found.ok_or("it records a journal that is nowhere")?)
        }
    };
    let volume = open(&machine.home, choice).map_err(|error| error.to_string())?;
    if !has(&volume, must_have) {
        return Err(format!("{must_have} is lost"));
    }
    make_synced(&volume, "after");
    volume.close().map_err(|error| error.to_string())
}

/// A closed volume with a file, whose own journal is the first one if it has one. The second medium
/// holds something else.
fn machine(image: &Image, has_journal: bool) -> Machine {
    let garbage = onejournal_testing::Image::from_bytes(&vec![0xA5; JOURNAL_BYTES]);
    let zeros = onejournal_testing::Image::zeroed(JOURNAL_BYTES as u64);
    let home = onejournal_testing::Image::from_bytes(&image.bytes());
    let machine = Machine::new(&[home, zeros, garbage]);
    let choice = match has_journal {
        true => {
            attach(&machine.home, &machine.journals[0]).unwrap();
            on(&machine.journals[0])
        }
        false => JournalChoice::Own,
    };
    let volume = open(&machine.home, choice).unwrap();
    make_synced(&volume, "before");
    volume.close().unwrap();
    let images = machine.all().map(|device| device.image());
    Machine::new(&images)
}

/// Cuts the power at every moment of giving a volume a journal, another one, and none.
fn cut_every_change() -> Result<usize, String> {
    let image = Image::new(&["-N", "512", "-J", "size=4"], "16M");
    let mut state_count = 0;
    for (had, gets) in [(false, true), (true, true), (true, false)] {
        let machine = machine(&image, had);
        let run = |machine: &Machine| {
            let home: Arc<dyn BlockDevice> = machine.home.clone();
            let new = NewJournal { force: true, ..new_journal(&machine.journals[1]) };
            change_journal(&home, gets.then_some(&new), None).unwrap();
        };
        let judge = |images: &Images| opens_with_what_it_records(images, "before");
        state_count +=
            machine.cut(run, judge).map_err(|why| format!("had {had}, gets {gets}: {why}"))?;
    }
    Ok(state_count)
}

#[test]
fn a_change_of_the_journal_that_is_cut_loses_nothing() {
    let state_count = cut_every_change().unwrap();
    println!("{state_count} states");
    assert!(state_count > 40, "{state_count} states");
}

#[test]
fn canary_a_wrong_order_of_a_change_is_found() {
    let found = fault::with(onejournal_ext4::Fault::RecordBeforeJournal, cut_every_change);
    let why = found.expect_err("the fault must be found");
    assert!(why.contains("nowhere"), "{why}");
}

/// After a cut, the volume is none yet, or it has its journal.
#[test]
fn a_mkfs_with_a_journal_that_is_cut_leaves_both_or_no_volume() {
    let under_way = "(onejournal mkfs is under way)";
    let image = Image::new(&["-M", under_way, "-N", "512", "-J", "size=4"], "16M");
    let garbage = onejournal_testing::Image::from_bytes(&vec![0xA5; JOURNAL_BYTES]);
    let home = onejournal_testing::Image::from_bytes(&image.bytes());
    let machine = Machine::new(&[home, garbage.clone(), garbage]);
    let run = |machine: &Machine| {
        let home: Arc<dyn BlockDevice> = machine.home.clone();
        let new = NewJournal { force: true, ..new_journal(&machine.journals[0]) };
        assert!(onejournal_ext4::finish_mkfs(&home, Some(&new)).unwrap().is_some());
    };
    let (mut refused, mut made) = (0, 0);
    let judge = |images: &Images| {
        let home = Arc::new(SimDevice::from_image(images[0].clone(), 512));
        if onejournal_ext4::is_mkfs_under_way(&*home).unwrap() {
            refused += 1;
            return match recorded(&home) {
                Err(Error::NoVolume(_)) => Ok(()),
                other => Err(format!("it is taken for a volume: {other:?}")),
            };
        }
        made += 1;
        recorded(&home).unwrap().ok_or("it has no journal")?;
        opens_with_what_it_records(images, "lost+found")
    };
    machine.cut(run, judge).unwrap();
    assert!(refused > 5 && made > 0, "{refused} refused, {made} made");
}
