//! How long a process waits for another one that lives and makes no progress, for example because
//! it was stopped.
//!
//! Work that a stopped process has begun cannot be taken over: the process may go on with it at any
//! moment. So nothing that a commit needs depends on such work:
//!
//! | a stopped process | then |
//! |---|---|
//! | leads a group commit | the others sync their streams without the group log ([`LeaderWait`]) |
//! | drains a stream | what the group log has of the stream is put aside, and the group log goes on |
//! | does both | the stream's records are put aside (`aside`) |
//! | holds a stream's lease | the stream is busy |

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::engine::lane::Lane;
use crate::error::{LogError, Result};
use crate::words::{Client, Control};

/// A leader that does not end within this time is left alone: other processes sync their streams
/// without it. A slow disk only makes them do so without need.
const LEADER_LIMIT: Duration = Duration::from_secs(1);

/// How long to wait for a process that drains another stream.
pub(crate) const OTHERS_LIMIT: Duration = Duration::from_secs(1);
/// The same, if it was waited for in vain before.
pub(crate) const OTHERS_LIMIT_AGAIN: Duration = Duration::from_millis(20);

/// Whether the error says that another process makes no progress.
pub(crate) fn is_stall(error: &LogError) -> bool {
    matches!(error, LogError::System { source, .. } if source.kind() == ErrorKind::TimedOut)
}

/// A wait for the leaders of group commits.
#[derive(Default)]
pub(crate) struct LeaderWait {
    /// The leader that is waited for, and since when.
    seen: Option<(u64, Instant)>,
}

impl LeaderWait {
    /// Whether the present leader makes no progress, as far as this or another process knows.
    pub(crate) fn is_over(&mut self, control: &Control) -> bool {
        let Some(number) = control.lead_number() else {
            self.seen = None;
            return false;
        };
        if control.is_stalled_lead(number) {
            return true;
        }
        match self.seen {
            Some((seen, since)) if seen == number => {
                let is_over = since.elapsed() >= LEADER_LIMIT;
                if is_over {
                    control.set_stalled_lead(number);
                }
                is_over
            }
            _ => {
                self.seen = Some((number, Instant::now()));
                false
            }
        }
    }
}

/// How long to wait until this lane, which other processes use, is drained.
pub(crate) fn others_limit(lane: &Lane) -> Duration {
    let who = lane.words.drainer();
    match who != Client::NOBODY && lane.stalled.lock().is_some_and(|stalled| stalled == who) {
        true => OTHERS_LIMIT_AGAIN,
        false => OTHERS_LIMIT,
    }
}

/// A wait that ends when a sign of progress has been the same for a limit of time.
pub(crate) struct StallTimeout<P> {
    limit: Duration,
    since: Instant,
    seen: P,
}

impl<P: PartialEq> StallTimeout<P> {
    pub(crate) fn new(limit: Duration, seen: P) -> StallTimeout<P> {
        StallTimeout { limit, since: Instant::now(), seen }
    }

    /// An error when `seen`, the sign of progress, has been the same for the limit while `who` had
    /// to do `what`.
    pub(crate) fn check(&mut self, seen: P, who: Client, what: &str) -> Result<()> {
        if self.seen != seen {
            (self.seen, self.since) = (seen, Instant::now());
        }
        if self.since.elapsed() < self.limit {
            return Ok(());
        }
        let who = match who.plain().slot() {
            Some(slot) => format!("the process that has clients/{slot:03} open"),
            None => "a process".into(),
        };
        let waited = format!("for {:?}", self.limit);
        let source = std::io::Error::new(ErrorKind::TimedOut, waited);
        Err(LogError::system(format!("{who} is to {what} and does not go on"), source))
    }
}
