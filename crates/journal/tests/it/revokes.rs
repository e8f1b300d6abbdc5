//! Transactions with more revokes than a record can hold. Changes may be small, so the journal may
//! hold records of many more blocks than it could hold whole blocks.

use crate::common;

use std::sync::Arc;

use common::media::{Media, Place};
use common::{REGION_BYTES, UUID, filled, quiet};
use device::BlockDevice;
use onejournal_journal::codec::extent::Ranges;
use onejournal_journal::{
    BLOCK_BYTES, BlockRef, DeltaCodec, Form, HomeBlock, Journal, Options, Tid,
};
use onejournal_testing::Survival;

/// More than 8 bytes for each of them beside the blocks of the largest transaction in a region.
const LOGGED: u64 = 3000;

fn media() -> Media {
    Media::new(Place::Device, 4096 * BLOCK_BYTES as u64, 8192 + 2 * REGION_BYTES)
}

fn open(media: &Media, options: Options) -> Journal {
    Journal::open(media.device.clone(), media.space(), UUID, options).expect("it opens")
}

/// Commits a change of one byte in each of the first [`LOGGED`] blocks.
fn log_little_of_many(journal: &Journal) {
    let mut bytes = [0; BLOCK_BYTES];
    bytes[7] = 1;
    let bytes: BlockRef = Arc::new(bytes);
    let mut written = Ranges::new();
    written.insert(7, 1);
    for block in (0..LOGGED).map(HomeBlock) {
        let mut handle = journal.begin(1).expect("a handle");
        let form = Form::Extent(written.clone());
        handle.put(block, bytes.clone(), form).expect("within the credits");
        let tid = handle.stop();
        // For XOR-LZO a region needs room for all of its blocks whole.
        if block.0 % 64 == 0 || block.0 == LOGGED - 1 {
            journal.sync(tid).expect("it commits");
        }
    }
    assert_eq!(journal.stats().checkpoints, 0, "all of them are in the journal");
}

fn incompressible(seed: u64) -> BlockRef {
    let mut bytes = [0; BLOCK_BYTES];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    Arc::new(bytes)
}

/// Frees everything that [`log_little_of_many`] logged, and changes as many other blocks as a
/// transaction may have, in one operation.
fn free_and_put(journal: &Journal) -> Tid {
    let max = journal.max_credit_count();
    let mut handle = journal.begin(max).expect("a handle");
    handle.forget(HomeBlock(0), LOGGED);
    for n in 0..max as u64 {
        handle.put(HomeBlock(LOGGED + n), incompressible(n), Form::Block).expect("it fits");
    }
    handle.stop()
}

fn at_home(media: &Media, block: u64) -> BlockRef {
    let mut bytes = [0; BLOCK_BYTES];
    media.device.read(block * BLOCK_BYTES as u64, &mut bytes).expect("it is readable");
    Arc::new(bytes)
}

fn recovered(media: &Media) -> Media {
    let home: Arc<dyn BlockDevice> = media.device.clone();
    onejournal_journal::recover(&home, &media.space(), &UUID, &Default::default())
        .expect("it recovers");
    media.clone()
}

fn codecs() -> [Options; 3] {
    let codecs = [DeltaCodec::Runs, DeltaCodec::XorLzo, DeltaCodec::Copies];
    codecs.map(|delta_codec| Options { delta_codec, ..quiet() })
}

#[test]
fn an_operation_that_frees_more_than_a_record_can_revoke_commits() {
    for background in [false, true] {
        for options in codecs() {
            let media = media();
            media.start_trace();
            let journal = open(&media, Options { background, ..options });
            log_little_of_many(&journal);
            journal.sync(free_and_put(&journal)).unwrap();
            let max = journal.max_credit_count() as u64;
            // The freed blocks may be reused in place.
            journal.write_in_place(HomeBlock(5), filled(9).as_ref()).unwrap();
            journal.flush_in_place().unwrap();
            let stats = journal.stats();
            assert!(stats.checkpoints > 0 && stats.revokes == 0, "{stats:?}");
            drop(journal);
            let traces = media.take_trace();
            let mut cursor = traces.cursor();
            cursor.advance_to(u64::MAX);
            let after = recovered(&cursor.crash(Survival::Nothing).power_up());
            assert_eq!(at_home(&after, 5), filled(9));
            for n in 0..max {
                assert_eq!(at_home(&after, LOGGED + n), incompressible(n));
            }
        }
    }
}

#[test]
fn a_power_cut_in_it_leaves_all_of_it_or_nothing() {
    for options in codecs() {
        let media = media();
        let journal = open(&media, options);
        log_little_of_many(&journal);
        let max = journal.max_credit_count() as u64;
        media.start_trace();
        journal.sync(free_and_put(&journal)).unwrap();
        let traces = media.take_trace();
        let mut cursor = traces.cursor();
        let (mut old_count, mut new_count) = (0, 0);
        for moment in traces.moments() {
            cursor.advance_to(moment);
            let random = Survival::Random(moment);
            for survival in Survival::EXTREMES.into_iter().chain([random]) {
                let after = recovered(&cursor.crash(survival).power_up());
                let is_new = at_home(&after, LOGGED) == incompressible(0);
                for n in 0..max {
                    let expected = if is_new { incompressible(n) } else { filled(0) };
                    assert_eq!(at_home(&after, LOGGED + n), expected, "{moment} {survival:?}");
                }
                let is_kept = (0..LOGGED).all(|block| at_home(&after, block)[7] == 1);
                assert!(is_new || is_kept, "{moment} {survival:?}: it was not freed, and is gone");
                *(if is_new { &mut new_count } else { &mut old_count }) += 1;
            }
        }
        assert!(old_count > 0 && new_count > 0);
    }
}

#[test]
fn a_transaction_is_closed_before_its_revokes_outgrow_the_record() {
    for options in codecs() {
        let media = media();
        let journal = open(&media, options);
        log_little_of_many(&journal);
        let mut handle = journal.begin(0).unwrap();
        handle.forget(HomeBlock(0), LOGGED);
        let freeing = handle.stop();
        let mut last = freeing;
        for n in 0..journal.max_credit_count() as u64 {
            let mut handle = journal.begin(1).unwrap();
            handle.put(HomeBlock(LOGGED + n), incompressible(n), Form::Block).unwrap();
            last = handle.stop();
        }
        assert_eq!(last, freeing.next(), "they did not fit into one");
        assert_eq!(journal.stats().checkpoints, 0, "nothing had to go home for it");
        assert_eq!(journal.stats().revokes, LOGGED);
        journal.sync(last).unwrap();
    }
}
