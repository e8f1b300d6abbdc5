//! The steps of each actor, made from a seed, and their effect on a model.

use std::fmt;

use ext4::FileKind;
use sim::content::Content;
use sim::model::{Change, Id, Model};
use sim::op::{Op, RenameKind, Target};
use sim::workload::ops_from;

use crate::replaced;
use crate::scenario::{Actor, Scenario};
use crate::slots::{self, Places, RECORD_BYTES, SlotOp, first_part};
use crate::store;
use crate::streams;

/// One step of an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// An operation in the actor's own directory.
    Tree(Op),
    /// An operation on the actor's places in a file.
    Slot(SlotOp),
    /// The transaction, or record, of this number.
    Commit(u64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Tree(op) => op.fmt(f),
            Step::Slot(op) => op.fmt(f),
            Step::Commit(count) => write!(f, "transaction {count}"),
        }
    }
}

/// The state that an actor has made so far.
#[derive(Clone)]
pub enum ActorState {
    /// Its directory.
    Tree(Box<Model>),
    /// Its records, one after the other.
    Slots(Content),
    /// Its transactions, or the records of its stream.
    Count(u64),
}

impl ActorState {
    /// The state before an actor's first step.
    pub fn first(actor: Actor) -> ActorState {
        match actor {
            Actor::Tree | Actor::Mover => ActorState::Tree(Box::new(Model::empty())),
            actor if actor.counts() => ActorState::Count(0),
            _ => ActorState::Slots(Content::new(vec![0; slots::PLACE_COUNT * RECORD_BYTES])),
        }
    }

    /// The state after the volume was mounted again: no file is open.
    pub fn reopened(mut self) -> ActorState {
        if let ActorState::Tree(model) = &mut self {
            model.close_all();
        }
        self
    }
}

/// The actor's places, among the actors that share its file.
pub fn places(scenario: &Scenario, actor: usize) -> Places {
    if scenario.actors[actor] == Actor::Mapped {
        return Places { index: 0, actor_count: 1 };
    }
    let index = scenario.actors[..actor].iter().filter(|actor| actor.shares_file()).count();
    Places { index, actor_count: scenario.sharing_count() }
}

/// The steps of an actor in one incarnation of the mount.
pub fn steps(
    scenario: &Scenario,
    (actor, incarnation): (usize, usize),
    from: &ActorState,
    seed: u64,
    count: usize,
) -> Vec<Step> {
    let seed = seed.wrapping_mul(1000) + (actor * 10 + incarnation) as u64;
    let first_number = u32::try_from(incarnation).expect("few incarnations") * 10_000;
    match from {
        ActorState::Tree(_) if scenario.actors[actor] == Actor::Mover => {
            moves(seed, first_number, count).into_iter().map(Step::Tree).collect()
        }
        ActorState::Tree(model) => {
            let ops = ops_from((**model).clone(), first_number, seed, count);
            ops.into_iter().flat_map(|op| as_calls(op, scenario.by_user)).map(Step::Tree).collect()
        }
        ActorState::Count(done) => {
            (1..=count as u64).map(|more| Step::Commit(done + more)).collect()
        }
        ActorState::Slots(_) => {
            slots::ops(seed, first_number, count).into_iter().map(Step::Slot).collect()
        }
    }
}

/// Rounds of these steps: a file two directories down is written and synced; one of these
/// directories is renamed; the file is synced again, sometimes after a change and sometimes
/// without. Nothing else makes the new name durable.
fn moves(seed: u64, first_number: u32, count: usize) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut ops = Vec::new();
    let mut number = first_number;
    while ops.len() < count {
        number += 1;
        let outer = format!("d{number}");
        let write = |path: &str, tag| {
            let target = Target::Path(path.to_owned());
            Op::Write { target, offset: 0, len_bytes: 500, tag }
        };
        let path = format!("{outer}/inner/f");
        ops.push(Op::MakeDir { path: outer.clone(), mode: 0o755 });
        ops.push(Op::MakeDir { path: format!("{outer}/inner"), mode: 0o755 });
        ops.push(Op::Create { path: path.clone(), mode: 0o644 });
        ops.push(write(&path, number));
        ops.push(Op::Fsync { target: Target::Path(path), data_only: false });
        let (from, to, path) = match rng.bool() {
            true => (outer.clone(), format!("m{number}"), format!("m{number}/inner/f")),
            false => {
                (format!("{outer}/inner"), format!("{outer}/moved"), format!("{outer}/moved/f"))
            }
        };
        ops.push(Op::Rename { from, to, kind: RenameKind::Replace });
        if rng.u8(..3) == 0 {
            ops.push(write(&path, number + 5000));
        }
        ops.push(Op::Fsync { target: Target::Path(path), data_only: rng.bool() });
    }
    ops
}

/// Splits an operation into operations that are one system call each. The result is empty if the
/// user may not perform it.
fn as_calls(op: Op, by_user: bool) -> Vec<Op> {
    match op {
        Op::Remount | Op::Restart | Op::Checkpoint => vec![Op::Sync],
        Op::SetAttr { .. } | Op::Special { .. } if by_user => vec![],
        Op::SetXattr { ref name, .. } | Op::RemoveXattr { ref name, .. }
            if by_user && !name.starts_with("user.") =>
        {
            vec![]
        }
        Op::SetAttr { target, mode: Some(mode), .. } => {
            vec![Op::SetAttr { target, mode: Some(mode), uid: None, gid: None }]
        }
        op => vec![op],
    }
}

