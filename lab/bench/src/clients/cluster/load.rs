//! The commits of many clients, offered at a fixed rate or without pauses.
//!
//! At a fixed rate all clients share one schedule. A free client takes the next commit and waits
//! until it is due. If no client is free, a commit waits for one. Its latency begins when it was
//! due, so it contains the wait. A load that is too high therefore has high latencies and ends
//! late; commits that are not begun in the time for stragglers are given up, and count as failed.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::engine::Session;
use super::messages::Load;
use crate::clients::pace::Pace;
use crate::clients::{nanos, sleep_until};
use crate::error::{Error, Result};
use crate::lab::interrupt;

/// Commits that were due earlier may begin so long after the end.
const STRAGGLERS: Duration = Duration::from_secs(10);

/// Connects a client by its number.
pub type Connect<'a> = dyn Fn(u32) -> io::Result<Box<dyn Session>> + Sync + 'a;

/// What all clients found.
#[derive(Debug, Default)]
pub struct Work {
    /// From when a commit was due until its answer.
    pub latencies_ns: Vec<u64>,
    /// The commits among them that failed.
    pub failed: u64,
    /// The first error.
    pub failure: Option<String>,
}

impl Work {
    fn add(&mut self, due: Instant, done: io::Result<()>) {
        self.latencies_ns.push(nanos(due.elapsed()));
        if let Err(error) = done {
            self.failed += 1;
            self.failure.get_or_insert_with(|| error.to_string());
        }
    }

    fn join(mut self, other: Work) -> Work {
        self.latencies_ns.extend(other.latencies_ns);
        self.failed += other.failed;
        self.failure = self.failure.or(other.failure);
        self
    }
}

/// When commits are due.
struct Schedule {
    pace: Pace,
    taken: AtomicU64,
    end: Instant,
    /// Commits that were not begun until then are given up.
    given_up: Instant,
}

impl Schedule {
    fn new(load: &Load, stragglers: Duration) -> Schedule {
        let begin = Instant::now();
        let interval = |rate| Duration::from_secs(1).div_f64(rate);
        let interval = load.per_second.map_or(Duration::ZERO, interval);
        let end = begin + Duration::from_secs_f64(load.seconds);
        Schedule {
            pace: Pace::new(begin, interval, 0, 1),
            taken: AtomicU64::new(0),
            end,
            given_up: end + stragglers,
        }
    }

    /// When the next commit is due; `None` if that is after the end, or after a signal.
    fn take(&self) -> Option<Instant> {
        let index = self.taken.fetch_add(1, Ordering::Relaxed);
        let due = self.pace.due(index).unwrap_or_else(Instant::now);
        (due < self.end && interrupt::check().is_ok()).then_some(due)
    }
}

/// Runs a load. Returns also the seconds from its begin to the last answer.
pub fn run(load: &Load, connect: &Connect<'_>) -> Result<(Work, f64)> {
    run_with(load, STRAGGLERS, connect)
}

fn run_with(load: &Load, stragglers: Duration, connect: &Connect<'_>) -> Result<(Work, f64)> {
    let sessions = (0..load.clients).map(connect).collect::<io::Result<Vec<_>>>();
    let sessions = sessions.map_err(Error::io("connecting with the leader"))?;
    let begin = Instant::now();
    let schedule = Schedule::new(load, stragglers);
    let work = std::thread::scope(|scope| {
        let start = |(number, session)| {
            let schedule = &schedule;
            scope.spawn(move || client(schedule, session, &|| connect(number)))
        };
        let clients: Vec<_> = (0..).zip(sessions).map(start).collect();
        let joined = clients.into_iter().map(|client| client.join().expect("no panic"));
        joined.fold(Work::default(), Work::join)
    });
    interrupt::check()?;
    Ok((work, begin.elapsed().as_secs_f64()))
}

/// One client, which connects again after a failure.
fn client(
    schedule: &Schedule,
    session: Box<dyn Session>,
    connect: &dyn Fn() -> io::Result<Box<dyn Session>>,
) -> Work {
    let (mut session, mut work) = (Some(session), Work::default());
    while let Some(due) = schedule.take() {
        sleep_until(due);
        let done = match Instant::now() < schedule.given_up {
            true => commit(&mut session, connect),
            false => Err(io::Error::other("given up: the clients were too late")),
        };
        if done.is_err() {
            session = None;
        }
        work.add(due, done);
    }
    work
}

fn commit(
    session: &mut Option<Box<dyn Session>>,
    connect: &dyn Fn() -> io::Result<Box<dyn Session>>,
) -> io::Result<()> {
    let session = match session {
        Some(session) => session,
        None => session.insert(connect()?),
    };
    session.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit that takes a time, and fails the first time if it shall.
    struct Slow {
        took: Duration,
        must_fail: bool,
    }

    impl Session for Slow {
        fn commit(&mut self) -> io::Result<()> {
            std::thread::sleep(self.took);
            match std::mem::take(&mut self.must_fail) {
                true => Err(io::Error::other("refused")),
                false => Ok(()),
            }
        }
    }

    fn load(clients: u32, per_second: Option<f64>, millis: u64) -> Load {
        Load { clients, per_second, seconds: millis as f64 / 1e3, seed: 1 }
    }

    fn slow(millis: u64) -> io::Result<Box<dyn Session>> {
        Ok(Box::new(Slow { took: Duration::from_millis(millis), must_fail: false }))
    }

    #[test]
    fn commit_that_waits_for_a_client_is_late_by_its_wait() {
        // Due each 10 ms, and each takes 30.
        let (work, seconds) = run(&load(1, Some(100.0), 50), &|_| slow(30)).unwrap();
        assert_eq!((work.latencies_ns.len(), work.failed), (5, 0), "each due commit is made");
        for (index, latency_ns) in (0..).zip(&work.latencies_ns) {
            assert!(*latency_ns >= (30 + 20 * index) * 1_000_000, "{index}: {latency_ns} ns");
        }
        assert!(seconds >= 0.15, "{seconds} s until the last answer");
    }

    #[test]
    fn clients_at_a_fixed_rate_make_no_more_than_is_due() {
        let (work, seconds) = run(&load(4, Some(100.0), 100), &|_| slow(0)).unwrap();
        assert_eq!(work.latencies_ns.len(), 10);
        assert!(seconds >= 0.09, "the last one is due after 90 ms, not {seconds} s");
    }

    #[test]
    fn client_without_pauses_makes_a_commit_after_the_other() {
        let (work, _) = run(&load(1, None, 50), &|_| slow(20)).unwrap();
        assert!((1..=3).contains(&work.latencies_ns.len()), "{work:?}");
    }

    #[test]
    fn commit_that_is_not_begun_in_time_is_given_up() {
        let work = run_with(&load(1, Some(10.0), 500), Duration::ZERO, &|_| slow(600)).unwrap().0;
        assert_eq!((work.latencies_ns.len(), work.failed), (5, 4), "{work:?}");
        assert!(work.failure.unwrap().contains("given up"));
    }

    #[test]
    fn client_connects_again_after_a_failure() {
        let connected = AtomicU64::new(0);
        let connect = |_| -> io::Result<Box<dyn Session>> {
            let must_fail = connected.fetch_add(1, Ordering::Relaxed) == 0;
            Ok(Box::new(Slow { took: Duration::ZERO, must_fail }))
        };
        let (work, _) = run(&load(1, Some(100.0), 30), &connect).unwrap();
        assert_eq!((work.latencies_ns.len(), work.failed), (3, 1));
        assert_eq!((connected.into_inner(), work.failure.as_deref()), (2, Some("refused")));
    }
}
