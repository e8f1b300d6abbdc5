//! The bounds of what the engine keeps in memory: what is full waits, and nothing fails.

use crate::common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use common::{HOME_BLOCKS, Rig, commit, put_ordered_of, quiet, wait_until};
use onejournal_journal::{
    BLOCK_BYTES, BlockBytes, BlockOwner, Form, HomeBlock, Journal, MemoryLimits, Options,
    RecoverOptions,
};
use onejournal_testing::Survival;

/// Blocks of a transaction of these tests, which are mostly zeros: many fit into a region.
const BLOCK_COUNT: u64 = 100;
const DIRTY_BLOCKS: usize = 250;

fn small() -> MemoryLimits {
    let transaction_blocks = MemoryLimits::TRANSACTION_BLOCKS_MIN;
    let (dirty_blocks, clean_blocks) = (DIRTY_BLOCKS, 16);
    MemoryLimits { transaction_blocks, dirty_blocks, clean_blocks, ..MemoryLimits::default() }
}

/// Commits blocks in one transaction. Returns what tells which of the versions are in memory.
fn commit_many(journal: &Journal, start: u64, byte: u8) -> Vec<Weak<BlockBytes>> {
    let mut handle = journal.begin(BLOCK_COUNT as usize).unwrap();
    let mut versions = Vec::new();
    for block in start..start + BLOCK_COUNT {
        let mut bytes = [0; BLOCK_BYTES];
        bytes[0] = byte;
        let version = Arc::new(bytes);
        versions.push(Arc::downgrade(&version));
        handle.put(HomeBlock(block), version, Form::Delta).unwrap();
    }
    let tid = handle.stop();
    journal.sync(tid).unwrap();
    versions
}

fn in_memory(versions: &[Weak<BlockBytes>]) -> usize {
    versions.iter().filter(|version| version.strong_count() > 0).count()
}

#[test]
fn a_commit_waits_rather_than_exceed_the_limit_of_blocks_that_are_not_home() {
    let rig = Rig::with_regions(4);
    let options = Options { region_count: 4, background: true, memory: small(), ..quiet() };
    let journal = rig.open(options);
    let gate = &rig.home_gates().writes;
    gate.close();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..9).for_each(|n| _ = commit_many(&journal, n * BLOCK_COUNT, 7)));
        wait_until("a stall", || journal.stats().stalls > 0);
        assert_eq!(journal.stats().commits, 2, "300 blocks would not be home after the third");
        gate.open();
    });
    assert_eq!(journal.stats().commits, 9);
    journal.close().unwrap();
    assert!((0..9 * BLOCK_COUNT).all(|block| rig.at_home(block)[0] == 7));
}

#[test]
fn the_limit_holds_without_a_checkpoint_thread_and_for_transactions_larger_than_it() {
    for dirty_blocks in [DIRTY_BLOCKS, 10] {
        let rig = Rig::with_regions(3);
        let memory = MemoryLimits { dirty_blocks, ..small() };
        let journal = rig.open(Options { region_count: 3, memory, ..quiet() });
        let (mut versions, limit) = (Vec::new(), dirty_blocks.max(BLOCK_COUNT as usize));
        for n in 0..9 {
            versions.extend(commit_many(&journal, n * BLOCK_COUNT, 8));
            let most = limit + memory.clean_blocks;
            assert!(in_memory(&versions) <= most, "{} versions", in_memory(&versions));
        }
        let after = rig.crash(Survival::Nothing);
        after.recover().unwrap();
        assert!((0..9 * BLOCK_COUNT).all(|block| after.at_home(block)[0] == 8));
    }
}

#[test]
fn blocks_that_are_rewritten_need_no_checkpoint() {
    let rig = Rig::new();
    let journal = rig.open(Options { memory: small(), ..quiet() });
    let commits = |journal: &Journal| (0..9).for_each(|n| _ = commit_many(journal, 0, n));
    commits(&journal);
    assert_eq!((journal.stats().commits, journal.stats().home_bytes), (9, 0));
    journal.close().unwrap();
}

#[test]
fn a_checkpoint_keeps_no_version_that_is_replaced_meanwhile() {
    let rig = Rig::new();
    let journal = rig.open(quiet());
    let old = commit_many(&journal, 0, 1);
    let gate = &rig.home_gates().flushes;
    gate.close();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| journal.checkpoint().unwrap());
        gate.wait_for(1);
        commit_many(&journal, 0, 2);
        // A commit keeps up to 16 of them for the next private copies.
        assert!(in_memory(&old) <= 16, "{} versions", in_memory(&old));
        gate.open();
        checkpoint.join().unwrap();
    });
    journal.close().unwrap();
    assert_eq!(rig.first_bytes([0, 99]), [2, 2]);
}

#[test]
fn an_operation_waits_for_buffered_data_that_a_sync_is_writing() {
    let rig = Rig::new();
    let journal = rig.open(Options { memory: small(), ..quiet() });
    let owner = BlockOwner(7);
    (0..BLOCK_COUNT).for_each(|block| _ = put_ordered_of(&journal, owner, block, 3));
    let gate = &rig.home_gates().writes;
    gate.close();
    let has_begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| journal.flush_in_place_of(owner).unwrap());
        gate.wait_for(1);
        let syncs = journal.stats().syncs;
        scope.spawn(|| {
            drop(journal.begin(BLOCK_COUNT as usize).unwrap());
            has_begun.store(true, Ordering::SeqCst);
        });
        wait_until("a wait for the commit", || journal.stats().syncs > syncs);
        assert!(!has_begun.load(Ordering::SeqCst), "200 blocks are buffered");
        gate.open();
    });
    assert!(has_begun.load(Ordering::SeqCst));
    journal.close().unwrap();
    assert_eq!(rig.first_bytes([0, 99]), [3, 3]);
}

#[test]
fn a_transaction_and_the_journal_are_as_small_as_asked() {
    let rig = Rig::with_regions(16);
    let journal_bytes = 4 * common::REGION_BYTES;
    let memory = MemoryLimits { journal_bytes, ..small() };
    let journal = rig.open(Options { region_count: 4, memory, ..quiet() });
    assert_eq!(journal.max_credit_count(), MemoryLimits::TRANSACTION_BLOCKS_MIN);
    let header = journal.header();
    assert_eq!((header.region_count, header.region_bytes), (4, common::REGION_BYTES));
    assert_eq!(header.space_bytes, rig.space().len_bytes());
}

#[test]
fn recovery_with_little_memory_ends_as_with_much() {
    let rig = Rig::with_regions(4);
    let journal = rig.open(Options { region_count: 4, ..quiet() });
    for lap in 0..4 {
        commit_many(&journal, lap * 50, lap as u8 + 1);
        (0..HOME_BLOCKS / 10).for_each(|n| _ = commit(&journal, n * 7, lap as u8 + 9));
    }
    let least = MemoryLimits { journal_bytes: 0, dirty_blocks: 3, ..small() };
    for memory in [MemoryLimits::default(), least] {
        let after = rig.crash(Survival::Nothing);
        let recovery = after.recover_with(&RecoverOptions { memory, ..Default::default() });
        assert_eq!(recovery.unwrap().last_tid, Some(journal.committed_tid()));
        for block in 0..HOME_BLOCKS {
            let newest = journal.read(HomeBlock(block)).unwrap();
            assert!(after.at_home(block) == *newest, "block {block}");
        }
    }
}
