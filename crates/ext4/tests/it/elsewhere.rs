//! External journals: which journal a volume accepts, and what a crash leaves.

use crate::common;

use std::sync::Arc;

use common::{Image, has, make_synced, options};
use device::{BlockDevice, MappedNvram, MemoryDevice, Nvram};
use journal::format::{LABEL_BYTES, RawHeader};
use journal::{JournalError, Medium};
use onejournal_ext4::{Error, InodeNo, JournalChoice, OpenOptions, RootVolume, Survey};
use onejournal_testing::{SimClock, SimDevice, SimNvram, Survival, Traces};
use zerocopy::{FromBytes, IntoBytes};

const JOURNAL_BYTES: u64 = 4 << 20;

fn nvram() -> Medium {
    Medium::Nvram(Arc::new(MappedNvram::in_memory(JOURNAL_BYTES as usize).unwrap()))
}

fn open<D: BlockDevice + 'static>(
    device: &Arc<D>,
    journal: Option<&Medium>,
) -> onejournal_ext4::Result<RootVolume> {
    let options = OpenOptions { journal: journal.cloned().into(), region_count: 2, ..options() };
    RootVolume::open(device.clone(), options)
}

/// The refusal, after which neither volume nor journal has been written to.
#[track_caller]
fn refused(device: &Arc<MemoryDevice>, journal: Option<&Medium>, word: &str) {
    let (volume_before, journal_before) = (device.to_bytes(), journal.map(bytes_of));
    let error = open(device, journal).err().expect("it must be refused");
    let is_refusal = matches!(
        error,
        Error::WrongJournal(_) | Error::JournalMissing { .. } | Error::MarkedAsDamaged
    );
    assert!(is_refusal, "{error}");
    assert!(error.to_string().contains(word), "no {word:?} in {error}");
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
    refused(&device, None, "is elsewhere");
    refused(&device, Some(&other), "the journal given is ");
    refused(&device, Some(&empty), "empty");
    let device_dyn: Arc<dyn BlockDevice> = device.clone();
    assert!(Survey::take(&device_dyn, None).unwrap().space.is_err());
    assert!(Survey::take(&device_dyn, Some(&journal)).unwrap().space.is_ok());
    image.save(&device);
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

/// A journal without a header is one whose first opening was cut. A header that cannot be is
/// something else.
#[test]
fn a_journal_with_an_impossible_header_is_not_taken_for_an_empty_one() {
    let image = Image::new(&[], "64M");
    let (device, journal) = (image.device(), nvram());
    open(&device, Some(&journal)).unwrap().close().unwrap();
    let Medium::Nvram(memory) = &journal else { unreachable!("it is in memory") };
    let change = |change: fn(&mut RawHeader)| {
        for slot in [LABEL_BYTES, LABEL_BYTES + 4096] {
            let mut bytes = [0; size_of::<RawHeader>()];
            memory.read(slot, &mut bytes).unwrap();
            let mut header = RawHeader::read_from_bytes(&bytes).unwrap();
            change(&mut header);
            header.checksum = 0.into();
            header.checksum = crc32c::crc32c(header.as_bytes()).into();
            memory.write_durable(slot, &[header.as_bytes()]).unwrap();
        }
    };
    change(|header| header.tail_region = header.region_count);
    let before = bytes_of(&journal);
    let error = open(&device, Some(&journal)).err().expect("it must be refused");
    assert!(matches!(error, Error::Journal(JournalError::Damaged(_))), "{error}");
    assert!(bytes_of(&journal) == before);
    change(|header| header.magic = 0.into());
    open(&device, Some(&journal)).unwrap().close().unwrap();
    image.assert_clean(&device);
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
    assert!(
        onejournal_ext4::give_up_journal(&as_device, None).is_err(),
        "its journal is not elsewhere"
    );
    assert!(device.to_bytes() == before);
    let volume = open(&device, Some(&journal)).unwrap();
    make_synced(&volume, "lost");
    drop(volume);
    onejournal_ext4::give_up_journal(&as_device, None).unwrap();
    refused(&device, None, "marked as having errors");
    image.save(&device);
    assert!(image.e2fsck("-fy").0 <= 1);
    let volume = open(&image.device(), None).unwrap();
    assert!(has(&volume, "before") && !has(&volume, "lost"));
}

/// The power is cut at every event of giving up, and again at every event of doing it once more.
#[test]
fn giving_up_a_journal_that_was_cut_can_be_done_again() {
    let image = Image::new(&["-N", "512"], "16M");
    let (device, journal) = (image.device(), nvram());
    let volume = open(&device, None).unwrap();
    make_synced(&volume, "before");
    volume.close().unwrap();
    let volume = open(&device, Some(&journal)).unwrap();
    make_synced(&volume, "lost");
    drop(volume);
    let mut seen: Vec<onejournal_testing::Image> = Vec::new();
    // Gives up on a copy of the volume, and returns what else than before a power cut leaves.
    let mut cut = |before: onejournal_testing::Image| {
        let copy = Arc::new(SimDevice::from_image(before, 512));
        copy.start_trace();
        let as_device: Arc<dyn BlockDevice> = copy.clone();
        // An error: it was done.
        let _ = onejournal_ext4::give_up_journal(&as_device, None);
        let (trace, known_count) = (copy.take_trace(), seen.len());
        for cut in trace.cuts() {
            for survival in extremes_and_random() {
                let left = trace.crash(cut, survival);
                if !seen.contains(&left) {
                    seen.push(left);
                }
            }
        }
        seen[known_count..].to_vec()
    };
    let once = cut(SimDevice::from_bytes(&device.to_bytes(), 512).image());
    let twice: Vec<_> = once.iter().flat_map(|left| cut(left.clone())).collect();
    assert!(once.len() > 4, "{} states", once.len());
    for (number, left) in once.iter().chain(&twice).enumerate() {
        let left = Arc::new(MemoryDevice::from_bytes(left.to_bytes(), 512));
        assert!(open(&left, None).is_err(), "state {number}: mounted without its journal");
        let as_device: Arc<dyn BlockDevice> = left.clone();
        if let Err(error) = onejournal_ext4::give_up_journal(&as_device, None) {
            assert!(error.to_string().contains("nothing to give up"), "state {number}: {error}");
        }
        refused(&left, None, "marked as having errors");
        image.put(&left.to_bytes());
        let (code, text) = image.e2fsck("-fy");
        assert!(code <= 1, "state {number}: e2fsck: {code}: {text}");
        assert!(has(&open(&image.device(), None).unwrap(), "before"), "state {number}");
    }
}

/// A medium of the same kind that holds the same.
fn copy_of(medium: &Medium) -> Medium {
    let bytes = bytes_of(medium);
    match medium {
        Medium::Block(_) => Medium::Block(Arc::new(MemoryDevice::from_bytes(bytes, 512))),
        Medium::Nvram(_) => {
            let copy = MappedNvram::in_memory(bytes.len()).unwrap();
            copy.write_durable(0, &[&bytes]).unwrap();
            Medium::Nvram(Arc::new(copy))
        }
    }
}

#[test]
fn an_old_copy_of_the_journal_is_refused() {
    let block = Medium::Block(Arc::new(MemoryDevice::new(JOURNAL_BYTES as usize, 512)));
    for journal in [nvram(), block] {
        let image = Image::new(&[], "64M");
        let device = image.device();
        let volume = open(&device, Some(&journal)).unwrap();
        make_synced(&volume, "old");
        let with_history = copy_of(&journal);
        volume.close().unwrap();
        let closed = copy_of(&journal);
        let volume = open(&device, Some(&journal)).unwrap();
        volume.unlink(InodeNo::ROOT, b"old").unwrap();
        make_synced(&volume, "kept");
        drop(volume);
        for copy in [&with_history, &closed] {
            refused(&device, Some(copy), "Is one of them an old copy?");
            let device: Arc<dyn BlockDevice> = device.clone();
            assert!(Survey::take(&device, Some(copy)).unwrap().space.is_err());
        }
        let volume = open(&device, Some(&journal)).unwrap();
        assert!(has(&volume, "kept") && !has(&volume, "old"));
        volume.close().unwrap();
        image.assert_clean(&device);
        // Nothing is waited for any more: one copy has nothing to give, the other is not
        // overwritten.
        refused(&device, Some(&with_history), "holds changes");
        open(&device, Some(&closed)).unwrap().close().unwrap();
        image.assert_clean(&device);
    }
}

/// The volume notes two incarnations only until the new one has begun. Then a journal in the old
/// one is refused.
#[test]
fn a_copy_from_between_recovery_and_the_next_incarnation_is_refused() {
    let image = Image::new(&[], "64M");
    let (device, journal) = (image.device(), nvram());
    make_synced(&open(&device, Some(&journal)).unwrap(), "before");
    let home: Arc<dyn BlockDevice> = device.clone();
    let survey = Survey::take(&home, Some(&journal)).unwrap();
    let how = journal::RecoverOptions::default();
    journal::recover(&home, &survey.space.unwrap(), &survey.uuid, &how).unwrap();
    let recovered = copy_of(&journal);
    make_synced(&open(&device, Some(&journal)).unwrap(), "kept");
    refused(&device, Some(&recovered), "Is one of them an old copy?");
    let volume = open(&device, Some(&journal)).unwrap();
    assert!(has(&volume, "before") && has(&volume, "kept"));
}

#[test]
fn an_old_copy_of_the_volume_is_refused() {
    let image = Image::new(&[], "64M");
    let (device, journal) = (image.device(), nvram());
    make_synced(&open(&device, Some(&journal)).unwrap(), "first");
    let copy = Arc::new(MemoryDevice::from_bytes(device.to_bytes(), 512));
    let volume = open(&device, Some(&journal)).unwrap();
    make_synced(&volume, "second");
    refused(&copy, Some(&journal), "Is one of them an old copy?");
    volume.close().unwrap();
    refused(&copy, Some(&journal), "Is one of them an old copy?");
}

/// A volume and its journal on NVRAM: one machine, whose power is cut as a whole.
struct Machine {
    device: Arc<SimDevice>,
    nvram: Arc<SimNvram>,
}

impl Machine {
    fn new(device: &onejournal_testing::Image, nvram: &onejournal_testing::Image) -> Machine {
        let clock = SimClock::default();
        Machine {
            device: Arc::new(SimDevice::from_image(device.clone(), 512).with_clock(&clock)),
            nvram: Arc::new(SimNvram::from_image(nvram.clone()).with_clock(&clock)),
        }
    }

    /// Each opening has its own seed, as each has its own incarnation in fact.
    fn open(&self, seed: u64) -> onejournal_ext4::Result<RootVolume> {
        let journal = JournalChoice::On(Medium::Nvram(self.nvram.clone()));
        let options = OpenOptions { journal, region_count: 2, random_seed: seed, ..options() };
        RootVolume::open(self.device.clone(), options)
    }

    /// Calls `each` with whether the device was marked before, and what a power cut leaves, for
    /// every moment of `run`.
    fn cut(
        &self,
        run: impl FnOnce(&Machine),
        survivals: &[Survival],
        mut each: impl FnMut(bool, &Machine, &str),
    ) {
        self.device.start_trace();
        self.nvram.start_trace();
        run(self);
        let traces = Traces(vec![self.device.take_trace(), self.nvram.take_trace()]);
        let mut cursor = traces.cursor();
        for moment in traces.moments() {
            cursor.advance_to_moment(moment);
            let is_marked = traces.marks_before(moment).next().is_some();
            for survival in survivals {
                let left = cursor.crash(*survival);
                let left = Machine::new(&left[0], &left[1]);
                each(is_marked, &left, &format!("moment {moment}, {survival:?}"));
            }
        }
    }
}

/// A volume of the machine that holds "before", closed or not, and copies of its journal from
/// before: with history, and empty.
fn machine_with_copies(is_closed: bool) -> (Machine, [onejournal_testing::Image; 2]) {
    let image = Image::new(&[], "64M");
    let zeros = onejournal_testing::Image::zeroed(JOURNAL_BYTES);
    let machine = Machine::new(&onejournal_testing::Image::from_bytes(&image.bytes()), &zeros);
    let volume = machine.open(1).unwrap();
    make_synced(&volume, "earlier");
    let with_history = machine.nvram.image();
    volume.close().unwrap();
    let empty = machine.nvram.image();
    let volume = machine.open(2).unwrap();
    make_synced(&volume, "before");
    if is_closed {
        volume.close().unwrap();
    }
    (machine, [with_history, empty])
}

fn extremes_and_random() -> Vec<Survival> {
    Survival::EXTREMES.into_iter().chain((0..3).map(Survival::Random)).collect()
}

/// The power is cut at every event of a mount, that of opening and closing too; before, the volume
/// was closed, or not.
#[test]
fn at_any_moment_of_a_mount_the_volume_knows_its_journal() {
    for is_closed in [true, false] {
        let (machine, copies) = machine_with_copies(is_closed);
        let (mut state_count, mut refused_count, mut copy_count) = (0, 0, 0);
        let run = |machine: &Machine| {
            let volume = machine.open(3).unwrap();
            make_synced(&volume, "kept");
            machine.device.mark(1);
            volume.close().unwrap();
        };
        machine.cut(run, &extremes_and_random(), |is_synced, left, what| {
            let (device, journal) = (left.device.image(), left.nvram.image());
            let misses_nothing =
                |volume: &RootVolume| has(volume, "before") && has(volume, "kept") >= is_synced;
            // Without its journal the volume is refused, or misses nothing.
            match open(&Machine::new(&device, &journal).device, None) {
                Ok(volume) => assert!(misses_nothing(&volume), "{what}"),
                Err(error) => {
                    assert!(error.to_string().contains("elsewhere"), "{what}: {error}");
                    refused_count += 1;
                }
            }
            // The same with an old copy of it.
            for copy in &copies {
                match Machine::new(&device, copy).open(4) {
                    Ok(volume) => assert!(misses_nothing(&volume), "{what}: an old copy"),
                    Err(error) => {
                        let text = error.to_string();
                        let is_said = text.contains("old copy") || text.contains("holds changes");
                        assert!(is_said, "{what}: {error}");
                        copy_count += 1;
                    }
                }
            }
            let left = Machine::new(&device, &journal);
            let volume = left.open(4).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(misses_nothing(&volume), "{what}");
            volume.close().unwrap();
            open(&left.device, None).unwrap().close().unwrap();
            state_count += 1;
        });
        println!("{state_count} states, refused {refused_count} without, {copy_count} with copies");
        assert!(refused_count > 20 && refused_count <= state_count);
        assert!(copy_count > 40 && copy_count <= 2 * state_count);
    }
}

/// The power is cut at every event of an opening after a crash, and again at every event of the
/// opening that follows.
#[test]
fn an_opening_that_was_cut_may_be_cut_again() {
    let (machine, copies) = machine_with_copies(false);
    let survivals = [Survival::Issued, Survival::Everything];
    let open_only = |seed| move |machine: &Machine| drop(machine.open(seed).unwrap());
    let mut state_count = 0;
    machine.cut(open_only(3), &survivals, |_, first, what| {
        first.cut(open_only(4), &survivals, |_, second, then| {
            for copy in &copies {
                let error = Machine::new(&second.device.image(), copy).open(5).err();
                let text = error.map(|error| error.to_string()).unwrap_or_default();
                assert!(text.contains("old copy"), "{what}, then {then}: {text:?}");
            }
            let volume = second.open(5);
            let volume = volume.unwrap_or_else(|error| panic!("{what}, then {then}: {error}"));
            assert!(has(&volume, "before"), "{what}, then {then}");
            state_count += 1;
        });
    });
    println!("{state_count} states");
    assert!(state_count > 500);
}
