//! Who uses a service's directory: its lock, and one file a process, locked while that lives.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use device::ForkClosed;
use rustix::fs::FlockOperation;

use crate::files::{at, open_or_make};
use crate::shared::{CLIENT_COUNT_MAX, Client, Control};
use crate::{LogError, Result};

/// The service's lock.
pub(crate) struct Lock(ForkClosed);

impl Lock {
    pub(crate) fn take(path: &Path) -> Result<Lock> {
        let path = path.join("lock");
        let file = open_or_make(&path, 0o600, 0)?;
        let file = ForkClosed::new(file);
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))
            .map_err(|e| at(&path)(e.into()))?;
        Ok(Lock(file))
    }

    /// `None`: somebody has it.
    pub(crate) fn take_if_free(path: &Path) -> Result<Option<Lock>> {
        let path = path.join("lock");
        let file = ForkClosed::new(File::open(&path).map_err(at(&path))?);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(_) => Ok(None),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing it does the same.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

pub(crate) fn slot_path(path: &Path, slot: usize) -> PathBuf {
    path.join("clients").join(format!("{slot:03}"))
}

/// Takes the first slot that nobody has.
pub(crate) fn take_slot(path: &Path, control: &Control) -> Result<(Client, ForkClosed)> {
    for slot in 0..CLIENT_COUNT_MAX {
        let slot_path = slot_path(path, slot);
        let file = ForkClosed::new(open_or_make(&slot_path, 0o600, 0)?);
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let generation = control.generation().fetch_add(1, Ordering::AcqRel) + 1;
            control.slot(slot).store(generation, Ordering::Release);
            return Ok((Client::new(slot, generation), file));
        }
    }
    Err(LogError::Usage(format!("{CLIENT_COUNT_MAX} processes use {} already", path.display())))
}

/// An error while any process has a slot; `why` that is one.
pub(crate) fn refuse_if_joined(path: &Path, why: &str) -> Result<()> {
    match is_joined(path, None) {
        true => Err(LogError::Incompatible(format!("{}: {why}", path.display()))),
        false => Ok(()),
    }
}

/// Whether any process has a slot other than `own`.
pub(crate) fn is_joined(path: &Path, own: Option<usize>) -> bool {
    (0..CLIENT_COUNT_MAX).filter(|slot| Some(*slot) != own).any(|slot| {
        File::open(slot_path(path, slot)).is_ok_and(|file| {
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
        })
    })
}
