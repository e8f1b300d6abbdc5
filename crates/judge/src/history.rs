//! What happened in one incarnation of a mount, and what a crash may leave of it.
//!
//! Each actor goes through states, one for each step. A step has a beginning and an end in the
//! trace. A volume that is found after a cut is judged by three rules:
//!
//! 1. The found state of each actor is one of its states, and the step that made it had begun
//!    before the cut.
//! 2. It is not older than the *floor*: what a sync that was answered before the cut promises.
//! 3. There is one history. If a found state was made by a step that began after a step of another
//!    actor had ended, that other step is there, too. ([`Promise::Each`] does not promise this.)
//!
//! If several states look the same, the oldest states that satisfy all three rules are chosen. If
//! no states satisfy them, the volume fails.

use std::collections::HashMap;

use onejournal_testing::drive::record::Event;
use sim::model::Id;
use sim::tree::Tree;

use crate::contents;
use crate::mark::{Mark, Moment};
use crate::scenario::{Promise, Scenario};
use crate::script::{self, ActorState, Covers, Step};

/// A state of an actor, and the step that made it.
pub struct Stage {
    /// The event with which the step began.
    pub begin: usize,
    /// The event with which the step ended; `usize::MAX` if it did not end.
    pub end: usize,
    pub state: ActorState,
    print: u64,
    /// The step, as text for people.
    pub what: String,
}

/// A sync that was answered.
struct Synced {
    actor: usize,
    begin: usize,
    end: usize,
    covers: Covers,
    /// The newest stage of the syncing actor that the sync covers.
    own: usize,
    what: String,
}

/// The history of one incarnation of the mount, with its promises.
pub struct History {
    promise: Promise,
    /// `stages[actor]`; the first stage is the state at the beginning.
    pub stages: Vec<Vec<Stage>>,
    shares: Vec<bool>,
    syncs: Vec<Synced>,
}

/// What is found of one actor on a volume.
pub enum Survivor {
    Tree(Tree),
    Slots(Vec<u8>),
    Count(u64),
}

/// Builds the history of one actor.
struct Builder<'h> {
    history: &'h mut History,
    actor: usize,
    last_change: HashMap<Id, usize>,
    last_data_change: HashMap<Id, usize>,
    last_move: HashMap<Id, usize>,
}

impl History {
    /// Reads the history from the marks in `events`. The first of them is event number `first`.
    /// `from` is the first state of each actor. An error is a step that did not end as the model
    /// says.
    pub fn new(
        scenario: &Scenario,
        steps: &[Vec<Step>],
        from: &[ActorState],
        events: &[Event],
        first: usize,
    ) -> Result<History, String> {
        let mut history = History {
            promise: scenario.promise,
            stages: Vec::new(),
            shares: scenario.actors.iter().map(|actor| actor.shares_file()).collect(),
            syncs: Vec::new(),
        };
        let times = times(events, first, scenario.actors.len());
        for (actor, state) in from.iter().enumerate() {
            let print = print(scenario.promise, state);
            let what = "the beginning".to_owned();
            history.stages.push(vec![Stage {
                begin: 0,
                end: 0,
                state: state.clone(),
                print,
                what,
            }]);
            let mut builder = Builder {
                history: &mut history,
                actor,
                last_change: HashMap::new(),
                last_data_change: HashMap::new(),
                last_move: HashMap::new(),
            };
            for (number, time) in times[actor].iter().enumerate() {
                let step = steps[actor].get(number).ok_or("a mark of a step that there is not")?;
                builder
                    .step(scenario, step, time)
                    .map_err(|why| format!("actor {actor}, step {number} ({step}): {why}"))?;
            }
        }
        Ok(history)
    }

    /// Records that unmounting, which began and ended with these events, promises everything.
    pub fn push_closed(&mut self, begin: usize, end: usize) {
        let (actor, own, what) = (0, 0, "umount".to_owned());
        self.syncs.push(Synced { actor, begin, end, covers: Covers::Everything, own, what });
    }

    /// Judges the found states of all actors after a cut. Returns the stage of each actor.
    pub fn judge(&self, found: &[Survivor], cut: usize) -> Result<Vec<usize>, String> {
        let floors = self.floors(cut);
        let mut chosen = Vec::new();
        for (actor, found) in found.iter().enumerate() {
            let first = self.candidates(actor, found, cut).find(|stage| *stage >= floors[actor].0);
            chosen.push(first.ok_or_else(|| self.explain(actor, found, cut, &floors[actor]))?);
        }
        if self.promise != Promise::Each {
            self.in_one_order(found, cut, &mut chosen)?;
        }
        Ok(chosen)
    }

