//! A journal that was written on one medium and is recovered on another. Recovery must not depend
//! on the medium that it runs on.

use crate::common;

use std::sync::Arc;

use common::{REGION_BYTES, UUID, commit, quiet};
use device::{BlockDevice, MemoryDevice, Nvram};
use onejournal_journal::{
    DeltaCodec, Form, HomeBlock, Journal, JournalError, Label, Medium, Options, Space, recover,
};
use onejournal_testing::{Image, SimDevice, SimNvram, Survival};

const HOME_BYTES: u64 = 1024 * 4096;
const COMMIT_COUNT: u64 = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Device(usize),
    Nvram,
}

const KINDS: [Kind; 3] = [Kind::Device(512), Kind::Device(4096), Kind::Nvram];

/// The bytes of a volume and of its journal, without power.
struct Images {
    home: Image,
    log: Image,
}

struct Powered {
    home: Arc<SimDevice>,
    log: Log,
}

enum Log {
    Device(Arc<SimDevice>),
    Nvram(Arc<SimNvram>),
}

impl Images {
    fn zeroed(region_count: u64, region_bytes: u64) -> Images {
        let log_bytes = 8192 + region_count * region_bytes;
        Images { home: Image::zeroed(HOME_BYTES), log: Image::zeroed(log_bytes) }
    }

    fn power_up(&self, kind: Kind) -> Powered {
        let sector_bytes = if let Kind::Device(bytes) = kind { bytes } else { 512 };
        let device = |image: &Image| Arc::new(SimDevice::from_image(image.clone(), sector_bytes));
        let log = match kind {
            Kind::Device(_) => Log::Device(device(&self.log)),
            Kind::Nvram => Log::Nvram(Arc::new(SimNvram::from_image(self.log.clone()))),
        };
        Powered { home: device(&self.home), log }
    }
}

impl Powered {
    fn medium(&self) -> Medium {
        match &self.log {
            Log::Device(device) => Medium::Block(device.clone()),
            Log::Nvram(nvram) => Medium::Nvram(nvram.clone()),
        }
    }

    fn space(&self) -> Space {
        self.space_of(self.medium().len_bytes())
    }

    fn space_of(&self, len_bytes: u64) -> Space {
        Space::on(self.medium(), std::iter::once(0..len_bytes).collect()).expect("it fits")
    }

    fn open(&self, options: Options) -> Journal {
        Journal::open(self.home.clone(), self.space(), UUID, options).expect("it opens")
    }

    fn crash(&self) -> Images {
        let log = match &self.log {
            Log::Device(device) => device.crash(Survival::Nothing),
            Log::Nvram(nvram) => nvram.crash(Survival::Nothing),
        };
        Images { home: self.home.crash(Survival::Nothing), log }
    }

    /// How many transactions come home.
    fn recover(&self) -> onejournal_journal::Result<usize> {
        let home: Arc<dyn BlockDevice> = self.home.clone();
        Ok(recover(&home, &self.space(), &UUID, &Default::default())?.transaction_count)
    }

    fn check_home(&self, blocks: std::ops::Range<u64>) {
        for block in blocks {
            let mut bytes = [0; 4096];
            self.home.read(block * 4096, &mut bytes).expect("it is readable");
            assert!(bytes.iter().all(|byte| u64::from(*byte) == block), "block {block}");
        }
    }
}

/// The n-th commit puts n into block n.
fn commit_some(journal: &Journal) {
    (1..=COMMIT_COUNT).for_each(|n| _ = commit(journal, n, n as u8));
}

/// At no moment does a power cut leave a medium that is neither empty nor a journal.
#[test]
fn a_label_that_was_cut_is_written_again() {
    let label = Label { journal_uuid: [0xA5; 16], volume_uuid: UUID, block_count: 0 };
    let make = |image: &Image, seed: u64| {
        let nvram = Arc::new(SimNvram::from_image(image.clone()));
        nvram.set_seed(seed);
        nvram.start_trace();
        label.write(&Medium::Nvram(nvram.clone())).expect("the medium counts as empty");
        nvram.take_trace()
    };
    let mut torn_count = 0;
    let mut check = |image: &Image| {
        let nvram = Arc::new(SimNvram::from_image(image.clone()));
        let mut bytes = vec![0; 4096];
        nvram.read(0, &mut bytes).expect("it is readable");
        let found = Label::read(&Medium::Nvram(nvram)).expect("empty, or a label");
        assert!(found.is_none_or(|found| found == label));
        torn_count += u32::from(found.is_none() && bytes.iter().any(|byte| *byte != 0));
        found.is_none()
    };
    let first = make(&Image::zeroed(16 << 10), 1);
    for cut in first.cuts() {
        for seed in 0..20 {
            let image = first.crash(cut, Survival::Random(seed));
            if !check(&image) {
                continue;
            }
            let second = make(&image, seed);
            for cut in second.cuts() {
                check(&second.crash(cut, Survival::Random(seed)));
            }
        }
    }
    assert!(torn_count > 50, "{torn_count} torn labels");
}

