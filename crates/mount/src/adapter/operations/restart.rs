//! A restart, as a request asks for it.

use rustix::io::Errno;

use crate::adapter::call::Call;
use crate::adapter::failure::{Failure, Outcome};
use crate::stat::RESTARTED;

impl Call<'_, '_> {
    /// [`RESTARTED`], or why the mount cannot be restarted.
    pub(super) fn may_restart(&self) -> Result<String, Failure> {
        self.check_from_server()?;
        if self.adapter.atomic.is_some() {
            return Ok("the option atomic_writes keeps open files in the daemon".into());
        }
        if let Some(error) = &*self.adapter.counters.last_error.lock() {
            return Ok(format!("the volume had an error ({error})"));
        }
        let Some((successor, _)) = self.adapter.restarting.successor() else {
            return Ok("its requests come through io_uring, which ends with the daemon".into());
        };
        Ok(successor.check().map_or_else(|why| why, |()| RESTARTED.into()))
    }

    /// Restarts the mount. The payload of the reply is the answer, once that is done.
    pub(super) fn restart(&self) -> Outcome {
        let restarting = &self.adapter.restarting;
        let Some((successor, stopper)) = restarting.successor() else { return Ok(()) };
        // So that little is left to do while programs wait.
        self.volume.journal().checkpoint().map_err(ext4::Error::from)?;
        successor.keep().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        restarting.note_waiting(self.header.unique, self.reply.payload());
        self.adapter.forgets.stop();
        stopper.stop();
        Err(Failure::HandedOver)
    }
}
