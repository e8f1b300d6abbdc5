//! How long one process waits for another that lives and does not go on, because it was stopped for example.

use std::time::{Duration, Instant};

use crate::words::Client;
use crate::{LogError, Result};

/// A wait that ends when nothing has changed for so long.
pub(crate) struct Patience<P> {
    limit: Duration,
    since: Instant,
    seen: P,
}

impl<P: PartialEq> Patience<P> {
    pub(crate) fn new(limit: Duration, seen: P) -> Patience<P> {
        Patience { limit, since: Instant::now(), seen }
    }

    /// An error when `seen`, which shows that somebody works, has been the same for too long while `who` had to
    /// do `what`.
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
