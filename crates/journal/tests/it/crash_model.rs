//! Random operations, the power cut at every event, recovery, and a comparison with a model.
//!
//! The model knows what each sector holds after each transaction. Recovery must leave the state
//! after one transaction, not older than the last acknowledged one. Only data that were written in
//! place over existing data may be newer, because they are not part of the transaction.
//!
//! The journal is on the device of the home blocks, or on NVRAM. Runs are written with sectors of
//! 512 or 4096 bytes. They are recovered on media of the same kind, and on devices with sectors of
//! either size.
//!
//! A failure names the seed, the cut and what survived; the three replay it. The gate looks at a
//! fifth of the cuts.

use crate::common;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use common::media::{Images, Media, On, Place, Traces};
use common::{UUID, copied_blocks};
use device::BlockDevice;
use fastrand::Rng;
use onejournal_journal::codec::extent::Ranges;
use onejournal_journal::{
    BLOCK_BYTES, BlockBytes, BlockRef, CheckpointPolicy, DeltaCodec, Form, HomeBlock, Journal,
    MemoryLimits, Options, RecoverOptions, Tid,
};
use onejournal_testing::{Survival, test_name, tier};

const HOME_BLOCKS: u64 = 40;
const SECTORS: usize = BLOCK_BYTES / 512;
const REGION_COUNT: u32 = 2;

/// A number for each sector of a block; the sector is filled with words that are made of it.
type Stamps = [u64; SECTORS];

/// What a block holds from a transaction on. `None`: it is free, and is not compared.
#[derive(Clone, Copy)]
struct Version {
    tid: Tid,
    stamps: Option<Stamps>,
    /// It may be home before the transaction commits.
    in_place: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Free(Tid),
    Used,
}

/// Everything a run leaves behind for the checks.
struct Run {
    traces: Traces,
    history: BTreeMap<u64, Vec<Version>>,
    last_tid: Tid,
    /// Blocks that were logged as copies.
    copied_blocks: u64,
}

struct Workload {
    rng: Rng,
    media: Media,
    journal: Option<Journal>,
    incarnation: u64,
    copied_blocks: u64,
    stamp: u64,
    kinds: Vec<Kind>,
    history: BTreeMap<u64, Vec<Version>>,
}

fn options(incarnation: u64) -> Options {
    let mut options = common::quiet();
    options.incarnation = incarnation;
    options.region_count = REGION_COUNT;
    options.memory.clean_blocks = 8;
    options.in_place_run_blocks = 2;
    options.pack = incarnation.is_multiple_of(2);
    // Every fourth seed has them.
    let is_papers = incarnation / 64 % 4 == 1;
    options.delta_codec = match incarnation % 3 {
        0 if is_papers => DeltaCodec::Whole,
        0 => DeltaCodec::Runs,
        1 => DeltaCodec::XorLzo,
        _ => DeltaCodec::Copies,
    };
    if is_papers {
        options.checkpoint = CheckpointPolicy::Early;
    }
    if incarnation / 64 % 4 == 2 {
        options.memory.dirty_blocks = 12;
    }
    options
}

/// Other seeds begin with other options.
fn first_incarnation(seed: u64) -> u64 {
    seed * 64 + 1
}

fn media(sector_bytes: usize, place: Place) -> Media {
    Media::with_sectors(
        sector_bytes,
        place,
        HOME_BLOCKS * 4096,
        8192 + u64::from(REGION_COUNT) * common::REGION_BYTES,
    )
}

fn open(media: &Media, options: Options) -> Journal {
    Journal::open(media.device.clone(), media.space(), UUID, options).expect("it opens")
}

fn fill(stamps: &Stamps) -> BlockRef {
    let mut bytes: BlockBytes = [0; BLOCK_BYTES];
    for (sector, stamp) in bytes.chunks_exact_mut(512).zip(stamps) {
        sector.copy_from_slice(&words_of(*stamp));
    }
    Arc::new(bytes)
}

