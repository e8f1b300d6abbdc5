//! Tests of the allocators: operations on an image that `mke2fs` made and `e2fsck` checks.

use journal::HomeBlock;

use crate::bench::Bench;
use crate::facts::{Source, check_not_fixed, fixed_ranges, read_desc};
use crate::inode::Inode;
use crate::op::credits;
use crate::{DataMode, Error, FileKind, InodeNo, RootVolume};
use onejournal_testing::{test_name, tier};

const VARIANTS: [&str; 4] = [
    "metadata_csum",
    "metadata_csum_seed,orphan_file",
    "^metadata_csum,uninit_bg",
    "^metadata_csum,^64bit,^flex_bg,^resize_inode",
];

/// A volume of 32 MiB in groups of 2048 blocks.
fn with_features(features: &str) -> Bench {
    with_arguments(&["-g", "2048", "-O", features])
}

fn with_arguments(arguments: &[&str]) -> Bench {
    Bench::with_options(DataMode::Journal, 32, 0, &[&["-N", "512"], arguments].concat())
}

fn everything(volume: &RootVolume) -> Vec<u64> {
    let groups = 0..volume.facts.geometry.group_count;
    groups
        .map(|group| u64::from(read_desc(&***volume, group).unwrap().free_block_count()))
        .collect()
}

#[test]
fn random_allocations_and_frees_leave_a_clean_volume() {
    for features in VARIANTS {
        let bench = with_features(features);
        let volume = bench.open();
        let before = everything(&volume);
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        let mut held: Vec<(HomeBlock, u32)> = Vec::new();
        let mut in_use = std::collections::HashSet::new();
        for _ in 0..tier::count(400) {
            if held.is_empty() || random.u8(..) < 150 {
                let goal = HomeBlock(random.u64(..volume.facts.geometry.block_count + 10));
                let wanted = 1 + random.u32(..400);
                let taken = volume
                    .spending()
                    .with_op(credits::ALLOC_BLOCKS, |op| op.alloc_blocks(goal, wanted));
                let (start, count) = match taken {
                    Ok(run) => run,
                    Err(Error::NoSpace) => continue,
                    Err(error) => panic!("{error}"),
                };
                assert!((1..=wanted).contains(&count));
                for block in start.0..start.0 + u64::from(count) {
                    assert!(in_use.insert(block), "block {block} was given twice");
                }
                held.push((start, count));
            } else {
                let (start, count) = held.swap_remove(random.usize(..held.len()));
                free(&volume, start, u64::from(count)).unwrap();
                in_use.retain(|block| !(start.0..start.0 + u64::from(count)).contains(block));
            }
        }
        for (start, count) in held {
            free(&volume, start, u64::from(count)).unwrap();
        }
        assert_eq!(everything(&volume), before, "{features}");
        volume.close().unwrap();
        bench.fsck();
    }
}

fn free(volume: &RootVolume, start: HomeBlock, count: u64) -> crate::Result<()> {
    volume.spending().with_op(2 * credits::FREE_BLOCKS, |op| op.free_blocks(start, count))
}

#[test]
fn allocations_follow_their_goal() {
    let bench = with_features("metadata_csum");
    let volume = bench.open();
    let take =
        |goal, count| volume.spending().with_op(2, |op| op.alloc_blocks(goal, count)).unwrap();
    let (first, _) = take(HomeBlock(3 * 2048), 10);
    let (second, count) = take(HomeBlock(first.0 + 10), 20);
    assert_eq!((second.0, count), (first.0 + 10, 20));
    // A goal in use: the next free run after it.
    assert_eq!(take(first, 5).0.0, second.0 + 20);
    // Long requests get one long run.
    assert_eq!(take(HomeBlock(5 * 2048), 1500).1, 1500);
}

#[test]
fn a_dropped_operation_changed_nothing() {
    for features in VARIANTS {
        let bench = with_features(features);
        let volume = bench.open();
        let before = (everything(&volume), volume.stat_fs().unwrap());
        let mut op = volume.spending().op(40).unwrap();
        op.alloc_blocks(HomeBlock(9000), 30).unwrap();
        let ino = op.alloc_inode(InodeNo::ROOT, FileKind::Regular).unwrap();
        let now = op.now();
        let mut inode = Inode::new(ino, FileKind::Regular, 1, now);
        op.put_inode(&inode).unwrap();
        op.orphan_add(&mut inode).unwrap();
        assert_eq!(volume.orphans.all(&op).unwrap(), [ino]);
        drop(op);
        assert_eq!((everything(&volume), volume.stat_fs().unwrap()), before);
        assert!(volume.orphans.all(&**volume).unwrap().is_empty());
        volume.close().unwrap();
        bench.fsck();
    }
}

