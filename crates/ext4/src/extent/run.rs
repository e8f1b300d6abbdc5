//! Runs of blocks, and edits of a sorted list of them (one leaf of an extent tree).

use crate::layout::extent::{UNWRITTEN_COUNT_MAX, WRITTEN_COUNT_MAX};

/// A decoded extent: `count` logical blocks from `logical` on, stored from `physical` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub logical: u32,
    pub count: u32,
    pub physical: u64,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

impl Run {
    /// The logical block after the last.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.count)
    }

    /// The part of the run from `from` up to, and without, `to`. Both must be within it.
    pub(crate) fn part(&self, from: u64, to: u64) -> Run {
        assert!(u64::from(self.logical) <= from && from < to && to <= self.end());
        let skipped = from - u64::from(self.logical);
        Run {
            logical: u32::try_from(from).expect("below the end of the run, so a u32"),
            count: u32::try_from(to - from).expect("not longer than the run"),
            physical: self.physical + skipped,
            unwritten: self.unwritten,
        }
    }

    /// The part of the run that is in `start..end`, if any.
    fn overlap(&self, start: u64, end: u64) -> Option<Run> {
        let (from, to) = (start.max(u64::from(self.logical)), end.min(self.end()));
        (from < to).then(|| self.part(from, to))
    }

    /// The longest run of this kind that one extent can hold.
    fn count_max(unwritten: bool) -> u32 {
        if unwritten { UNWRITTEN_COUNT_MAX } else { WRITTEN_COUNT_MAX }
    }

    /// Whether `next` continues this run, and one extent can hold both.
    fn joins(&self, next: &Run) -> bool {
        self.end() == u64::from(next.logical)
            && self.physical + u64::from(self.count) == next.physical
            && self.unwritten == next.unwritten
            && self.count + next.count <= Run::count_max(self.unwritten)
    }
}

/// Inserts `run`, and joins it to neighbours that it continues. Panics if it overlaps another run:
/// the caller has found a hole there.
pub(crate) fn insert(runs: &mut Vec<Run>, run: Run) {
    assert!(run.count > 0 && run.count <= Run::count_max(run.unwritten));
    let at = runs.partition_point(|other| other.logical < run.logical);
    assert!(at == 0 || runs[at - 1].end() <= u64::from(run.logical), "overlapping runs");
    assert!(at == runs.len() || run.end() <= u64::from(runs[at].logical), "overlapping runs");
    runs.insert(at, run);
    join_from(runs, at.saturating_sub(1), at + 1);
}

/// Removes `start..end` from the list. Each part is offered to `take` first, which says how many
/// blocks of it (from its start) may be removed. Stops where `take` refuses a block, and returns
/// that place. `None` if everything was removed.
pub(crate) fn remove(
    runs: &mut Vec<Run>,
    start: u64,
    end: u64,
    take: &mut dyn FnMut(Run) -> u32,
) -> Option<u64> {
    let mut stopped = None;
    let mut kept = Vec::with_capacity(runs.len() + 1);
    for run in runs.iter() {
        let part = if stopped.is_none() { run.overlap(start, end) } else { None };
        let Some(part) = part else {
            kept.push(*run);
            continue;
        };
        let from = u64::from(part.logical);
        let taken_end = from + u64::from(take(part).min(part.count));
        if taken_end < part.end() {
            stopped = Some(taken_end);
        }
        if taken_end > from {
            keep_around(&mut kept, run, &run.part(from, taken_end));
        } else {
            kept.push(*run);
        }
    }
    *runs = kept;
    stopped
}

/// Makes the part of one run in `start..end` written or unwritten. The range must not reach into a
/// second run. Adds at most two entries.
pub(crate) fn mark(runs: &mut Vec<Run>, start: u64, end: u64, unwritten: bool) {
    let at = runs.partition_point(|run| run.end() <= start);
    let run = runs[at];
    let part = run.overlap(start, end).expect("the caller found a run there");
    assert!(at + 1 == runs.len() || end <= u64::from(runs[at + 1].logical));
    let mut pieces = Vec::with_capacity(3);
    if run.logical < part.logical {
        pieces.push(run.part(u64::from(run.logical), u64::from(part.logical)));
    }
    push_marked(&mut pieces, Run { unwritten, ..part });
    if part.end() < run.end() {
        pieces.push(run.part(part.end(), run.end()));
    }
    let piece_count = pieces.len();
    runs.splice(at..=at, pieces);
    join_from(runs, at.saturating_sub(1), at + piece_count);
}