    /// Whether the state of the actor is a part of the history, and not only of a file.
    fn is_ordered(&self, actor: usize) -> bool {
        self.is_whole() && !self.is_mapped(actor)
            || matches!(self.stages[actor][0].state, ActorState::Tree(_) | ActorState::Count(_))
    }

    /// Whether file contents are a part of the states.
    fn is_whole(&self) -> bool {
        matches!(self.promise, Promise::History | Promise::Each)
    }

    fn is_mapped(&self, actor: usize) -> bool {
        !self.shares[actor] && matches!(self.stages[actor][0].state, ActorState::Slots(_))
    }

    fn in_one_order(
        &self,
        found: &[Survivor],
        cut: usize,
        chosen: &mut [usize],
    ) -> Result<(), String> {
        let ordered: Vec<usize> = (0..found.len()).filter(|a| self.is_ordered(*a)).collect();
        loop {
            let newest = ordered.iter().copied().max_by_key(|a| self.stages[*a][chosen[*a]].begin);
            let Some(newest) = newest else { return Ok(()) };
            let there = &self.stages[newest][chosen[newest]];
            let behind = ordered.iter().copied().find(|a| {
                let next = self.stages[*a].get(chosen[*a] + 1);
                next.is_some_and(|next| next.end < there.begin)
            });
            let Some(actor) = behind else { return Ok(()) };
            let later = self.candidates(actor, &found[actor], cut).find(|s| *s > chosen[actor]);
            chosen[actor] = later.ok_or_else(|| {
                let missing = &self.stages[actor][chosen[actor] + 1];
                format!(
                    "no prefix of history: actor {newest} has \"{}\" (begun with event {}), actor \
                     {actor} lacks \"{}\", which ended with event {}",
                    there.what, there.begin, missing.what, missing.end
                )
            })?;
        }
    }

