//! Waiting for a time or for the signal that ends a command, whichever comes first.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{CliError, Result};

/// Becomes readable with the first signal that is to end the command.
pub struct EndSignals(UnixStream);

impl EndSignals {
    /// From now on SIGINT and SIGTERM end the command through this value only.
    pub fn catch() -> Result<EndSignals> {
        let (reader, writer) = UnixStream::pair().map_err(failed)?;
        for signal in [SIGINT, SIGTERM] {
            let writer = writer.try_clone().map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
        }
        Ok(EndSignals(reader))
    }

    /// `true` when a signal came before `due`.
    pub fn wait_until(&mut self, due: Instant) -> Result<bool> {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let read = self.0.set_read_timeout(Some(left)).and_then(|()| self.0.read(&mut [0]));
            match read {
                Ok(_) => return Ok(true),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

/// Whether this process ignores a signal, as its parent may have asked.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_in_mask(&status, signal)
}

/// Whether the line `SigIgn` of `/proc/PID/status` has the signal.
fn is_in_mask(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1
}

fn failed(error: std::io::Error) -> CliError {
    CliError::new(format!("signals: {error}"))
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGHUP;

    use super::*;

    #[test]
    fn an_ignored_signal_is_in_the_mask() {
        let status = "Name:\tx\nSigBlk:\t0000000000000003\nSigIgn:\t0000000000004001\n";
        assert!(is_in_mask(status, SIGHUP) && is_in_mask(status, SIGTERM));
        assert!(!is_in_mask(status, SIGINT) && !is_in_mask(status, 64) && !is_in_mask(status, 0));
        assert!(!is_in_mask("", SIGHUP) && !is_in_mask("SigIgn:\tx\n", SIGHUP));
    }
}
