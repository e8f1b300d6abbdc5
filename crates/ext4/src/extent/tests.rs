//! The extent tree against a flat list of blocks, in memory, without a volume.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use journal::{BLOCK_BYTES, BlockBytes, BlockRef, HomeBlock};

use super::node::encode_root;
use super::run::Run;
use super::update::{NodeStore, insert, mark, remove_in_leaf, shrink};
use super::walk::{NodeSource, Root, check_root, descend, find};
use crate::{Error, InodeNo, Result};
use onejournal_testing::{test_name, tier};

const BLOCK_COUNT: u64 = 1 << 40;
const FIRST_NODE: u64 = 1 << 30;

/// Nodes in memory.
#[derive(Default)]
struct Memory {
    nodes: HashMap<HomeBlock, BlockRef>,
    next: u64,
    node_limit: usize,
}

impl NodeSource for Memory {
    fn owner(&self) -> InodeNo {
        InodeNo(12)
    }

    fn node(&self, block: HomeBlock) -> Result<BlockRef> {
        Ok(self.nodes.get(&block).expect("a node that exists").clone())
    }

    fn seed(&self) -> Option<u32> {
        Some(77)
    }

    fn holds(&self, start: u64, count: u64) -> bool {
        start > 0 && start.checked_add(count).is_some_and(|end| end <= BLOCK_COUNT)
    }
}

impl NodeStore for Memory {
    fn allocate(&mut self, _goal: HomeBlock) -> Result<HomeBlock> {
        if self.nodes.len() == self.node_limit {
            return Err(Error::NoSpace);
        }
        self.next += 1;
        Ok(HomeBlock(FIRST_NODE + self.next))
    }

    fn release(&mut self, block: HomeBlock) -> Result<()> {
        self.nodes.remove(&block).expect("freed once");
        Ok(())
    }

    fn node_mut(&mut self, block: HomeBlock, fresh: bool) -> Result<&mut BlockBytes> {
        if fresh {
            let old = self.nodes.insert(block, Arc::new([0; BLOCK_BYTES]));
            assert!(old.is_none(), "a fresh node where there is one");
        }
        Ok(Arc::make_mut(self.nodes.get_mut(&block).expect("a node that exists")))
    }
}

/// A tree, and a model of it, block by block.
struct Pair {
    memory: Memory,
    root: Root,
    model: BTreeMap<u32, (u64, bool)>,
}

impl Pair {
    fn new() -> Pair {
        let mut root = [0; 60];
        encode_root::<Run>(&mut root, 0, &[]);
        let memory = Memory { node_limit: usize::MAX, ..Memory::default() };
        Pair { memory, root, model: BTreeMap::new() }
    }

    fn insert(&mut self, run: Run) {
        insert(&mut self.memory, &mut self.root, run).expect("room");
        for at in 0..run.count {
            let old =
                self.model.insert(run.logical + at, (run.physical + u64::from(at), run.unwritten));
            assert!(old.is_none());
        }
    }

    fn mark(&mut self, start: u32, end: u32, unwritten: bool) {
        let mut at = start;
        while at < end {
            let found = find(&self.memory, &self.root, at).expect("sound");
            let Some(run) = found.at else {
                at = u32::try_from(found.next.min(u64::from(end))).expect("not behind end");
                continue;
            };
            let to = run.end().min(u64::from(end));
            mark(&mut self.memory, &mut self.root, u64::from(at), to, unwritten).expect("room");
            at = u32::try_from(to).expect("not behind end");
        }
        self.model.range_mut(start..end).for_each(|(_, (_, flag))| *flag = unwritten);
    }

    /// Removes a range, `refuse_after` runs at a time. The freed blocks must be those of the model.
    fn remove(&mut self, start: u64, end: u64, refuse_after: usize) {
        let mut at = start;
        loop {
            let mut taken = Vec::new();
            let step = remove_in_leaf(&mut self.memory, &mut self.root, at, end, &mut |run| {
                let whole = taken.len() < refuse_after;
                let count = if whole { run.count } else { run.count / 2 };
                if count > 0 {
                    taken.push(Run { count, ..run });
                }
                count
            });
            for run in taken {
                for i in 0..run.count {
                    let old = self.model.remove(&(run.logical + i));
                    assert_eq!(old, Some((run.physical + u64::from(i), run.unwritten)));
                }
            }
            match step.expect("room") {
                Some((next, _)) => at = next,
                None => break,
            }
        }
        shrink(&mut self.memory, &mut self.root).expect("sound");
    }

    /// Asserts that tree and model agree, that no node is lost or used twice, and that keys are
    /// exact.
    fn check(&self) {
        let mut logical = 0u64;
        let mut seen = 0;
        while let Ok(at) = u32::try_from(logical) {
            let found = find(&self.memory, &self.root, at).expect("sound");
            if let Some(run) = found.at {
                assert_eq!(run.logical, at, "walked in order, a run is met at its first block");
                for i in 0..run.count {
                    let expected = Some(&(run.physical + u64::from(i), run.unwritten));
                    assert_eq!(self.model.get(&(at + i)), expected, "block {}", at + i);
                }
                seen += run.count as usize;
                logical = run.end();
            } else {
                logical = found.next;
            }
        }
        assert_eq!(seen, self.model.len());
        self.check_nodes();
    }