/// The stamp, then words that differ from each other, or nothing could be copied.
fn words_of(stamp: u64) -> [u8; 512] {
    let mut bytes = [0; 512];
    for (at, word) in (0u64..).zip(bytes.chunks_exact_mut(8)) {
        let number =
            (stamp ^ at << 48).wrapping_mul(if at == 0 { 1 } else { 0x9e37_79b9_7f4a_7c15 });
        word.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn stamps_of(bytes: &[u8]) -> Option<Stamps> {
    let mut stamps = [0; SECTORS];
    for (sector, stamp) in bytes.chunks_exact(512).zip(&mut stamps) {
        *stamp = u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"));
        if sector != words_of(*stamp) {
            return None;
        }
    }
    Some(stamps)
}

impl Workload {
    fn new(place: Place, seed: u64) -> Workload {
        // By turns, starting with 512.
        let sector_bytes = [512, 4096][usize::from(seed % 2 == 1)];
        let media = media(sector_bytes, place);
        let incarnation = first_incarnation(seed);
        let journal = open(&media, options(incarnation));
        media.start_trace();
        Workload {
            rng: Rng::with_seed(seed),
            media,
            journal: Some(journal),
            incarnation,
            copied_blocks: 0,
            stamp: 0,
            kinds: vec![Kind::Free(Tid(0)); HOME_BLOCKS as usize],
            history: BTreeMap::new(),
        }
    }

    fn run(mut self, step_count: usize) -> Run {
        self.log_a_copy();
        for _ in 0..step_count {
            match self.rng.u8(..100) {
                0..62 => self.operation(),
                62..65 => _ = self.write_fresh_in_place(),
                65..67 => self.append_blocks(),
                67..68 => self.append_durably(),
                68..92 => self.sync(),
                92..95 => self.journal().flush_in_place().expect("it flushes"),
                95..97 => self.look(),
                97..99 => self.checkpoint(),
                _ => self.reopen(),
            }
        }
        self.sync();
        let last_tid = self.journal().running_tid();
        let copied_blocks = self.copied_blocks + copied_blocks(self.journal());
        Run { traces: self.media.take_trace(), history: self.history, last_tid, copied_blocks }
    }

    fn journal(&self) -> &Journal {
        self.journal.as_ref().expect("it is open")
    }

    fn new_stamps(&mut self) -> Stamps {
        self.stamp += 1;
        [self.stamp; SECTORS]
    }

    /// Mostly as in a rollback journal or a WAL: bytes of another block, at other offsets.
    fn stamps_of_another(&mut self) -> Stamps {
        let mut stamps = self.new_stamps();
        let other = self.rng.u64(..HOME_BLOCKS);
        if let (Some(copied), true) = (self.newest(other), self.rng.u8(..4) > 0) {
            let first = self.rng.usize(1..SECTORS);
            stamps[first..].copy_from_slice(&copied[..SECTORS - first]);
        }
        stamps
    }

    fn newest(&self, block: u64) -> Option<Stamps> {
        self.history.get(&block)?.last()?.stamps
    }

    /// Two records, of which the second one has bytes of the first one at other offsets.
    fn log_a_copy(&mut self) {
        let mut stamps = self.new_stamps();
        for sector in &mut stamps[1..] {
            self.stamp += 1;
            *sector = self.stamp;
        }
        for block in 0..2 {
            let mut handle = self.journal().begin(1).expect("a handle");
            let put = handle.put(HomeBlock(block), fill(&stamps), Form::Block);
            put.expect("within the credits");
            let tid = handle.stop();
            self.kinds[block as usize] = Kind::Used;
            let version = Version { tid, stamps: Some(stamps), in_place: false };
            self.history.entry(block).or_default().push(version);
            self.sync();
            stamps.rotate_right(1);
        }
    }

    /// One handle with a few changes; now and then it is dropped.
    fn operation(&mut self) {
        let journal = self.journal.take().expect("it is open");
        let committed = journal.committed_tid();
        let mut handle = journal.begin(HOME_BLOCKS as usize).expect("a handle");
        let tid = handle.tid();
        let (kinds, mut changes) = (self.kinds.clone(), Vec::new());
        for _ in 0..self.rng.usize(1..12) {
            let block = self.rng.u64(..HOME_BLOCKS);
            let home = HomeBlock(block);
            let newest = changes
                .iter()
                .rev()
                .find(|(b, _)| *b == block)
                .map(|(_, v): &(_, Version)| v.stamps);
            let newest = newest.unwrap_or_else(|| self.newest(block));
            let free_since = match self.kinds[block as usize] {
                Kind::Free(tid) => Some(tid),
                Kind::Used => None,
            };
            let (stamps, in_place) = match (free_since, self.rng.u8(..10)) {
                (None, 0..2) => {
                    handle.forget(home, 1);
                    self.kinds[block as usize] = Kind::Free(tid);
                    changes.push((block, Version { tid, stamps: None, in_place: false }));
                    continue;
                }
                (None, 2..6) => {
                    let mut stamps = newest.expect("a used block has content");
                    let sector = self.rng.usize(..SECTORS);
                    stamps[sector] = self.new_stamps()[0];
                    let form = match self.rng.u8(..4) {
                        0 => Form::Block,
                        1 => {
                            let mut written = Ranges::new();
                            written.insert(sector * 512, 512);
                            Form::Extent(written)
                        }
                        _ => Form::Delta,
                    };
                    let mut bytes = handle.read(home).expect("it can be read");
                    let part = sector * 512..sector * 512 + 512;
                    Arc::make_mut(&mut bytes)[part.clone()].copy_from_slice(&fill(&stamps)[part]);
                    handle.put(home, bytes, form).expect("within the credits");
                    (stamps, false)
                }
                (Some(since), 0..4) if since <= committed => {
                    let stamps = self.new_stamps();
                    handle.put_ordered(home, fill(&stamps)).expect("within the credits");
                    (stamps, true)
                }
                (Some(since), 4..6) if since <= committed => {
                    let stamps = self.stamps_of_another();
                    let put = handle.put_fresh(home, fill(&stamps), Form::Delta);
                    put.expect("within the credits");
                    (stamps, false)
                }
                (None, 6..8) => {
                    let stamps = self.new_stamps();
                    handle.put_ordered(home, fill(&stamps)).expect("within the credits");
                    (stamps, true)
                }
                _ => {
                    let stamps = self.stamps_of_another();
                    handle
                        .create(home)
                        .expect("within the credits")
                        .copy_from_slice(&fill(&stamps)[..]);
                    (stamps, false)
                }
            };
            self.kinds[block as usize] = Kind::Used;
            changes.push((block, Version { tid, stamps: Some(stamps), in_place }));
        }
        if self.rng.u8(..6) == 0 {
            drop(handle);
            self.kinds = kinds;
        } else {
            handle.stop();
            changes.into_iter().for_each(|(b, v)| self.history.entry(b).or_default().push(v));
        }
        self.journal = Some(journal);
    }

    /// A transaction with nothing but fresh data in place, which may have checks. Half of the time
    /// one of its blocks is overwritten in place after that.
    fn append_durably(&mut self) {
        self.sync();
        let written = self.write_fresh_in_place();
        self.sync();
        if written.is_empty() || self.rng.bool() {
            return;
        }
        let block = self.rng.u64(written);
        let stamps = self.new_stamps();
        let mut handle = self.journal.as_ref().expect("it is open").begin(1).expect("a handle");
        handle.put_ordered(HomeBlock(block), fill(&stamps)).expect("within the credits");
        let tid = handle.stop();
        let version = Version { tid, stamps: Some(stamps), in_place: true };
        self.history.entry(block).or_default().push(version);
        self.journal().flush_in_place().expect("it flushes");
    }

    /// A few neighbouring blocks that are free for good.
    fn free_run(&mut self, committed: Tid) -> Range<usize> {
        let is_free = |kind: &Kind| matches!(kind, Kind::Free(since) if *since <= committed);
        let start = self.rng.usize(..self.kinds.len());
        let start = (start..self.kinds.len()).find(|at| is_free(&self.kinds[*at])).unwrap_or(start);
        start..start + self.kinds[start..].iter().take(3).take_while(|kind| is_free(kind)).count()
    }

    /// A few neighbouring blocks that are free for good, each written by an operation of its own.
    fn append_blocks(&mut self) {
        let journal = self.journal.take().expect("it is open");
        for block in self.free_run(journal.committed_tid()) {
            let stamps = self.new_stamps();
            let mut handle = journal.begin(1).expect("a handle");
            let put = handle.put_fresh(HomeBlock(block as u64), fill(&stamps), Form::Delta);
            put.expect("within the credits");
            let tid = handle.stop();
            self.kinds[block] = Kind::Used;
            let version = Version { tid, stamps: Some(stamps), in_place: false };
            self.history.entry(block as u64).or_default().push(version);
        }
        self.journal = Some(journal);
    }

    /// A few neighbouring blocks that are free for good, written directly under a guard. Returns
    /// which.
    fn write_fresh_in_place(&mut self) -> Range<u64> {
        let journal = self.journal.take().expect("it is open");
        let run = self.free_run(journal.committed_tid());
        let (start, count) = (run.start, run.len());
        let mut handle = journal.begin(1).expect("a handle");
        let tid = handle.tid();
        let is_checked = self.rng.u8(..3) > 0;
        let guard =
            if is_checked { handle.begin_fresh_in_place() } else { handle.begin_in_place() };
        handle.stop();
        let mut data = Vec::new();
        for block in start..start + count {
            let stamps = self.new_stamps();
            data.extend_from_slice(&fill(&stamps)[..]);
            self.kinds[block] = Kind::Used;
            let version = Version { tid, stamps: Some(stamps), in_place: true };
            self.history.entry(block as u64).or_default().push(version);
        }
        let home = HomeBlock(start as u64);
        match (count, is_checked) {
            (0, _) => {}
            (_, true) => journal.write_fresh_in_place(&guard, home, &data).expect("it is written"),
            (_, false) => journal.write_in_place(home, &data).expect("it is written"),
        }
        drop(guard);
        self.journal = Some(journal);
        start as u64..(start + count) as u64
    }

    fn sync(&mut self) {
        let tid = self.journal().running_tid();
        self.journal().sync(tid).expect("it commits");
        self.media.device.mark(self.journal().committed_tid().0);
    }

    fn checkpoint(&mut self) {
        self.journal().checkpoint().expect("it goes home");
        self.media.device.mark(self.journal().committed_tid().0);
    }

    fn reopen(&mut self) {
        let journal = self.journal.take().expect("it is open");
        self.copied_blocks += copied_blocks(&journal);
        journal.close().expect("it closes");
        self.incarnation += 1;
        self.journal = Some(open(&self.media, options(self.incarnation)));
    }

    /// Checks that each block reads as its newest version.
    fn look(&mut self) {
        let mut data = vec![0; HOME_BLOCKS as usize * BLOCK_BYTES];
        self.journal().read_data(HomeBlock(0), &mut data).expect("it is readable");
        for (block, bytes) in data.chunks_exact(BLOCK_BYTES).enumerate() {
            let Some(expected) = self.newest(block as u64) else { continue };
            assert_eq!(stamps_of(bytes), Some(expected), "block {block} through read_data");
            let bytes = self.journal().read(HomeBlock(block as u64)).expect("it is readable");
            assert_eq!(stamps_of(bytes.as_ref()), Some(expected), "block {block} through read");
        }
    }
}

impl Run {
    /// Recovers what the cut left and compares. The error says what is wrong.
    fn check(&self, media: &Media, acknowledged: u64) -> Result<(), String> {
        let home: Arc<dyn BlockDevice> = media.device.clone();
        // Half of the runs.
        let memory = match self.last_tid.0 % 2 {
            0 => MemoryLimits { journal_bytes: 0, dirty_blocks: 3, ..MemoryLimits::default() },
            _ => MemoryLimits::default(),
        };
        let how = RecoverOptions { memory, ..Default::default() };
        onejournal_journal::recover(&home, &media.space(), &UUID, &how)
            .map_err(|error| format!("recovery: {error}"))?;
        let header =
            onejournal_journal::scan(&media.space(), &UUID).map_err(|e| e.to_string())?.header;
        let state = header.tail_tid.0 - 1;
        if !header.clean || state < acknowledged || state > self.last_tid.0 {
            return Err(format!("state {state}, acknowledged {acknowledged}, {header:?}"));
        }
        self.history.iter().try_for_each(|(block, versions)| {
            let mut bytes = [0; BLOCK_BYTES];
            home.read(block * 4096, &mut bytes).map_err(|e| e.to_string())?;
            check_block(&bytes, versions, Tid(state))
                .map_err(|text| format!("block {block} at state {state}: {text}"))
        })
    }

    /// Checks these cuts with each survival. Returns how many states that were.
    fn check_all(&self, seed: u64, cuts: &[u64]) -> Result<usize, String> {
        let mut state_count = 0;
        let mut cursor = self.traces.cursor();
        for (index, cut) in cuts.iter().copied().enumerate() {
            cursor.advance_to(cut);
            let acknowledged = cursor.newest_mark();
            let survivals = Survival::EXTREMES.into_iter().chain((0..3).map(Survival::Random));
            for (survival, shift) in survivals.zip(index..) {
                let on = On::ALL[shift % On::ALL.len()];
                self.check(&cursor.crash(survival).power_up_on(on), acknowledged)
                    .map_err(|text| format!("seed {seed} cut {cut} {survival:?} {on:?}: {text}"))?;
                state_count += 1;
            }
            if index % 5 == 0 {
                state_count += self
                    .check_lost_headers(&cursor.crash(Survival::Issued), acknowledged)
                    .map_err(|text| format!("seed {seed} cut {cut}, {text}"))?;
            }
            if index % 23 == 0 {
                state_count += self
                    .check_recovery_cut(&cursor.crash(Survival::Issued), acknowledged)
                    .map_err(|text| format!("seed {seed} cut {cut}, recovery cut: {text}"))?;
            }
        }
        Ok(state_count)
    }

    /// Either header slot is damaged afterwards; the other one is enough.
    fn check_lost_headers(&self, images: &Images, acknowledged: u64) -> Result<usize, String> {
        for slot in 0..2 {
            let media = images.power_up();
            if media.nvram.is_some() {
                return Ok(0); // It is simulated without damage.
            }
            media.device.flip_bit((HOME_BLOCKS + slot) * 4096 + 20, 3);
            self.check(&media, acknowledged)
                .map_err(|text| format!("header slot {slot} lost: {text}"))?;
        }
        Ok(2)
    }

    /// Cuts recovery itself at every event.
    fn check_recovery_cut(&self, images: &Images, acknowledged: u64) -> Result<usize, String> {
        let first = images.power_up();
        first.start_trace();
        self.check(&first, acknowledged)?;
        let traces = first.take_trace();
        let mut cursor = traces.cursor();
        let mut state_count = 0;
        for cut in traces.moments() {
            cursor.advance_to(cut);
            for survival in [Survival::Nothing, Survival::Everything, Survival::Random(1)] {
                self.check(&cursor.crash(survival).power_up(), acknowledged)?;
                state_count += 1;
            }
        }
        Ok(state_count)
    }
}

fn check_block(bytes: &[u8], versions: &[Version], state: Tid) -> Result<(), String> {
    let is_past = |version: &&Version| version.tid <= state;
    let Some(Version { stamps: Some(expected), .. }) = versions.iter().rev().find(is_past) else {
        return Ok(());
    };
    let Some(found) = stamps_of(bytes) else { return Err("a sector is torn".into()) };
    let newer_in_place = |sector: usize| {
        versions
            .iter()
            .filter(|version| version.tid > state && version.in_place)
            .filter_map(|version| version.stamps)
            .any(|stamps| stamps[sector] == found[sector])
    };
    match (0..SECTORS)
        .find(|sector| found[*sector] != expected[*sector] && !newer_in_place(*sector))
    {
        None => Ok(()),
        Some(sector) => {
            Err(format!("sector {sector} holds {}, not {}", found[sector], expected[sector]))
        }
    }
}

const STEP_COUNT: usize = 250;

/// Searches the cuts of six seeds, which begin with different sectors and codecs.
fn check_seeds(name: &str, place: Place) {
    let (mut state_count, mut copying_count) = (0, 0);
    for seed in tier::seeds_of_states(name, 6) {
        let run = Workload::new(place, seed).run(STEP_COUNT);
        let cuts = run.traces.moments().into_iter().enumerate();
        let cuts: Vec<_> = cuts.filter(|(at, _)| tier::takes(seed, *at)).map(|it| it.1).collect();
        let states = run.check_all(seed, &cuts).unwrap();
        println!("seed {seed}: {states} states, {} blocks logged as copies", run.copied_blocks);
        let begins_with_copies = options(first_incarnation(seed)).delta_codec == DeltaCodec::Copies;
        assert!(!begins_with_copies || run.copied_blocks > 0, "seed {seed}: nothing was copied");
        copying_count += usize::from(run.copied_blocks > 0);
        state_count += states;
    }
    println!("{state_count} states, {copying_count} runs that logged blocks as copies");
    assert!(state_count > tier::count(5000), "{state_count} states");
}

#[test]
fn every_cut_leaves_a_state_that_was_promised() {
    check_seeds(test_name!(), Place::Device);
}

#[test]
fn every_cut_leaves_a_state_that_was_promised_with_the_journal_on_nvram() {
    check_seeds(test_name!(), Place::Nvram);
}

/// Each way to break the engine is seen by the check above. The seeds are fixed, and begin with the
/// one that finds the fault today.
mod canary {
    use onejournal_journal::Fault;

    use super::*;

    fn assert_caught(fault: Fault, first_seed: u64) {
        assert_caught_on(Place::Device, fault, first_seed);
        assert_caught_on(Place::Nvram, fault, first_seed);
    }

    fn run_and_check(place: Place, seed: u64) -> Result<usize, String> {
        let run = Workload::new(place, seed).run(STEP_COUNT);
        run.check_all(seed, &run.traces.moments())
    }

    fn assert_caught_on(place: Place, fault: Fault, first_seed: u64) {
        let mut seeds = first_seed..first_seed + 60;
        let find = || seeds.find_map(|seed| run_and_check(place, seed).err());
        let caught = fault::with(fault, find);
        let caught = caught.unwrap_or_else(|| panic!("{place:?}: nobody noticed"));
        println!("{place:?}, {fault:?}: {caught}");
    }

    #[test]
    fn a_checksum_that_is_ignored_is_caught() {
        assert_caught(Fault::ChecksumIgnored, 0);
    }

    #[test]
    fn writing_home_before_the_commit_is_caught() {
        assert_caught(Fault::HomeBeforeCommit, 0);
    }

    #[test]
    fn dropped_revokes_are_caught() {
        assert_caught(Fault::RevokesDropped, 1);
    }

    #[test]
    fn a_commit_that_is_not_durable_is_caught() {
        assert_caught(Fault::CommitNotDurable, 0);
    }

    #[test]
    fn data_that_recovery_does_not_compare_are_caught() {
        assert_caught_on(Place::Device, Fault::ChecksIgnored, 4);
    }

    #[test]
    fn checked_data_that_are_overwritten_are_caught() {
        assert_caught_on(Place::Device, Fault::CheckedDataOverwritten, 16);
    }

    #[test]
    fn a_run_that_is_written_home_although_it_is_not_fresh_is_caught() {
        assert_caught_on(Place::Device, Fault::HeldRunsInPlace, 0);
    }

    #[test]
    fn a_delta_whose_base_did_not_go_home_is_caught() {
        assert_caught_on(Place::Device, Fault::DeltaWithoutBase, 26);
        assert_caught_on(Place::Nvram, Fault::DeltaWithoutBase, 11);
    }

    #[test]
    fn copies_of_what_another_region_holds_are_caught() {
        assert_caught(Fault::CopyAcrossRegions, 1);
    }

    #[test]
    fn copies_of_the_bytes_beside_their_source_are_caught() {
        assert_caught(Fault::CopyBesideSource, 0);
    }

    #[test]
    fn copies_of_bytes_that_the_region_does_not_hold_are_caught() {
        assert_caught(Fault::CopyOfUnknown, 0);
    }

    #[test]
    fn copies_of_a_version_that_the_region_does_not_hold_are_caught() {
        assert_caught(Fault::CopyOfAnotherBase, 1);
    }

    #[test]
    fn a_reach_that_is_not_written_is_caught() {
        assert_caught_on(Place::Device, Fault::ReachNotWritten, 1);
        assert_caught_on(Place::Nvram, Fault::ReachNotWritten, 2);
    }

    #[test]
    fn a_tail_in_one_header_slot_is_caught() {
        assert_caught_on(Place::Device, Fault::TailInOneSlot, 0);
    }

    #[test]
    fn a_checkpoint_without_a_flush_is_caught() {
        assert_caught(Fault::CheckpointNotFlushed, 0);
    }
}
