//! The history of a run, and the states that a crash may leave of it.
//!
//! State *k* is the model after the first *k* operations. A crash at a cut before which `acked`
//! operations had returned may leave state *k* if
//!
//! 1. *k* is at least the *floor*: it contains every operation that is covered by a sync that was
//!    acknowledged before the cut. `sync`, `checkpoint` and `remount` cover all operations before
//!    them. `fsync` of a file covers the last operation that changed the inode (and, because
//!    history is one order, all before it). `fdatasync` covers the last operation that changed the
//!    content or size, or created the file. Both also cover the last rename of a directory, because
//!    the file may be below it. Outside of the atomic data modes, data may overwrite older data in
//!    place, which `fdatasync` makes durable without a commit. So it covers an operation that left
//!    the size as it was in this file's content only.
//! 2. *k* is at most `acked + 1`: the operation that was in progress may be in it.
//! 3. A reservation of more than one block is done in several steps, so its first blocks may be
//!    there without the rest. So is a write. In the atomic data modes, each step of a write ends at
//!    a multiple of the volume's unit ([`ext4::Volume::untorn_bytes`]), so no aligned page is torn.
//!
//! In the atomic data modes, the tree equals such a state, including contents. In the others, the
//! tree without contents equals such a state. In each file, each byte is that of some version of
//! the file between its last acknowledged sync and the cut. Or it is zero, if the file was shorter
//! meanwhile (the part that was cut off is zeroed in place).

use std::collections::{BTreeMap, BTreeSet};

use ext4::{Error, FileKind};

use crate::BLOCK_BYTES;
use crate::case::Case;
use crate::content::Content;
use crate::lockstep::{self, Outcome};
use crate::model::{Change, Id, Model};
use crate::op::{Op, Target};
use crate::session::Session;
use crate::tree::{Fingerprint, Tree};
use crate::workload::Workload;

/// What an operation promised by returning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    Nothing,
    /// At least the state `floor`; and of the contents of this inode, no version older than in the
    /// state `content_floor`.
    File {
        id: Id,
        floor: usize,
        content_floor: usize,
    },
    /// At least the state before this operation.
    Everything,
}

/// One operation that was done.
struct Step {
    op: Op,
    promise: Promise,
    failed: Option<Error>,
}

/// A run: operations, models, promises.
pub struct History {
    /// Whether contents are part of the states: no file has data in place that a crash may show.
    atomic: bool,
    /// In the atomic data modes: where in a file a write may be cut, at multiples of this. 0 before
    /// the first operation.
    unit_bytes: u64,
    steps: Vec<Step>,
    /// `states[k]`: after `k` operations.
    states: Vec<Model>,
    fingerprints: Vec<Fingerprint>,
    by_whole: BTreeMap<u64, Vec<usize>>,
    by_metadata: BTreeMap<u64, Vec<usize>>,
    /// The contents of each file that ever existed, with the state in which each appeared.
    versions: BTreeMap<Id, Vec<(usize, Content)>>,
    last_change: BTreeMap<Id, usize>,
    last_data_change: BTreeMap<Id, usize>,
    /// The last data change of each file that also changed its size or created it. No commit may
    /// leave it out. An overwrite of the same size may be durable in place, without a commit.
    last_size_change: BTreeMap<Id, usize>,
    last_dir_rename: usize,
}

impl History {
    /// The history of a new volume.
    pub fn new(case: &Case) -> History {
        let mut history = History {
            atomic: case.data_mode.is_atomic() && case.workload != Workload::Modes,
            unit_bytes: 0,
            steps: Vec::new(),
            states: Vec::new(),
            fingerprints: Vec::new(),
            by_whole: BTreeMap::new(),
            by_metadata: BTreeMap::new(),
            versions: BTreeMap::new(),
            last_change: BTreeMap::new(),
            last_data_change: BTreeMap::new(),
            last_size_change: BTreeMap::new(),
            last_dir_rename: 0,
        };
        history.push_state(Model::formatted(), &[]);
        history
    }

    /// The newest state.
    pub fn model(&self) -> &Model {
        self.states.last().expect("there is always one")
    }

