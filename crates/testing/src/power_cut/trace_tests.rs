//! Tests of traces and cursors, on the trace of a block device.

use super::cache::Cache;
use super::{Event, Image, Survival, Trace, Unit};

fn trace() -> Trace {
    let write = |offset, byte| Event::Write { offset, data: vec![byte; 1024].into(), thread: 0 };
    let events = vec![
        write(0, 1),
        Event::Mark(7),
        write(1024, 2),
        Event::Flush { thread: 0 },
        Event::Mark(8),
        write(0, 3),
    ];
    let mut trace = Trace::new(Cache::new(Image::zeroed(4096), Unit::Sector), Vec::new());
    events.into_iter().zip((10..).step_by(10)).for_each(|(event, time)| trace.push(event, time));
    trace
}

#[test]
fn cuts_are_at_everything_that_changes_the_device() {
    assert_eq!(trace().cuts().collect::<Vec<_>>(), [0, 2, 3, 5, 6]);
}

#[test]
fn marks_say_what_was_done_before_a_cut() {
    assert_eq!(trace().marks_before(1).next_back(), None);
    assert_eq!(trace().marks_before(5).collect::<Vec<_>>(), [7, 8]);
}

#[test]
fn a_cursor_gives_what_a_fresh_replay_gives() {
    let trace = trace();
    let mut cursor = trace.cursor();
    for cut in trace.cuts() {
        cursor.advance_to(cut);
        for survival in Survival::EXTREMES.into_iter().chain((0..20).map(Survival::Random)) {
            assert_eq!(cursor.crash(survival), trace.crash(cut, survival));
        }
    }
}

#[test]
fn between_two_events_nothing_is_in_flight() {
    let trace = trace();
    assert_eq!(trace.moments().collect::<Vec<_>>(), [10, 30, 40, 60, u64::MAX]);
    let found = |moment| {
        let mut cursor = trace.cursor();
        cursor.advance_to_moment(moment);
        (cursor.cut(), cursor.crash(Survival::InFlight).to_bytes()[0])
    };
    assert_eq!([10, 11, 40, 41, 60, 61].map(found), {
        [(0, 1), (1, 0), (3, 1), (4, 1), (5, 3), (6, 1)]
    });
}

#[test]
fn flushed_events_survive_every_later_cut() {
    let trace = trace();
    for (cut, seed) in [4, 5, 6].into_iter().flat_map(|cut| (0..50).map(move |s| (cut, s))) {
        let bytes = trace.crash(cut, Survival::Random(seed)).to_bytes();
        assert_eq!(bytes[1024..2048], [2; 1024], "cut {cut} seed {seed}");
    }
}