#[test]
fn every_medium_recovers_what_every_other_one_wrote() {
    for (index, written_on) in KINDS.into_iter().enumerate() {
        for recovered_on in KINDS {
            let first = Images::zeroed(2, REGION_BYTES).power_up(written_on);
            let journal = first.open(Options { incarnation: index as u64, ..quiet() });
            commit_some(&journal);
            drop(journal);
            let other = first.crash().power_up(recovered_on);
            let found = other.recover();
            assert_eq!(found.ok(), Some(5), "{written_on:?} to {recovered_on:?}");
            other.check_home(1..6);
            // The next incarnation is the medium's own.
            let journal = other.open(Options { incarnation: 77, ..quiet() });
            assert_eq!(journal.header().step_bytes, other.medium().step_bytes());
            commit_some(&journal);
            drop(journal);
            let back = other.crash().power_up(written_on);
            assert_eq!(back.recover().ok(), Some(5), "{written_on:?} and back");
        }
    }
}

#[test]
fn a_transaction_that_is_read_twice_is_found_on_larger_sectors() {
    // Larger than what recovery keeps in memory.
    let first = Images::zeroed(2, 260 << 20).power_up(Kind::Device(512));
    let journal = first.open(quiet());
    commit_some(&journal);
    drop(journal);
    let Log::Device(log) = &first.log else { unreachable!() };
    log.flip_bit(4096 + 50, 1); // Without one of the headers everything counts as reached.
    let other = first.crash().power_up(Kind::Device(4096));
    assert_eq!(other.recover().unwrap(), 5);
    other.check_home(1..6);
}

#[test]
fn recovery_does_not_depend_on_the_options_of_either_incarnation() {
    let codecs = [DeltaCodec::Runs, DeltaCodec::XorLzo, DeltaCodec::Copies, DeltaCodec::Whole];
    for (written, next) in [(2, 5), (5, 2)] {
        for (codec, next_codec) in
            codecs.into_iter().zip([codecs[1], codecs[2], codecs[3], codecs[0]])
        {
            for pack in [false, true] {
                let options = |region_count, delta_codec, incarnation| Options {
                    region_count,
                    delta_codec,
                    pack,
                    incarnation,
                    ..quiet()
                };
                let first = Images::zeroed(5, REGION_BYTES).power_up(Kind::Device(512));
                let journal = first.open(options(written, codec, 1));
                commit_some(&journal);
                change_a_byte(&journal);
                drop(journal);
                let other = first.crash().power_up(Kind::Device(512));
                assert_eq!(other.recover().unwrap(), 6);
                other.check_home(1..5);
                let mut changed = [0; 4096];
                other.home.read(5 * 4096, &mut changed).unwrap();
                assert_eq!(changed[..3], [5, 99, 5]);
                let journal = other.open(options(next, next_codec, 2));
                commit_some(&journal);
                drop(journal);
                let last = other.crash().power_up(Kind::Device(512));
                assert_eq!(last.recover().unwrap(), 5);
                last.check_home(1..6);
            }
        }
    }
}

/// As a delta.
fn change_a_byte(journal: &Journal) {
    let mut handle = journal.begin(1).unwrap();
    let mut bytes = handle.read(HomeBlock(COMMIT_COUNT)).unwrap();
    Arc::make_mut(&mut bytes)[1] = 99;
    handle.put(HomeBlock(COMMIT_COUNT), bytes, Form::Delta).unwrap();
    let tid = handle.stop();
    journal.sync(tid).unwrap();
}

#[test]
fn a_journal_that_was_cut_short_is_refused_and_left_alone() {
    let first = Images::zeroed(4, REGION_BYTES).power_up(Kind::Device(512));
    let journal = first.open(quiet()); // Two regions, and all records at the start of the first.
    commit_some(&journal);
    drop(journal);
    let other = first.crash().power_up(Kind::Device(512));
    let home: Arc<dyn BlockDevice> = other.home.clone();
    let whole_bytes = other.medium().len_bytes();
    for len_bytes in [64 << 10, 8192 + REGION_BYTES, whole_bytes - 4096] {
        let cut = other.space_of(len_bytes);
        let found = recover(&home, &cut, &UUID, &Default::default()).unwrap_err();
        assert!(matches!(&found, JournalError::Incompatible(why) if why.contains("shorter")));
    }
    assert_eq!(other.home.event_count(), 0);
    assert_eq!(other.recover().unwrap(), 5);
}

#[test]
fn the_new_part_of_a_clean_journal_that_grew_gets_zeros() {
    let bytes = 8192 + 2 * usize::try_from(REGION_BYTES).unwrap();
    let home = || Arc::new(MemoryDevice::new(1 << 20, 512));
    let log = Arc::new(MemoryDevice::from_bytes(vec![7; 2 * bytes], 512));
    let space =
        |end: usize| Space::new(log.clone(), std::iter::once(0..end as u64).collect()).unwrap();
    let reopen = |end| Journal::open(home(), space(end), UUID, quiet()).unwrap().close().unwrap();
    let holds = |from: usize, to: usize, byte| log.to_bytes()[from..to].iter().all(|b| *b == byte);
    reopen(bytes);
    assert!(holds(8192, bytes, 0) && holds(bytes, 2 * bytes, 7));
    log.write(8192, &[9; 512]).unwrap(); // As if a record were there.
    reopen(bytes + 4096);
    assert!(holds(8192, 8704, 9), "what was a journal is not written again");
    assert!(holds(bytes, bytes + 4096, 0) && holds(bytes + 4096, 2 * bytes, 7));
}