    /// Number of operations done.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether nothing was done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Performs `op` on the volume and on the model. The inner error is a text, if the two disagree
    /// about the result.
    ///
    /// If the medium fails, its error is returned. After a crash the operation may be there or not,
    /// and no other operation may be performed.
    pub fn step(&mut self, session: &mut Session, op: &Op) -> Result<Option<Error>, String> {
        let promise = self.promise(op);
        let mut model = self.model().clone();
        self.unit_bytes = session.volume().untorn_bytes();
        let index = self.steps.len();
        match lockstep::step(session, &mut model, op)
            .map_err(|text| format!("operation {index} ({op}): {text}"))?
        {
            Outcome::Done => self.push(op, promise, None, model),
            Outcome::Refused(error) => self.push(op, Promise::Nothing, Some(error), model),
            Outcome::Broken(error, after) => {
                let after = after.map_or(model, |after| *after);
                self.push(op, Promise::Nothing, Some(error.clone()), after);
                return Ok(Some(error));
            }
        }
        Ok(None)
    }

    /// Records that the volume was closed, which promises everything.
    pub fn push_closed(&mut self) {
        self.push(&Op::Sync, Promise::Everything, None, self.model().clone());
    }

    fn push(&mut self, op: &Op, promise: Promise, failed: Option<Error>, mut model: Model) {
        let changes = model.take_changes();
        // A name that is renamed onto itself stays, and nothing has to become durable.
        if !changes.is_empty() && renames_directory(op, self.model()) {
            self.last_dir_rename = self.states.len();
        }
        self.steps.push(Step { op: op.clone(), promise, failed });
        self.push_state(model, &changes);
    }

    fn push_state(&mut self, model: Model, changes: &[Change]) {
        let index = self.states.len();
        for change in changes {
            self.last_change.insert(change.id, index);
            if change.is_data {
                self.last_data_change.insert(change.id, index);
            }
        }
        let mut ids: BTreeSet<Id> = changes.iter().filter(|c| c.is_data).map(|c| c.id).collect();
        for (id, content) in model.contents_of(&ids) {
            let versions = self.versions.entry(id).or_default();
            let before = versions.last().map(|(_, before)| before.len_bytes());
            if before == Some(content.len_bytes()) {
                ids.remove(&id);
            }
            versions.push((index, content));
        }
        self.last_size_change.extend(ids.into_iter().map(|id| (id, index)));
        let fingerprint = match (self.fingerprints.last(), changes.is_empty() && index > 0) {
            (Some(last), true) => *last,
            _ => model.tree().fingerprint(),
        };
        self.by_whole.entry(fingerprint.whole).or_default().push(index);
        self.by_metadata.entry(fingerprint.metadata).or_default().push(index);
        self.fingerprints.push(fingerprint);
        self.states.push(model);
    }

    fn promise(&self, op: &Op) -> Promise {
        match op {
            Op::Sync | Op::Checkpoint | Op::Remount | Op::Restart => Promise::Everything,
            Op::Fsync { target, data_only } => match self.model().resolve(target) {
                Ok(id) => {
                    let (last, last_of_content) = match (*data_only, self.atomic) {
                        (false, _) => (&self.last_change, &self.last_change),
                        (true, true) => (&self.last_data_change, &self.last_data_change),
                        (true, false) => (&self.last_size_change, &self.last_data_change),
                    };
                    let state = |last: &BTreeMap<Id, usize>| last.get(&id).copied().unwrap_or(0);
                    let floor = state(last).max(self.last_dir_rename);
                    Promise::File { id, floor, content_floor: state(last_of_content) }
                }
                Err(_) => Promise::Nothing,
            },
            _ => Promise::Nothing,
        }
    }

    /// The oldest state that a crash may leave after `acked` operations have returned.
    pub fn floor(&self, acked: usize) -> usize {
        let promises = self.steps[..acked].iter().enumerate();
        let floors = promises.map(|(index, step)| match step.promise {
            Promise::Nothing => 0,
            Promise::File { floor, .. } => floor,
            Promise::Everything => index,
        });
        floors.max().unwrap_or(0)
    }