    /// The stages that look like the found state, oldest first.
    fn candidates<'f>(
        &'f self,
        actor: usize,
        found: &'f Survivor,
        cut: usize,
    ) -> impl Iterator<Item = usize> + 'f {
        let wanted = print_found(self.promise, found);
        let is_weak = !self.is_ordered(actor);
        let begun = self.stages[actor].iter().take_while(move |stage| stage.begin < cut);
        begun
            .enumerate()
            .filter(move |(index, stage)| {
                (is_weak || stage.print == wanted)
                    && self.bytes_of(actor, *index, found, cut).is_ok()
            })
            .map(|(index, _)| index)
    }

    /// Checks the contents that [`print`] leaves out.
    fn bytes_of(
        &self,
        actor: usize,
        stage: usize,
        found: &Survivor,
        cut: usize,
    ) -> Result<(), String> {
        let stages = &self.stages[actor];
        let begun = stages.iter().take_while(|stage| stage.begin < cut).count();
        match (found, &stages[stage].state) {
            (Survivor::Slots(bytes), _) if !self.is_ordered(actor) => {
                let floor = self.floors(cut)[actor].0;
                let versions: Vec<_> = stages[floor..begun].iter().map(records).collect();
                contents::check(bytes, &versions)
            }
            (Survivor::Tree(tree), ActorState::Tree(model)) if !self.is_whole() => {
                for (path, entry) in &tree.entries {
                    let path = String::from_utf8_lossy(path);
                    let Ok(id) = model.find(&path) else { continue };
                    if model.content(id).is_none() {
                        continue;
                    }
                    let floor = self.file_floor(actor, id, cut);
                    let versions: Vec<_> = stages[floor..begun]
                        .iter()
                        .filter_map(|stage| match &stage.state {
                            ActorState::Tree(model) => model.content(id),
                            ActorState::Slots(_) | ActorState::Count(_) => None,
                        })
                        .collect();
                    contents::check(entry.content.bytes(), &versions)
                        .map_err(|why| format!("/{path}: {why}"))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The oldest stage that each actor may be in, and why.
    fn floors(&self, cut: usize) -> Vec<(usize, &str)> {
        let mut floors = vec![(0, "the beginning"); self.stages.len()];
        for sync in self.syncs.iter().filter(|sync| sync.end < cut) {
            for (actor, floor) in floors.iter_mut().enumerate() {
                let promised = self.promised(sync, actor);
                if promised > floor.0 {
                    *floor = (promised, &sync.what);
                }
            }
        }
        floors
    }

    fn promised(&self, sync: &Synced, actor: usize) -> usize {
        let is_own = actor == sync.actor;
        match sync.covers {
            Covers::Nothing => 0,
            Covers::Everything => self.ended_before(actor, sync.begin),
            Covers::Records if !is_own && self.shares[actor] && self.shares[sync.actor] => {
                self.ended_before(actor, sync.begin)
            }
            // Without one history, a sync of a file says nothing of names that have nothing to do
            // with it.
            Covers::File { .. } | Covers::Itself | Covers::Records if is_own => sync.own,
            _ => 0,
        }
    }

    /// The newest stage of an actor whose step had ended before an event.
    fn ended_before(&self, actor: usize, event: usize) -> usize {
        self.stages[actor].iter().rposition(|stage| stage.end < event).unwrap_or(0)
    }

    /// The oldest stage whose content of a file may be found.
    fn file_floor(&self, actor: usize, id: Id, cut: usize) -> usize {
        let syncs = self.syncs.iter().filter(|sync| sync.end < cut);
        let floors = syncs.map(|sync| match sync.covers {
            Covers::File { id: synced, .. } if sync.actor == actor && synced == id => {
                self.ended_before(actor, sync.begin)
            }
            Covers::Everything => self.ended_before(actor, sync.begin),
            _ => 0,
        });
        floors.max().unwrap_or(0)
    }

    fn explain(&self, actor: usize, found: &Survivor, cut: usize, floor: &(usize, &str)) -> String {
        let wanted = print_found(self.promise, found);
        let stages = &self.stages[actor];
        let begun = stages.iter().take_while(|stage| stage.begin < cut).count();
        let allowed = format!("allowed are {}..{begun} (floor: {})", floor.0, floor.1);
        let same = stages.iter().rposition(|stage| stage.print == wanted);
        match same {
            Some(stage) if self.is_ordered(actor) => {
                let why = self.bytes_of(actor, stage, found, cut).err().unwrap_or_default();
                let what = &stages[stage].what;
                format!("actor {actor} is in stage {stage} (\"{what}\"); {allowed} {why}")
            }
            _ => format!(
                "actor {actor} is in no stage; {allowed}:\n{}",
                self.nearest(actor, found, floor.0, begun)
            ),
        }
    }

    /// The differences to the stage that is most similar.
    fn nearest(&self, actor: usize, found: &Survivor, floor: usize, begun: usize) -> String {
        let stages = self.stages[actor][..begun].iter().enumerate().skip(floor);
        match found {
            Survivor::Slots(bytes) => {
                let versions: Vec<_> =
                    self.stages[actor][floor..begun].iter().map(records).collect();
                contents::check(bytes, &versions)
                    .err()
                    .unwrap_or_else(|| "each byte is of a state, but not all of one".to_owned())
            }
            Survivor::Count(count) => format!("{count} transactions or records"),
            Survivor::Tree(tree) => {
                let texts = stages.filter_map(|(index, stage)| match &stage.state {
                    ActorState::Tree(model) => {
                        let text = tree.differences(&model.tree(), ["volume", "model"], 6);
                        Some((text.len(), index, text))
                    }
                    ActorState::Slots(_) | ActorState::Count(_) => None,
                });
                let (_, index, text) = texts.min().unwrap_or_default();
                format!("against stage {index} (\"{}\"):\n{text}", self.stages[actor][index].what)
            }
        }
    }
}

impl Builder<'_> {
    fn step(&mut self, scenario: &Scenario, step: &Step, time: &Time) -> Result<(), String> {
        let stages = &self.history.stages[self.actor];
        let before = stages.last().expect("there is a first stage");
        let places = script::places(scenario, self.actor);
        let effect = script::apply(&before.state, step, places);
        match (effect, time.moment) {
            (None, Some(Moment::Done)) => return Err("it is done, the model refuses it".into()),
            (Some(_), Some(Moment::Refused)) => {
                return Err("it is refused, the model does it".into());
            }
            (None, _) | (Some(_), Some(Moment::NoRoom)) => {}
            (Some(effect), _) => self.push(scenario, step, effect, time),
        }
        Ok(())
    }

    fn push(&mut self, scenario: &Scenario, step: &Step, effect: script::Effect, time: &Time) {
        let actor = self.actor;
        let promise = self.history.promise;
        let stages = &mut self.history.stages[actor];
        let what = step.to_string();
        let mut add = |state: ActorState, what: String| {
            let print = print(promise, &state);
            let stage = Stage { begin: time.begin, end: time.end, state, print, what };
            let last = stages.last().expect("there is a first stage");
            let is_new = match &stage.state {
                ActorState::Tree(_) | ActorState::Count(_) => true,
                ActorState::Slots(_) => stage.print != last.print,
            };
            if is_new {
                stages.push(stage);
            }
        };
        for part in effect.parts {
            add(part, format!("a part of {what}"));
        }
        add(effect.state.clone(), what.clone());
        let now = stages.len() - 1;
        for change in effect.changes {
            self.last_change.insert(change.id, now);
            if change.is_data {
                self.last_data_change.insert(change.id, now);
            }
        }
        self.last_move.extend(effect.moved.into_iter().map(|id| (id, now)));
        if time.moment == Some(Moment::Done) {
            let covers =
                script::covers(scenario.actors[actor], &effect.state, step, scenario.has_sync());
            if covers != Covers::Nothing {
                let own = self.own(covers, &effect.state, step, now);
                let (begin, end) = (time.begin, time.end);
                self.history.syncs.push(Synced { actor, begin, end, covers, own, what });
            }
        }
    }

    /// The newest stage that the actor's own sync promises.
    fn own(&self, covers: Covers, state: &ActorState, step: &Step, now: usize) -> usize {
        let (Covers::File { id, data_only }, ActorState::Tree(model)) = (covers, state) else {
            return now;
        };
        let changes = if data_only { &self.last_data_change } else { &self.last_change };
        let way = script::way_to(model, step);
        let moves = way.iter().filter_map(|id| self.last_move.get(id));
        moves.chain(changes.get(&id)).copied().max().unwrap_or(0)
    }
}

/// When a step began and ended.
#[derive(Clone, Copy)]
struct Time {
    begin: usize,
    end: usize,
    moment: Option<Moment>,
}

/// The times of each actor's steps.
fn times(events: &[Event], first: usize, actor_count: usize) -> Vec<Vec<Time>> {
    let mut times: Vec<Vec<Time>> = vec![Vec::new(); actor_count];
    for (place, event) in events.iter().enumerate() {
        let Event::Mark(number) = event else { continue };
        let mark = Mark::from_number(*number);
        let place = first + place;
        let of_actor = &mut times[mark.actor];
        match mark.moment {
            Moment::Begin => of_actor.push(Time { begin: place, end: usize::MAX, moment: None }),
            moment => {
                let last = of_actor.last_mut().expect("a step begins before it ends");
                (last.end, last.moment) = (place, Some(moment));
            }
        }
    }
    times
}

fn records(stage: &Stage) -> &sim::content::Content {
    match &stage.state {
        ActorState::Slots(records) => records,
        ActorState::Tree(_) | ActorState::Count(_) => unreachable!("the caller has found records"),
    }
}

/// A hash of everything that has to be equal: see [`Promise`].
fn print(promise: Promise, state: &ActorState) -> u64 {
    match state {
        ActorState::Tree(model) => print_tree(promise, &model.tree()),
        ActorState::Slots(records) => records.hash(),
        ActorState::Count(count) => *count,
    }
}

fn print_found(promise: Promise, found: &Survivor) -> u64 {
    match found {
        Survivor::Tree(tree) => print_tree(promise, tree),
        Survivor::Count(count) => *count,
        Survivor::Slots(bytes) => sim::content::Content::new(bytes.clone()).hash(),
    }
}

fn print_tree(promise: Promise, tree: &Tree) -> u64 {
    match promise {
        Promise::History | Promise::Each => tree.fingerprint().whole,
        Promise::InPlace => tree.fingerprint().metadata,
        Promise::Cached => {
            let mut names = tree.clone();
            for entry in names.entries.values_mut() {
                if entry.kind == ext4::FileKind::Regular {
                    entry.size_bytes = 0;
                }
            }
            names.fingerprint().metadata
        }
    }
}

#[cfg(test)]
mod tests;
