//! Crash enumeration: cuts a run at every write and flush, recovers, and checks the result.
//!
//! For each crash:
//!
//! 1. opening and closing the volume recovers it;
//! 2. `e2fsck -fn` finds nothing;
//! 3. the tree is one that [`crate::history`] allows there;
//! 4. recovering once more changes nothing but the superblock and the journal (sampled);
//! 5. recovery, itself cut and run again, ends in the same volume (sampled);
//! 6. opening it read-only shows, and leaves, the same volume (sampled).
//!
//! Equal images are recovered once, but judged at every cut where they occur, because what is
//! allowed differs. If two recovered volumes differ only in the inside of the empty journal, e2fsck
//! and reading are not repeated: neither reads the inside.

use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onejournal_testing::{Image, tier};
use rustc_hash::FxHasher;

use crate::BLOCK_BYTES;
use crate::case::{Case, Crash, Id};
use crate::content::mix;
use crate::fsck::Fsck;
use crate::machine::{Cursors, Images};
use crate::recording::{Recording, Stage, record, recovery_sector_bytes};
use crate::recover::{Recovered, read_back, recover, recover_read_only};
use crate::tree::{Fingerprint, Interner, Tree};

/// How thorough an enumeration is.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Random crash states for each cut, beside the four extremes.
    pub random_count: u32,
    /// Checks 4 to 6 are made for one in this many distinct crash states.
    pub again_every: u64,
    /// Cuts of a recovery that are tried in check 5.
    pub recut_count: u64,
    /// Threads.
    pub worker_count: usize,
    /// Stop (at a cut) after this many distinct crash states of this run.
    pub state_limit: usize,
    /// In the gate, a fifth of the cuts only.
    pub is_sampled: bool,
}

impl Default for Effort {
    fn default() -> Self {
        Effort {
            random_count: 4,
            again_every: 8,
            recut_count: 3,
            worker_count: 2,
            state_limit: usize::MAX,
            is_sampled: false,
        }
    }
}

/// What was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs.
    pub runs: usize,
    /// Cuts.
    pub cuts: usize,
    /// Crashes judged: pairs of a cut and what survived.
    pub crashes: usize,
    /// Different images among them.
    pub distinct: usize,
    /// Different volumes after recovery: e2fsck ran this often.
    pub volumes: usize,
    /// Second recoveries.
    pub again: usize,
    /// Recoveries that were cut and run again.
    pub recuts: usize,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.cuts += other.cuts;
        self.crashes += other.crashes;
        self.distinct += other.distinct;
        self.volumes += other.volumes;
        self.again += other.again;
        self.recuts += other.recuts;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { runs, cuts, crashes, distinct, volumes, again, recuts } = self;
        write!(
            f,
            "{runs} runs, {cuts} cuts, {crashes} crashes, {distinct} distinct crash states, \
             {volumes} distinct volumes through e2fsck, {again} recovered twice, \
             {recuts} recoveries cut"
        )
    }
}

/// A crash with a wrong result.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The id that repeats it.
    pub id: Id,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.id, self.what)
    }
}

/// Runs the case and checks every crash of it.
pub fn enumerate(case: Case, effort: &Effort, stage: &Stage<'_>) -> Result<Tally, Box<Failure>> {
    let failed = |what| Box::new(Failure { id: Id::run(case), what });
    let recording = record(case, stage).map_err(failed)?;
    enumerate_recording(&recording, effort)
}

/// Checks every crash of a run.
pub fn enumerate_recording(recording: &Recording, effort: &Effort) -> Result<Tally, Box<Failure>> {
    let is_taken = |at| !effort.is_sampled || tier::takes(recording.case.seed, at);
    let cuts = recording.trace.cuts().enumerate().filter(|(at, _)| is_taken(*at));
    let cuts: Vec<usize> = cuts.map(|(_, cut)| cut).collect();
    let shared = Shared::default();
    std::thread::scope(|scope| {
        for _ in 0..effort.worker_count.max(1) {
            scope.spawn(fault::carry(|| shared.work(recording, effort, &cuts)));
        }
    });
    let failures = shared.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(failure) = failures.into_iter().min_by_key(|f| (f.id.crash, f.id.again)) {
        return Err(Box::new(failure));
    }
    let mut tally = shared.tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.runs = 1;
    tally.volumes = shared.volumes.into_inner().unwrap_or_else(PoisonError::into_inner).len();
    Ok(tally)
}