    /// Whether the tree, including contents, is any state of the history.
    pub fn is_state(&self, print: Fingerprint) -> bool {
        self.by_whole.contains_key(&print.whole)
    }

    /// Judges the tree that was found after a crash. `Ok` is the number of its state.
    pub fn judge(&self, tree: &Tree, print: Fingerprint, acked: usize) -> Result<usize, String> {
        let acked = acked.min(self.len());
        let range = self.floor(acked)..=(acked + 1).min(self.len());
        let (index, found) = if self.atomic {
            (&self.by_whole, print.whole)
        } else {
            (&self.by_metadata, print.metadata)
        };
        let states = index.get(&found).map_or(&[][..], Vec::as_slice);
        let mut refusal = None;
        for state in states.iter().rev().filter(|state| range.contains(state)) {
            match self.check_contents(tree, &self.states[*state], acked) {
                Ok(()) => return Ok(*state),
                Err(text) => refusal = Some(format!("state {state}: {text}")),
            }
        }
        for state in range.clone().rev() {
            if self.is_part_of_next(tree, print, state, acked) {
                return Ok(state);
            }
        }
        Err(refusal.unwrap_or_else(|| self.explain(tree, states, range)))
    }

    fn explain(
        &self,
        tree: &Tree,
        states: &[usize],
        range: std::ops::RangeInclusive<usize>,
    ) -> String {
        if let Some(state) = states.last() {
            let lost = self.last_promise_above(*state, *range.end());
            return format!("it is state {state}, allowed are {range:?}{lost}");
        }
        let count = |state: &usize| {
            let model = self.states[*state].tree();
            let entries = &model.entries;
            let missing = entries.iter().filter(|(path, e)| tree.entries.get(*path) != Some(e));
            missing.count() + tree.entries.keys().filter(|p| !entries.contains_key(*p)).count()
        };
        let nearest = range.clone().min_by_key(count).expect("the range is not empty");
        let next = self.steps.get(nearest).map(|step| format!(" (next: {})", step.op));
        format!(
            "it is no state at all; allowed are {range:?}; against state {nearest}{}:\n{}",
            next.unwrap_or_default(),
            tree.differences(&self.states[nearest].tree(), ["volume", "model"], 8)
        )
    }

    fn last_promise_above(&self, state: usize, end: usize) -> String {
        let steps = self.steps[..end].iter().enumerate();
        let broken = steps.rev().find(|(index, step)| match step.promise {
            Promise::Nothing => false,
            Promise::File { floor, .. } => floor > state,
            Promise::Everything => *index > state,
        });
        broken.map_or(String::new(), |(i, step)| format!("; broken: operation {i} ({})", step.op))
    }

    /// Whether the tree is `state` with the first blocks of the operation after it.
    fn is_part_of_next(&self, tree: &Tree, print: Fingerprint, state: usize, acked: usize) -> bool {
        let Some(step) = self.steps.get(state) else { return false };
        let (target, offset, len_bytes) = match &step.op {
            Op::Write { target, offset, len_bytes, .. } => (target, *offset, *len_bytes as u64),
            Op::Fallocate { target, offset, len_bytes, .. } => (target, *offset, *len_bytes),
            _ => return false,
        };
        let ends = self.part_ends(tree, state, target);
        let is_write = matches!(step.op, Op::Write { .. });
        let may_be_cut =
            |end: &u64| !is_write || !self.atomic || end.is_multiple_of(self.unit_bytes);
        let ends = ends.into_iter().filter(may_be_cut);
        let possible = ends.filter(|end| *end > offset && *end < offset + len_bytes);
        possible.into_iter().any(|end| {
            let mut model = self.states[state].clone();
            let part = part_of(&step.op, end - offset);
            if model.apply(&part, None).is_err() {
                return false;
            }
            let found = model.tree().fingerprint();
            if self.atomic {
                return found.whole == print.whole;
            }
            found.metadata == print.metadata && self.check_contents(tree, &model, acked).is_ok()
        })
    }

