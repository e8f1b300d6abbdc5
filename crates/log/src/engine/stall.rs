//! How long a process waits for another one that lives and makes no progress, for example because
//! it was stopped.

use std::time::{Duration, Instant};

use crate::words::Client;
use crate::{LogError, Result};

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

    /// An error when `seen`, the sign of progress, has been the same for the limit while `who` had to do `what`.
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
        let source = std::io::Error::new(std::io::ErrorKind::TimedOut, waited);
        Err(LogError::system(format!("{who} is to {what} and does not go on"), source))
    }
}
