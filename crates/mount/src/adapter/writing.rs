//! Makes a volume writable that was mounted read-only (`mount -o remount,rw`).
//!
//! The volume is opened once more, while no request is in progress. The kernel keeps what it knows,
//! because nothing has changed.

use crate::adapter::state::Adapter;
use crate::declared;

impl Adapter {
    /// Makes the volume writable, or notes why it cannot be.
    pub(super) fn make_writable(&self) {
        let refusal = self.try_make_writable().err();
        *self.writing.refusal.lock() = refusal;
    }

    fn try_make_writable(&self) -> Result<(), String> {
        let allowed = self.writing.allowed.as_ref();
        let (journal, options) = allowed.ok_or("its device was opened for reading only")?;
        let in_words = |error| self.counters.in_words(&error);
        let mut place = self.volume.write();
        let read_only = place.as_ref().filter(|volume| volume.is_read_only());
        let Some(read_only) = read_only else { return Ok(()) };
        let mut writable = read_only.reopen_writable(journal.clone()).map_err(in_words)?;
        if let Some(may_tear) = declared::check(&writable, options).filter(|_| !options.may_tear) {
            writable.close().map_err(in_words)?;
            return Err(may_tear.to_string());
        }
        if let Some(read_only) = place.take() {
            writable.take_place_of(read_only);
        }
        *place = Some(writable);
        Ok(())
    }
}
