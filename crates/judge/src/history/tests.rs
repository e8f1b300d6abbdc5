//! Small histories, written by hand.

use super::*;
use crate::scenario::Promise;
use crate::script::apply;
use crate::slots::{Places, RECORD_BYTES, SlotOp};

/// Databases: the first is durable when a commit has returned, the second is not.
fn databases() -> &'static Scenario {
    Scenario::named("sqlite-rollback").unwrap()
}

fn marks(list: &[(usize, usize, Moment)]) -> Vec<Event> {
    list.iter()
        .map(|(actor, step, moment)| {
            Event::Mark(Mark { actor: *actor, step: *step, moment: *moment }.number())
        })
        .collect()
}

fn history(list: &[(usize, usize, Moment)]) -> Result<History, String> {
    let steps: Vec<Vec<Step>> = (0..4).map(|_| (1..=9).map(Step::Commit).collect()).collect();
    History::new(databases(), &steps, &[0; 4].map(ActorState::Count), &marks(list), 0)
}

fn judged(history: &History, counts: [u64; 4], cut: usize) -> Result<Vec<usize>, String> {
    history.judge(&counts.map(Survivor::Count), cut)
}

use Moment::{Begin, Done, Refused};

#[test]
fn acknowledged_transactions_are_required_and_unbegun_ones_refused() {
    let history = history(&[(0, 0, Begin), (0, 0, Done), (0, 1, Begin), (0, 1, Done)]).unwrap();
    assert_eq!(judged(&history, [2, 0, 0, 0], 4).unwrap(), [2, 0, 0, 0]);
    assert!(judged(&history, [1, 0, 0, 0], 4).unwrap_err().contains("floor: transaction 2"));
    // The second had begun and was not acknowledged.
    assert!(judged(&history, [1, 0, 0, 0], 3).is_ok() && judged(&history, [2, 0, 0, 0], 3).is_ok());
    // It had not begun.
    assert!(judged(&history, [2, 0, 0, 0], 2).unwrap_err().contains("allowed are 1..2"));
    assert!(judged(&history, [7, 0, 0, 0], 4).unwrap_err().contains("is in no stage"));
}

#[test]
fn a_survivor_requires_all_that_ended_before_it_began() {
    // Nothing promises the second database's transaction, but the first one's came after it.
    let after = history(&[(1, 0, Begin), (1, 0, Done), (0, 0, Begin), (0, 0, Done)]).unwrap();
    assert!(judged(&after, [1, 0, 0, 0], 4).unwrap_err().contains("no prefix of history"));
    assert!(judged(&after, [1, 1, 0, 0], 4).is_ok());
    assert!(judged(&after, [0, 0, 0, 0], 3).is_ok());
    // At the same time: any order.
    let beside = history(&[(1, 0, Begin), (0, 0, Begin), (1, 0, Done), (0, 0, Done)]).unwrap();
    assert!(judged(&beside, [1, 0, 0, 0], 4).is_ok());
}

#[test]
fn an_unmount_promises_everything() {
    let mut closed = history(&[(1, 0, Begin), (1, 0, Done)]).unwrap();
    closed.push_closed(2, 3);
    assert!(judged(&closed, [0, 0, 0, 0], 3).is_ok());
    assert!(judged(&closed, [0, 0, 0, 0], 4).unwrap_err().contains("floor: umount"));
}

#[test]
fn a_step_that_the_model_does_may_not_be_refused() {
    let refused = history(&[(0, 0, Begin), (0, 0, Refused)]).err().unwrap();
    assert!(refused.contains("the model does it"), "{refused}");
}

#[test]
fn first_page_of_an_unaligned_record_may_survive_and_no_other_part() {
    let scenario = Scenario::named("writers").unwrap();
    assert_eq!(scenario.promise, Promise::History);
    let places = Places { index: 0, actor_count: 3 };
    let place = (0..6).find(|place| places.first_part(*place).is_some()).unwrap();
    let step = Step::Slot(SlotOp::Write { place, tag: 1 });
    let from: Vec<ActorState> =
        scenario.actors.iter().map(|actor| ActorState::first(*actor)).collect();
    let steps = vec![vec![step.clone()], vec![], vec![], vec![]];
    let events = marks(&[(0, 0, Begin)]);
    let history = History::new(scenario, &steps, &from, &events, 0).unwrap();
    let found = |kept: usize| {
        let ActorState::Slots(records) = apply(&from[0], &step, places).unwrap().state else {
            unreachable!()
        };
        let mut bytes = records.bytes().to_vec();
        bytes[place * RECORD_BYTES + kept..(place + 1) * RECORD_BYTES].fill(0);
        history.candidates(0, &Survivor::Slots(bytes), 1).next().is_some()
    };
    let part = places.first_part(place).unwrap();
    assert!(found(0) && found(part) && found(RECORD_BYTES));
    assert!(!found(part - 1) && !found(part + 1) && !found(100));
}