    fn check_nodes(&self) {
        let mut nodes = BTreeSet::new();
        let mut next = 0;
        while let Ok(logical) = u32::try_from(next) {
            let (path, runs) = descend(&self.memory, &self.root, logical).expect("sound");
            nodes.extend(path.inner.iter().filter_map(|level| level.block));
            nodes.extend(path.leaf_block);
            let mut key = runs.first().map(|run| run.logical);
            for level in path.inner.iter().rev() {
                assert_eq!(Some(level.children[level.slot].logical), key, "key of a parent");
                key = level.children.first().map(|child| child.logical);
            }
            next = path.window.end;
        }
        assert_eq!(nodes, self.memory.nodes.keys().copied().collect());
    }

    fn depth(&self) -> u16 {
        check_root(&self.memory, &self.root).expect("sound").head().depth
    }
}

fn single(logical: u32, physical: u64) -> Run {
    Run { logical, count: 1, physical, unwritten: false }
}

#[test]
fn sequential_appends_are_one_extent() {
    let mut pair = Pair::new();
    (0..1000).for_each(|at| pair.insert(single(at, 5000 + u64::from(at))));
    assert_eq!(pair.memory.nodes.len(), 0);
    pair.check();
}

#[test]
fn grows_to_depth_two_in_order_with_full_leaves_and_back() {
    let mut pair = Pair::new();
    let count = 340 * 5;
    (0..count).for_each(|at| pair.insert(single(2 * at, 5000 + 2 * u64::from(at))));
    assert_eq!((pair.depth(), pair.memory.nodes.len()), (2, 6));
    pair.check();
    pair.remove(8, 1 << 32, 5);
    assert_eq!((pair.depth(), pair.memory.nodes.len()), (0, 0));
    pair.check();
}

#[test]
fn grows_to_depth_three_from_the_end() {
    let mut pair = Pair::new();
    let count = 340 * 340 * 5 / 2;
    for at in (0..count).rev() {
        let run = single(3 * at, 5000 + 7 * u64::from(at));
        insert(&mut pair.memory, &mut pair.root, run).expect("room");
    }
    assert_eq!(pair.depth(), 3);
    pair.model.extend((0..count).map(|at| (3 * at, (5000 + 7 * u64::from(at), false))));
    pair.check();
    pair.remove(0, 1 << 32, usize::MAX);
    assert_eq!((pair.depth(), pair.memory.nodes.len()), (0, 0));
}

#[test]
fn the_last_logical_block_can_be_used() {
    let mut pair = Pair::new();
    pair.insert(Run { logical: u32::MAX - 1, count: 2, physical: 900, unwritten: true });
    pair.mark(u32::MAX, u32::MAX, false);
    pair.check();
    pair.remove(u64::from(u32::MAX), 1 << 32, 1);
    pair.check();
}

#[test]
fn no_space_for_a_node_is_an_error() {
    let mut pair = Pair::new();
    (0..4).for_each(|at| pair.insert(single(2 * at, 500 + 2 * u64::from(at))));
    pair.memory.node_limit = 0;
    let result = insert(&mut pair.memory, &mut pair.root, single(100, 900));
    assert!(matches!(result, Err(Error::NoSpace)));
    pair.check();
}

#[test]
fn random_edits_match_the_model() {
    // By turns in a small and in a large space.
    tier::seeds(test_name!(), 12).for_each(random_edits);
}

fn random_edits(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pair = Pair::new();
    let space = if seed.is_multiple_of(2) { 4000 } else { 60_000 };
    let mut physical = 1000;
    for step in 0..1500 {
        let start = random.u32(0..space);
        let count = if random.u8(0..8) == 0 { random.u32(1..600) } else { random.u32(1..4) };
        match random.u8(0..10) {
            0..6 => {
                let unwritten = random.bool();
                physical += random.u64(0..2) * 3;
                fill_holes(&mut pair, start, count, &mut physical, unwritten);
            }
            6..8 => pair.mark(start, start + count, random.bool()),
            _ => pair.remove(start.into(), (start + count).into(), random.usize(1..5)),
        }
        if step % 100 == 0 {
            pair.check();
        }
    }
    pair.check();
    pair.remove(0, 1 << 32, 17);
    assert!(pair.memory.nodes.is_empty() && pair.model.is_empty(), "seed {seed}");
}

fn fill_holes(pair: &mut Pair, start: u32, count: u32, physical: &mut u64, unwritten: bool) {
    let mut at = start;
    while at < start + count {
        if pair.model.contains_key(&at) {
            at += 1;
            continue;
        }
        let end = pair.model.range(at..).next().map_or(u32::MAX, |(next, _)| *next);
        let run =
            Run { logical: at, count: end.min(start + count) - at, physical: *physical, unwritten };
        *physical += u64::from(run.count);
        at += run.count;
        pair.insert(run);
    }
}
