//! Warnings about clients, so few that no client can fill the daemon's messages.
//!
//! A period of a minute begins with a warning. In it each user causes at most [`LINE_COUNT_MAX`]
//! lines, and at most [`USER_COUNT_MAX`] users cause lines at all. The other warnings of the period
//! are counted, and one line at its end says how many they were.

use std::collections::HashMap;
use std::fmt::Display;
use std::time::{Duration, Instant};

use device::sync::Mutex;

const PERIOD: Duration = Duration::from_secs(60);
/// Lines about one user in a period.
const LINE_COUNT_MAX: usize = 10;
/// Users with lines of their own in a period: one person may have thousands of user ids.
const USER_COUNT_MAX: usize = 16;

/// The warnings of a daemon. Lock: a leaf; nothing is written while it is held.
#[derive(Default)]
pub(super) struct Warnings(Mutex<Period>);

/// The warnings that were written and left out since the period began.
#[derive(Default)]
struct Period {
    /// `None`: there was no warning since the last period ended.
    began: Option<Instant>,
    /// Lines about each user; `None` stands for the daemon itself.
    lines: HashMap<Option<u32>, usize>,
    left_out_count: u64,
}

impl Warnings {
    /// Warns about a connection of the user `uid`.
    pub(super) fn about(&self, uid: u32, text: impl Display) {
        self.warn(Some(uid), format_args!("user {uid}: {text}"));
    }

    /// Warns about something that clients can cause, and no client in particular.
    pub(super) fn about_itself(&self, text: impl Display) {
        self.warn(None, text);
    }

    fn warn(&self, user: Option<u32>, text: impl Display) {
        self.tend();
        if self.0.lock().admits(user, Instant::now()) {
            tracing::warn!("{text}");
        }
    }

    /// Says how many warnings were left out, if the period is over. To be called once in a while.
    pub(super) fn tend(&self) {
        say(self.0.lock().end_if_over(Instant::now()));
    }

    /// Says how many warnings were left out, at the end of the daemon.
    pub(super) fn end(&self) {
        say(self.0.lock().end());
    }
}

fn say(left_out_count: u64) {
    if left_out_count > 0 {
        tracing::warn!("{left_out_count} more warnings about connections were left out");
    }
}

impl Period {
    /// Whether a warning at the time `now` is written. The caller has ended a period that is over.
    fn admits(&mut self, user: Option<u32>, now: Instant) -> bool {
        self.began.get_or_insert(now);
        let is_known = self.lines.contains_key(&user);
        if is_known || self.lines.len() < USER_COUNT_MAX {
            let line_count = self.lines.entry(user).or_default();
            if *line_count < LINE_COUNT_MAX {
                *line_count += 1;
                return true;
            }
        }
        self.left_out_count += 1;
        false
    }

    /// Ends the period if it is over. How many warnings were left out in it.
    fn end_if_over(&mut self, now: Instant) -> u64 {
        match self.began {
            Some(began) if now.saturating_duration_since(began) >= PERIOD => self.end(),
            _ => 0,
        }
    }

    fn end(&mut self) -> u64 {
        std::mem::take(self).left_out_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that so many warnings about a user make.
    fn lines(period: &mut Period, user: u32, count: usize, now: Instant) -> usize {
        (0..count).filter(|_| period.admits(Some(user), now)).count()
    }

    #[test]
    fn a_flood_makes_ten_lines_and_one_a_minute() {
        let (mut period, begun) = (Period::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(lines(&mut period, 7, 40_000, at(0)), 10);
        assert_eq!(period.end_if_over(at(59)), 0);
        assert_eq!(lines(&mut period, 7, 9129, at(59)), 0);
        assert_eq!(period.end_if_over(at(60)), 49_119, "all that were left out");
        assert_eq!(period.end_if_over(at(600)), 0, "said once");
        // The next period begins with the next warning.
        assert_eq!(lines(&mut period, 7, 11, at(601)), 10);
        assert_eq!(period.end_if_over(at(660)), 0);
        assert_eq!(period.end_if_over(at(661)), 1);
    }

    #[test]
    fn a_flood_hides_no_warning_about_another_user() {
        let (mut period, now) = (Period::default(), Instant::now());
        assert_eq!(lines(&mut period, 7, 1000, now), 10);
        assert!(lines(&mut period, 8, 1, now) == 1 && period.admits(None, now));
        assert_eq!(period.end(), 990);
    }

    #[test]
    fn a_flood_of_many_users_is_bounded() {
        let (mut period, now) = (Period::default(), Instant::now());
        let all: usize = (0..60_000).map(|user| lines(&mut period, user, 20, now)).sum();
        assert_eq!((all, period.lines.len()), (160, 16));
        assert_eq!(period.end(), 60_000 * 20 - 160);
    }
}
