//! Waiting for a time or for the signal that ends a command, whichever comes first.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{CliError, Result};

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

fn failed(error: std::io::Error) -> CliError {
    CliError::new(format!("signals: {error}"))
}
