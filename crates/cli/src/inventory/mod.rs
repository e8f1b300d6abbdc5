//! Lists the mounted volumes and the logs that are in use on this machine.
//!
//! Nothing is locked or changed. A daemon that does not answer is waited for at most
//! [`ANSWER_LIMIT`].

mod answer;
mod ask;
mod detached;
mod files;
mod logs;
mod mounts;

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub use answer::{Answer, MountState};
pub use ask::{AskArgs, Asker, Subject, ask_once, run_ask};
pub use detached::{DetachedVolume, detached};
pub use files::FileCounters;
pub use logs::{SeenLog, StreamCounters, logs, logs_with_counters};
pub use mounts::{Mounts, SeenMount};

/// How long all answers together may take. A daemon may be stopped, or stuck in its disk.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Asks each of `subjects` in a thread of its own. `None`: no answer in time. The thread then
/// continues, and ends with the process at the latest.
fn ask_all<S: Send + 'static, A: Send + 'static>(
    subjects: impl IntoIterator<Item = S>,
    ask: fn(S) -> A,
) -> Vec<Option<A>> {
    let give_up = Instant::now() + ANSWER_LIMIT;
    let begun: Vec<Option<Receiver<A>>> =
        subjects.into_iter().map(|subject| begin(subject, ask)).collect();
    let wait = |answer: Option<Receiver<A>>| {
        let left = give_up.saturating_duration_since(Instant::now());
        answer.and_then(|answer| answer.recv_timeout(left).ok())
    };
    begun.into_iter().map(wait).collect()
}

/// `None` if no thread can be started.
fn begin<S: Send + 'static, A: Send + 'static>(subject: S, ask: fn(S) -> A) -> Option<Receiver<A>> {
    let (sender, receiver) = channel();
    let body = move || {
        // No thread may wait for it any more.
        let _ = sender.send(ask(subject));
    };
    let thread = std::thread::Builder::new().name("oj-ask".into()).spawn(body);
    thread.ok().map(|_| receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_not_answer_does_not_keep_the_others() {
        fn ask(number: u64) -> u64 {
            if number == 1 {
                loop {
                    std::thread::park();
                }
            }
            number * 2
        }
        assert_eq!(ask_all([0, 1, 2], ask), [Some(0), None, Some(4)]);
    }
}