#[test]
fn metadata_is_never_freed_and_nothing_is_freed_twice() {
    for features in VARIANTS {
        let bench = with_features(features);
        let volume = bench.open();
        let before = everything(&volume);
        let is_refused = |start: u64, count| {
            let error = free(&volume, HomeBlock(start), count).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{start}+{count}: {error}");
        };
        for range in fixed_ranges(&**volume, 0).unwrap().iter() {
            is_refused(range.start, 1);
            is_refused(range.end - 1, 1);
        }
        is_refused(0, 1);
        is_refused(volume.facts.geometry.block_count - 1, 2);
        is_refused(u64::MAX, 2);
        let jbd2 = volume.opened().feature_bits.as_ref().unwrap().jbd2_block();
        is_refused(jbd2.0 + 1, 1);
        let (start, _) =
            volume.spending().with_op(2, |op| op.alloc_blocks(HomeBlock(0), 4)).unwrap();
        free(&volume, start, 4).unwrap();
        is_refused(start.0, 4);
        is_refused(start.0 + 3, 1);
        assert_eq!(everything(&volume), before);
        check_not_fixed(&**volume, start, 4).unwrap();
    }
}

#[test]
fn metadata_that_lie_outside_of_their_flex_group_are_not_freed_either() {
    let packed = "packed_meta_blocks=1";
    let bench = with_arguments(&["-g", "256", "-E", packed, "-O", "^resize_inode"]);
    let volume = bench.open();
    let last = read_desc(&**volume, volume.facts.geometry.group_count - 1).unwrap();
    assert_eq!(volume.facts.geometry.group_of_block(HomeBlock(last.block_bitmap())), 0);
    for block in [last.block_bitmap(), last.inode_bitmap(), last.inode_table()] {
        let error = free(&volume, HomeBlock(block), 1).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{block}: {error}");
    }
    volume.close().unwrap();
    bench.fsck();
}

#[test]
fn freed_blocks_wait_for_their_commit() {
    let bench = with_features("metadata_csum");
    let volume = bench.open();
    let goal = HomeBlock(4 * 2048);
    let take = || volume.spending().with_op(2, |op| op.alloc_blocks(goal, 8)).unwrap().0;
    let first = take();
    free(&volume, first, 8).unwrap();
    let second = take();
    assert_ne!(second, first, "not before the commit");
    volume.sync().unwrap();
    free(&volume, second, 8).unwrap();
    let again = volume.spending().with_op(2, |op| op.alloc_blocks(first, 8)).unwrap().0;
    assert_eq!(again, first, "after it");
    // An operation does not get the blocks that it has freed itself.
    let mut op = volume.spending().op(8).unwrap();
    op.free_blocks(again, 8).unwrap();
    assert_ne!(op.alloc_blocks(again, 8).unwrap().0, again);
}

#[test]
fn orphans_come_and_go_in_any_order() {
    for features in VARIANTS {
        let bench = with_features(features);
        let volume = bench.open();
        let mut random = fastrand::Rng::with_seed(tier::seed_of(test_name!()));
        let mut orphans: Vec<InodeNo> = Vec::new();
        for round in 0..120 {
            if orphans.is_empty() || random.u8(..) < 140 {
                let ino = volume.spending().with_op(12, |op| {
                    let ino = op.alloc_inode(InodeNo::ROOT, FileKind::Regular)?;
                    let mut inode = Inode::new(ino, FileKind::Regular, round, op.now());
                    op.put_inode(&inode)?;
                    op.orphan_add(&mut inode)?;
                    op.orphan_add(&mut inode)?;
                    op.put_inode(&inode)?;
                    Ok(ino)
                });
                orphans.push(ino.unwrap());
            } else {
                let ino = orphans.swap_remove(random.usize(..orphans.len()));
                let removed = volume.spending().with_op(12, |op| {
                    // A copy that is older than what happens to the list must do no harm.
                    let others: Vec<Inode> = orphans
                        .iter()
                        .take(3)
                        .map(|ino| op.inode(*ino))
                        .collect::<Result<_, _>>()?;
                    let mut inode = op.inode(ino)?;
                    op.orphan_remove(&mut inode)?;
                    op.orphan_remove(&mut inode)?;
                    others.iter().try_for_each(|other| op.put_inode(other))?;
                    op.free_inode(ino, FileKind::Regular)
                });
                removed.unwrap();
            }
            // What the volume says, read afresh.
            volume.orphans.invalidate();
            let mut found = volume.orphans.all(&**volume).unwrap();
            found.sort_unstable();
            let mut expected = orphans.clone();
            expected.sort_unstable();
            assert_eq!(found, expected, "{features}, round {round}");
        }
        volume.close().unwrap();
        bench.fsck();
    }
}

#[test]
fn pointers_outside_of_the_volume_are_errors() {
    let bench = with_features("metadata_csum");
    let volume = bench.open();
    for block in [0, volume.facts.geometry.block_count, u64::MAX] {
        assert!(matches!(volume.block(HomeBlock(block)), Err(Error::Corrupt { .. })));
    }
}
