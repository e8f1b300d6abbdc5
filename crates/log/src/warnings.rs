//! Warnings about clients and errors of streams, so few that no client can fill the daemon's
//! messages.
//!
//! A period of a minute begins with a warning. In it each user causes at most [`LINE_COUNT_MAX`]
//! lines, and at most [`USER_COUNT_MAX`] users cause lines at all. The other warnings of the period
//! are counted, and one line at its end says how many they were.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use device::sync::Mutex;
use host::Account;

const PERIOD: Duration = Duration::from_secs(60);
/// Lines about one user in a period.
const LINE_COUNT_MAX: usize = 10;
/// Users with lines of their own in a period.
const USER_COUNT_MAX: usize = 16;

/// Errors of the streams of this process, which the writer of a stream can cause.
pub(crate) static OF_STREAMS: LazyLock<Warnings> =
    LazyLock::new(|| Warnings::new("errors of streams"));

/// Warnings of one kind. Lock: a leaf; nothing is written while it is held.
pub(crate) struct Warnings {
    /// The kind, for the line that counts the messages left out.
    kind: &'static str,
    period: Mutex<Period>,
}

/// The warnings that were written and left out since the period began.
#[derive(Default)]
struct Period {
    /// `None`: there was no warning since the last period ended.
    began: Option<Instant>,
    /// Lines about each user; `None` stands for the daemon itself.
    lines: HashMap<Option<Account>, usize>,
    left_out_count: u64,
}

impl Warnings {
    pub(crate) fn new(kind: &'static str) -> Warnings {
        Warnings { kind, period: Mutex::default() }
    }

    /// Warns about a connection of the user `uid`.
    pub(crate) fn about(&self, uid: u32, text: impl Display) {
        if self.admits(Some(uid)) {
            tracing::warn!("user {uid}: {text}");
        }
    }

    /// Warns about something that clients can cause, and no client in particular.
    pub(crate) fn about_itself(&self, text: impl Display) {
        if self.admits(None) {
            tracing::warn!("{text}");
        }
    }

    /// Reports an error of a stream that belongs to the user `uid`.
    pub(crate) fn of_stream(&self, uid: u32, text: impl Display) {
        if self.admits(Some(uid)) {
            tracing::error!("{text}");
        }
    }

    fn admits(&self, user: Option<u32>) -> bool {
        self.tend();
        let user = user.map(Account::of);
        self.period.lock().admits(user, Instant::now())
    }

    /// Says how many warnings were left out, if the period is over. To be called once in a while.
    pub(crate) fn tend(&self) {
        let left_out_count = self.period.lock().end_if_over(Instant::now());
        self.say(left_out_count);
    }

    /// Says how many warnings were left out, at the end of the daemon.
    pub(crate) fn end(&self) {
        let left_out_count = self.period.lock().end();
        self.say(left_out_count);
    }

    fn say(&self, left_out_count: u64) {
        if left_out_count > 0 {
            tracing::warn!("{left_out_count} more {} were left out", self.kind);
        }
    }
}

impl Period {
    /// Whether a warning at the time `now` is written. The caller has ended a period that is over.
    fn admits(&mut self, user: Option<Account>, now: Instant) -> bool {
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;
    use crate::LogError;
    use crate::test_directory::{TestDirectory, make_lane};

    /// The lines that so many warnings about a user make.
    fn lines(period: &mut Period, user: u32, count: usize, now: Instant) -> usize {
        (0..count).filter(|_| period.admits(Some(Account::of(user)), now)).count()
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

    /// Counts what is reported.
    struct Counting(Arc<AtomicUsize>);

    impl Subscriber for Counting {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// A client makes streams and spoils them, one after the other.
    #[test]
    fn regression_a_flood_of_spoiled_streams_makes_ten_lines_a_minute() {
        let test_dir = TestDirectory::new();
        let (_directory, service) = test_dir.join();
        let lane = make_lane(&service, "a");
        let count = Arc::new(AtomicUsize::new(0));
        let spoiled = LogError::Incompatible("spoiled".into());
        tracing::subscriber::with_default(Counting(count.clone()), || {
            (0..1000).for_each(|_| lane.abort_after(&spoiled));
        });
        assert!(lane.is_spoiled());
        let count = count.load(Ordering::Relaxed);
        assert!(count <= 10, "{count} lines");
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