/// Repeats one crash.
pub fn replay(id: Id, stage: &Stage<'_>) -> Result<Tally, Box<Failure>> {
    let Some(crash) = id.crash else { return enumerate(id.case, &Effort::default(), stage) };
    let failed = |what| Box::new(Failure { id, what });
    let recording = record(id.case, stage).map_err(failed)?;
    let shared = Shared::default();
    let mut checker = Checker::new(&recording, &shared).map_err(failed)?;
    if crash.cut > recording.trace.event_count() {
        return Err(failed(format!("there are {} events only", recording.trace.event_count())));
    }
    let mut cursor = recording.trace.cursor();
    cursor.advance_to(crash.cut);
    let crashed = cursor.crash(crash.survival(&id.case));
    let recovered = checker.recover(&crashed, 0).map_err(failed)?;
    let found = checker.look_at(&recovered).map_err(failed)?;
    checker.judge(&found, crash.cut).map_err(failed)?;
    checker.check_again(&recovered).map_err(failed)?;
    checker.check_read_only(&crashed, &found, &recovered).map_err(failed)?;
    match id.again {
        Some(again) => checker.check_recut(&recovered, again).map_err(failed)?,
        None => (0..64).try_for_each(|sub| {
            let again = pick_recut(&recovered, sub);
            let failed = |what| Box::new(Failure { id: Id { again: Some(again), ..id }, what });
            checker.check_recut(&recovered, again).map_err(failed)
        })?,
    }
    Ok(Tally { runs: 1, cuts: 1, crashes: 1, distinct: 1, ..Tally::default() })
}

/// What was found on a recovered volume.
struct RecoveredTree {
    tree: Tree,
    print: Fingerprint,
}

/// The state that the workers share.
#[derive(Default)]
struct Shared {
    next_cut: AtomicUsize,
    stop: AtomicBool,
    failures: Mutex<Vec<Failure>>,
    tally: Mutex<Tally>,
    /// By digest of the crashed image.
    crashed: Mutex<HashMap<u64, Arc<RecoveredTree>>>,
    /// By digest of the recovered volume without the inside of the journal.
    volumes: Mutex<HashMap<u64, Arc<RecoveredTree>>>,
    interner: Mutex<Interner>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn work(&self, recording: &Recording, effort: &Effort, cuts: &[usize]) {
        let mut checker = match Checker::new(recording, self) {
            Ok(checker) => checker,
            Err(what) => return self.fail(Failure { id: Id::run(recording.case), what }),
        };
        let mut cursor = recording.trace.cursor();
        while !self.stop.load(Ordering::Relaxed) {
            let index = self.next_cut.fetch_add(1, Ordering::Relaxed);
            let Some(cut) = cuts.get(index) else { return };
            cursor.advance_to(*cut);
            let mut tally = Tally { cuts: 1, ..Tally::default() };
            let checked = checker.check_cut(&cursor, effort, &mut tally);
            let mut sum = lock(&self.tally);
            sum.add(&tally);
            if sum.distinct >= effort.state_limit {
                self.stop.store(true, Ordering::Relaxed);
            }
            drop(sum);
            if let Err(failure) = checked {
                self.fail(*failure);
            }
        }
    }

    fn fail(&self, failure: Failure) {
        lock(&self.failures).push(failure);
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One worker.
struct Checker<'a> {
    recording: &'a Recording,
    shared: &'a Shared,
    fsck: Fsck,
    /// Sector size of the devices on which crashes are recovered.
    sector_bytes: usize,
}

impl<'a> Checker<'a> {
    fn new(recording: &'a Recording, shared: &'a Shared) -> Result<Checker<'a>, String> {
        let sector_bytes = recovery_sector_bytes(&recording.case);
        Ok(Checker { recording, shared, fsck: Fsck::new()?, sector_bytes })
    }