/// What a successful step promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Covers {
    /// Nothing.
    Nothing,
    /// The changes that the actor has made to a file of its directory.
    File { id: Id, data_only: bool },
    /// The shared file, or the file that the actor maps.
    Records,
    /// The step itself.
    Itself,
    /// Everything on the volume.
    Everything,
}

/// The effect of a step on the model.
pub struct Effect {
    /// States between the old and the new one that a crash may leave, if a write is more than one
    /// request.
    pub parts: Vec<ActorState>,
    /// The new state.
    pub state: ActorState,
    pub changes: Vec<Change>,
    /// An inode that got a new path.
    pub moved: Vec<Id>,
}

/// Applies a step to a state; `None` if the step fails there.
pub fn apply(state: &ActorState, step: &Step, places: Places) -> Option<Effect> {
    match (state, step) {
        (ActorState::Tree(model), Step::Tree(op)) => apply_tree(model, op),
        (ActorState::Slots(records), Step::Slot(op)) => Some(apply_slots(records, op, places)),
        (ActorState::Count(_), Step::Commit(count)) => {
            let state = ActorState::Count(*count);
            Some(Effect { parts: Vec::new(), state, changes: Vec::new(), moved: Vec::new() })
        }
        _ => unreachable!("an actor does steps of its own kind"),
    }
}

fn apply_tree(before: &Model, op: &Op) -> Option<Effect> {
    if !is_for_calls(before, op) {
        return None;
    }
    let mut model = before.clone();
    model.apply(op, None).ok()?;
    let changes = model.take_changes();
    let moved = match op {
        _ if changes.is_empty() => Vec::new(),
        Op::Rename { from, to, .. } => {
            [from, to].iter().filter_map(|path| model.find(path).ok()).collect()
        }
        Op::Create { path, .. } | Op::MakeDir { path, .. } | Op::Link { to: path, .. } => {
            model.find(path).into_iter().collect()
        }
        _ => Vec::new(),
    };
    let mut parts = Vec::new();
    if let Op::Write { offset, len_bytes, .. } = op
        && let Some(part) = first_part(*offset, *len_bytes)
    {
        let mut model = before.clone();
        model.apply(op, Some(part)).ok()?;
        model.take_changes();
        parts.push(ActorState::Tree(Box::new(model)));
    }
    Some(Effect { parts, state: ActorState::Tree(Box::new(model)), changes, moved })
}

/// Whether the step can be done by system calls: only files are opened, and only files and
/// directories are synced.
fn is_for_calls(model: &Model, op: &Op) -> bool {
    let kind = |path: &str| {
        let paths = model.paths().into_iter();
        paths.filter(|(known, _)| known == path).map(|(_, kind)| kind).next()
    };
    match op {
        Op::Open { path, .. } => kind(path) == Some(FileKind::Regular),
        Op::Fsync { target: Target::Path(path), .. } => {
            path.is_empty() || matches!(kind(path), Some(FileKind::Regular | FileKind::Directory))
        }
        _ => true,
    }
}

fn apply_slots(before: &Content, op: &SlotOp, places: Places) -> Effect {
    let with = |place: usize, record: &[u8]| {
        let mut bytes = before.bytes().to_vec();
        let start = place * RECORD_BYTES;
        bytes[start..start + record.len()].copy_from_slice(record);
        ActorState::Slots(Content::new(bytes))
    };
    let (parts, state) = match op {
        SlotOp::Write { place, tag } => {
            let record = places.record(*place, *tag);
            let part = places.first_part(*place).map(|len| with(*place, &record[..len]));
            (part.into_iter().collect(), with(*place, &record))
        }
        SlotOp::Sync { .. } => (Vec::new(), ActorState::Slots(before.clone())),
    };
    Effect { parts, state, changes: Vec::new(), moved: Vec::new() }
}

/// What a step promises if it succeeds and leads to `state`.
pub fn covers(actor: Actor, state: &ActorState, step: &Step, has_sync: bool) -> Covers {
    match (step, state) {
        (Step::Tree(Op::Sync), _) if has_sync => Covers::Everything,
        (Step::Tree(Op::Fsync { target, data_only }), ActorState::Tree(model)) => {
            let found = model.resolve(target);
            found.map_or(Covers::Nothing, |id| Covers::File { id, data_only: *data_only })
        }
        (Step::Slot(SlotOp::Sync { .. }), _) => Covers::Records,
        (Step::Slot(SlotOp::Write { .. }), _)
            if matches!(actor, Actor::Dsync | Actor::Sync | Actor::Uring) =>
        {
            Covers::Itself
        }
        (Step::Commit(number), _) => match actor {
            Actor::Database(it) | Actor::Together(it) if !it.is_durable => Covers::Nothing,
            Actor::Replacer if !replaced::is_synced(*number) => Covers::Nothing,
            Actor::Stream if !streams::is_synced(*number) => Covers::Nothing,
            Actor::Store(_) if !store::is_synced(*number) => Covers::Nothing,
            _ => Covers::Itself,
        },
        _ => Covers::Nothing,
    }
}

/// The directories on the path to the file that a sync names, and the file.
pub fn way_to(model: &Model, step: &Step) -> Vec<Id> {
    let Step::Tree(Op::Fsync { target: Target::Path(path), .. }) = step else { return Vec::new() };
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| model.find(&path[..end]).ok()).collect()
}
