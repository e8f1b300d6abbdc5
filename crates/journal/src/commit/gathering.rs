//! How long a commit waits for callers that are about to come back.
//!
//! Without this, callers that sync again and again form two groups: while a commit serves one
//! group, the other arrives and gets the next commit. So each commit serves half of the callers,
//! and a caller waits for two commits. Therefore the leader of a commit first waits until as many
//! calls are there as the previous commit served and left waiting, together. The wait ends half
//! an average commit after the previous commit. A caller that is alone never waits.
//!
//! The wait gains time if the callers come back sooner than a commit takes. If they do not, for
//! example because the processors are busy, the next commits do not wait: 2, 4, 8, up to 64
//! commits, until the callers are in time once.

use std::time::{Duration, Instant};

/// A shorter wait costs more than it gains: a thread is woken in about this time.
const WAIT_MIN: Duration = Duration::from_micros(20);
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_millis(2);
/// After waiting in vain, up to two to this power commits do not wait.
const LATE_COUNT_MAX: u32 = 6;

/// What is known of the callers.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// Calls that the last commit served, and calls that waited when it ended.
    expected_count: u64,
    ended: Option<Instant>,
    /// Moving average of the time that a commit takes.
    commit_time: Duration,
    /// How many times in a row callers were late.
    late_count: u32,
    /// The number of next commits that do not wait.
    pass_count: u32,
}

/// For what a leader waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub call_count: u64,
    pub deadline: Instant,
}

impl Gathering {
    /// A commit has ended that took this time. It served some calls, and others are waiting.
    pub(crate) fn note_commit(
        &mut self,
        (served_count, waiting_count): (u64, u64),
        took: Duration,
        now: Instant,
    ) {
        self.expected_count = served_count + waiting_count;
        self.ended = Some(now);
        let is_first = self.commit_time.is_zero();
        self.commit_time = if is_first { took } else { (self.commit_time * 7 + took) / 8 };
    }

    /// A commit begins for which so many calls are waiting. `None`: it does not wait for more.
    pub(crate) fn wait(&mut self, waiting_count: u64, now: Instant) -> Option<Wait> {
        let longest = (self.commit_time / 2).min(WAIT_MAX);
        let deadline = self.ended? + longest;
        if waiting_count >= self.expected_count || longest < WAIT_MIN || now >= deadline {
            return None;
        }
        if self.pass_count > 0 {
            self.pass_count -= 1;
            return None;
        }
        Some(Wait { call_count: self.expected_count, deadline })
    }

    /// A wait has ended.
    pub(crate) fn note_wait(&mut self, all_came: bool) {
        if all_came {
            self.late_count = 0;
            return;
        }
        self.late_count = (self.late_count + 1).min(LATE_COUNT_MAX);
        self.pass_count = 1 << self.late_count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: Duration = Duration::from_micros(400);

    fn after(counts: (u64, u64)) -> (Gathering, Instant) {
        let (mut gathering, now) = (Gathering::default(), Instant::now());
        gathering.note_commit(counts, COMMIT, now);
        (gathering, now)
    }

    #[test]
    fn a_commit_waits_for_the_served_and_the_waiting_callers() {
        let (mut gathering, now) = after((3, 2));
        let wait = Wait { call_count: 5, deadline: now + COMMIT / 2 };
        assert_eq!([2, 4].map(|count| gathering.wait(count, now)), [Some(wait); 2]);
        assert_eq!(gathering.wait(5, now), None, "all are there");
        assert_eq!(gathering.wait(2, now + COMMIT / 2), None, "too late");
    }

    #[test]
    fn a_caller_alone_and_the_first_one_do_not_wait() {
        let (mut gathering, now) = after((1, 0));
        assert_eq!(gathering.wait(1, now), None);
        assert_eq!(Gathering::default().wait(1, now), None);
    }

    #[test]
    fn a_wait_is_neither_very_short_nor_long() {
        let now = Instant::now();
        for (took, longest) in [(39, None), (40, Some(20)), (100_000, Some(2000))] {
            let mut gathering = Gathering::default();
            gathering.note_commit((2, 0), Duration::from_micros(took), now);
            let waited = gathering.wait(1, now).map(|wait| wait.deadline - now);
            assert_eq!(waited, longest.map(Duration::from_micros), "{took}");
        }
    }

    #[test]
    fn after_late_callers_the_next_commits_do_not_wait() {
        let (mut gathering, now) = after((2, 0));
        for passes in [2, 4, 8, 16, 32, 64, 64] {
            assert!(gathering.wait(1, now).is_some());
            gathering.note_wait(false);
            assert!((0..passes).all(|_| gathering.wait(1, now).is_none()), "{passes}");
        }
        assert!(gathering.wait(1, now).is_some());
        gathering.note_wait(true);
        assert!(gathering.wait(1, now).is_some(), "they were in time");
    }
}