    fn check_cut(
        &mut self,
        cursor: &Cursors<'_>,
        effort: &Effort,
        tally: &mut Tally,
    ) -> Result<(), Box<Failure>> {
        let case = self.recording.case;
        for sub in 0..4 + effort.random_count {
            let crash = Crash { cut: cursor.cut(), sub };
            let id = Id { case, crash: Some(crash), again: None };
            let failed = |what| Box::new(Failure { id, what });
            let images = cursor.crash(crash.survival(&case));
            tally.crashes += 1;
            let digest = self.digest_of(&images);
            let known = lock(&self.shared.crashed).get(&digest).cloned();
            if let Some(found) = known {
                self.judge(&found, crash.cut).map_err(failed)?;
                continue;
            }
            let recovered = self.recover(&images, 0).map_err(failed)?;
            let found = self.look_at(&recovered).map_err(failed)?;
            if lock(&self.shared.crashed).insert(digest, found.clone()).is_none() {
                tally.distinct += 1;
            }
            self.judge(&found, crash.cut).map_err(failed)?;
            if mix(digest).is_multiple_of(effort.again_every) {
                self.check_again(&recovered).map_err(failed)?;
                self.check_read_only(&images, &found, &recovered).map_err(failed)?;
                tally.again += 1;
                for salt in 0..effort.recut_count {
                    let again = pick_recut(&recovered, mix(digest ^ salt));
                    let id = Id { again: Some(again), ..id };
                    let failed = |what| Box::new(Failure { id, what });
                    self.check_recut(&recovered, again).map_err(failed)?;
                    tally.recuts += 1;
                }
            }
        }
        Ok(())
    }

    fn recover(&self, crashed: &Images, round: u64) -> Result<Recovered, String> {
        recover(crashed, self.sector_bytes, &self.recording.setup, round)
    }

    /// A digest of everything that was left on the media.
    fn digest_of(&self, images: &Images) -> u64 {
        let fresh = &self.recording.fresh;
        let own = images.own.as_ref().zip(fresh.own.as_ref());
        let own = own.map_or(0, |(image, base)| digest(image, base, &[]));
        mix(digest(&images.device, &fresh.device, &[]) ^ own.rotate_left(1))
    }

    /// Checks a recovered volume with e2fsck and reads its tree, unless the result is known.
    fn look_at(&mut self, recovered: &Recovered) -> Result<Arc<RecoveredTree>, String> {
        let formatted = &self.recording.formatted;
        let image = &recovered.images.device;
        let key = digest(image, &formatted.image, &formatted.journal_blocks);
        if let Some(found) = lock(&self.shared.volumes).get(&key) {
            return Ok(found.clone());
        }
        self.fsck.check(image)?;
        let mut interner = lock(&self.shared.interner);
        let setup = &self.recording.setup;
        let tree = read_back(image, self.sector_bytes, setup, &mut interner)?;
        drop(interner);
        let found = Arc::new(RecoveredTree { print: tree.fingerprint(), tree });
        lock(&self.shared.volumes).insert(key, found.clone());
        Ok(found)
    }

    fn judge(&self, found: &RecoveredTree, cut: usize) -> Result<(), String> {
        let acked = self.recording.trace.marks_before(cut).next_back().unwrap_or(0);
        let acked = usize::try_from(acked).expect("a count of operations");
        let judged = self.recording.history.judge(&found.tree, found.print, acked);
        judged.map(drop).map_err(|text| format!("after {acked} operations: {text}"))
    }

    /// Check 4.
    fn check_again(&self, recovered: &Recovered) -> Result<(), String> {
        let again = self.recover(&recovered.images, 1)?;
        self.same_volume(&again.images.device, &recovered.images.device)
            .map_err(|text| format!("recovered twice: {text}"))
    }