/// Pushes a run whose kind was changed. A written run of full length is longer than an unwritten
/// one can be, and is split.
fn push_marked(pieces: &mut Vec<Run>, run: Run) {
    let first_end =
        u64::from(run.logical) + u64::from(run.count.min(Run::count_max(run.unwritten)));
    pieces.push(run.part(u64::from(run.logical), first_end));
    if first_end < run.end() {
        pieces.push(run.part(first_end, run.end()));
    }
}

/// Pushes the parts of `run` before and after `part`.
fn keep_around(kept: &mut Vec<Run>, run: &Run, part: &Run) {
    if run.logical < part.logical {
        kept.push(run.part(u64::from(run.logical), u64::from(part.logical)));
    }
    if part.end() < run.end() {
        kept.push(run.part(part.end(), run.end()));
    }
}

/// Joins the entries from `first` to `last` that continue each other.
fn join_from(runs: &mut Vec<Run>, first: usize, last: usize) {
    let mut at = first;
    let mut left = last.saturating_sub(first);
    while left > 0 && at + 1 < runs.len() {
        left -= 1;
        if runs[at].joins(&runs[at + 1]) {
            runs[at].count += runs[at + 1].count;
            runs.remove(at + 1);
        } else {
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(logical: u32, count: u32, physical: u64, unwritten: bool) -> Run {
        Run { logical, count, physical, unwritten }
    }

    #[test]
    fn insert_joins_both_sides() {
        let mut runs = vec![run(0, 4, 100, false), run(6, 2, 106, false)];
        insert(&mut runs, run(4, 2, 104, false));
        assert_eq!(runs, [run(0, 8, 100, false)]);
    }

    #[test]
    fn insert_joins_neither_other_kind_nor_other_place_nor_over_length() {
        let mut runs = vec![run(0, 4, 100, false), run(6, 2, 200, false)];
        insert(&mut runs, run(4, 2, 104, true));
        assert_eq!(runs.len(), 3);
        let mut runs = vec![run(0, 0x8000, 100, false)];
        insert(&mut runs, run(0x8000, 1, 100 + 0x8000, false));
        assert_eq!(runs.len(), 2);
    }

    #[test]
    fn remove_splits_and_stops_where_refused() {
        let mut runs = vec![run(0, 10, 100, false), run(20, 5, 300, true)];
        let mut taken = Vec::new();
        let stopped = remove(&mut runs, 3, 22, &mut |part| {
            taken.push(part);
            if taken.len() < 2 { part.count } else { 1 }
        });
        assert_eq!(stopped, Some(21));
        assert_eq!(taken, [run(3, 7, 103, false), run(20, 2, 300, true)]);
        assert_eq!(runs, [run(0, 3, 100, false), run(21, 4, 301, true)]);
        assert_eq!(remove(&mut runs, 1, 4, &mut |_| 0), Some(1));
        assert_eq!(remove(&mut runs, 1, 2, &mut |part| part.count), None);
        assert_eq!(runs[..2], [run(0, 1, 100, false), run(2, 1, 102, false)]);
    }

    #[test]
    fn mark_middle_then_rest_joins_again() {
        let mut runs = vec![run(0, 10, 100, true)];
        mark(&mut runs, 3, 5, false);
        assert_eq!(runs, [run(0, 3, 100, true), run(3, 2, 103, false), run(5, 5, 105, true)]);
        mark(&mut runs, 0, 3, false);
        mark(&mut runs, 5, 10, false);
        assert_eq!(runs, [run(0, 10, 100, false)]);
    }

    #[test]
    fn longest_written_run_becomes_two_unwritten() {
        let mut runs = vec![run(0, 0x8000, 100, false)];
        mark(&mut runs, 0, 0x8000, true);
        assert_eq!(runs, [run(0, 0x7fff, 100, true), run(0x7fff, 1, 100 + 0x7fff, true)]);
    }
}