    /// The places where the operation after `state` may have stopped: at the size that was found,
    /// or in the first block in which the found content differs from the complete operation.
    fn part_ends(&self, tree: &Tree, state: usize, target: &Target) -> Vec<u64> {
        let (before, after) = (&self.states[state], &self.states[state + 1]);
        let Ok(id) = before.resolve(target) else { return Vec::new() };
        let (Some(path), Some(whole)) = (before.path_of(id), after.content(id)) else {
            return Vec::new();
        };
        let Some(found) = tree.entries.get(path.as_bytes()) else { return Vec::new() };
        let pairs = found.content.bytes().iter().zip(whole.bytes());
        let same = pairs.take_while(|(a, b)| a == b).count() as u64;
        vec![found.size_bytes, same / BLOCK_BYTES * BLOCK_BYTES]
    }

    /// Checks the promise for contents that are written in place.
    fn check_contents(&self, tree: &Tree, model: &Model, acked: usize) -> Result<(), String> {
        if self.atomic {
            return Ok(());
        }
        for (path, entry) in &tree.entries {
            let path = String::from_utf8_lossy(path);
            let Ok(id) = model.find(&path) else { continue };
            let Some(content) = model.content(id) else { continue };
            if *content != entry.content {
                self.check_bytes(id, entry.content.bytes(), acked)
                    .map_err(|text| format!("/{path}: {text}"))?;
            }
        }
        Ok(())
    }

    fn check_bytes(&self, id: Id, found: &[u8], acked: usize) -> Result<(), String> {
        let floor = self.content_floor(id, acked);
        let all = &self.versions[&id];
        let start = all.iter().rposition(|(state, _)| *state <= floor).unwrap_or(0);
        let possible: Vec<&Content> =
            all[start..].iter().filter(|(s, _)| *s <= acked + 1).map(|(_, c)| c).collect();
        for (at, byte) in found.iter().enumerate() {
            if possible.iter().any(|version| version.bytes().get(at) == Some(byte)) {
                continue;
            }
            let lens = possible.iter().map(|version| version.bytes().len());
            let was_cut = lens.clone().zip(lens.skip(1)).any(|(a, b)| b < a && at >= b);
            if *byte != 0 || !was_cut {
                let allowed: BTreeSet<_> = possible.iter().map(|v| v.bytes().get(at)).collect();
                return Err(format!(
                    "byte {at} is {byte}, which it never was since state {floor} (allowed: \
                     {allowed:?})"
                ));
            }
        }
        Ok(())
    }

    /// The oldest state whose content of this file may be found.
    fn content_floor(&self, id: Id, acked: usize) -> usize {
        let steps = self.steps[..acked].iter().enumerate();
        let floors = steps.map(|(index, step)| match step.promise {
            Promise::Everything => index,
            Promise::File { id: synced, content_floor, .. } if synced == id => content_floor,
            _ => 0,
        });
        floors.max().unwrap_or(0)
    }

    /// The operations from `start` on, as text for people.
    pub fn print(&self, start: usize) -> String {
        let steps = self.steps.iter().enumerate().skip(start);
        let line = |(index, step): (usize, &Step)| match &step.failed {
            Some(error) => format!("  {index}: {} -> {error}\n", step.op),
            None => format!("  {index}: {}\n", step.op),
        };
        steps.map(line).collect()
    }
}

/// Whether the operation gives a directory another name or parent. `model` is the state before it.
fn renames_directory(op: &Op, model: &Model) -> bool {
    let Op::Rename { from, to, .. } = op else { return false };
    let is_directory = |path: &String| {
        model.find(path).is_ok_and(|id| model.kind(id) == Some(FileKind::Directory))
    };
    is_directory(from) || is_directory(to)
}

/// The first `done_bytes` of a write or reservation, as an operation.
fn part_of(op: &Op, done_bytes: u64) -> Op {
    let done = usize::try_from(done_bytes).expect("not more than the operation");
    match op.clone() {
        Op::Write { target, offset, tag, .. } => Op::Write { target, offset, len_bytes: done, tag },
        Op::Fallocate { target, how, offset, .. } => {
            Op::Fallocate { target, how, offset, len_bytes: done_bytes }
        }
        other => other,
    }
}