    /// Check 6.
    fn check_read_only(
        &self,
        crashed: &Images,
        found: &RecoveredTree,
        recovered: &Recovered,
    ) -> Result<(), String> {
        let setup = &self.recording.setup;
        let mut interner = lock(&self.shared.interner);
        let (tree, image) = recover_read_only(crashed, self.sector_bytes, setup, &mut interner)?;
        drop(interner);
        if tree != found.tree {
            let text = tree.differences(&found.tree, ["read-only", "recovered"], 8);
            return Err(format!("opened read-only it is another volume:\n{text}"));
        }
        self.same_volume(&image, &recovered.images.device)
            .map_err(|text| format!("opened read-only: {text}"))
    }

    /// Check 5.
    fn check_recut(&self, recovered: &Recovered, again: Crash) -> Result<(), String> {
        let survival = again.survival(&self.recording.case);
        let cut = again.cut.min(recovered.trace.event_count());
        let crashed = recovered.trace.crash(cut, survival);
        let second =
            self.recover(&crashed, 2).map_err(|text| format!("after a cut recovery: {text}"))?;
        self.same_volume(&second.images.device, &recovered.images.device)
            .map_err(|text| format!("after a cut recovery: {text}"))
    }

    /// Whether two volumes are equal except for the superblock (mount count, times), the inside of
    /// the journal, and the field that names an external journal. Without our feature bits, that
    /// field says at most which journal the volume has ([`recover`] checks it), and a read-only
    /// opening leaves it alone.
    fn same_volume(&self, a: &Image, b: &Image) -> Result<(), String> {
        let formatted = &self.recording.formatted;
        let mut skip = formatted.journal_blocks.clone();
        skip.insert(0, 0);
        let noted_in = formatted.journal_extents[0].start / BLOCK_BYTES;
        let is_same =
            |block: u64| block == noted_in && without_note(a, block) == without_note(b, block);
        let differing = different_blocks(a, b, &skip).map(|(block, _)| block);
        let differing: Vec<u64> = differing.filter(|block| !is_same(*block)).collect();
        if differing.is_empty() {
            return Ok(());
        }
        Err(format!("another volume, in blocks {differing:?}"))
    }
}

/// The block with the superblock of the kernel's journal, without the field of the external journal
/// and the checksum after it ([`ext4::layout::jbd2`]).
fn without_note(image: &Image, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(BLOCK_BYTES).expect("a block fits into memory")];
    image.read(block * BLOCK_BYTES, &mut bytes);
    bytes[0xD0..0x100].fill(0);
    bytes
}

/// Chooses a cut of the recovery at random.
fn pick_recut(recovered: &Recovered, salt: u64) -> Crash {
    let count = recovered.trace.event_count() as u64 + 1;
    let cut = usize::try_from(mix(salt) % count).expect("a count of events");
    Crash { cut, sub: u32::try_from(mix(salt ^ 1) % 12).expect("below 12") }
}

/// A hash of the bytes that differ from `base`, outside of the blocks in `skip` (sorted).
fn digest(image: &Image, base: &Image, skip: &[u64]) -> u64 {
    let mut hasher = FxHasher::default();
    for (block, bytes) in different_blocks(image, base, skip) {
        hasher.write_u64(block);
        hasher.write(bytes);
    }
    hasher.finish()
}

/// The blocks of `image` that differ from `base`, outside of those in `skip` (sorted).
fn different_blocks<'a>(
    image: &'a Image,
    base: &'a Image,
    skip: &'a [u64],
) -> impl Iterator<Item = (u64, &'a [u8])> + 'a {
    let size = usize::try_from(BLOCK_BYTES).expect("a block fits into memory");
    let blocks = image.differences(base).flat_map(move |(offset, part, held)| {
        (offset / BLOCK_BYTES..).zip(part.chunks(size).zip(held.chunks(size)))
    });
    let differing =
        blocks.filter(|(block, (new, old))| new != old && skip.binary_search(block).is_err());
    differing.map(|(block, (new, _))| (block, new))
}
